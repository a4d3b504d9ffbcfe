//! The search for the path MTU.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::path::MtuSearch;
use longhaul_core::plan::PathPlan;
use longhaul_core::result::{MtuLimit, MtuProof};

use super::probe_socket::{ProbeSocket, ProbeSpec, ReplyKind, is_too_big};

/// The packets of one size that must be lost before the size counts as too large: with a loss of 10
/// % in both directions a false result has a probability of one in thirty thousand.
const TRIES: u32 = 6;
/// The interval between two packets.
const PACE: Duration = Duration::from_millis(20);
/// The time limit for an error of this host's kernel.
const KERNEL: Duration = Duration::from_millis(100);

/// The wait for late answers before a size counts as too large: over a slow link a large packet
/// takes longer than the small ones from which the time limit follows.
const LINGER: Duration = Duration::from_secs(1);

/// The outcome of a size.
enum Outcome {
    Passed,
    Stopped(MtuLimit, Option<u32>),
}

/// Finds the largest packet that arrives unfragmented. `patience` is the time limit for an answer.
///
/// # Errors
/// Nothing can be sent.
pub(super) fn prove(
    prober: &mut impl ProbeSocket,
    patience: Duration,
    stop: &AtomicBool,
) -> io::Result<MtuProof> {
    let search = MtuSearch::new(prober.least_bytes(), PathPlan::MOST_BYTES);
    let mut proof = Proof { prober, search, patience, sizes: HashMap::new() };
    let mut limit = MtuLimit::Nothing;
    // The last MTU that a router reported; routers do not report every packet.
    let mut routed: Option<(u32, IpAddr)> = None;
    while !stop.load(Ordering::Acquire) {
        let Some(size) = proof.search.next() else {
            if limit == MtuLimit::Silent && proof.linger() {
                continue;
            }
            break;
        };
        match proof.try_size(size)? {
            Outcome::Passed => proof.search.passed(size),
            Outcome::Stopped(by, hint) => {
                proof.search.stopped(size, hint);
                limit = by;
                if let (MtuLimit::Router { address }, Some(bytes)) = (by, hint) {
                    routed = Some((bytes, address));
                }
            }
        }
    }
    let (bytes, stopped_bytes) = (proof.search.largest(), proof.search.smallest_stopped());
    if stopped_bytes.is_none() {
        limit = MtuLimit::Nothing;
    }
    if let (MtuLimit::Silent, Some((routed, address))) = (limit, routed)
        && bytes == Some(routed)
    {
        limit = MtuLimit::Router { address };
    }
    let packets = proof.sizes.len() as u32;
    Ok(MtuProof { by: prober.prober(), bytes, stopped_bytes, limit, packets })
}

struct Proof<'a, P> {
    prober: &'a mut P,
    search: MtuSearch,
    patience: Duration,
    /// The size of each probe.
    sizes: HashMap<u32, u32>,
}

impl<P: ProbeSocket> Proof<'_, P> {
    fn try_size(&mut self, size: u32) -> io::Result<Outcome> {
        for turn in 1..=TRIES {
            let (number, answer_bytes) = (self.prober.number(), self.prober.least_bytes());
            let probe = ProbeSpec { number, packet_bytes: size, answer_bytes, hop_limit: None };
            match self.prober.send_probe(&probe) {
                Ok(()) => self.sizes.insert(number, size),
                Err(error) if is_too_big(&error) => {
                    return Ok(Outcome::Stopped(MtuLimit::Interface, self.kernels_word()));
                }
                Err(error) => return Err(error),
            };
            let until = Instant::now() + if turn == TRIES { self.patience } else { PACE };
            if let Some(outcome) = self.receive_reply(until, size) {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Stopped(MtuLimit::Silent, None))
    }

    /// Returns the outcome of probes of `size`, or of larger ones that timed out.
    fn receive_reply(&mut self, until: Instant, size: u32) -> Option<Outcome> {
        while let Some(reply) = self.prober.receive_reply(until) {
            let Some(of) = reply.number.and_then(|number| self.sizes.get(&number).copied()) else {
                continue;
            };
            match (reply.what, reply.by) {
                (ReplyKind::Answer(_), _) if of >= size => {
                    self.search.passed(of);
                    return Some(Outcome::Passed);
                }
                (ReplyKind::TooBig(bytes), Some(address)) if of == size => {
                    let hint = Some(bytes).filter(|bytes| *bytes > 0);
                    return Some(Outcome::Stopped(MtuLimit::Router { address }, hint));
                }
                _ => {}
            }
        }
        None
    }

    /// Waits for late answers. Returns whether one changed the result.
    fn linger(&mut self) -> bool {
        let until = Instant::now() + LINGER.max(self.patience);
        let Some(given_up) = self.search.smallest_stopped() else { return false };
        matches!(self.receive_reply(until, given_up), Some(Outcome::Passed))
    }

    /// Returns the MTU of the interface, which this host's kernel reports with the error.
    fn kernels_word(&mut self) -> Option<u32> {
        let until = Instant::now() + KERNEL;
        while let Some(reply) = self.prober.receive_reply(until) {
            if let (ReplyKind::TooBig(bytes @ 1..), None) = (reply.what, reply.by) {
                return Some(bytes);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use longhaul_core::result::Prober;

    use super::*;
    use crate::path::probe_socket::ProbeReply;

    /// A path that answers packets up to `mtu`, each after the `late` next probes; `lose`
    /// selects lost ones.
    struct Path {
        mtu: u32,
        interface: u32,
        router: Option<IpAddr>,
        late: usize,
        lose: fn(u32) -> bool,
        number: u32,
        waiting: VecDeque<ProbeReply>,
    }

    impl Path {
        fn new(mtu: u32) -> Self {
            let (router, waiting) = (None, VecDeque::new());
            Path { mtu, interface: 9000, router, late: 0, lose: |_| false, number: 0, waiting }
        }

        fn proof(mut self) -> MtuProof {
            prove(&mut self, Duration::from_millis(1), &AtomicBool::new(false)).unwrap()
        }
    }

    impl ProbeSocket for Path {
        fn send_probe(&mut self, probe: &ProbeSpec) -> io::Result<()> {
            let (number, at_ns) = (Some(probe.number), 0);
            if probe.packet_bytes > self.interface {
                let what = ReplyKind::TooBig(self.interface);
                self.waiting.push_front(ProbeReply { number: None, by: None, what, at_ns });
                return Err(rustix::io::Errno::MSGSIZE.into());
            }
            let too_big = probe.packet_bytes > self.mtu;
            let what = if too_big { ReplyKind::TooBig(self.mtu) } else { ReplyKind::Answer(None) };
            let by = if what == ReplyKind::Answer(None) { Some(self.far()) } else { self.router };
            if by.is_some() && !(self.lose)(probe.number) {
                self.waiting.push_back(ProbeReply { number, by, what, at_ns });
            }
            Ok(())
        }

        fn receive_reply(&mut self, until: Instant) -> Option<ProbeReply> {
            // The late answers arrive when no more probes are sent.
            let lingers = until > Instant::now() + LINGER / 2;
            let urgent = self.waiting.front().is_some_and(|reply| reply.by.is_none());
            (urgent || lingers || self.waiting.len() > self.late)
                .then(|| self.waiting.pop_front())
                .flatten()
        }

        fn number(&mut self) -> u32 {
            self.number += 1;
            self.number
        }

        fn prober(&self) -> Prober {
            Prober::Udp
        }

        fn far(&self) -> IpAddr {
            [192, 0, 2, 9].into()
        }

        fn least_bytes(&self) -> u32 {
            68
        }
    }

    #[test]
    fn the_mtu_is_exact_for_every_limit() {
        let plain = Path::new(9000).proof();
        assert_eq!((plain.bytes, plain.limit), (Some(9000), MtuLimit::Interface));
        let address = IpAddr::from([192, 0, 2, 1]);
        let routed = Path { router: Some(address), ..Path::new(1437) }.proof();
        assert_eq!((routed.bytes, routed.stopped_bytes), (Some(1437), Some(1438)));
        assert_eq!(routed.limit, MtuLimit::Router { address });
        let silent = Path::new(1500).proof();
        assert_eq!((silent.bytes, silent.stopped_bytes), (Some(1500), Some(1501)));
        assert_eq!(silent.limit, MtuLimit::Silent);
        let none = Path::new(0).proof();
        assert_eq!((none.bytes, none.limit), (None, MtuLimit::Silent));
        let all = Path { interface: u32::MAX, ..Path::new(u32::MAX) }.proof();
        assert_eq!((all.bytes, all.limit, all.packets), (Some(65_535), MtuLimit::Nothing, 1));
    }

    #[test]
    fn loss_and_late_answers_do_not_make_it_smaller() {
        let lossy = Path { lose: |number| number % 5 != 0, ..Path::new(1492) }.proof();
        assert_eq!((lossy.bytes, lossy.stopped_bytes), (Some(1492), Some(1493)));
        let slow = Path { late: 100, interface: 1500, ..Path::new(1500) }.proof();
        assert_eq!((slow.bytes, slow.stopped_bytes), (Some(1500), Some(1501)));
    }
}
