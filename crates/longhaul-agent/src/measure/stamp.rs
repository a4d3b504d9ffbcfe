//! STAMP measurements of all peers, on one thread.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::StampPlan;
use longhaul_engine::session::LocalAddress;
use longhaul_fleet::protocol::{StampPeer, StampSummary};
use longhaul_interop::stamp::{
    Advance, MeasuredPeriod, Sender, StampEnds, StampError, clocks, is_this_host,
};
use longhaul_sys::poll;

use crate::clock::HubClock;

/// The time of one summary.
const PERIOD: Duration = Duration::from_secs(60);
/// The time after which a reflector that did not answer gets packets again.
const RETRY: Duration = Duration::from_secs(10);
/// The longest wait before the thread checks for changed peers and for the end.
const CHECK: Duration = Duration::from_millis(500);
/// The time for which replies gather before the thread reads them, so that it wakes less often.
const GATHER: Duration = Duration::from_millis(10);
/// The maximum number of peers of an agent.
const MOST_PEERS: usize = 1000;

/// A peer with its measurement.
struct Measured {
    peer: StampPeer,
    sender: Option<Sender>,
    /// The earliest time of the next attempt to open a sender.
    retry: Instant,
    /// The time at which the sender has something to do, even if nothing arrives.
    due: Instant,
    /// True if something has arrived.
    readable: bool,
}

/// Measures `peers` until `stop` is set. Passes each summary to `record`.
pub(crate) fn measure_peers(
    peers: &Mutex<Vec<StampPeer>>,
    clock: &HubClock,
    stop: &AtomicBool,
    mut record: impl FnMut(StampSummary),
) {
    let mut measured: BTreeMap<String, Measured> = BTreeMap::new();
    while !stop.load(Ordering::Relaxed) {
        let wanted = peers.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        update_peers(&mut measured, wanted);
        let checked = Instant::now();
        while checked.elapsed() < CHECK && !stop.load(Ordering::Relaxed) {
            let wait = advance(&mut measured, clock, &mut record);
            let begun = Instant::now();
            if wait_for_replies(&mut measured, wait) {
                // The kernel records the arrival of a reply, so the thread can wait for more of them.
                thread::sleep(GATHER.min(wait.saturating_sub(begun.elapsed())));
                wait_for_replies(&mut measured, Duration::ZERO);
            }
        }
    }
}

/// Advances the measurements that have something to do, and returns the time until another one has.
fn advance(
    measured: &mut BTreeMap<String, Measured>,
    clock: &HubClock,
    record: &mut impl FnMut(StampSummary),
) -> Duration {
    let mut wait = CHECK;
    for one in measured.values_mut() {
        if one.readable || one.due <= Instant::now() {
            one.readable = false;
            one.due = Instant::now() + one.advance(clock, record);
        }
        wait = wait.min(one.due.saturating_duration_since(Instant::now()));
    }
    wait
}

/// Waits until something arrives, for at most `limit`. Returns whether something has arrived.
fn wait_for_replies(measured: &mut BTreeMap<String, Measured>, limit: Duration) -> bool {
    let mut open: Vec<&mut Measured> =
        measured.values_mut().filter(|one| one.sender.is_some()).collect();
    let sockets: Vec<&Sender> = open.iter().filter_map(|one| one.sender.as_ref()).collect();
    let readable = poll::readable_among(&sockets, limit);
    let arrived = readable.contains(&true);
    for (one, readable) in open.iter_mut().zip(readable) {
        one.readable |= readable;
    }
    arrived
}

/// Starts the measurements of new peers, and ends those of removed peers.
fn update_peers(measured: &mut BTreeMap<String, Measured>, wanted: Vec<StampPeer>) {
    measured.retain(|_, one| wanted.contains(&one.peer));
    for peer in wanted.into_iter().take(MOST_PEERS) {
        if !measured.contains_key(&peer.host) {
            let now = Instant::now();
            let one = Measured { peer, sender: None, retry: now, due: now, readable: false };
            measured.insert(one.peer.host.clone(), one);
        }
    }
}

impl Measured {
    /// Does everything that is due, and returns the time until more is due.
    fn advance(&mut self, clock: &HubClock, record: &mut impl FnMut(StampSummary)) -> Duration {
        let sender = match &mut self.sender {
            Some(sender) => sender,
            None if self.retry > Instant::now() => return CHECK,
            none => {
                self.retry = Instant::now() + RETRY;
                let Ok(sender) = Sender::open(ends(&self.peer), &plan(&self.peer), None) else {
                    return CHECK;
                };
                none.insert(sender)
            }
        };
        match sender.advance() {
            Ok(Advance::Wait(wait)) => wait,
            Ok(Advance::Record(progress)) => {
                record(summary(&self.peer, &progress, clock.now_ms()));
                Duration::ZERO
            }
            Ok(Advance::Done) => {
                self.sender = None;
                CHECK
            }
            Err(error) => {
                record(failure(&self.peer, &error, clock.now_ms()));
                self.sender = None;
                self.retry = Instant::now() + RETRY;
                CHECK
            }
        }
    }
}

/// Returns the addresses of a measurement. As in runs, the agent binds to its address of the mesh, unless
/// the host does not have this address: behind a network address translator.
fn ends(peer: &StampPeer) -> StampEnds {
    let own = peer.local.filter(|local| LocalAddress::from(*local).check().is_ok());
    let local = own.map(|local| SocketAddr::new(local, 0));
    StampEnds { target: SocketAddr::new(peer.address, peer.port), local }
}

fn plan(peer: &StampPeer) -> StampPlan {
    StampPlan {
        packets: None,
        interval: Duration::from_millis(peer.interval_ms.clamp(10, 60_000).into()),
        record: PERIOD,
        ..StampPlan::new()
    }
}

/// Returns the summary of a reflector that does not answer: all of its packets are lost.
fn failure(peer: &StampPeer, error: &StampError, now_ms: i64) -> StampSummary {
    let (sent, waited) = match error {
        StampError::Silent { silence, .. } => (silence.sent, silence.waited),
        _ => (1, Duration::ZERO),
    };
    let span_ms = u32::try_from(waited.as_millis()).unwrap_or(u32::MAX);
    StampSummary {
        peer: peer.host.clone(),
        start_ms: now_ms - i64::from(span_ms),
        span_ms,
        sent,
        lost: sent,
        ..StampSummary::default()
    }
}

fn summary(peer: &StampPeer, progress: &MeasuredPeriod, now_ms: i64) -> StampSummary {
    let figures = &progress.report.figures;
    let span_ms = u32::try_from(progress.report.length.as_millis()).unwrap_or(u32::MAX);
    let address = SocketAddr::new(peer.address, peer.port);
    let same = is_this_host(address, progress.local);
    let clocks = clocks(progress.clock, progress.reflector.clock, same);
    let known = clocks.same || clocks.error_ms.is_some();
    let rtt = figures.rtt.as_ref();
    let delay = |delay: Option<longhaul_core::result::StampDelay>| {
        delay.filter(|_| known).map(|delay| delay.p50_ms)
    };
    StampSummary {
        id: 0,
        peer: peer.host.clone(),
        start_ms: now_ms - i64::from(span_ms),
        span_ms,
        sent: figures.sent,
        lost: figures.lost.count,
        lost_forward: figures.forward.lost.map(|lost| lost.count),
        lost_reverse: figures.reverse.lost.map(|lost| lost.count),
        rtt_min_ms: rtt.map(|rtt| rtt.min_ms),
        rtt_p50_ms: rtt.map(|rtt| rtt.p50_ms),
        rtt_p99_ms: rtt.map(|rtt| rtt.p99_ms),
        rtt_max_ms: rtt.map(|rtt| rtt.max_ms),
        forward_p50_ms: delay(figures.forward.delay),
        reverse_p50_ms: delay(figures.reverse.delay),
        clock_error_ms: clocks.error_ms,
        duplicates: figures.forward.duplicated.count + figures.reverse.duplicated.count,
        reordered: figures.forward.reordered.count + figures.reverse.reordered.count,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use longhaul_core::result::StampNumbering;
    use longhaul_interop::stamp::{Reflector, ReflectorSettings};

    use super::*;

    #[test]
    fn peers_are_measured_and_a_closed_port_is_a_loss() {
        let stop = AtomicBool::new(false);
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let reflector = Reflector::bind(any, ReflectorSettings::default()).unwrap();
        let closed = std::net::UdpSocket::bind(any).unwrap().local_addr().unwrap().port();
        let peer = |host: &str, port| StampPeer {
            host: host.to_owned(),
            local: None,
            address: any.ip(),
            port,
            interval_ms: 10,
        };
        let peers = vec![peer("here", reflector.address().port()), peer("closed", closed)];
        let mut measured = BTreeMap::new();
        update_peers(&mut measured, peers);
        let (clock, mut lost) = (HubClock::new(), Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| reflector.run(|| stop.load(Ordering::Relaxed), |_| {}));
            let deadline = Instant::now() + Duration::from_secs(30);
            let answered = |measured: &mut BTreeMap<String, Measured>| {
                let sender = measured.get("here").and_then(|one| one.sender.as_ref());
                sender.is_some_and(|sender| sender.reflector().numbering != StampNumbering::Unknown)
            };
            while (lost.is_empty() || !answered(&mut measured)) && Instant::now() < deadline {
                for one in measured.values_mut() {
                    one.advance(&clock, &mut |summary: StampSummary| lost.push(summary));
                }
            }
            assert!(answered(&mut measured));
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!((lost[0].peer.as_str(), lost[0].sent, lost[0].lost), ("closed", 1, 1));
        update_peers(&mut measured, vec![]);
        assert!(measured.is_empty());
    }

    #[test]
    fn packets_leave_from_the_address_of_the_mesh() {
        let any: IpAddr = [127, 0, 0, 1].into();
        let peer = |local: &str| StampPeer {
            host: "here".to_owned(),
            local: Some(local.parse().unwrap()),
            address: any,
            port: 8620,
            interval_ms: 10,
        };
        let own = peer("127.0.0.2");
        let sender = Sender::open(ends(&own), &plan(&own), None).unwrap();
        let bound = rustix::net::getsockname(&sender).unwrap();
        let bound: SocketAddr = bound.try_into().unwrap();
        assert_eq!(bound.ip(), own.local.unwrap());
        // TEST-NET-1 (RFC 5737): this host does not have it, as behind a translator of addresses.
        assert_eq!(ends(&peer("192.0.2.77")).local, None);
    }
}
