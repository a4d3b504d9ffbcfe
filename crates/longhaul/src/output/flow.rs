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
            Direction::Forward => format!("{} to {target}", plan.protocol),
            Direction::Reverse => format!("{} from {target}", plan.protocol),
            Direction::Both => format!("{} to and from {target}", plan.protocol),
        };
        let _ = write!(head, ", {}, {amount}", streams(plan.streams));
        if !plan.omit.is_zero() {
            let _ = write!(head, ", first {} omitted", format_span(plan.omit));
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
            Direction::Forward | Direction::Both => (sender, receiver),
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
            Direction::Forward | Direction::Both => ("here", "there", "to"),
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

#[cfg(test)]
mod tests {
    use longhaul_core::result::{SideResult, SideSample, SideStream, SideStreamSample};
    use longhaul_core::units::Rate;

    use super::*;

    fn plan(direction: Direction) -> FlowPlan {
        FlowPlan { streams: 4, direction, ..FlowPlan::new() }
    }

    fn side(cpu_seconds: f64, retransmits: u64, rtt_ms: f64) -> SideResult {
        let stream = SideStream {
            bytes: Bytes::new(2_942_500_000),
            total_bytes: Bytes::new(2_942_500_000),
            seconds: 10.0,
            cpu_seconds: cpu_seconds / 4.0,
            retransmits,
            rtt_ms,
            rtt_min_ms: 90.0,
            congestion: "bbr".to_owned(),
            mss: 8948,
            buffer_bytes: Bytes::mib(4),
            udp: None,
            address: None,
            cpus: None,
            multipath: None,
            failure: None,
        };
        SideResult {
            seconds: 10.0,
            cpu_seconds,
            cut: None,
            reverse: false,
            streams: vec![stream; 4],
        }
    }

    fn result(direction: Direction, end: FlowEnd) -> FlowResult {
        let (sender, receiver) = (side(5.4, 3, 90.06), side(7.1, 0, 90.0));
        FlowResult::fold("far:5210".into(), plan(direction), end, vec![], &sender, &receiver)
    }

    fn answer(direction: Direction, end: FlowEnd) -> String {
        let text = FlowText::new("far:5210", &plan(direction)).block(&result(direction, end));
        text.lines().last().unwrap().to_owned()
    }

    #[test]
    fn the_last_line_is_the_answer() {
        assert_eq!(
            answer(Direction::Forward, FlowEnd::Completed),
            "9.42 Gb/s goodput to far over 4 streams in 10.0 s (RTT 90.1 ms, 12 retransmits, \
             CPU 54 % here, 71 % there)"
        );
        assert_eq!(
            answer(Direction::Reverse, FlowEnd::Interrupted),
            "9.42 Gb/s goodput from far over 4 streams in 10.0 s (RTT 90.1 ms, 12 retransmits, \
             CPU 71 % here, 54 % there)"
        );
    }

    #[test]
    fn the_block_says_how_it_ended_and_whether_the_ends_agree() {
        let text = |end| {
            let text = FlowText::new("far:5210", &plan(Direction::Forward));
            text.block(&result(Direction::Forward, end))
        };
        assert!(text(FlowEnd::Completed).contains("both ends count the same 11770000000 bytes\n"));
        assert!(text(FlowEnd::Interrupted).contains("\ninterrupted; measured until then:\n"));
        let cut = text(FlowEnd::Cut { reason: "no data moved for 30.0s".to_owned() });
        assert!(cut.contains("cut, because no data moved for 30.0s; measured"), "{cut}");
        assert!(!cut.contains("count the same"), "{cut}");
    }

    #[test]
    fn columns_stand_under_their_heads() {
        let text = FlowText::new("far:5210", &plan(Direction::Forward));
        let tcp = TcpSample {
            rtt_ms: 90.06,
            rtt_variation_ms: 0.1,
            cwnd_bytes: Bytes::mib(110),
            peer_window_bytes: Bytes::mib(200),
            retransmits: 12,
            delivery_rate_bps: Rate::from_bps(9_400_000_000),
            app_limited: false,
            notsent_bytes: Bytes::new(0),
            busy_ms: 1000.0,
            rwnd_limited_ms: 0.0,
            sndbuf_limited_ms: 0.0,
        };
        let sample = |tcp: Option<TcpSample>| SideSample {
            index: 11,
            omitted: true,
            start_seconds: 11.0,
            end_seconds: 12.0,
            cpu_seconds: 0.54,
            reverse: false,
            streams: vec![SideStreamSample { bytes: Bytes::new(1_177_000_000), tcp, udp: None }],
        };
        let joined = FlowSample::join(&sample(None), Some(&sample(Some(tcp))));
        let head = text.head();
        let heads = head.lines().last().unwrap();
        let line = text.interval(&joined);
        let columns = line.strip_suffix("  omitted").unwrap();
        assert_eq!(columns.len(), heads.len(), "{heads}\n{line}");
        for value in ["11.0-12.0", "9.42 Gb/s", "90.1 ms", "110 MiB", "12", "54 %"] {
            let end = columns.find(&format!(" {value} ")).map(|at| at + 1 + value.len()).unwrap();
            assert!(heads[..end].ends_with(char::is_alphabetic), "{heads}\n{line}");
        }
        let alone = text.interval(&FlowSample::join(&sample(None), None));
        assert!(alone.contains(" - "), "{alone}");
        assert!(head.starts_with("TCP to far, 4 streams, 10s\n"), "{head}");
    }
}
