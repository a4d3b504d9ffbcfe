use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::result::{Hop, Hops};
use longhaul_sys::probe::now_nanos;

use super::ask::{Ask, Question, What};

/// How often each hop is asked.
const TRIES: u32 = 3;
/// Hops that are asked at once.
const AT_ONCE: u8 = 8;
/// From one question to the next: hosts answer few a second to one that asks
/// (`net.ipv4.icmp_ratelimit`, icmp(7)).
const PACE: Duration = Duration::from_millis(10);
/// Addresses of one hop that are listed.
const MOST_ADDRESSES: usize = 8;
/// Hops in a row without an answer, after which no further ones are asked.
const SILENT: usize = 10;

/// Finds the hops to the far end, `most` at the most. `patience` is for how long the last answers
/// are waited.
pub(super) fn find(prober: &mut impl Ask, most: u8, patience: Duration, stop: &AtomicBool) -> Hops {
    let mut search = Search { list: Vec::new(), end: None };
    let mut next = 1;
    while next <= most && search.goes_on() && !stop.load(Ordering::Acquire) {
        let last = next.saturating_add(AT_ONCE - 1).min(most);
        search.ask(prober, next, last, patience, stop);
        match last.checked_add(1) {
            Some(after) => next = after,
            None => break,
        }
    }
    search.finish(prober)
}

struct Search {
    list: Vec<Hop>,
    /// The nearest distance from which there is no further, and whether it is the far end.
    end: Option<(u8, bool)>,
}

impl Search {
    fn goes_on(&self) -> bool {
        let silent = self.list.iter().rev().take_while(|hop| hop.answered == 0).count();
        self.end.is_none() && silent < SILENT
    }

    fn ask(
        &mut self,
        prober: &mut impl Ask,
        first: u8,
        last: u8,
        patience: Duration,
        stop: &AtomicBool,
    ) {
        let empty = |distance| Hop {
            distance,
            addresses: Vec::new(),
            asked: 0,
            answered: 0,
            min_us: None,
            says_mtu: None,
        };
        self.list.extend((first..=last).map(empty));
        let mut open: HashMap<u32, (u8, u64)> = HashMap::new();
        for _ in 0..TRIES {
            for distance in first..=last {
                if stop.load(Ordering::Acquire) || self.end.is_some_and(|(end, _)| distance > end) {
                    break;
                }
                let (number, least) = (prober.number(), prober.least_bytes());
                let question = Question {
                    number,
                    packet_bytes: least,
                    answer_bytes: least,
                    hop_limit: Some(distance),
                };
                let sent_ns = now_nanos();
                if prober.ask(&question).is_ok() {
                    open.insert(number, (distance, sent_ns));
                    self.hop(distance).asked += 1;
                }
                self.hear(prober, Instant::now() + PACE, &mut open);
            }
        }
        let end = Instant::now() + patience;
        while Instant::now() < end && self.is_awaited(&open) && !stop.load(Ordering::Acquire) {
            self.hear(prober, (Instant::now() + PACE).min(end), &mut open);
        }
    }

    /// Whether an answer is still to come that would be listed.
    fn is_awaited(&self, open: &HashMap<u32, (u8, u64)>) -> bool {
        open.values().any(|(distance, _)| self.end.is_none_or(|(end, _)| *distance <= end))
    }

    fn hear(&mut self, prober: &mut impl Ask, until: Instant, open: &mut HashMap<u32, (u8, u64)>) {
        while let Some(heard) = prober.hear(until) {
            let question = heard.number.and_then(|number| open.remove(&number));
            let Some((distance, sent_ns)) = question else { continue };
            let hop = self.hop(distance);
            hop.answered += 1;
            let took = heard.at_ns.saturating_sub(sent_ns) / 1000;
            hop.min_us = Some(hop.min_us.map_or(took, |least| least.min(took)));
            if let Some(by) = heard.by
                && !hop.addresses.contains(&by)
                && hop.addresses.len() < MOST_ADDRESSES
            {
                hop.addresses.push(by);
            }
            match heard.what {
                What::HopLimit => {}
                What::TooBig(bytes) => hop.says_mtu = Some(bytes),
                What::Answer(_) => self.ends(distance, true),
                What::Unreachable => self.ends(distance, false),
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

    fn finish(mut self, prober: &impl Ask) -> Hops {
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
