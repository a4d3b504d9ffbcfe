//! Reads the option line as nuttcp's server does, with bounds.

use std::str::FromStr;
use std::time::Duration;

use super::{MOST_STREAMS, Parameters, UNLIMITED_BUFFERS, UNLIMITED_RATE, Unsupported};
use crate::nuttcp::Version;

/// The maximum number of fields of a line: version 8.2.2 has 37.
const MOST_FIELDS: usize = 64;
/// The longest buffer: one write of 64 MiB.
const LONGEST_BUFFER: u32 = 64 << 20;
/// The longest datagram that UDP over IPv4 carries.
const LONGEST_DATAGRAM: u32 = 65507;
/// The longest time of a test, in seconds.
const LONGEST_TIME: f64 = 7.0 * 86400.0;

/// A fault of an option line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// The line has too many fields.
    #[error("the option line has more than {MOST_FIELDS} fields")]
    TooManyFields,
    /// A field of the client's version is missing.
    #[error("the option line lacks {0}")]
    Missing(&'static str),
    /// A value is out of its range or is not a number.
    #[error("invalid {name} = {value}")]
    Invalid {
        /// The name of the field.
        name: &'static str,
        /// The value, as the client sent it.
        value: String,
    },
}

/// The fields of a line by name.
struct Fields<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Fields<'a> {
    fn split(line: &'a str) -> Result<Self, ParameterError> {
        let fields: Vec<_> = line
            .split(',')
            .take(MOST_FIELDS + 1)
            .filter_map(|field| field.split_once('='))
            .map(|(name, value)| (name.trim(), value.trim()))
            .collect();
        if fields.len() > MOST_FIELDS {
            Err(ParameterError::TooManyFields)
        } else {
            Ok(Self(fields))
        }
    }

    fn text(&self, name: &'static str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// Returns a value that satisfies `valid`; a field that the line lacks has the value `absent`.
    fn within<T: FromStr + Copy>(
        &self,
        name: &'static str,
        absent: Option<T>,
        valid: impl Fn(T) -> bool,
    ) -> Result<T, ParameterError> {
        let Some(text) = self.text(name) else {
            return absent.ok_or(ParameterError::Missing(name));
        };
        let value = text.parse().ok().filter(|value| valid(*value));
        value.ok_or_else(|| ParameterError::Invalid { name, value: text.to_owned() })
    }

    fn flag(&self, name: &'static str, absent: Option<u8>) -> Result<bool, ParameterError> {
        Ok(self.within(name, absent, |_: u8| true)? != 0)
    }

    fn seconds(&self, name: &'static str, absent: Option<f64>) -> Result<Duration, ParameterError> {
        let valid = |seconds: f64| (0.0..=LONGEST_TIME).contains(&seconds);
        self.within(name, absent, valid).map(Duration::from_secs_f64)
    }

    fn is_set(&self, name: &'static str) -> bool {
        self.text(name).is_some_and(|value| value != "0" && value != "_NULL_")
    }

    /// Returns the feature of the line that this program does not support.
    fn unsupported(&self) -> Option<Unsupported> {
        let requested = [
            ("traceroute", Unsupported::Traceroute),
            ("thirdparty", Unsupported::ThirdParty),
            ("multicast", Unsupported::Multicast),
            ("group", Unsupported::Multicast),
            ("stride", Unsupported::Multilink),
            ("multilink", Unsupported::Multilink),
        ];
        requested.into_iter().find(|(name, _)| self.is_set(name)).map(|(_, feature)| feature)
    }

    fn traffic_class(&self) -> Result<u8, ParameterError> {
        let Some(text) = self.text("tos") else { return Ok(0) };
        u8::from_str_radix(text, 16)
            .map_err(|_| ParameterError::Invalid { name: "tos", value: text.to_owned() })
    }
}

impl Parameters {
    /// Parses an option line and returns it with the client's version. Every value is within the
    /// bounds of nuttcp's own server, and lengths and times have upper bounds, too.
    ///
    /// # Errors
    /// A field is missing or invalid.
    pub fn parse(line: &str) -> Result<(Self, Version), ParameterError> {
        let fields = Fields::split(line)?;
        let version = fields.text("vers").ok_or(ParameterError::Missing("vers"))?;
        let version = Version::parse(&format!("v{version}"))
            .ok_or_else(|| ParameterError::Invalid { name: "vers", value: version.to_owned() })?;
        let parameters = Self::from_fields(&fields)?;
        parameters.check()?;
        Ok((parameters, version))
    }

    fn from_fields(fields: &Fields<'_>) -> Result<Self, ParameterError> {
        let any = |_: u8| true;
        Ok(Self {
            buffer_bytes: fields.within("buflen", None, |b| (1..=LONGEST_BUFFER).contains(&b))?,
            buffers: Some(fields.within("nbuf", None, |n: u64| n > 0)?)
                .filter(|n| *n != UNLIMITED_BUFFERS),
            server_window_bytes: fields.within("win", None, |w: u32| w <= i32::MAX as u32)?,
            streams: fields.within("nstream", None, |n| (1..=MOST_STREAMS).contains(&n))?,
            rate_kbps: Some(fields.within("rate", None, |_: u64| true)?)
                .filter(|rate| !matches!(*rate, 0 | UNLIMITED_RATE | u64::MAX)),
            port: fields.within("port", None, |port: u16| port >= 1024)?,
            client_sends: fields.flag("trans", None)?,
            both_windows: fields.flag("braindead", None)?,
            time: fields.seconds("timeout", None)?,
            udp: fields.flag("udp", None)?,
            interval: fields.seconds("interval", Some(0.0))?,
            flip: fields.flag("reverse", Some(0))?,
            format: fields.within("format", Some(0), |_: u32| true)?,
            instant_rate: fields.flag("irate", Some(0))?,
            mss: fields.within("datamss", Some(0), |_: u16| true)?,
            tos: fields.traffic_class()?,
            in_bytes: fields.flag("nbuf_bytes", Some(0))?,
            in_packets: fields.flag("rate_pps", Some(0))?,
            nodelay: fields.flag("nodelay", Some(0))?,
            server_cpu: u16::try_from(fields.within("affinity", Some(-1), |_: i32| true)?).ok(),
            burst: fields.within("maxburst", Some(1), |burst: u32| burst > 0)?,
            jitter: fields.within("do_jitter", Some(0), any)?,
            delay: fields.within("do_owd", Some(0), any)?,
            source_port: fields.within("srcport", Some(0), |p: u16| p == 0 || p >= 1024)?,
            slow_start: fields.flag("iratesss", Some(0))?,
            unsupported: fields.unsupported(),
        })
    }

    /// Checks the values against each other.
    fn check(&self) -> Result<(), ParameterError> {
        let invalid =
            |name, value: u64| Err(ParameterError::Invalid { name, value: value.to_string() });
        if u32::from(self.port) + u32::from(self.streams) - 1 > u32::from(u16::MAX) {
            return invalid("nstream", self.streams.into());
        }
        if self.udp && self.buffer_bytes > LONGEST_DATAGRAM {
            return invalid("buflen", self.buffer_bytes.into());
        }
        if self.jitter != 0 && !(self.udp && self.instant_rate && self.rate_kbps.is_some()) {
            return invalid("do_jitter", self.jitter.into());
        }
        if self.slow_start && (self.udp || self.burst > 1 || self.streams > 1) {
            return invalid("iratesss", 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "buflen = 8192, nbuf = 2147483647, win = 0, nstream = 4, rate = 20000, \
        port = 5101, trans = 0, braindead = 0, timeout = 1.500000, udp = 1, vers = 7.0.1";

    #[test]
    fn a_line_without_later_fields_has_their_defaults() {
        let (parameters, version) = Parameters::parse(LINE).unwrap();
        assert_eq!(version, Version::new(7, 0, 1));
        let expected = Parameters {
            buffer_bytes: 8192,
            streams: 4,
            rate_kbps: Some(20000),
            client_sends: false,
            time: Duration::from_millis(1500),
            udp: true,
            format: 0,
            port: 5101,
            ..Parameters::default()
        };
        assert_eq!(parameters, expected);
        assert_eq!(parameters.last_port(), 5104);
    }

    #[test]
    fn values_outside_their_range_are_refused_by_name() {
        for (from, to, name) in [
            ("nstream = 4", "nstream = 0", "nstream"),
            ("nstream = 4", "nstream = 129", "nstream"),
            ("port = 5101", "port = 700", "port"),
            ("port = 5101", "port = 65534", "nstream"),
            ("win = 0", "win = -1", "win"),
            ("nbuf = 2147483647", "nbuf = 0", "nbuf"),
            ("buflen = 8192", "buflen = 70000", "buflen"),
            ("buflen = 8192", "buflen = 999999999999", "buflen"),
            ("timeout = 1.5", "timeout = nan", "timeout"),
            ("timeout = 1.5", "timeout = 1e300", "timeout"),
            ("timeout = 1.5", "timeout = -1.5", "timeout"),
            ("vers = 7", "vers = x", "vers"),
            ("vers = 7.0.1", "vers = 7.0.1, do_jitter = 4 ", "do_jitter"),
            ("vers = 7.0.1", "vers = 7.0.1, tos = 1FF ", "tos"),
        ] {
            match Parameters::parse(&LINE.replace(from, to)) {
                Err(ParameterError::Invalid { name: found, .. }) => assert_eq!(found, name),
                other => panic!("{to}: {other:?}"),
            }
        }
        let lacking = LINE.replace("win = 0, ", "");
        assert_eq!(Parameters::parse(&lacking), Err(ParameterError::Missing("win")));
        let many = format!("{LINE}{}", ", a = 1".repeat(MOST_FIELDS));
        assert_eq!(Parameters::parse(&many), Err(ParameterError::TooManyFields));
    }

    #[test]
    fn unsupported_features_are_recognized() {
        for (field, feature) in [
            ("traceroute = 1", Unsupported::Traceroute),
            ("thirdparty = -oProxy ", Unsupported::ThirdParty),
            ("multicast = 5 ", Unsupported::Multicast),
            ("stride = 1 ", Unsupported::Multilink),
        ] {
            let (parameters, _) = Parameters::parse(&format!("{LINE}, {field}")).unwrap();
            assert_eq!(parameters.unsupported, Some(feature));
        }
        let (none, _) = Parameters::parse(&format!("{LINE}, thirdparty = _NULL_ ")).unwrap();
        assert_eq!(none.unsupported, None);
    }
}
