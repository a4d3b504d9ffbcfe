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
pub enum TestLimit {
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
    /// Bursts of loss without a queue: a policer, or a switch with few buffers.
    ShallowQueue,
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
    pub limit: TestLimit,
    /// The end that has the limit, if it belongs to one end.
    pub end: Option<End>,
    /// The share of time in which the limit applied; `None` if the limit has no such share.
    pub share_percent: Option<f64>,
    /// The reason as a sentence without a final period. The program fills it in.
    #[serde(default)]
    pub sentence: String,
    /// The advice as a sentence without a final period; `None` if there is none. The program fills
    /// it in.
    #[serde(default)]
    pub advice: Option<String>,
    /// The facts behind the reason.
    pub facts: TestFacts,
}

impl Reason {
    /// Derives the reason from the facts.
    pub fn derive(facts: TestFacts) -> Self {
        let Attribution { limit, end, share_percent } = find(&facts);
        Reason { limit, end, share_percent, sentence: String::new(), advice: None, facts }
    }
}

/// A limit with its end and share.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Attribution {
    limit: TestLimit,
    end: Option<End>,
    share_percent: Option<f64>,
}

/// The share of a requested rate at which the rate counts as reached. The requested rate includes
/// headers, which take up to 6 % (MTU 1500).
const PACED_PART: f64 = 0.92;
/// The percentage of time above which a thread is CPU-bound: the sum of running and waiting for its
/// core. Such a thread never waits for the network.
const CPU_BOUND_PERCENT: f64 = 90.0;
/// The percentage of load above which the CPU explains a limit that the time shares suggest.
const CPU_NEAR_PERCENT: f64 = 70.0;
/// A thread that waits for its core for more than this percentage of the time lacks CPU, even if it
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
/// The percentage of datagrams lost at one end or on the path above which this loss is the reason.
const LOST_PERCENT: f64 = 1.0;
/// The path drops bursts if at least this percentage of the retransmitted segments come in bursts,
/// and at least this many segments are retransmitted.
const BURSTS_PERCENT: f64 = 50.0;
const BURSTS_SEGMENTS: u64 = 20;
/// The percentage of loss above which BBR does not only probe the rate of a link.
const BURSTS_BBR_PERCENT: f64 = 1.0;
fn find(facts: &TestFacts) -> Attribution {
    if facts.is_too_short() {
        return Attribution { limit: TestLimit::Nothing, end: None, share_percent: None };
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
        .unwrap_or(Attribution { limit: TestLimit::Nothing, end: None, share_percent: None })
}

fn asked_for(facts: &TestFacts) -> Option<Attribution> {
    let requested = facts.requested_bps?.bps() as f64;
    let met = facts.throughput_bps.bps() as f64 >= PACED_PART * requested;
    met.then_some(Attribution {
        limit: TestLimit::Pacing,
        end: Some(End::Sender),
        share_percent: None,
    })
}

/// Returns the end with the larger value of `of`, and the value.
fn larger_end(facts: &TestFacts, of: impl Fn(&super::EndFacts) -> f64) -> (End, f64) {
    let (sender, receiver) = (of(&facts.sender), of(&facts.receiver));
    if receiver > sender { (End::Receiver, receiver) } else { (End::Sender, sender) }
}

fn memory(facts: &TestFacts) -> Option<Attribution> {
    let (end, share) = larger_end(facts, |end| end.tcp_memory_pressure_percent);
    let busy = larger_end(facts, super::EndFacts::load_percent).1 >= CPU_BOUND_PERCENT;
    (share >= PRESSURE_PERCENT && !busy).then_some(Attribution {
        limit: TestLimit::TcpMemory,
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
    let of_sender = found(TestLimit::SenderCpu, End::Sender, sender);
    let of_receiver = found(TestLimit::ReceiverCpu, End::Receiver, receiver);
    match (sender_bound, receiver_bound) {
        // Both threads are fully loaded: the limit is the thread for which the other one waits, as
        // the sockets show.
        (true, true) if shares.receiver_window_percent > shares.application_percent => {
            Some(of_receiver)
        }
        (true, _) => Some(of_sender),
        (false, true) => Some(of_receiver),
        (false, false) => {
            let (end, share) = larger_end(facts, |end| end.interrupts_percent);
            let limit = match end {
                End::Sender => TestLimit::SenderCpu,
                End::Receiver => TestLimit::ReceiverCpu,
            };
            (share >= INTERRUPTS_PERCENT).then_some(found(limit, end, share))
        }
    }
}

fn window(facts: &TestFacts) -> Option<Attribution> {
    let (receiver, buffer) =
        (facts.shares.receiver_window_percent, facts.shares.send_buffer_percent);
    let (limit, end, share) = if receiver >= buffer {
        (TestLimit::ReceiverWindow, End::Receiver, receiver)
    } else {
        (TestLimit::SendBuffer, End::Sender, buffer)
    };
    (share >= HELD_PERCENT).then_some(Attribution {
        limit,
        end: Some(end),
        share_percent: Some(share),
    })
}

/// Finds a standing queue on the path. A full path is the limit, even if other buffers are full.
fn queue(facts: &TestFacts) -> Option<Attribution> {
    let delay_ms = facts.queue_ms();
    let delayed = delay_ms >= QUEUE_MS + QUEUE_PART * facts.rtt_min_ms;
    let queued = facts.udp.is_none() && delayed && facts.fills_a_queue(delay_ms);
    let share = held_by_path(facts).max(100.0 - facts.shares.application_percent);
    (queued && share >= MOST_PERCENT).then_some(Attribution {
        limit: TestLimit::LinkRate,
        end: None,
        share_percent: Some(share),
    })
}

/// Returns the share of time in which the congestion control limited the sender by its window or
/// its pacing. A connection that waits for a retransmission timeout looks idle, but its buffer is full.
fn held_by_path(facts: &TestFacts) -> f64 {
    let shares = &facts.shares;
    let lossy = facts.retransmits > 0 && facts.loss_percent >= LOST_PERCENT;
    let stalled = lossy && facts.sender.buffer_full_percent >= FULL_PERCENT;
    let idle = if stalled { shares.application_percent } else { 0.0 };
    shares.congestion_window_percent + shares.pacing_percent + idle
}

/// Finds a congestion control that limited the sender without a queue on the path.
fn path(facts: &TestFacts) -> Option<Attribution> {
    let share = held_by_path(facts);
    if share < MOST_PERCENT {
        return None;
    }
    let found = |limit, end| Some(Attribution { limit, end, share_percent: Some(share) });
    let lossy = facts.retransmits > 0;
    let (end, drops) = larger_end(facts, |end| end.drops as f64);
    if lossy && drops >= facts.retransmits as f64 / 2.0 {
        return found(TestLimit::HostDrops, Some(end));
    }
    // BBR paces at the rate that the path delivered. It ignores loss below 2 %
    // (draft-ietf-ccwg-bbr, BBR.LossThresh); its first version ignores all loss.
    let models_the_path = facts.congestion.starts_with("bbr");
    let least_percent = if models_the_path { BURSTS_BBR_PERCENT } else { 0.0 };
    let bursts = facts.burst_percent >= BURSTS_PERCENT
        && facts.retransmits >= BURSTS_SEGMENTS
        && facts.loss_percent >= least_percent;
    match (models_the_path, lossy) {
        _ if bursts => found(TestLimit::ShallowQueue, None),
        (true, _) if facts.settled => found(TestLimit::LinkRate, None),
        (false, true) => found(TestLimit::Loss, None),
        _ => found(TestLimit::CongestionWindow, Some(End::Sender)),
    }
}

/// Finds where most datagrams are lost. They are not retransmitted, so this loss determines the
/// rate.
fn datagrams_lost(facts: &TestFacts) -> Option<Attribution> {
    let udp = facts.udp?;
    let percent = |count: u64| crate::stats::percent(count as f64, udp.sent as f64);
    let places = [
        (TestLimit::HostDrops, Some(End::Sender), percent(udp.sender_dropped.unwrap_or(0))),
        (TestLimit::HostDrops, Some(End::Receiver), percent(udp.receiver_dropped.unwrap_or(0))),
        (TestLimit::Loss, None, percent(udp.lost)),
    ];
    let (limit, end, share) = places.into_iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
    let found = Attribution { limit, end, share_percent: Some(share) };
    (share >= LOST_PERCENT).then_some(found)
}

fn program(facts: &TestFacts) -> Option<Attribution> {
    let share = facts.shares.application_percent;
    (share >= MOST_PERCENT).then_some(Attribution {
        limit: TestLimit::SendingProgram,
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

    #[track_caller]
    fn check(facts: TestFacts, limit: TestLimit) {
        assert_eq!(Reason::derive(facts).limit, limit);
    }

    #[test]
    fn a_test_without_a_limit_has_no_reason() {
        let reason = Reason::derive(facts());
        assert_eq!((reason.limit, reason.end), (TestLimit::Nothing, None));
        assert_eq!(reason.share_percent, None);
    }

    #[test]
    fn a_test_of_milliseconds_has_no_reason() {
        let shares = held("receiver", 84.0);
        let short = TestFacts { seconds: 0.004, shares, ..facts() };
        check(short, TestLimit::Nothing);
        check(TestFacts { shares, ..facts() }, TestLimit::ReceiverWindow);
    }

    #[test]
    fn a_receivers_window_is_set_against_the_bandwidth_delay_product() {
        let shares = held("receiver", 84.0);
        let small = TestFacts { shares, ..facts() };
        check(small.clone(), TestLimit::ReceiverWindow);
        let asked = TestFacts { window_asked: true, ..small.clone() };
        check(asked.clone(), TestLimit::ReceiverWindow);
        let mut clipped = asked;
        clipped.receiver.limits.asked_bytes = Bytes::mib(2);
        check(clipped, TestLimit::ReceiverWindow);
        let mut short = small.clone();
        short.receiver.limits.autotuned_bytes = Bytes::mib(64);
        check(short, TestLimit::ReceiverWindow);
        // A smaller bandwidth-delay product does not explain the rate.
        let near = TestFacts { bandwidth_delay_bytes: Bytes::new(1000), ..small };
        check(near, TestLimit::ReceiverWindow);
    }

    #[test]
    fn a_send_buffer_is_the_senders() {
        let facts = TestFacts { shares: held("buffer", 61.0), streams: 2, ..facts() };
        check(facts, TestLimit::SendBuffer);
    }

    #[test]
    fn a_receiver_without_cpu_is_not_a_small_window() {
        let mut busy = TestFacts { shares: held("receiver", 95.0), ..facts() };
        busy.receiver.running_percent = 5.0;
        busy.receiver.waiting_percent = 93.0;
        busy.receiver.core = 1;
        busy.receiver.core_others_percent = 94.0;
        check(busy.clone(), TestLimit::ReceiverCpu);
        let mut stolen = busy.clone();
        stolen.receiver.core_stolen_percent = 96.0;
        check(stolen, TestLimit::ReceiverCpu);
        let mut slow = busy;
        (slow.receiver.running_percent, slow.receiver.waiting_percent) = (97.0, 1.0);
        check(slow.clone(), TestLimit::ReceiverCpu);
        // A thread near its limit is the reason only together with a full socket.
        slow.receiver.running_percent = 80.0;
        check(slow.clone(), TestLimit::ReceiverWindow);
        slow.receiver.buffer_full_percent = 70.0;
        check(slow.clone(), TestLimit::ReceiverCpu);
        // The thread sleeps half of the time, but it also waits for its core much of the time.
        let mut late = TestFacts { rtt_ms: 120.0, shares: held("pacing", 53.0), ..slow.clone() };
        late.receiver = EndFacts { running_percent: 1.0, waiting_percent: 45.0, ..late.receiver };
        check(late, TestLimit::ReceiverCpu);
        // Both are fully loaded: the sender waits for the receiver.
        slow.sender.running_percent = 99.0;
        slow.receiver.running_percent = 96.0;
        check(slow, TestLimit::ReceiverCpu);
    }

    #[test]
    fn a_sender_without_cpu_leaves_its_socket_empty() {
        let mut busy = TestFacts { shares: held("application", 100.0), ..facts() };
        check(busy.clone(), TestLimit::SendingProgram);
        busy.sender.running_percent = 75.0;
        check(busy.clone(), TestLimit::SenderCpu);
        busy.sender.running_percent = 20.0;
        busy.sender.interrupts_percent = 98.0;
        check(busy, TestLimit::SenderCpu);
    }

    #[test]
    fn kernel_memory_shrinks_windows_and_is_named_first() {
        let mut short = TestFacts { shares: held("receiver", 90.0), ..facts() };
        short.receiver.tcp_memory_pressure_percent = 80.0;
        short.receiver.tcp_memory_bytes = Bytes::gib(2);
        check(short, TestLimit::TcpMemory);
    }

    #[test]
    fn a_reached_requested_rate_is_the_reason() {
        let paced = TestFacts {
            requested_bps: Some(Rate::from_bps(420_000_000)),
            shares: held("receiver", 90.0),
            ..facts()
        };
        check(paced.clone(), TestLimit::Pacing);
        let missed = TestFacts { requested_bps: Some(Rate::from_bps(1_000_000_000)), ..paced };
        check(missed, TestLimit::ReceiverWindow);
    }

    #[test]
    fn a_queue_tells_the_links_rate_from_loss() {
        let full = TestFacts { shares: held("window", 97.0), ..facts() };
        let queued = TestFacts { rtt_ms: 131.0, ..full.clone() };
        check(queued.clone(), TestLimit::LinkRate);
        let steady_bps = Some(Rate::from_bps(500_000_000));
        let noisy = TestFacts { steady_bps, spread_percent: Some(88.0), ..queued.clone() };
        check(noisy, TestLimit::LinkRate);
        // A window of few segments at a policer: the receiver delays its acknowledgements.
        let delayed = TestFacts {
            throughput_bps: Rate::from_bps(7_000_000),
            rtt_ms: 101.0,
            retransmits: 113,
            loss_percent: 16.4,
            segment_bytes: 8948,
            ..queued.clone()
        };
        let mut stalled = TestFacts { shares: held("window", 40.0), ..delayed.clone() };
        stalled.sender.buffer_full_percent = 90.0;
        check(stalled, TestLimit::Loss);
        check(delayed, TestLimit::Loss);
        let overflow = TestFacts { retransmits: 500, loss_percent: 0.1, ..queued };
        check(overflow.clone(), TestLimit::LinkRate);
        let lossy = TestFacts { rtt_ms: 90.4, ..overflow };
        check(lossy.clone(), TestLimit::Loss);
        // The loss of slow start at a policer, and of a window that reaches its rate.
        let bursts = TestFacts { burst_percent: 90.0, ..lossy.clone() };
        check(bursts.clone(), TestLimit::ShallowQueue);
        check(TestFacts { burst_percent: 20.0, ..bursts.clone() }, TestLimit::Loss);
        check(TestFacts { retransmits: 9, ..bursts.clone() }, TestLimit::Loss);
        check(TestFacts { congestion: "bbr".into(), ..bursts.clone() }, TestLimit::LinkRate);
        let heavy = TestFacts { congestion: "bbr".into(), loss_percent: 3.0, ..bursts };
        check(heavy, TestLimit::ShallowQueue);
        let mut dropped = lossy.clone();
        dropped.receiver.drops = 400;
        check(dropped, TestLimit::HostDrops);
        // BBR keeps the queue short and ignores loss.
        let bbr = TestFacts { shares: held("pacing", 97.0), congestion: "bbr".into(), ..lossy };
        // A queue on the path takes precedence over other full buffers.
        let buffer = TestFacts { shares: held("buffer", 70.0), rtt_ms: 140.0, ..bbr.clone() };
        check(buffer, TestLimit::LinkRate);
        check(bbr.clone(), TestLimit::LinkRate);
        let growing = TestFacts { settled: false, spread_percent: None, ..bbr };
        check(growing, TestLimit::CongestionWindow);
        check(full, TestLimit::CongestionWindow);
    }

    #[test]
    fn datagrams_are_counted_where_they_were_lost() {
        let with = |udp| TestFacts { udp: Some(udp), shares: Shares::default(), ..facts() };
        let udp =
            UdpResult { sent: 1000, lost: 50, receiver_dropped: Some(20), ..UdpResult::default() };
        check(with(udp), TestLimit::Loss);
        let udp = UdpResult { receiver_dropped: Some(90), ..udp };
        check(with(udp), TestLimit::HostDrops);
        let udp = UdpResult { sent: 100_000, ..udp };
        check(with(udp), TestLimit::Nothing);
    }
}
