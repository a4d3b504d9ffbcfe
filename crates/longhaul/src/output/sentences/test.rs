//! The reason for the rate of a test as a sentence with its numbers, and the advice.

mod hosts;
mod path;

use longhaul_core::result::{End, Reason, TestLimit};

/// The names of the two hosts of a test, for its sentences.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hosts<'a> {
    pub(super) sender: &'a str,
    pub(super) receiver: &'a str,
}

impl Hosts<'_> {
    fn name(&self, end: End) -> &str {
        match end {
            End::Sender => self.sender,
            End::Receiver => self.receiver,
        }
    }
}

/// Fills in the sentence and the advice of `reason`.
pub(super) fn complete(reason: &mut Reason, hosts: Hosts<'_>) {
    (reason.sentence, reason.advice) = words(reason, hosts);
}

/// Returns the sentence, and the advice if there is one.
fn words(reason: &Reason, hosts: Hosts<'_>) -> (String, Option<String>) {
    let facts = &reason.facts;
    let end = reason.end.unwrap_or(End::Sender);
    let share = reason.share_percent.unwrap_or(0.0);
    match reason.limit {
        TestLimit::Pacing => (
            format!("sent at the requested rate (-b {})", facts.requested_bps.unwrap_or_default()),
            Some("omit -b to measure the rate of the path".to_owned()),
        ),
        TestLimit::TcpMemory => hosts::memory(end, share, facts.end(end), hosts.name(end)),
        TestLimit::SenderCpu | TestLimit::ReceiverCpu => {
            hosts::cpu(end, facts.end(end), hosts.name(end))
        }
        TestLimit::ReceiverWindow => hosts::window(facts, end, share, hosts.name(end)),
        TestLimit::SendBuffer => hosts::window(facts, end, share, hosts.name(end)),
        TestLimit::Loss if facts.udp.is_some() => (
            format!(
                "limited by the path, which lost {share:.1} % of the datagrams and delivered {}",
                facts.throughput_bps
            ),
            Some("send slower (-b), until none are lost".to_owned()),
        ),
        TestLimit::HostDrops => hosts::host_drops(facts, end, share, hosts.name(end)),
        TestLimit::Loss => path::loss(facts),
        TestLimit::ShallowQueue => path::shallow_queue(facts),
        TestLimit::LinkRate => (path::link(facts, share), path::compare(facts)),
        TestLimit::CongestionWindow => path::congestion(facts, share),
        TestLimit::SendingProgram => (
            format!(
                "limited by the sending program: the send buffer was empty for {share:.0} % of the \
                 time, while the threads of the program ran for only {:.0} %",
                facts.sender.running_percent
            ),
            Some("use more streams (-P) or larger writes (-l)".to_owned()),
        ),
        TestLimit::Nothing if facts.is_too_short() => (
            format!("too short to determine the limit: {:.3} s", facts.seconds),
            Some("run a longer test (-t)".to_owned()),
        ),
        TestLimit::Nothing if !facts.sender.is_known() => (
            "this host did not limit the rate; the sending program does not report its limit"
                .to_owned(),
            None,
        ),
        TestLimit::Nothing => ("no limit found".to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::result::{EndFacts, HostLimits, Shares, TestFacts, UdpResult};
    use longhaul_core::units::{Bytes, Rate};

    use super::*;

    /// Returns the facts of a flow without a limit; each test adds one.
    fn facts() -> TestFacts {
        let end = |autotuned| EndFacts {
            running_percent: 20.0,
            limits: HostLimits { autotuned_bytes: autotuned, ..HostLimits::default() },
            buffer_bytes: Bytes::mib(4),
            ..EndFacts::default()
        };
        TestFacts {
            seconds: 10.0,
            throughput_bps: Rate::from_bps(400_000_000),
            shares: Shares {
                receiver_window_percent: 10.0,
                send_buffer_percent: 10.0,
                congestion_window_percent: 25.0,
                pacing_percent: 20.0,
                application_percent: 35.0,
            },
            streams: 1,
            congestion: "cubic".to_owned(),
            rtt_ms: 90.2,
            rtt_min_ms: 90.0,
            settled: true,
            spread_percent: Some(2.0),
            cwnd_bytes: Bytes::mib(4),
            receiver_window_bytes: Bytes::mib(2),
            reference_bps: Rate::from_bps(10_000_000_000),
            bandwidth_delay_bytes: Bytes::new(112_500_000),
            sender: end(Bytes::mib(4)),
            receiver: end(Bytes::mib(4)),
            ..TestFacts::default()
        }
    }

    fn held(holder: &str, percent: f64) -> Shares {
        let rest = 100.0 - percent;
        let mut shares = Shares { application_percent: rest, ..Shares::default() };
        match holder {
            "receiver" => shares.receiver_window_percent = percent,
            "buffer" => shares.send_buffer_percent = percent,
            "window" => shares.congestion_window_percent = percent,
            "pacing" => shares.pacing_percent = percent,
            _ => shares = Shares { application_percent: 100.0, ..Shares::default() },
        }
        shares
    }

    fn derive(facts: TestFacts) -> Reason {
        let mut reason = Reason::derive(facts);
        complete(&mut reason, Hosts { sender: "this host", receiver: "far" });
        reason
    }

    #[track_caller]
    fn check(facts: TestFacts, words: &str, advice: &str) {
        let reason = derive(facts);
        assert!(reason.sentence.contains(words), "{}", reason.sentence);
        let given = reason.advice.unwrap_or_default();
        assert!(given.contains(advice), "{given}");
        assert!(!reason.sentence.ends_with('.') && !given.ends_with('.'));
    }

    #[test]
    fn a_test_without_a_limit_has_no_reason() {
        let reason = derive(facts());
        assert_eq!((reason.sentence.as_str(), reason.advice), ("no limit found", None));
    }

    #[test]
    fn a_test_of_milliseconds_has_no_reason() {
        let shares = held("receiver", 84.0);
        let short = TestFacts { seconds: 0.004, shares, ..facts() };
        check(short, "too short to determine the limit: 0.004 s", "longer");
    }

    #[test]
    fn a_receivers_window_is_set_against_the_bandwidth_delay_product() {
        let shares = held("receiver", 84.0);
        let small = TestFacts { shares, ..facts() };
        check(
            small.clone(),
            "limited by the receiver's window (84 % of the time): 2.00 MiB against a \
             bandwidth-delay product of 107 MiB (10.0 Gb/s at 90.0 ms)",
            "raise the third number of net.ipv4.tcp_rmem on far from 4194304 to 225000000",
        );
        let asked = TestFacts { window_asked: true, ..small.clone() };
        check(asked.clone(), "2.00 MiB", "request more (-w 112500000)");
        let mut clipped = asked;
        clipped.receiver.limits.asked_bytes = Bytes::mib(2);
        check(clipped, "2.00 MiB", "raise net.core.rmem_max on far");
        let mut short = small.clone();
        short.receiver.limits.autotuned_bytes = Bytes::mib(64);
        check(short, "2.00 MiB", "increased it to 4.00 MiB of the 64.0 MiB");
        // A smaller bandwidth-delay product does not explain the rate.
        let near = TestFacts { bandwidth_delay_bytes: Bytes::new(1000), ..small };
        check(near, "2.00 MiB at a round-trip time of 90.2 ms", "4194304");
    }

    #[test]
    fn a_send_buffer_is_the_senders() {
        let facts = TestFacts { shares: held("buffer", 61.0), streams: 2, ..facts() };
        check(
            facts,
            "limited by the sender's buffer (61 % of the time): 8.00 MiB over 2 streams against",
            "net.ipv4.tcp_wmem on this host",
        );
    }

    #[test]
    fn a_receiver_without_cpu_is_not_a_small_window() {
        let mut busy = TestFacts { shares: held("receiver", 95.0), ..facts() };
        busy.receiver.running_percent = 5.0;
        busy.receiver.waiting_percent = 93.0;
        busy.receiver.core = 1;
        busy.receiver.core_others_percent = 94.0;
        check(
            busy.clone(),
            "its thread waited for core 1 for 93 % of the time and ran for only 5 %, because other \
             programs used 94 % of it",
            "on far, stop the other programs",
        );
        let mut stolen = busy.clone();
        stolen.receiver.core_stolen_percent = 96.0;
        check(stolen, "the hypervisor took 96 %", "give far dedicated processors");
        let mut slow = busy;
        (slow.receiver.running_percent, slow.receiver.waiting_percent) = (97.0, 1.0);
        check(slow.clone(), "ran for 97 % of the time", "(-P)");
        // A thread near its limit is the reason only together with a full socket.
        slow.receiver.running_percent = 80.0;
        check(slow.clone(), "window", "");
        slow.receiver.buffer_full_percent = 70.0;
        check(slow.clone(), "ran for 80 %", "(-P)");
        // The thread sleeps half of the time, but it also waits for its core much of the time.
        let mut late = TestFacts { rtt_ms: 120.0, shares: held("pacing", 53.0), ..slow.clone() };
        late.receiver = EndFacts { running_percent: 1.0, waiting_percent: 45.0, ..late.receiver };
        check(late, "waited for core 1 for 45 %", "");
        // Both are fully loaded: the sender waits for the receiver.
        slow.sender.running_percent = 99.0;
        slow.receiver.running_percent = 96.0;
        check(slow, "receiver's CPU", "");
    }

    #[test]
    fn a_sender_without_cpu_leaves_its_socket_empty() {
        let mut busy = TestFacts { shares: held("application", 100.0), ..facts() };
        check(busy.clone(), "empty for 100 %", "(-P)");
        busy.sender.running_percent = 75.0;
        check(busy.clone(), "ran for 75 % of the time", "(-Z)");
        busy.sender.running_percent = 20.0;
        busy.sender.interrupts_percent = 98.0;
        check(busy, "spent 98 % of its time in interrupts", "RSS");
    }

    #[test]
    fn kernel_memory_shrinks_windows_and_is_named_first() {
        let mut short = TestFacts { shares: held("receiver", 90.0), ..facts() };
        short.receiver.tcp_memory_pressure_percent = 80.0;
        short.receiver.tcp_memory_bytes = Bytes::gib(2);
        check(
            short,
            "limited by the receiver's kernel memory for TCP, under pressure for 80 % of the \
             time: 2.00 GiB are in use",
            "net.ipv4.tcp_mem",
        );
    }

    #[test]
    fn a_reached_requested_rate_is_the_reason() {
        let paced = TestFacts {
            requested_bps: Some(Rate::from_bps(420_000_000)),
            shares: held("receiver", 90.0),
            ..facts()
        };
        check(paced.clone(), "sent at the requested rate (-b 420 Mb/s)", "omit -b");
        let missed = TestFacts { requested_bps: Some(Rate::from_bps(1_000_000_000)), ..paced };
        check(missed, "window", "");
    }

    #[test]
    fn a_queue_tells_the_links_rate_from_loss() {
        let full = TestFacts { shares: held("window", 97.0), ..facts() };
        let queued = TestFacts { rtt_ms: 131.0, ..full.clone() };
        check(
            queued.clone(),
            "its slowest link carries 400 Mb/s, which varied by 2 % (cubic limited the sender for \
             97 % of the time, with 41.0 ms of queueing delay on an RTT of 90.0 ms)",
            "",
        );
        let steady_bps = Some(Rate::from_bps(500_000_000));
        let noisy = TestFacts { steady_bps, spread_percent: Some(88.0), ..queued.clone() };
        let words = "carries 500 Mb/s in the median, with an interquartile range of 88 % of the \
                     median (cubic";
        check(noisy, words, "");
        let overflow = TestFacts { retransmits: 500, loss_percent: 0.1, ..queued };
        check(overflow.clone(), "0.10 % retransmitted", "");
        let lossy = TestFacts { rtt_ms: 90.4, ..overflow };
        check(
            lossy.clone(),
            "0.10 % of the segments were retransmitted, at which cubic keeps its window at 4.00 MiB",
            "-C bbr",
        );
        let much = TestFacts { loss_percent: 16.0, segment_bytes: 8948, ..lossy.clone() };
        check(TestFacts { rtt_ms: 90.1, ..much }, "16 % of the segments", "a lower rate (-b 100M)");
        let bursts = TestFacts { burst_percent: 80.0, ..lossy.clone() };
        check(bursts, "80 % of them after bursts of loss", "two rates");
        let mut dropped = lossy.clone();
        dropped.receiver.drops = 400;
        check(dropped, "the receiver's host, which dropped 400", "on far");
        // BBR keeps the queue short and ignores loss.
        let bbr = TestFacts { shares: held("pacing", 97.0), congestion: "bbr".into(), ..lossy };
        // A queue on the path takes precedence over other full buffers.
        let buffer = TestFacts { shares: held("buffer", 70.0), rtt_ms: 140.0, ..bbr.clone() };
        check(buffer, "50.0 ms of queueing delay", "");
        check(bbr.clone(), "bbr limited the sender", "");
        let growing = TestFacts { settled: false, spread_percent: None, ..bbr };
        check(growing, "still changing", "longer test");
        check(full, "4.00 MiB on an RTT", "(-C)");
    }

    #[test]
    fn datagrams_are_counted_where_they_were_lost() {
        let with = |udp| TestFacts { udp: Some(udp), shares: Shares::default(), ..facts() };
        let udp =
            UdpResult { sent: 1000, lost: 50, receiver_dropped: Some(20), ..UdpResult::default() };
        check(with(udp), "the path, which lost 5.0 % of the datagrams", "-b");
        let udp = UdpResult { receiver_dropped: Some(90), ..udp };
        check(with(udp), "the receiver's host, which dropped 9.0 %", "on far");
        let udp = UdpResult { sent: 100_000, ..udp };
        check(with(udp), "no limit found", "");
    }
}
