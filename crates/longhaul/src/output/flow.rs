use std::fmt::Write;

use longhaul_core::plan::{Amount, Direction, FlowPlan};
use longhaul_core::result::{FlowEnd, FlowResult, FlowSample, SideSummary, TcpSample};
use longhaul_core::units::{Bytes, format_span};

/// A memory-to-memory test as text: a head, a line for each interval, and a block whose last
/// line is the answer.
pub(crate) struct FlowText {
    target: String,
    head: String,
    direction: Direction,
}

impl FlowText {
    /// Text for a test of `plan` against `target`.
    pub(crate) fn new(target: &str, plan: &FlowPlan) -> Self {
        let target = short(target);
        let amount = match plan.amount {
            Amount::Time(time) => format_span(time),
            Amount::Bytes(bytes) => bytes.to_string(),
        };
        let mut head = match plan.direction {
            Direction::Forward => format!("TCP to {target}"),
            Direction::Reverse => format!("TCP from {target}"),
        };
        let _ = write!(head, ", {}, {amount}", streams(plan.streams));
        if !plan.omit.is_zero() {
            let _ = write!(head, " after {} omitted", format_span(plan.omit));
        }
        if let Some(rate) = plan.rate_bps {
            let _ = write!(head, ", paced to {rate}");
        }
        if let Some(window) = plan.window_bytes {
            let _ = write!(head, ", window {window}");
        }
        FlowText { target, head, direction: plan.direction }
    }

    /// What is run, and the heads of the columns.
    pub(crate) fn head(&self) -> String {
        format!(
            "{}\n{:>13} {:>11} {:>9} {:>9} {:>8} {:>6} {:>6}",
            self.head, "seconds", "goodput", "RTT", "cwnd", "retrans", "here", "there"
        )
    }

    /// One interval: goodput at the receiver, the sender's round-trip time, congestion window
    /// over all streams and retransmissions, and the CPU of both ends.
    pub(crate) fn interval(&self, sample: &FlowSample) -> String {
        let dash = || "-".to_owned();
        let tcp: Vec<&TcpSample> =
            sample.streams.iter().filter_map(|s| s.sender.as_ref()).collect();
        let cwnd = match tcp.is_empty() {
            true => dash(),
            false => Bytes::new(tcp.iter().map(|t| t.cwnd_bytes.get()).sum()).to_string(),
        };
        let sender = sample.sender_cpu_percent.map_or_else(dash, |cpu| format!("{cpu:.0} %"));
        let receiver = format!("{:.0} %", sample.receiver_cpu_percent);
        let (here, there) = match self.direction {
            Direction::Forward => (sender, receiver),
            Direction::Reverse => (receiver, sender),
        };
        let span = format!("{:.1}-{:.1}", sample.start_seconds, sample.end_seconds);
        let mut line = format!(
            "{span:>13} {:>11} {:>9} {cwnd:>9} {:>8} {here:>6} {there:>6}",
            sample.throughput_bps.to_string(),
            sample.rtt_ms.map_or_else(dash, millis),
            sample.retransmits.map_or_else(dash, |count| count.to_string()),
        );
        if sample.omitted {
            line.push_str("  omitted");
        }
        line
    }

    /// Both ends, and the answer.
    pub(crate) fn block(&self, result: &FlowResult) -> String {
        let summary = &result.summary;
        let (sender_at, receiver_at, preposition) = match self.direction {
            Direction::Forward => ("here", "there", "to"),
            Direction::Reverse => ("there", "here", "from"),
        };
        let mut text = format!("{}\n", "-".repeat(69));
        let _ = writeln!(text, "{}", side("sender", sender_at, &summary.sender));
        let _ = writeln!(text, "{}", side("receiver", receiver_at, &summary.receiver));
        match summary.totals_agree {
            Some(true) => {
                let total = summary.receiver.total_bytes.get();
                let _ = writeln!(text, "both ends count the same {total} bytes");
            }
            Some(false) => text.push_str("the ends do not count the same bytes\n"),
            None => {}
        }
        match &result.end {
            FlowEnd::Completed => {}
            FlowEnd::Interrupted => text.push_str("interrupted; measured until then:\n"),
            FlowEnd::Cut { reason } => {
                let _ = writeln!(text, "cut, because {reason}; measured until then:");
            }
        }
        let (here, there) = result.client_and_server();
        let _ = write!(
            text,
            "{} goodput {preposition} {} over {} in {:.1} s (RTT {}, {}, CPU {:.0} % here, \
             {:.0} % there)",
            summary.throughput_bps,
            self.target,
            streams(result.plan.streams),
            summary.receiver.seconds,
            millis(summary.sender.rtt_ms),
            count(summary.sender.retransmits, "retransmit"),
            here.cpu_percent,
            there.cpu_percent,
        );
        text
    }
}

fn side(name: &str, at: &str, side: &SideSummary) -> String {
    format!(
        "{name:<8} {at:<5}  {} in {:.2} s, CPU {:.0} %, {}, RTT {} (least {})",
        side.bytes,
        side.seconds,
        side.cpu_percent,
        count(side.retransmits, "retransmit"),
        millis(side.rtt_ms),
        millis(side.rtt_min_ms),
    )
}

/// The target without the port that everyone uses.
fn short(target: &str) -> String {
    let default = format!(":{}", longhaul_engine::session::DEFAULT_PORT);
    target.strip_suffix(&default).unwrap_or(target).to_owned()
}

fn streams(number: u32) -> String {
    count(number.into(), "stream")
}

fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Three digits of a round-trip time: `90.1 ms`, `0.052 ms`.
fn millis(value: f64) -> String {
    let digits = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.digits$} ms")
}
