//! The reason for the rate of a test as a sentence with its numbers, and the advice.

use longhaul_core::result::{End, EndFacts, Reason, TestFacts, TestLimit};
use longhaul_core::units::{Bytes, Rate};

use crate::output::test::words::millis;

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
        TestLimit::TcpMemory => memory(end, share, facts.end(end), hosts.name(end)),
        TestLimit::SenderCpu | TestLimit::ReceiverCpu => cpu(end, facts.end(end), hosts.name(end)),
        TestLimit::ReceiverWindow => window(facts, end, share, hosts.name(end)),
        TestLimit::SendBuffer => window(facts, end, share, hosts.name(end)),
        TestLimit::Loss if facts.udp.is_some() => (
            format!(
                "limited by the path, which lost {share:.1} % of the datagrams and delivered {}",
                facts.throughput_bps
            ),
            Some("send slower (-b), until none are lost".to_owned()),
        ),
        TestLimit::HostDrops => host_drops(facts, end, share, hosts.name(end)),
        TestLimit::Loss => loss(facts),
        TestLimit::ShallowQueue => shallow_queue(facts),
        TestLimit::LinkRate => (link(facts, share), compare(facts)),
        TestLimit::CongestionWindow => congestion(facts, share),
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

fn host_drops(facts: &TestFacts, end: End, share: f64, host: &str) -> (String, Option<String>) {
    if facts.udp.is_none() {
        let sentence = format!(
            "limited by the {end}'s host, which dropped {} packets ({} segments retransmitted)",
            facts.end(end).drops,
            facts.retransmits
        );
        let advice = format!(
            "on {host}, enlarge the rings of the interface (ethtool -G) and \
             net.core.netdev_max_backlog, and spread its interrupts over more cores"
        );
        return (sentence, Some(advice));
    }
    let advice = match end {
        End::Sender => "send slower (-b)".to_owned(),
        End::Receiver => format!(
            "use more streams (-P) or a larger buffer (-w, and net.core.rmem_max on {host})"
        ),
    };
    let sentence =
        format!("limited by the {end}'s host, which dropped {share:.1} % of the datagrams");
    (sentence, Some(advice))
}

fn memory(end: End, share: f64, facts: &EndFacts, host: &str) -> (String, Option<String>) {
    let begins = match facts.tcp_memory_pressure_bytes.get() {
        0 => String::new(),
        _ => format!(", and pressure begins at {}", facts.tcp_memory_pressure_bytes),
    };
    (
        format!(
            "limited by the {end}'s kernel memory for TCP, under pressure for {share:.0} % of \
             the time: {} are in use{begins}",
            facts.tcp_memory_bytes
        ),
        Some(format!(
            "on {host}, close the connections that use it (ss -tm lists them), or raise \
             net.ipv4.tcp_mem, which counts in pages"
        )),
    )
}

fn cpu(end: End, facts: &EndFacts, host: &str) -> (String, Option<String>) {
    let core = facts.core;
    if facts.load_percent() < facts.interrupts_percent {
        return (
            format!(
                "limited by the {end}'s CPU: core {} spent {:.0} % of its time in interrupts",
                facts.interrupts_core, facts.interrupts_percent
            ),
            Some(format!(
                "on {host}, spread the interface's interrupts over more cores (RSS or RPS)"
            )),
        );
    }
    let mut sentence = format!("limited by the {end}'s CPU: its thread ");
    if facts.waiting_percent < facts.running_percent / 2.0 {
        sentence += &format!("ran for {:.0} % of the time", facts.running_percent);
        if facts.waiting_percent >= 1.0 {
            let waiting = facts.waiting_percent;
            sentence += &format!(" and waited for core {core} for another {waiting:.0} %");
        }
        let advice = "distribute the work over more cores (-P), or send without copying (-Z)";
        return (sentence, Some(advice.to_owned()));
    }
    sentence += &format!(
        "waited for core {core} for {:.0} % of the time and ran for only {:.0} %",
        facts.waiting_percent, facts.running_percent
    );
    if facts.core_stolen_percent > facts.core_others_percent {
        sentence +=
            &format!(", because the hypervisor took {:.0} % of it", facts.core_stolen_percent);
        let advice = format!("give {host} dedicated processors, or move it to an idle machine");
        return (sentence, Some(advice));
    }
    sentence += &format!(", because other programs used {:.0} % of it", facts.core_others_percent);
    (sentence, Some(format!("on {host}, stop the other programs, or use other cores (-A)")))
}

fn window(facts: &TestFacts, end: End, share: f64, host: &str) -> (String, Option<String>) {
    let side = facts.end(end);
    let (name, size) = match end {
        End::Receiver => ("window", facts.receiver_window_bytes),
        End::Sender => {
            let total = side.buffer_bytes.get().saturating_mul(facts.streams.into());
            ("buffer", Bytes::new(total))
        }
    };
    let product = facts.bandwidth_delay_bytes;
    let mut sentence = format!("limited by the {end}'s {name} ({share:.0} % of the time): {size}");
    if facts.streams > 1 {
        sentence += &format!(" over {} streams", facts.streams);
    }
    sentence += &if product > size {
        format!(
            " against a bandwidth-delay product of {product} ({} at {})",
            facts.reference_bps,
            millis(facts.rtt_min_ms)
        )
    } else {
        format!(" at a round-trip time of {}", millis(facts.rtt_ms))
    };
    // Half of the kernel's buffer is payload and half is overhead (tcp_win_from_space with
    // TCP_DEFAULT_SCALING_RATIO, net/tcp.h). A window that already equals the product is doubled.
    let streams = u64::from(facts.streams.max(1));
    let twice = |bytes: Bytes| Bytes::new(bytes.get().saturating_mul(2));
    let wanted = Bytes::new(twice(product.max(twice(size))).get() / streams);
    (sentence, Some(window_advice(facts, end, wanted, host)))
}

/// Returns the advice that gives the buffers of `end` the size `wanted`.
fn window_advice(facts: &TestFacts, end: End, wanted: Bytes, host: &str) -> String {
    let side = facts.end(end);
    let (setting, most) = match end {
        End::Receiver => ("rmem", "rmem_max"),
        End::Sender => ("wmem", "wmem_max"),
    };
    let limits = &side.limits;
    let near = |limit: Bytes| side.buffer_bytes.get() as f64 >= 0.9 * limit.get() as f64;
    if !side.is_known() {
        format!(
            "raise the third number of net.ipv4.tcp_{setting} or net.core.{most} on {host} to {}, \
             or use more streams (-P)",
            wanted.get()
        )
    } else if facts.window_asked {
        let clipped = limits.asked_bytes.get() > 0
            && near(Bytes::new(limits.asked_bytes.get().saturating_mul(2)));
        if clipped {
            format!(
                "raise net.core.{most} on {host} from {} to {}, or omit -w",
                limits.asked_bytes.get(),
                wanted.get()
            )
        } else {
            format!("request more (-w {}), or omit -w", wanted.get() / 2)
        }
    } else if near(limits.autotuned_bytes) {
        format!(
            "raise the third number of net.ipv4.tcp_{setting} on {host} from {} to {}, or use \
             more streams (-P)",
            limits.autotuned_bytes.get(),
            wanted.get()
        )
    } else {
        format!(
            "the kernel of {host} increased it to {} of the {} that net.ipv4.tcp_{setting} allows; \
             run a longer test (-t), or use more streams (-P)",
            side.buffer_bytes, limits.autotuned_bytes
        )
    }
}

fn loss(facts: &TestFacts) -> (String, Option<String>) {
    let sentence = format!(
        "limited by loss: {} of the segments were retransmitted, at which {} keeps its window at {} \
         against a bandwidth-delay product of {} ({} at {})",
        fine_percent(facts.loss_percent),
        facts.congestion,
        facts.cwnd_bytes,
        facts.bandwidth_delay_bytes,
        facts.reference_bps,
        millis(facts.rtt_min_ms)
    );
    let advice = "find where the path loses packets, or use a congestion control that tolerates more loss \
                  (-C bbr), or more streams (-P)";
    (sentence, compare(facts).or_else(|| Some(advice.to_owned())))
}

/// The loss in percent from which on a policer or a shallow queue is as likely as a damaged link, and
/// the part of the rate at which their loss differs.
const COMPARED_PERCENT: f64 = 1.0;
const COMPARED_PART: u64 = 4;

/// Returns the advice to compare the loss at a lower rate, if the test does not show its cause.
fn compare(facts: &TestFacts) -> Option<String> {
    let rate = Rate::from_bps(facts.throughput_bps.bps() / COMPARED_PART);
    // A queue that overflows during the test is that of a full link.
    let queued = facts.fills_a_queue(facts.queue_ms());
    (facts.loss_percent >= COMPARED_PERCENT && !queued).then(|| {
        format!(
            "compare the loss at a lower rate (-b {}), as longhaul diagnose does: if there is none, a \
             policer or a switch with small buffers drops bursts; otherwise the path damages packets",
            rate.to_string().replace(' ', "").replace("b/s", "")
        )
    })
}

fn shallow_queue(facts: &TestFacts) -> (String, Option<String>) {
    let rate = facts.steady_bps.unwrap_or(facts.throughput_bps);
    let sentence = format!(
        "limited by a policer or a switch with small buffers, which drops bursts instead of queueing \
         them: {} of the segments were retransmitted, {:.0} % of them after bursts of loss, the \
         queueing delay was {} on an RTT of {}, and {} reached {rate}",
        fine_percent(facts.loss_percent),
        facts.burst_percent,
        millis(facts.queue_ms()),
        millis(facts.rtt_min_ms),
        facts.congestion,
    );
    let advice = "find the highest rate without loss (-b), and increase the queue or the burst size of the \
                  policer; longhaul diagnose compares the loss at two rates";
    (sentence, Some(advice.to_owned()))
}

/// The interquartile range in percent above which a rate is not called steady.
const STEADY_PERCENT: f64 = 25.0;

fn link(facts: &TestFacts, share: f64) -> String {
    let carries = facts.steady_bps.unwrap_or(facts.throughput_bps);
    let mut sentence = format!("limited by the path: its slowest link carries {carries}");
    match facts.spread_percent {
        Some(spread) if spread <= STEADY_PERCENT => {
            sentence += &format!(", which varied by {spread:.0} %");
        }
        Some(spread) => {
            sentence += &format!(
                " in the median, with an interquartile range of {spread:.0} % of the median"
            );
        }
        None => {}
    }
    sentence += &format!(
        " ({} limited the sender for {share:.0} % of the time, with {} of queueing delay on an \
         RTT of {}",
        facts.congestion,
        millis(facts.queue_ms()),
        millis(facts.rtt_min_ms)
    );
    if facts.retransmits > 0 {
        sentence += &format!(", {} retransmitted", fine_percent(facts.loss_percent));
    }
    if facts.marked_percent > 0.0 {
        sentence += &format!(", {} marked", fine_percent(facts.marked_percent));
    }
    sentence.push(')');
    sentence
}

fn congestion(facts: &TestFacts, share: f64) -> (String, Option<String>) {
    let growing = if facts.settled { "" } else { ", which was still changing when the test ended" };
    let sentence = format!(
        "limited by the congestion window of {} ({share:.0} % of the time){growing}: {} on an \
         RTT of {}",
        facts.congestion,
        facts.cwnd_bytes,
        millis(facts.rtt_min_ms)
    );
    let advice = if facts.settled {
        "try another congestion control (-C), or more streams (-P)"
    } else {
        "run a longer test (-t)"
    };
    (sentence, Some(advice.to_owned()))
}

/// Formats with two significant digits: `12 %`, `0.010 %`.
fn fine_percent(value: f64) -> String {
    let digits = match value {
        v if v >= 9.95 => 0,
        v if v >= 0.995 => 1,
        v if v >= 0.0995 => 2,
        v if v >= 0.00995 => 3,
        _ => 4,
    };
    format!("{value:.digits$} %")
}

#[cfg(test)]
mod tests {
    use longhaul_core::result::{HostLimits, Shares, UdpResult};

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
