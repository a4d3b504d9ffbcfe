//! Derives the reason for the rate of a test: a pure function of [`TestFacts`].
//!
//! The order of the questions matters, because one cause hides the next. A test at its requested
//! rate has no other limit. A kernel short of memory shrinks windows. A receiver without CPU closes
//! its window. A queue on the path shows that the path is full, and a larger window would only
//! lengthen the queue. A full receive or send window keeps the congestion window from filling.
//! `docs/design/attribution.md` explains the thresholds and states how often the answer was
//! correct.

use serde::{Deserialize, Serialize};

use super::TestFacts;
use crate::result::End;

/// The limit of a test's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The requested rate.
    Pacing,
    /// A shortage of kernel memory for TCP.
    TcpMemory,
    /// The CPU of the sender.
    SenderCpu,
    /// The CPU of the receiver.
    ReceiverCpu,
    /// The receiver's window.
    ReceiverWindow,
    /// The send buffer.
    SendBuffer,
    /// Packets dropped by an end.
    HostDrops,
    /// Loss on the path that a full queue does not explain.
    Loss,
    /// The rate of the slowest link.
    LinkRate,
    /// The congestion window, which is still growing, or is small for an unknown reason.
    CongestionWindow,
    /// The sending program, which provides no data although it has CPU.
    SendingProgram,
    /// No limit stands out.
    Nothing,
}

/// The reason for the rate of a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The limit.
    pub limit: Limit,
    /// The end that has the limit, if it belongs to one end.
    pub end: Option<End>,
    /// The share of time in which the limit applied; `None` if the limit has no such share.
    pub share_percent: Option<f64>,
    /// The reason as a sentence without a final period.
    pub sentence: String,
    /// The advice; `None` if there is none.
    pub advice: Option<String>,
    /// The facts behind the reason.
    pub facts: TestFacts,
}

/// The names of the two hosts, for sentences.
#[derive(Debug, Clone, Copy)]
pub struct Hosts<'a> {
    /// The sender's host.
    pub sender: &'a str,
    /// The receiver's host.
    pub receiver: &'a str,
}

impl Hosts<'_> {
    /// Returns the host of `end`.
    pub fn name(&self, end: End) -> &str {
        match end {
            End::Sender => self.sender,
            End::Receiver => self.receiver,
        }
    }
}

/// A limit without its sentence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Attribution {
    pub(super) limit: Limit,
    pub(super) end: Option<End>,
    pub(super) share_percent: Option<f64>,
}

/// The share of a requested rate at which the rate counts as reached. The requested rate includes
/// headers, which take up to 6 % (MTU 1500).
const PACED_PART: f64 = 0.92;
/// The percentage of time above which a thread is CPU-bound: the sum of running and waiting for its
/// core. Such a thread never waits for the network.
const CPU_BOUND_PERCENT: f64 = 90.0;
/// The percentage of load above which the CPU explains a limit that the time shares suggest.
const CPU_NEAR_PERCENT: f64 = 70.0;
/// The percentage of time in which a thread waits for its core above which it lacks CPU, even if it
/// sleeps at other times: it sleeps only after it has caught up.
const WAITING_PERCENT: f64 = 30.0;
/// The percentage of interrupts above which a core does little else: the receive path of the
/// network needs all of it.
const INTERRUPTS_PERCENT: f64 = 90.0;
/// The percentage of time under memory pressure above which kernel memory is the limit.
const PRESSURE_PERCENT: f64 = 25.0;
/// The percentage of time above which a window that limits the sender is the reason: without it the
/// sender would have been faster, up to the next limit.
const HELD_PERCENT: f64 = 30.0;
/// The fill level in percent above which the program reads a receive buffer too slowly.
const FULL_PERCENT: f64 = 50.0;
/// The percentage that counts as most of the time.
const MOST_PERCENT: f64 = 50.0;
/// The relative increase of the round-trip time that shows a queue.
const QUEUE_PART: f64 = 0.1;
const QUEUE_MS: f64 = 0.5;
/// The percentage of datagrams lost in one place above which this loss is the reason.
const LOST_PERCENT: f64 = 1.0;
/// The least time in seconds: shorter times have too few samples (50 per second) and too few ticks
/// of the processor clock (100 per second).
pub(super) const LEAST_SECONDS: f64 = 0.1;

pub(super) fn find(facts: &TestFacts) -> Attribution {
    if facts.seconds < LEAST_SECONDS {
        return Attribution { limit: Limit::Nothing, end: None, share_percent: None };
    }
    let datagrams = facts.udp.is_some();
    asked_for(facts)
        .or_else(|| memory(facts).filter(|_| !datagrams))
        .or_else(|| cpu(facts))
        .or_else(|| queue(facts))
        .or_else(|| window(facts))
        .or_else(|| path(facts))
        .or_else(|| datagrams_lost(facts))
        .or_else(|| program(facts))
        .unwrap_or(Attribution { limit: Limit::Nothing, end: None, share_percent: None })
}

fn asked_for(facts: &TestFacts) -> Option<Attribution> {
    let requested = facts.requested_bps?.bps() as f64;
    let met = facts.throughput_bps.bps() as f64 >= PACED_PART * requested;
    met.then_some(Attribution { limit: Limit::Pacing, end: Some(End::Sender), share_percent: None })
}

/// Returns the end with the larger value of `of`, and the value.
fn worse(facts: &TestFacts, of: impl Fn(&super::EndFacts) -> f64) -> (End, f64) {
    let (sender, receiver) = (of(&facts.sender), of(&facts.receiver));
    if receiver > sender { (End::Receiver, receiver) } else { (End::Sender, sender) }
}

fn memory(facts: &TestFacts) -> Option<Attribution> {
    let (end, share) = worse(facts, |end| end.tcp_memory_pressure_percent);
    let busy = worse(facts, super::EndFacts::load_percent).1 >= CPU_BOUND_PERCENT;
    (share >= PRESSURE_PERCENT && !busy).then_some(Attribution {
        limit: Limit::TcpMemory,
        end: Some(end),
        share_percent: Some(share),
    })
}

/// Finds a thread that always runs or waits for a core. A thread near that state counts if its
/// connection shows the effect: a sender with an empty socket, a receiver with a full one.
fn cpu(facts: &TestFacts) -> Option<Attribution> {
    let shares = &facts.shares;
    let sender = facts.sender.load_percent();
    let receiver = facts.receiver.load_percent();
    let full = facts.receiver.buffer_full_percent;
    let starved = shares.application_percent >= MOST_PERCENT;
    let closed = shares.receiver_window_percent >= HELD_PERCENT && full >= FULL_PERCENT;
    let bound = |end: &super::EndFacts, marked: bool| {
        let load = end.load_percent();
        load >= CPU_BOUND_PERCENT
            || marked && load >= CPU_NEAR_PERCENT
            || end.waiting_percent >= WAITING_PERCENT
    };
    let (sender_bound, receiver_bound) =
        (bound(&facts.sender, starved), bound(&facts.receiver, closed));
    let found =
        |limit, end, share| Attribution { limit, end: Some(end), share_percent: Some(share) };
    let of_sender = found(Limit::SenderCpu, End::Sender, sender);
    let of_receiver = found(Limit::ReceiverCpu, End::Receiver, receiver);
    match (sender_bound, receiver_bound) {
        // Both threads are fully loaded: the limit is the thread for which the other one waits, as
        // the sockets show.
        (true, true) if shares.receiver_window_percent > shares.application_percent => {
            Some(of_receiver)
        }
        (true, _) => Some(of_sender),
        (false, true) => Some(of_receiver),
        (false, false) => {
            let (end, share) = worse(facts, |end| end.interrupts_percent);
            let limit = match end {
                End::Sender => Limit::SenderCpu,
                End::Receiver => Limit::ReceiverCpu,
            };
            (share >= INTERRUPTS_PERCENT).then_some(found(limit, end, share))
        }
    }
}

fn window(facts: &TestFacts) -> Option<Attribution> {
    let (receiver, buffer) =
        (facts.shares.receiver_window_percent, facts.shares.send_buffer_percent);
    let (limit, end, share) = if receiver >= buffer {
        (Limit::ReceiverWindow, End::Receiver, receiver)
    } else {
        (Limit::SendBuffer, End::Sender, buffer)
    };
    (share >= HELD_PERCENT).then_some(Attribution {
        limit,
        end: Some(end),
        share_percent: Some(share),
    })
}

/// Finds a standing queue on the path. A full path is the limit, even if other buffers are full.
fn queue(facts: &TestFacts) -> Option<Attribution> {
    let queued =
        facts.udp.is_none() && facts.queue_ms() >= QUEUE_MS + QUEUE_PART * facts.rtt_min_ms;
    let share = held_by_path(facts).max(100.0 - facts.shares.application_percent);
    (queued && share >= MOST_PERCENT).then_some(Attribution {
        limit: Limit::LinkRate,
        end: None,
        share_percent: Some(share),
    })
}

/// Returns the share of time in which the congestion control limited the sender by its window or
/// its pacing.
fn held_by_path(facts: &TestFacts) -> f64 {
    facts.shares.congestion_window_percent + facts.shares.pacing_percent
}

/// Finds a congestion control that limited the sender without a queue on the path.
fn path(facts: &TestFacts) -> Option<Attribution> {
    let share = held_by_path(facts);
    if share < MOST_PERCENT {
        return None;
    }
    let found = |limit, end| Some(Attribution { limit, end, share_percent: Some(share) });
    let lossy = facts.retransmits > 0;
    let (end, drops) = worse(facts, |end| end.drops as f64);
    if lossy && drops >= facts.retransmits as f64 / 2.0 {
        return found(Limit::HostDrops, Some(end));
    }
    // BBR paces at the rate that the path delivered. It ignores loss below 2 %
    // (draft-ietf-ccwg-bbr, BBR.LossThresh); its first version ignores all loss.
    let models_the_path = facts.congestion.starts_with("bbr");
    match (models_the_path, lossy) {
        (true, _) if facts.settled => found(Limit::LinkRate, None),
        (false, true) => found(Limit::Loss, None),
        _ => found(Limit::CongestionWindow, Some(End::Sender)),
    }
}

/// Finds the place of lost datagrams. They are not retransmitted, so the worst place determines the
/// rate.
fn datagrams_lost(facts: &TestFacts) -> Option<Attribution> {
    let udp = facts.udp?;
    let percent = |count: u64| super::math::percent(count as f64, udp.sent as f64);
    let places = [
        (Limit::HostDrops, Some(End::Sender), percent(udp.sender_dropped.unwrap_or(0))),
        (Limit::HostDrops, Some(End::Receiver), percent(udp.receiver_dropped.unwrap_or(0))),
        (Limit::Loss, None, percent(udp.lost)),
    ];
    let (limit, end, share) = places.into_iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
    let found = Attribution { limit, end, share_percent: Some(share) };
    (share >= LOST_PERCENT).then_some(found)
}

fn program(facts: &TestFacts) -> Option<Attribution> {
    let share = facts.shares.application_percent;
    (share >= MOST_PERCENT).then_some(Attribution {
        limit: Limit::SendingProgram,
        end: Some(End::Sender),
        share_percent: Some(share),
    })
}

#[cfg(test)]
mod tests {
    use super::super::Shares;
    use super::*;
    use crate::result::{EndFacts, HostLimits, UdpResult};
    use crate::units::{Bytes, Rate};

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
        Reason::derive(facts, Hosts { sender: "this host", receiver: "far" })
    }

    #[track_caller]
    fn check(facts: TestFacts, limit: Limit, words: &str, advice: &str) {
        let reason = derive(facts);
        assert_eq!(reason.limit, limit, "{}", reason.sentence);
        assert!(reason.sentence.contains(words), "{}", reason.sentence);
        let said = reason.advice.unwrap_or_default();
        assert!(said.contains(advice), "{said}");
        assert!(!reason.sentence.ends_with('.') && !said.ends_with('.'));
    }

    #[test]
    fn a_test_without_a_limit_has_no_reason() {
        let reason = derive(facts());
        assert_eq!(
            (reason.limit, reason.sentence.as_str()),
            (Limit::Nothing, "nothing stands out")
        );
        assert_eq!((reason.end, reason.share_percent, reason.advice), (None, None, None));
    }

    #[test]
    fn a_test_of_milliseconds_has_no_reason() {
        let shares = held("receiver", 84.0);
        let short = TestFacts { seconds: 0.004, shares, ..facts() };
        check(short, Limit::Nothing, "too short to determine the limit: 0.004 s", "longer");
        check(TestFacts { shares, ..facts() }, Limit::ReceiverWindow, "", "");
    }

    #[test]
    fn a_receivers_window_is_set_against_the_bandwidth_delay_product() {
        let shares = held("receiver", 84.0);
        let small = TestFacts { shares, ..facts() };
        check(
            small.clone(),
            Limit::ReceiverWindow,
            "limited by the receiver's window (84 % of the time): 2.00 MiB against a \
             bandwidth-delay product of 107 MiB (10.0 Gb/s at 90.0 ms)",
            "raise the third number of net.ipv4.tcp_rmem on far from 4194304 to 225000000",
        );
        let asked = TestFacts { window_asked: true, ..small.clone() };
        check(asked.clone(), Limit::ReceiverWindow, "2.00 MiB", "ask for more (-w 112500000)");
        let mut clipped = asked;
        clipped.receiver.limits.asked_bytes = Bytes::mib(2);
        check(clipped, Limit::ReceiverWindow, "2.00 MiB", "raise net.core.rmem_max on far");
        let mut short = small.clone();
        short.receiver.limits.autotuned_bytes = Bytes::mib(64);
        check(short, Limit::ReceiverWindow, "2.00 MiB", "let it grow to 4.00 MiB of the 64.0 MiB");
        // A smaller bandwidth-delay product does not explain the rate.
        let near = TestFacts { bandwidth_delay_bytes: Bytes::new(1000), ..small };
        check(near, Limit::ReceiverWindow, "2.00 MiB at a round-trip time of 90.2 ms", "4194304");
    }

    #[test]
    fn a_send_buffer_is_the_senders() {
        let facts = TestFacts { shares: held("buffer", 61.0), streams: 2, ..facts() };
        check(
            facts,
            Limit::SendBuffer,
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
            Limit::ReceiverCpu,
            "its thread waited for core 1 for 93 % of the time and ran for only 5 %, as other \
             programs used 94 % of it",
            "on far, stop what else runs there",
        );
        let mut stolen = busy.clone();
        stolen.receiver.core_stolen_percent = 96.0;
        check(stolen, Limit::ReceiverCpu, "the hypervisor took 96 %", "give far processors");
        let mut slow = busy;
        (slow.receiver.running_percent, slow.receiver.waiting_percent) = (97.0, 1.0);
        check(slow.clone(), Limit::ReceiverCpu, "ran for 97 % of the time", "(-P)");
        // A thread near its limit is the reason only together with a full socket.
        slow.receiver.running_percent = 80.0;
        check(slow.clone(), Limit::ReceiverWindow, "window", "");
        slow.receiver.buffer_full_percent = 70.0;
        check(slow.clone(), Limit::ReceiverCpu, "ran for 80 %", "(-P)");
        // The thread sleeps half of the time, but it also waits for its core much of the time.
        let mut late = TestFacts { rtt_ms: 120.0, shares: held("pacing", 53.0), ..slow.clone() };
        late.receiver = EndFacts { running_percent: 1.0, waiting_percent: 45.0, ..late.receiver };
        check(late, Limit::ReceiverCpu, "waited for core 1 for 45 %", "");
        // Both are fully loaded: the sender waits for the receiver.
        slow.sender.running_percent = 99.0;
        slow.receiver.running_percent = 96.0;
        check(slow, Limit::ReceiverCpu, "receiver's CPU", "");
    }

    #[test]
    fn a_sender_without_cpu_leaves_its_socket_empty() {
        let mut busy = TestFacts { shares: held("application", 100.0), ..facts() };
        check(busy.clone(), Limit::SendingProgram, "nothing in its socket for 100 %", "(-P)");
        busy.sender.running_percent = 75.0;
        check(busy.clone(), Limit::SenderCpu, "ran for 75 % of the time", "(-Z)");
        busy.sender.running_percent = 20.0;
        busy.sender.interrupts_percent = 98.0;
        check(busy, Limit::SenderCpu, "spent 98 % of its time in interrupts", "RSS");
    }

    #[test]
    fn kernel_memory_shrinks_windows_and_is_named_first() {
        let mut short = TestFacts { shares: held("receiver", 90.0), ..facts() };
        short.receiver.tcp_memory_pressure_percent = 80.0;
        short.receiver.tcp_memory_bytes = Bytes::gib(2);
        check(
            short,
            Limit::TcpMemory,
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
        check(paced.clone(), Limit::Pacing, "sent at the requested rate (-b 420 Mb/s)", "omit -b");
        let missed = TestFacts { requested_bps: Some(Rate::from_bps(1_000_000_000)), ..paced };
        check(missed, Limit::ReceiverWindow, "window", "");
    }

    #[test]
    fn a_queue_tells_the_links_rate_from_loss() {
        let full = TestFacts { shares: held("window", 97.0), ..facts() };
        let queued = TestFacts { rtt_ms: 131.0, ..full.clone() };
        check(
            queued.clone(),
            Limit::LinkRate,
            "its slowest link carries 400 Mb/s, varied by 2 % (cubic was held back for \
             97 % of the time, with 41.0 ms of queue on a round trip of 90.0 ms)",
            "",
        );
        let steady_bps = Some(Rate::from_bps(500_000_000));
        let noisy = TestFacts { steady_bps, spread_percent: Some(88.0), ..queued.clone() };
        let words = "carries 500 Mb/s in the median, though not steadily: the middle half of the \
                     time spans 88 % of that (cubic";
        check(noisy, Limit::LinkRate, words, "");
        let overflow = TestFacts { retransmits: 500, loss_percent: 0.1, ..queued };
        check(overflow.clone(), Limit::LinkRate, "0.10 % sent again", "");
        let lossy = TestFacts { rtt_ms: 90.4, ..overflow };
        check(
            lossy.clone(),
            Limit::Loss,
            "0.10 % of the segments were retransmitted, at which cubic keeps its window at 4.00 MiB",
            "-C bbr",
        );
        let mut dropped = lossy.clone();
        dropped.receiver.drops = 400;
        check(dropped, Limit::HostDrops, "the receiver's host, which dropped 400", "on far");
        // BBR keeps the queue short and ignores loss.
        let bbr = TestFacts { shares: held("pacing", 97.0), congestion: "bbr".into(), ..lossy };
        // A queue on the path takes precedence over other full buffers.
        let buffer = TestFacts { shares: held("buffer", 70.0), rtt_ms: 140.0, ..bbr.clone() };
        check(buffer, Limit::LinkRate, "50.0 ms of queue", "");
        check(bbr.clone(), Limit::LinkRate, "bbr was held back", "");
        let growing = TestFacts { settled: false, spread_percent: None, ..bbr };
        check(growing, Limit::CongestionWindow, "still changing", "longer test");
        check(full, Limit::CongestionWindow, "4.00 MiB on a round trip", "(-C)");
    }

    #[test]
    fn datagrams_are_counted_where_they_were_lost() {
        let with = |udp| TestFacts { udp: Some(udp), shares: Shares::default(), ..facts() };
        let udp =
            UdpResult { sent: 1000, lost: 50, receiver_dropped: Some(20), ..UdpResult::default() };
        check(with(udp), Limit::Loss, "the path, which lost 5.0 % of the datagrams", "-b");
        let udp = UdpResult { receiver_dropped: Some(90), ..udp };
        check(with(udp), Limit::HostDrops, "the receiver's host, which dropped 9.0 %", "on far");
        let udp = UdpResult { sent: 100_000, ..udp };
        check(with(udp), Limit::Nothing, "nothing stands out", "");
    }
}
