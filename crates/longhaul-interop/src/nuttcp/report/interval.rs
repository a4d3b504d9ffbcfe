//! The line of one interval.

use super::{Datagrams, Retransmits, Spread, Style};
use super::{Unit, append_cwnd, megabits, megabytes};
use super::{fields, quantities};
use crate::nuttcp::parameters::format;

/// The figures since the start of a test.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Totals {
    /// The bytes received.
    pub bytes: u64,
    /// The seconds since the first byte.
    pub seconds: f64,
    /// The datagrams, over UDP.
    pub datagrams: Option<Datagrams>,
    /// The bytes sent, over UDP.
    pub sent_bytes: u64,
}

/// The figures of one interval.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Interval {
    /// The bytes received.
    pub bytes: u64,
    /// The length of the interval in seconds.
    pub seconds: f64,
    /// The datagrams, over UDP.
    pub datagrams: Option<Datagrams>,
    /// The bytes sent, over UDP.
    pub sent_bytes: u64,
    /// The retransmits of the sender, over one TCP connection.
    pub retransmits: Option<Retransmits>,
    /// The congestion window of the sender in KB, over one TCP connection.
    pub cwnd_kb: Option<u64>,
    /// The jitter, and the bits that select the printed values.
    pub jitter: Option<(u8, Spread)>,
    /// The one-way delay, and the bits that select the printed values.
    pub delay: Option<(u8, Spread)>,
    /// The totals, printed with `-frunningtotal`.
    pub totals: Totals,
}

impl Interval {
    /// Returns the line, without its end.
    #[must_use]
    pub fn line(&self, style: Style) -> String {
        let mut line = head(self.bytes, self.seconds, style);
        if let Some(datagrams) = &self.datagrams {
            datagrams.append(&mut line, style, false);
        }
        if let Some((bits, jitter)) = &self.jitter {
            jitter.append(&mut line, style, *bits, Unit::Jitter);
        }
        self.append_connection(&mut line, style);
        if let Some((bits, delay)) = &self.delay {
            delay.append(&mut line, style, *bits, Unit::Delay);
        }
        if style.has(format::RUNNING_TOTAL) {
            self.totals.append(&mut line, style);
        }
        if self.datagrams.is_some() && style.has(format::TRANSMITTED) {
            self.append_sent(&mut line, style);
        }
        line
    }

    /// Returns the fields about the sender's connection, which a client that sends appends to the
    /// server's lines.
    #[must_use]
    pub fn connection_fields(&self, style: Style) -> String {
        let mut fields = String::new();
        self.append_connection(&mut fields, style);
        fields
    }

    fn append_connection(&self, line: &mut String, style: Style) {
        if let Some(retransmits) = &self.retransmits {
            retransmits.append(line, style, false);
        }
        if let Some(cwnd) = self.cwnd_kb {
            append_cwnd(line, cwnd, style, false);
        }
    }

    fn append_sent(&self, line: &mut String, style: Style) {
        let (part, total) = (megabytes(self.sent_bytes), megabytes(self.totals.sent_bytes));
        let running = style.has(format::RUNNING_TOTAL);
        if style.parse() {
            line.push_str(&format!(" tx_megabytes={part:.4}"));
            if running {
                line.push_str(&format!(" tx_total_megabytes={total:.4}"));
            }
        } else {
            line.push_str(&format!(" Trans: {part:10.4} MB"));
            if running {
                line.push_str(&format!(" Tot: {total:10.4} MB"));
            }
        }
    }

    /// Parses the line of a server, as text or as `key=value`; `None` if it is another line.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        // Totals since the start follow the figures of the interval.
        let line = line.split(" Tot: ").next()?.split(" total_megabytes=").next()?;
        let line = line.split(" Trans: ").next()?;
        if line.contains(" real_sec=") { Self::parse_fields(line) } else { Self::parse_text(line) }
    }

    fn parse_text(line: &str) -> Option<Self> {
        let mut interval = Self::default();
        let mut datagrams: Option<Datagrams> = None;
        for (numbers, unit) in quantities(line) {
            match (unit, numbers.as_slice()) {
                ("MB", [megabytes]) => interval.bytes = bytes(*megabytes)?,
                ("sec", [seconds]) => interval.seconds = *seconds,
                ("~drop/pkt", [dropped, sent]) => {
                    let known = datagrams.get_or_insert_default();
                    (known.dropped, known.sent) = (*dropped as i64, *sent as u64);
                }
                ("~%loss", [percent]) => datagrams.get_or_insert_default().loss = percent / 100.0,
                ("retrans" | "host-retrans", [count]) => {
                    let of_host = unit == "host-retrans";
                    interval.retransmits = Some(Retransmits { count: *count as u64, of_host });
                }
                ("KB-cwnd", [kilobytes]) => interval.cwnd_kb = Some(*kilobytes as u64),
                ("msMaxJitter", [max]) => interval.jitter = Some(greatest(*max)),
                _ => {}
            }
        }
        interval.datagrams = datagrams;
        (interval.seconds > 0.0 && line.contains("Mbps")).then_some(interval)
    }

    fn parse_fields(line: &str) -> Option<Self> {
        let mut interval = Self::default();
        let mut datagrams: Option<Datagrams> = None;
        for (name, value) in fields(line) {
            match name {
                "megabytes" => interval.bytes = bytes(value)?,
                "real_sec" => interval.seconds = value,
                "drop" => datagrams.get_or_insert_default().dropped = value as i64,
                "pkt" => datagrams.get_or_insert_default().sent = value as u64,
                "data_loss" => datagrams.get_or_insert_default().loss = value / 100.0,
                "retrans" | "host-retrans" => {
                    let of_host = name == "host-retrans";
                    interval.retransmits = Some(Retransmits { count: value as u64, of_host });
                }
                "cwnd" => interval.cwnd_kb = Some(value as u64),
                "msmaxjitter" => interval.jitter = Some(greatest(value)),
                _ => {}
            }
        }
        interval.datagrams = datagrams;
        (interval.seconds > 0.0).then_some(interval)
    }
}

/// Returns a spread with only the greatest value, and the bit that selects it.
fn greatest(max: f64) -> (u8, Spread) {
    (4, Spread { max, ..Spread::default() })
}

/// Returns a number of megabytes in bytes; `None` if it is too large for any test.
fn bytes(megabytes: f64) -> Option<u64> {
    (0.0..1e12).contains(&megabytes).then(|| (megabytes * 1_048_576.0).round() as u64)
}

impl Totals {
    fn append(&self, line: &mut String, style: Style) {
        let (mb, seconds, mbps) =
            (megabytes(self.bytes), self.seconds, megabits(self.bytes, self.seconds));
        line.push_str(&if style.parse() {
            format!(
                " total_megabytes={mb:.4} total_real_sec={seconds:.2} total_rate_Mbps={mbps:.4}"
            )
        } else {
            format!(" Tot: {mb:10.4} MB / {seconds:6.2} sec = {mbps:9.4} Mbps")
        });
        if let Some(datagrams) = &self.datagrams {
            datagrams.append(line, style, false);
        }
    }
}

fn head(bytes: u64, seconds: f64, style: Style) -> String {
    let (mb, mbps) = (megabytes(bytes), megabits(bytes, seconds));
    if style.parse() {
        format!("megabytes={mb:.4} real_sec={seconds:.2} rate_Mbps={mbps:.4}")
    } else {
        format!("{mb:10.4} MB / {seconds:6.2} sec = {mbps:9.4} Mbps")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: Style = Style(format::RTT);
    const FIELDS: Style = Style(format::RTT | format::PARSE);

    fn tcp() -> Interval {
        Interval {
            bytes: 587 << 20,
            seconds: 0.5,
            retransmits: Some(Retransmits { count: 5, of_host: false }),
            cwnd_kb: Some(447),
            ..Interval::default()
        }
    }

    #[test]
    fn lines_over_tcp_have_the_columns_of_nuttcp() {
        assert_eq!(
            tcp().line(TEXT),
            "  587.0000 MB /   0.50 sec = 9848.2258 Mbps     5 retrans    447 KB-cwnd"
        );
        assert_eq!(
            tcp().line(FIELDS),
            "megabytes=587.0000 real_sec=0.50 rate_Mbps=9848.2258 retrans=5 cwnd=447"
        );
        assert_eq!(tcp().connection_fields(TEXT), "     5 retrans    447 KB-cwnd");
    }

    #[test]
    fn lines_over_udp_have_the_columns_of_nuttcp() {
        // The lines of version 8.2.2 for the same bytes, except for the last digits of the rate,
        // which depend on the exact time.
        let datagrams = Datagrams::of_bytes(140 * 8192, 140 * 8192, 8192);
        let sum = Datagrams::of_bytes(264 * 8192, 264 * 8192, 8192);
        let interval = Interval {
            bytes: 140 * 8192,
            seconds: 0.5,
            datagrams: Some(datagrams),
            sent_bytes: 140 * 8192,
            jitter: Some((4, Spread { max: 7.2322, ..Spread::default() })),
            totals: Totals {
                bytes: 264 * 8192,
                seconds: 1.0,
                datagrams: Some(sum),
                sent_bytes: 264 * 8192,
            },
            ..Interval::default()
        };
        assert_eq!(
            interval.line(Style(format::TRANSMITTED | format::RUNNING_TOTAL)),
            "    1.0938 MB /   0.50 sec =   18.3501 Mbps     0 /   140 ~drop/pkt  0.00 ~%loss \
             7.2322 msMaxJitter Tot:     2.0625 MB /   1.00 sec =   17.3015 Mbps     0 /   264 \
             ~drop/pkt  0.00 ~%loss Trans:     1.0938 MB Tot:     2.0625 MB"
        );
        assert_eq!(
            interval.line(FIELDS),
            "megabytes=1.0938 real_sec=0.50 rate_Mbps=18.3501 drop=0 pkt=140 data_loss=0.00000 \
             msmaxjitter=7.2322"
        );
    }

    #[test]
    fn small_loss_has_more_digits() {
        let line = |received: u64| {
            let datagrams = Datagrams::of_bytes(26000 * 1000, received * 1000, 1000);
            Interval { seconds: 1.0, datagrams: Some(datagrams), ..Interval::default() }.line(TEXT)
        };
        assert!(
            line(25987).ends_with("    13 / 26000 ~drop/pkt 0.05000 ~%loss"),
            "{}",
            line(25987)
        );
        assert!(line(24865).ends_with("  1135 / 26000 ~drop/pkt  4.37 ~%loss"), "{}", line(24865));
    }

    #[test]
    fn a_line_reads_back() {
        let udp = Interval {
            bytes: 8192,
            seconds: 0.5,
            datagrams: Some(Datagrams { dropped: -2, sent: 100, loss: 0.0 }),
            jitter: Some((4, Spread { max: 2.5, ..Spread::default() })),
            ..Interval::default()
        };
        for interval in [tcp(), udp] {
            for style in [TEXT, FIELDS] {
                let read = Interval::parse(&interval.line(style)).unwrap();
                assert!(read.bytes.abs_diff(interval.bytes) < 60, "{read:?}");
                assert_eq!(Interval { bytes: interval.bytes, ..read }, interval);
            }
        }
        for other in
            ["", "DONE", "nuttcp-r: v6.1.2: socket", "x MB / y sec = z Mbps", "real_sec=nan"]
        {
            assert_eq!(Interval::parse(other), None, "{other}");
        }
    }
}
