//! The figures of the lines that a server prints about its end of a test.

use super::Spread;
use super::{fields, quantities};

/// The maximum number of lines of a report; version 8.2.2 prints 13.
const MOST_LINES: usize = 64;

/// The figures that a server reports at the end of a test.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServerReport {
    /// The lines of the report, as printable ASCII.
    pub lines: Vec<String>,
    /// The megabytes of 2^20 bytes that the server moved, with 4 digits after the point.
    pub megabytes: Option<f64>,
    /// The seconds that the server measured, with 2 digits after the point.
    pub seconds: Option<f64>,
    /// The rate in 10^6 bit/s that the server computed.
    pub megabits: Option<f64>,
    /// The CPU time of the server in percent of its time.
    pub cpu_percent: Option<u32>,
    /// The number of segments that the server retransmitted.
    pub retransmits: Option<u64>,
    /// True if the retransmits are those of the whole host.
    pub retransmits_of_host: bool,
    /// The sum of the server's congestion windows in KB.
    pub cwnd_kb: Option<u64>,
    /// The time of the first connect in ms, if the server opened the data connections.
    pub rtt_ms: Option<f64>,
    /// The jitter in ms.
    pub jitter: Option<Spread>,
    /// The one-way delay in ms.
    pub delay: Option<Spread>,
}

impl ServerReport {
    /// Adds a line of the report.
    pub fn add(&mut self, line: &str) {
        if self.lines.len() == MOST_LINES {
            return;
        }
        self.lines.push(line.to_owned());
        let Some((_, text)) = line.split_once(": ") else { return };
        if line.starts_with("nuttcp-") {
            self.read_fields(text);
            self.read_text(text);
        }
    }

    /// Returns the bytes that the server moved, to the precision of its report.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.megabytes.map(|megabytes| (megabytes * 1_048_576.0).round() as u64)
    }

    fn read_fields(&mut self, text: &str) {
        if text.contains("real_seconds=") {
            for (name, value) in fields(text) {
                match name {
                    "megabytes" => self.megabytes = size(value),
                    "real_seconds" => self.seconds = Some(value),
                    "rate_Mbps" => self.megabits = Some(value),
                    _ => {}
                }
            }
        }
        for (name, value) in fields(text) {
            match name {
                "retrans" | "host-retrans" => self.set_retransmits(value, name == "host-retrans"),
                "cwnd" => self.cwnd_kb = Some(value as u64),
                "rtt_ms" => self.rtt_ms = Some(value),
                "msminjitter" => self.jitter.get_or_insert_default().min = value,
                "msavgjitter" => self.jitter.get_or_insert_default().mean = value,
                "msmaxjitter" => self.jitter.get_or_insert_default().max = value,
                "msminOWD" => self.delay.get_or_insert_default().min = value,
                "msavgOWD" => self.delay.get_or_insert_default().mean = value,
                "msmaxOWD" => self.delay.get_or_insert_default().max = value,
                _ => {}
            }
        }
        self.read_percent(text, "cpu=", "elapsed=");
    }

    fn read_text(&mut self, text: &str) {
        if text.contains("real seconds") {
            for (numbers, unit) in quantities(text) {
                match (unit, numbers.as_slice()) {
                    ("MB", [megabytes]) => self.megabytes = size(*megabytes),
                    ("real", [seconds]) => self.seconds = Some(*seconds),
                    ("Mbps", [megabits]) => self.megabits = Some(*megabits),
                    _ => {}
                }
            }
        }
        self.read_percent(text, "real ", "user ");
        self.read_assignments(text);
        self.jitter = spread(text, "jitter").or(self.jitter);
        self.delay = spread(text, "OWD").or(self.delay);
    }

    /// Reads the CPU time before `%`, which follows `before`, on a line that has `marker`.
    fn read_percent(&mut self, text: &str, before: &str, marker: &str) {
        let percent = || {
            let (_, rest) = text.contains(marker).then(|| text.rsplit_once(before))??;
            rest.split_once('%')?.0.trim().parse().ok()
        };
        self.cpu_percent = percent().or(self.cpu_percent);
    }

    /// Reads `retrans = N`, `cwnd = N KB` and `RTT=N ms`.
    fn read_assignments(&mut self, text: &str) {
        if let Some(count) = after(text, "retrans = ") {
            self.set_retransmits(count, text.contains("host-retrans"));
        }
        self.cwnd_kb = after(text, " cwnd = ").map(|cwnd| cwnd as u64).or(self.cwnd_kb);
        self.rtt_ms = after(text, "RTT=").or(self.rtt_ms);
    }

    fn set_retransmits(&mut self, count: f64, of_host: bool) {
        self.retransmits = Some(count as u64);
        self.retransmits_of_host = of_host;
    }
}

/// Returns a number of megabytes that a test can move.
fn size(megabytes: f64) -> Option<f64> {
    Some(megabytes).filter(|megabytes| (0.0..1e12).contains(megabytes))
}

/// Returns the number that follows `name`.
fn after(text: &str, name: &str) -> Option<f64> {
    let (_, rest) = text.split_once(name)?;
    let number = rest.split([' ', ',']).next()?;
    number.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

/// Returns the values of a line such as `min-OWD = 1.0 ms, avg-OWD = 2.0 ms, max-OWD = 3.0 ms`.
fn spread(text: &str, name: &str) -> Option<Spread> {
    let value = |which: &str| after(text, &format!("{which}-{name} = "));
    Some(Spread { min: value("min")?, mean: value("avg")?, max: value("max")? })
}
