//! The result of a test: a line per host, latencies, the goodput and the reason for it.

use std::fmt::Write;

use longhaul_core::plan::{Direction, Protocol};
use longhaul_core::result::{
    LatencyQuantiles, LinkSummary, SideSummary, TestEnd, TestResult, TestSummary, UdpResult,
};

use longhaul_core::units::Rate;

use super::words::{count, known, millis, wrap, wrap_lines};
use super::{COLUMNS, TestText};
use crate::output::style::{Style, styled};
use crate::output::{output_is_colored, text_columns, with_escaped_text};

/// The indentation of the figures behind the name of their line.
const INDENT: usize = 16;

impl TestText {
    /// Returns the figures of sender and receiver, the goodput and its reason, per direction.
    pub(crate) fn block(&self, result: &TestResult) -> String {
        let result = &with_escaped_text(result);
        let mut text = format!("{}\n", "-".repeat(COLUMNS.min(text_columns())));
        let server_sends = self.direction == Direction::Reverse;
        self.ends(&mut text, &result.summary, server_sends);
        if let Some(reverse) = &result.reverse {
            self.ends(&mut text, &reverse.summary, true);
        }
        if let Some(latency) = &result.latency {
            for (when, times) in [("idle", &latency.idle), ("loaded", &latency.loaded)] {
                if let Some(times) = times {
                    text.push_str(&quantiles(when, times));
                }
            }
        }
        match &result.end {
            TestEnd::Completed => {}
            TestEnd::Interrupted => text.push_str("interrupted; results so far:\n"),
            TestEnd::Cut { reason } => {
                let _ = writeln!(text, "aborted: {reason}; results so far:");
            }
        }
        self.answer(&mut text, result, &result.summary, server_sends);
        if let Some(reverse) = &result.reverse {
            self.answer(&mut text, result, &reverse.summary, true);
            let (there, back) = (result.summary.throughput_bps, reverse.summary.throughput_bps);
            let total = Rate::from_bps(there.bps().saturating_add(back.bps()));
            let _ = writeln!(text, "{total} goodput in both directions together");
        }
        text.truncate(text.trim_end().len());
        wrap_lines(&text, INDENT, text_columns())
    }

    /// Appends the counters of both hosts.
    fn ends(&self, text: &mut String, summary: &TestSummary, server_sends: bool) {
        let (here, there) = match &self.client {
            Some(client) => (&**client, &*self.target),
            None => ("here", "there"),
        };
        let (sender_at, receiver_at) = if server_sends { (there, here) } else { (here, there) };
        let _ = writeln!(text, "{}", self.side("sender", sender_at, &summary.sender));
        let _ = writeln!(text, "{}", self.side("receiver", receiver_at, &summary.receiver));
        if let Some(udp) = &summary.udp {
            text.push_str(&datagrams(udp));
        }
        summary.links.iter().for_each(|link| text.push_str(&link_line(link)));
        match summary.totals_agree {
            Some(true) => {
                let total = summary.receiver.total_bytes.unwrap_or(summary.receiver.bytes);
                let total = total.get();
                let _ = writeln!(text, "sender and receiver count the same {total} bytes");
            }
            Some(false) => text.push_str("sender and receiver count different numbers of bytes\n"),
            None => {}
        }
    }

    fn side(&self, name: &str, at: &str, side: &SideSummary) -> String {
        let mut line = format!(
            "{name:<8} {at:<5}  {} in {:.2} s{}",
            side.bytes,
            side.seconds,
            known(side.cpu_percent, |cpu| format!(", CPU {cpu:.0} %"))
        );
        if let (Some(mean), Some(least)) = (side.rtt_ms, side.rtt_min_ms)
            && self.protocol != Protocol::Udp
        {
            let _ = write!(line, ", RTT {} (min {})", millis(mean), millis(least));
        }
        line
    }

    /// Appends the goodput, its steady part, and the reason.
    fn answer(
        &self,
        text: &mut String,
        result: &TestResult,
        summary: &TestSummary,
        server_sends: bool,
    ) {
        if let Some(steady) = &summary.steady {
            let _ = writeln!(
                text,
                "{:<15} {} after {:.2} s (quartiles {} and {})",
                "steady",
                steady.throughput_bps,
                steady.ramp_up_seconds,
                steady.lower_quartile_bps,
                steady.upper_quartile_bps
            );
        }
        let (here, there, preposition) = if server_sends {
            (&summary.receiver, &summary.sender, "from")
        } else {
            (&summary.sender, &summary.receiver, "to")
        };
        let sender = &summary.sender;
        let notes = match self.protocol {
            Protocol::Udp => {
                vec![known(summary.udp, |udp| format!("{:.2} % lost", udp.lost_percent))]
            }
            Protocol::Tcp | Protocol::Mptcp => vec![
                known(sender.rtt_ms, |rtt| format!("RTT {}", millis(rtt))),
                known(sender.retransmits, |number| count(number, "retransmit")),
            ],
        };
        let (at_client, at_server) = match &self.client {
            Some(client) => (format!("on {client}"), format!("on {}", self.target)),
            None => ("here".to_owned(), "there".to_owned()),
        };
        let cpus = [
            known(here.cpu_percent, |cpu| format!("CPU {cpu:.0} % {at_client}")),
            known(there.cpu_percent, |cpu| match here.cpu_percent {
                Some(_) => format!("{cpu:.0} % {at_server}"),
                None => format!("CPU {cpu:.0} % {at_server}"),
            }),
        ];
        let notes: Vec<_> = notes.into_iter().chain(cpus).filter(|note| !note.is_empty()).collect();
        let way = match (&self.client, server_sends) {
            (None, _) => format!("{preposition} {}", self.target),
            (Some(client), false) => format!("from {client} to {}", self.target),
            (Some(client), true) => format!("from {} to {client}", self.target),
        };
        let answer = format!(
            "{} goodput {way} over {} in {:.1} s ({})",
            summary.throughput_bps,
            count(result.plan.streams.into(), "stream"),
            summary.receiver.seconds,
            notes.join(", "),
        );
        let _ = writeln!(text, "{}", wrap(&answer, text_columns()));
        if let Some(reason) = &summary.reason {
            let sentence = wrap(&reason.sentence, text_columns());
            let _ = writeln!(text, "{}", styled(Style::Measured, &sentence, output_is_colored()));
            if let Some(advice) = &reason.advice {
                let _ = writeln!(text, "{}", wrap(&format!("=> {advice}"), text_columns()));
            }
        }
    }
}

fn datagrams(udp: &UdpResult) -> String {
    let mut line = format!(
        "datagrams       {} sent, {} received, {} lost ({:.3} %){}\n",
        udp.sent,
        udp.received,
        udp.lost,
        udp.lost_percent,
        known(udp.jitter_ms, |jitter| format!(", jitter {}", millis(jitter)))
    );
    let others = [
        (udp.late, "late"),
        (udp.duplicated, "duplicated"),
        (udp.reordered, "reordered"),
        (udp.sender_dropped, "dropped by the sender's host"),
        (udp.receiver_dropped, "dropped by the receiver's host"),
    ];
    let others: Vec<_> = others
        .iter()
        .filter_map(|(count, what)| Some(format!("{} {what}", count.filter(|count| *count > 0)?)))
        .collect();
    if !others.is_empty() {
        let _ = writeln!(line, "                {}", others.join(", "));
    }
    line
}

fn link_line(link: &LinkSummary) -> String {
    let end = |address: &Option<String>| address.clone().unwrap_or_else(|| "any".to_owned());
    format!(
        "link {:<10} {} over {} ({} - {}){}\n",
        link.link,
        link.throughput_bps,
        count(link.streams.into(), "stream"),
        end(&link.client),
        end(&link.server),
        known(link.retransmits, |number| format!(", {}", count(number, "retransmit"))),
    )
}

fn quantiles(when: &str, times: &LatencyQuantiles) -> String {
    format!(
        "latency {when:<7} min {}, p50 {}, p90 {}, p99 {}, max {}\n",
        millis(times.min_ms),
        millis(times.p50_ms),
        millis(times.p90_ms),
        millis(times.p99_ms),
        millis(times.max_ms)
    )
}

#[cfg(test)]
mod tests {
    use longhaul_core::result::{End, LatencyResult, TestLimit};

    use super::super::fixture::{plan, result};
    use super::*;

    fn block(direction: Direction, end: TestEnd) -> String {
        TestText::new("far:5210", &plan(direction)).block(&result(direction, end))
    }

    #[test]
    fn goodput_and_reason_come_last() {
        let text = block(Direction::Forward, TestEnd::Completed);
        let expected = [
            "9.42 Gb/s goodput to far over 4 streams in 10.0 s (RTT 90.1 ms, 12 retransmits,",
            "CPU 54 % here, 71 % there)",
            "limited by the path: its slowest link carries 9.42 Gb/s, which varied by 0 %",
            "(bbr limited the sender for 91 % of the time, with 0.060 ms of queueing delay on",
            "an RTT of 90.0 ms, 0.010 % retransmitted)",
        ];
        let lines: Vec<_> = text.lines().rev().take(expected.len()).collect();
        assert_eq!(lines.into_iter().rev().collect::<Vec<_>>(), expected, "{text}");
        assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
        let back = block(Direction::Reverse, TestEnd::Completed);
        assert!(back.contains("9.42 Gb/s goodput from far over 4 streams"), "{back}");
        assert!(back.contains("CPU 71 % here, 54 % there)"), "{back}");
        assert!(back.contains("receiver here "), "{back}");
    }

    #[test]
    fn a_test_between_two_servers_names_both() {
        for (direction, way) in [(Direction::Forward, "a to far"), (Direction::Reverse, "far to a")]
        {
            let text = TestText::between("a:5210", "far:5210", &plan(direction));
            assert!(
                text.head().starts_with(&format!("TCP from {way}, 4 streams")),
                "{}",
                text.head()
            );
            assert!(text.head().contains(" client server "), "{}", text.head());
            let block = text.block(&result(direction, TestEnd::Completed));
            assert!(block.contains(&format!("9.42 Gb/s goodput from {way} over")), "{block}");
            assert!(block.contains("% on a, ") && block.contains("% on far)"), "{block}");
            assert!(!block.contains("here"), "{block}");
        }
    }

    #[test]
    fn the_client_of_a_test_between_two_servers_has_its_name() {
        let mut result = result(Direction::Forward, TestEnd::Completed);
        let reason = result.summary.reason.as_mut().unwrap();
        (reason.limit, reason.end) = (TestLimit::SenderCpu, Some(End::Sender));
        let mut words = |client: Option<&str>| {
            result.third_party = client.map(str::to_owned);
            crate::output::complete_test(&mut result);
            let reason = result.summary.reason.as_ref().unwrap();
            format!("{} => {:?}", reason.sentence, reason.advice)
        };
        assert!(words(None).contains("this host"), "{}", words(None));
        let named = words(Some("a:5210"));
        assert!(!named.contains("this host") && named.contains(" a"), "{named}");
    }

    #[test]
    fn the_block_has_the_end_and_the_agreement_of_the_counters() {
        let completed = block(Direction::Forward, TestEnd::Completed);
        let agreed = "sender and receiver count the same 11770000000 bytes\n";
        assert!(completed.contains(agreed), "{completed}");
        let interrupted = block(Direction::Forward, TestEnd::Interrupted);
        assert!(interrupted.contains("\ninterrupted; results so far:\n"), "{interrupted}");
        let reason = "no data moved for 30.0s".to_owned();
        let cut = block(Direction::Forward, TestEnd::Cut { reason });
        assert!(cut.contains("aborted: no data moved for 30.0s; results so far:"), "{cut}");
        assert!(!cut.contains("count the same"), "{cut}");
    }

    #[test]
    fn each_direction_of_a_bidirectional_test_has_a_goodput() {
        let mut both = result(Direction::Both, TestEnd::Completed);
        let half = longhaul_core::result::TestHalf {
            summary: both.summary.clone(),
            streams: both.streams.clone(),
            intervals: vec![],
        };
        both.reverse = Some(Box::new(half));
        let times = LatencyQuantiles {
            answered: 10,
            min_ms: 90.0,
            p50_ms: 91.0,
            p90_ms: 92.0,
            p99_ms: 93.0,
            max_ms: 94.0,
        };
        both.latency = Some(LatencyResult { idle: Some(times.clone()), loaded: Some(times) });
        let text = TestText::new("far:5210", &plan(Direction::Both)).block(&both);
        assert!(text.contains("Gb/s goodput to far") && text.contains("Gb/s goodput from far"));
        assert!(text.contains("latency loaded  min 90.0 ms, p50 91.0 ms"), "{text}");
        assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
    }

    #[test]
    fn datagrams_are_counted_by_outcome() {
        let udp = UdpResult {
            sent: 1000,
            received: 900,
            lost: 90,
            lost_percent: 9.0,
            late: Some(3),
            receiver_dropped: Some(7),
            jitter_ms: Some(0.5),
            ..UdpResult::default()
        };
        assert_eq!(
            datagrams(&udp),
            "datagrams       1000 sent, 900 received, 90 lost (9.000 %), jitter 0.500 ms\n\
             \x20               3 late, 7 dropped by the receiver's host\n"
        );
    }
}
