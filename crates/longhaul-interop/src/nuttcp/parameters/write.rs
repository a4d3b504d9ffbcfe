//! Writes the option line as nuttcp's client does.

use super::{Parameters, UNLIMITED_BUFFERS, UNLIMITED_RATE};
use crate::nuttcp::Version;

/// A field that versions from the first one have.
type LaterField = (Version, &'static str, String);

impl Parameters {
    /// Returns the option line for a server of version `peer`, without its end.
    ///
    /// The separators are part of the protocol: servers search for a name with its comma, and from
    /// `thirdparty` on most fields need a space before the next comma.
    #[must_use]
    pub fn line(&self, peer: Version) -> String {
        let mut line = self.first_fields();
        for (since, name, value) in self.later_fields() {
            if since <= peer {
                line.push_str(name);
                line.push_str(" = ");
                line.push_str(&value);
            }
        }
        line
    }

    /// Returns the fields that every version has.
    fn first_fields(&self) -> String {
        format!(
            "buflen = {}, nbuf = {}, win = {}, nstream = {}, rate = {}, port = {}, trans = {}, \
             braindead = {}, timeout = {:.6}, udp = {}, vers = {}",
            self.buffer_bytes,
            self.buffers.unwrap_or(UNLIMITED_BUFFERS),
            self.server_window_bytes,
            self.streams,
            self.rate_kbps.unwrap_or(UNLIMITED_RATE),
            self.port,
            u8::from(self.client_sends),
            u8::from(self.both_windows),
            self.time.as_secs_f64(),
            u8::from(self.udp),
            Version::OURS
        )
    }

    fn later_fields(&self) -> [LaterField; 22] {
        let number = |value: i64| value.to_string();
        let flag = |value: bool| u8::from(value).to_string();
        let none = || "_NULL_".to_owned();
        let since = Version::new;
        [
            (since(3, 3, 2), ", interval", format!("{:.6}", self.interval.as_secs_f64())),
            (since(3, 4, 1), ", reverse", flag(self.flip)),
            (since(3, 5, 1), ", format", number(self.format.into())),
            (since(3, 6, 1), ", traceroute", flag(false)),
            (since(3, 6, 1), ", irate", flag(self.instant_rate)),
            (since(5, 0, 1), ", thirdparty", none()),
            (since(5, 1, 1), " , multicast", flag(false)),
            (since(6, 2, 1), " , ssm", flag(false)),
            (since(5, 2, 1), " , datamss", number(self.mss.into())),
            (since(5, 3, 1), " , tos", format!("{:X}", self.tos)),
            (since(5, 5, 1), " , nbuf_bytes", flag(self.in_bytes)),
            (since(5, 5, 1), " , rate_pps", flag(self.in_packets)),
            (since(5, 5, 1), " , nodelay", flag(self.nodelay)),
            (since(6, 2, 6), " , affinity", number(self.server_cpu.map_or(-1, i64::from))),
            (since(6, 2, 7), " , maxburst", number(self.burst.into())),
            (since(7, 0, 1), " , do_jitter", number(self.jitter.into())),
            (since(7, 0, 1), " , do_owd", number(self.delay.into())),
            (since(7, 1, 1), " , stride", flag(false)),
            (since(7, 1, 1), " , multilink", flag(false)),
            (since(7, 2, 1), ", group", none()),
            (since(7, 3, 1), " , srcport", number(self.source_port.into())),
            (since(8, 1, 1), ", iratesss", flag(self.slow_start)),
        ]
    }
}
