//! The search for the hops of a path.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::result::{Hop, Hops};
use longhaul_sys::probe::now_nanos;

use super::probe_socket::{ProbeSocket, ProbeSpec, ReplyKind};

/// The probes per hop.
const TRIES: u32 = 3;
/// The number of hops that are probed at the same time.
const AT_ONCE: u8 = 8;
/// The interval between two probes, because routers limit their answers
/// (`net.ipv4.icmp_ratelimit`, icmp(7)).
const PACE: Duration = Duration::from_millis(10);
/// The maximum number of addresses that are listed per hop.
const MOST_ADDRESSES: usize = 8;
/// The number of consecutive silent hops after which the search ends.
const SILENT: usize = 10;

/// Finds the hops to the peer, at most `most`. `patience` is the time limit for the last answers.
pub(super) fn find(
    prober: &mut impl ProbeSocket,
    most: u8,
    patience: Duration,
    stop: &AtomicBool,
) -> Hops {
    let mut search = Search { list: Vec::new(), end: None, patience, stop };
    let mut next = 1;
    while next <= most && search.continues() && !stop.load(Ordering::Acquire) {
        let last = next.saturating_add(AT_ONCE - 1).min(most);
        search.send_probes(prober, next..=last);
        match last.checked_add(1) {
            Some(after) => next = after,
            None => break,
        }
    }
    if !stop.load(Ordering::Acquire) {
        search.settle(prober);
    }
    search.finish(prober)
}

struct Search<'a> {
    list: Vec<Hop>,
    /// The last hop, and true if it is the peer.
    end: Option<(u8, bool)>,
    /// The time limit for the last answers.
    patience: Duration,
    stop: &'a AtomicBool,
}

impl Search<'_> {
    fn continues(&self) -> bool {
        let silent = self.list.iter().rev().take_while(|hop| hop.answered == 0).count();
        self.end.is_none() && silent < SILENT
    }

    /// Sends probes to the hops at these distances, and records the answers.
    fn send_probes(&mut self, prober: &mut impl ProbeSocket, distances: RangeInclusive<u8>) {
        let empty = |distance| Hop {
            distance,
            addresses: Vec::new(),
            asked: 0,
            answered: 0,
            min_ms: None,
            says_mtu_bytes: None,
        };
        self.list.extend(distances.clone().map(empty));
        let mut open: HashMap<u32, (u8, u64)> = HashMap::new();
        for _ in 0..TRIES {
            for distance in distances.clone() {
                if self.stop.load(Ordering::Acquire)
                    || self.end.is_some_and(|(end, _)| distance > end)
                {
                    break;
                }
                self.send(prober, distance, &mut open);
                self.receive_reply(prober, Instant::now() + PACE, &mut open);
            }
        }
        let end = Instant::now() + self.patience;
        while Instant::now() < end && self.is_awaited(&open) && !self.stop.load(Ordering::Acquire) {
            self.receive_reply(prober, (Instant::now() + PACE).min(end), &mut open);
        }
    }

    fn send(
        &mut self,
        prober: &mut impl ProbeSocket,
        distance: u8,
        open: &mut HashMap<u32, (u8, u64)>,
    ) {
        let (number, least) = (prober.number(), prober.least_bytes());
        let probe = ProbeSpec {
            number,
            packet_bytes: least,
            answer_bytes: least,
            hop_limit: Some(distance),
        };
        let sent_ns = now_nanos();
        if prober.send_probe(&probe).is_ok() {
            open.insert(number, (distance, sent_ns));
            self.hop(distance).asked += 1;
        }
    }

    /// Returns whether an answer is missing that would be listed.
    fn is_awaited(&self, open: &HashMap<u32, (u8, u64)>) -> bool {
        open.values().any(|(distance, _)| self.end.is_none_or(|(end, _)| *distance <= end))
    }

    fn receive_reply(
        &mut self,
        prober: &mut impl ProbeSocket,
        until: Instant,
        open: &mut HashMap<u32, (u8, u64)>,
    ) {
        while let Some(reply) = prober.receive_reply(until) {
            let probe = reply.number.and_then(|number| open.remove(&number));
            let Some((distance, sent_ns)) = probe else { continue };
            let hop = self.hop(distance);
            hop.answered += 1;
            let took = reply.at_ns.saturating_sub(sent_ns) as f64 / 1e6;
            hop.min_ms = Some(hop.min_ms.map_or(took, |least| least.min(took)));
            if let Some(by) = reply.by
                && !hop.addresses.contains(&by)
                && hop.addresses.len() < MOST_ADDRESSES
            {
                hop.addresses.push(by);
            }
            match reply.what {
                ReplyKind::HopLimit => {}
                ReplyKind::TooBig(bytes) => hop.says_mtu_bytes = Some(bytes),
                ReplyKind::Answer(_) => self.ends(distance, true),
                ReplyKind::Unreachable => self.ends(distance, false),
            }
        }
    }

    /// Corrects the distance of the peer, which may be nearer than its first answer if it dropped
    /// probes above its limit: it answers at all distances beyond its own, so a binary search
    /// finds the nearest.
    fn settle(&mut self, prober: &mut impl ProbeSocket) {
        let Some((mut end, true)) = self.end else { return };
        let routers = &self.list[..usize::from(end - 1)];
        let known = routers.iter().rposition(|hop| hop.answered > 0);
        let mut nearer = known.map_or(0, |at| at as u8 + 1);
        while end - nearer > 1 {
            let middle = nearer + (end - nearer) / 2;
            let mut open = HashMap::new();
            for _ in 0..TRIES {
                thread::sleep(prober.pause());
                self.send(prober, middle, &mut open);
                let until = Instant::now() + self.patience;
                while Instant::now() < until && self.hop(middle).answered == 0 {
                    self.receive_reply(prober, (Instant::now() + PACE).min(until), &mut open);
                }
                if self.hop(middle).answered > 0 {
                    break;
                }
            }
            match self.end {
                Some((nearest, true)) if nearest <= middle => end = nearest,
                _ => nearer = middle,
            }
        }
    }

    fn ends(&mut self, distance: u8, reached: bool) {
        if self.end.is_none_or(|(end, _)| distance <= end) {
            self.end = Some((distance, reached));
        }
    }

    fn hop(&mut self, distance: u8) -> &mut Hop {
        &mut self.list[usize::from(distance - 1)]
    }

    fn finish(mut self, prober: &impl ProbeSocket) -> Hops {
        let last = match self.end {
            Some((end, _)) => usize::from(end),
            None => self.list.iter().rposition(|hop| hop.answered > 0).map_or(0, |at| at + 1),
        };
        self.list.truncate(last);
        Hops {
            list: self.list,
            reached: self.end.is_some_and(|(_, reached)| reached),
            by: prober.prober(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io;
    use std::net::IpAddr;

    use longhaul_core::result::Prober;

    use super::*;
    use crate::path::probe_socket::ProbeReply;

    /// A path of `routers` before the peer, which drops the first `deaf` probes. Routers in
    /// `silent` never answer.
    struct Path {
        routers: u8,
        silent: &'static [u8],
        deaf: u32,
        there: bool,
        number: u32,
        waiting: VecDeque<ProbeReply>,
    }

    impl ProbeSocket for Path {
        fn send_probe(&mut self, probe: &ProbeSpec) -> io::Result<()> {
            let limit = probe.hop_limit.unwrap();
            let (by, what) = match limit {
                near if near <= self.routers && self.silent.contains(&near) => return Ok(()),
                near if near <= self.routers => ([10, 0, 0, near].into(), ReplyKind::HopLimit),
                _ if self.there && self.deaf == 0 => (self.far(), ReplyKind::Answer(None)),
                _ => {
                    self.deaf = self.deaf.saturating_sub(1);
                    return Ok(());
                }
            };
            let number = Some(probe.number);
            self.waiting.push_back(ProbeReply { number, by: Some(by), what, at_ns: now_nanos() });
            Ok(())
        }

        fn receive_reply(&mut self, _: Instant) -> Option<ProbeReply> {
            self.waiting.pop_front()
        }

        fn number(&mut self) -> u32 {
            self.number += 1;
            self.number
        }

        fn prober(&self) -> Prober {
            Prober::ClosedPort
        }

        fn far(&self) -> IpAddr {
            [192, 0, 2, 9].into()
        }

        fn pause(&self) -> Duration {
            Duration::from_millis(1)
        }

        fn least_bytes(&self) -> u32 {
            68
        }
    }

    fn search(routers: u8, silent: &'static [u8], deaf: u32, there: bool) -> Hops {
        let (number, waiting) = (0, VecDeque::new());
        let mut path = Path { routers, silent, deaf, there, number, waiting };
        find(&mut path, 30, Duration::from_millis(2), &AtomicBool::new(false))
    }

    #[test]
    fn every_hop_is_listed_up_to_the_end() {
        for routers in [0, 1, 7, 8, 20] {
            let found = search(routers, &[], 0, true);
            assert!(found.reached, "{found:?}");
            assert_eq!(found.list.len(), usize::from(routers) + 1);
            assert!(found.list.iter().all(|hop| hop.answered > 0 && hop.addresses.len() == 1));
        }
    }

    #[test]
    fn silent_routers_are_listed_and_a_silent_end_is_no_end() {
        let found = search(5, &[2, 5], 0, true);
        assert_eq!((found.list.len(), found.reached), (6, true));
        let silent: Vec<u8> =
            found.list.iter().filter(|hop| hop.answered == 0).map(|hop| hop.distance).collect();
        assert_eq!(silent, [2, 5]);
        let found = search(3, &[], 0, false);
        assert_eq!((found.list.len(), found.reached), (3, false));
        let found = search(0, &[], 0, false);
        assert!(found.list.is_empty() && !found.reached);
    }

    #[test]
    fn an_end_that_answers_late_is_not_further_away() {
        for deaf in [5, 17, 20] {
            let found = search(1, &[], deaf, true);
            assert_eq!((found.list.len(), found.reached), (2, true), "{deaf}: {found:?}");
        }
    }
}
