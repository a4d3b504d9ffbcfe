//! The reports of nuttcp: interval lines, the last line, and the lines about one end of a test.
//!
//! A megabyte is 2^20 bytes, a KB 1024 bytes, and a Mbps 10^6 bit/s. Every report exists as text and
//! as `key=value` (`-fparse`).

mod block;
mod brief;
mod interval;
mod server;

pub use block::{Block, BlockTotals, Opening};
pub use brief::Brief;
pub use interval::{Interval, Totals};
pub use server::ServerReport;

use crate::nuttcp::parameters::format;

/// Returns `bytes` in megabytes of 2^20 bytes.
#[must_use]
pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

/// Returns the rate of `bytes` in `seconds`, in 10^6 bit/s.
#[must_use]
pub fn megabits(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / seconds.max(1e-6) / 125_000.0
}

/// The form of a report: bits of [`mod@format`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style(pub u32);

impl Style {
    /// Returns true for `key=value`.
    #[must_use]
    pub fn parse(self) -> bool {
        self.has(format::PARSE)
    }

    fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }
}

/// The datagrams of a period, from the bytes that both ends counted.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Datagrams {
    /// The datagrams sent but not received; negative if datagrams of an earlier period arrived.
    pub dropped: i64,
    /// The datagrams sent.
    pub sent: u64,
    /// The share of the bytes that were lost, from 0 to 1.
    pub loss: f64,
}

impl Datagrams {
    /// Returns the datagrams of `length` bytes in a period in which one end sent `sent` bytes and
    /// the other received `received` bytes.
    #[must_use]
    pub fn of_bytes(sent: u64, received: u64, length: u32) -> Self {
        let length = i64::from(length.max(1));
        let (sent, received) =
            (sent.min(i64::MAX as u64) as i64, received.min(i64::MAX as u64) as i64);
        let loss = if sent == 0 { 0.0 } else { 1.0 - received as f64 / sent as f64 };
        Self { dropped: (sent - received) / length, sent: (sent / length) as u64, loss }
    }

    /// Appends the fields to an interval line or, if `last`, to the last line.
    fn append(&self, line: &mut String, style: Style, last: bool) {
        if !style.has(format::NO_DROPS) {
            line.push_str(&self.drops(style, last));
        }
        if !style.has(format::NO_PERCENT_LOSS) {
            line.push_str(&self.percent(style, last));
        }
    }

    fn drops(&self, style: Style, last: bool) -> String {
        let Self { dropped, sent, .. } = self;
        match (style.parse(), last) {
            (true, _) => format!(" drop={dropped} pkt={sent}"),
            (false, true) => format!(" {dropped} / {sent} drop/pkt"),
            (false, false) => format!(" {dropped:5} / {sent:5} ~drop/pkt"),
        }
    }

    fn percent(&self, style: Style, last: bool) -> String {
        let percent = self.loss * 100.0;
        let small = self.loss != 0.0 && self.loss < 0.001;
        match (style.parse(), last, small) {
            (true, ..) => format!(" data_loss={percent:.5}"),
            (false, true, true) => format!(" {percent:.5} %loss"),
            (false, true, false) => format!(" {percent:.2} %loss"),
            (false, false, true) => format!(" {percent:7.5} ~%loss"),
            (false, false, false) => format!(" {percent:5.2} ~%loss"),
        }
    }
}

/// The segments that a sender retransmitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retransmits {
    /// The number of segments.
    pub count: u64,
    /// True if the number is that of the whole host, because the kernel has none per connection.
    pub of_host: bool,
}

impl Retransmits {
    fn append(&self, line: &mut String, style: Style, last: bool) {
        let (count, host) = (self.count, if self.of_host { "host-" } else { "" });
        line.push_str(&match (style.parse(), last) {
            (true, _) => format!(" {host}retrans={count}"),
            (false, true) => format!(" {count} {host}retrans"),
            (false, false) => format!(" {count:5} {host}retrans"),
        });
    }
}

/// Appends the congestion window in KB.
fn append_cwnd(line: &mut String, kilobytes: u64, style: Style, last: bool) {
    line.push_str(&match (style.parse(), last) {
        (true, _) => format!(" cwnd={kilobytes}"),
        (false, true) => format!(" {kilobytes} KB-cwnd"),
        (false, false) => format!(" {kilobytes:6} KB-cwnd"),
    });
}

/// The least, mean and greatest of a series of times in ms.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Appends the values that `bits` selects, named with `unit`.
    fn append(&self, line: &mut String, style: Style, bits: u8, unit: Unit) {
        let values = [(1, "Min", self.min), (2, "Avg", self.mean), (4, "Max", self.max)];
        for (_, name, value) in values.into_iter().filter(|(bit, ..)| bits & bit != 0) {
            line.push_str(&match (style.parse(), unit) {
                (true, Unit::Jitter) => format!(" ms{}jitter={value:.4}", name.to_lowercase()),
                (true, Unit::Delay) => format!(" ms{}OWD={value:.4}", name.to_lowercase()),
                (false, Unit::Jitter) => format!(" {value:.4} ms{name}Jitter"),
                (false, Unit::Delay) => format!(" {value:.4} ms{name}OWD"),
            });
        }
    }

    /// Returns all values as the line of an end's report has them.
    fn line(&self, style: Style, unit: Unit) -> String {
        let Self { min, mean, max } = self;
        let name = if unit == Unit::Jitter { "jitter" } else { "OWD" };
        if style.parse() {
            format!("msmin{name}={min:.4} msavg{name}={mean:.4} msmax{name}={max:.4}")
        } else {
            format!("min-{name} = {min:.4} ms, avg-{name} = {mean:.4} ms, max-{name} = {max:.4} ms")
        }
    }
}

/// The quantity of a [`Spread`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Jitter,
    Delay,
}

/// Returns the numbers before each unit of a line, such as `0 / 124 ~drop/pkt`.
fn quantities(line: &str) -> Vec<(Vec<f64>, &str)> {
    let mut found = Vec::new();
    let mut numbers = Vec::new();
    for token in line.split_ascii_whitespace() {
        match number(token) {
            Some(number) => numbers.push(number),
            None if token == "/" || token == "=" => {}
            None => found.push((std::mem::take(&mut numbers), token)),
        }
    }
    found
}

/// Returns the names and numeric values of a line with `name=value`.
fn fields(line: &str) -> impl Iterator<Item = (&str, f64)> {
    line.split_ascii_whitespace()
        .filter_map(|token| token.split_once('='))
        .filter_map(|(name, value)| Some((name, number(value)?)))
}

/// Parses a finite number that begins with a digit or a sign.
fn number(text: &str) -> Option<f64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let valid = digits.starts_with(|c: char| c.is_ascii_digit());
    text.parse().ok().filter(|number: &f64| valid && number.is_finite())
}
