//! The packets of a measurement or of one of its periods, and the figures that they add up to.

use longhaul_core::path::{Delays, Reordering};
use longhaul_core::result::{
    LatencyQuantiles, Proportion, StampClass, StampDelay, StampDirection, StampFigures,
    StampNumbering, StampOrigin,
};
use longhaul_core::stats::quantile;

use super::ledger::{Arrived, Packet};
use super::losses::{LossState, Losses, Numbered, attribute};

/// The maximum number of stored reply numbers per period, besides those of first replies.
const MOST_EXTRA: usize = 1 << 16;

/// A packet with a reply.
#[derive(Debug, Clone, Copy)]
struct Answered {
    sequence: u64,
    missing_before: u64,
    sent_ns: u64,
    timed: bool,
    reply: Arrived,
}

/// The settled packets of a period.
#[derive(Debug, Default)]
pub(super) struct Period {
    answered: Vec<Answered>,
    extra: Vec<u32>,
    sent: u64,
    departures: Origins,
    /// The packets without a reply since the last one with a reply.
    missing: u64,
    forward_duplicates: u64,
    reverse_duplicates: u64,
    pub(super) unsent: u64,
    pub(super) late: u64,
    pub(super) invalid: u64,
    pub(super) clock_steps: u64,
}

/// The number of times per origin.
#[derive(Debug, Clone, Copy, Default)]
struct Origins {
    hardware: u64,
    kernel: u64,
    program: u64,
}

impl Origins {
    fn add(&mut self, origin: StampOrigin) {
        match origin {
            StampOrigin::Hardware => self.hardware += 1,
            StampOrigin::Kernel => self.kernel += 1,
            _ => self.program += 1,
        }
    }

    fn summary(self) -> StampOrigin {
        match self {
            Origins { hardware: 0, kernel: 0, program: 0 } => StampOrigin::Unknown,
            Origins { kernel: 0, program: 0, .. } => StampOrigin::Hardware,
            Origins { hardware: 0, program: 0, .. } => StampOrigin::Kernel,
            Origins { hardware: 0, kernel: 0, .. } => StampOrigin::Program,
            Origins { hardware: 0, .. } => StampOrigin::Software,
            _ => StampOrigin::Mixed,
        }
    }
}

/// The delays of a packet in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) rtt: i64,
    pub(super) forward: i64,
    pub(super) reverse: i64,
    pub(super) reply: i64,
}

impl Answered {
    /// Returns the delays; `None` if the clock stepped or the times contradict each other.
    fn times(&self) -> Option<Times> {
        let Arrived { received_ns, replied_ns, arrived_ns, .. } = self.reply;
        let between = |from: u64, to: u64| to.wrapping_sub(from) as i64;
        let (whole, reply) = (between(self.sent_ns, arrived_ns), between(received_ns, replied_ns));
        let rtt = whole.checked_sub(reply)?;
        let forward = between(self.sent_ns, received_ns);
        let reverse = between(replied_ns, arrived_ns);
        (self.timed && reply >= 0 && rtt >= 0).then_some(Times { rtt, forward, reverse, reply })
    }
}

impl Period {
    /// Adds a settled packet, in the order of sending.
    pub(super) fn add(&mut self, packet: &Packet) {
        self.sent += 1;
        self.departures.add(packet.origin);
        self.forward_duplicates += u64::from(packet.forward_duplicates);
        self.reverse_duplicates += u64::from(packet.reverse_duplicates);
        let free = MOST_EXTRA.saturating_sub(self.extra.len());
        self.extra.extend(packet.extra().iter().take(free));
        let Some(reply) = packet.reply else {
            self.missing += 1;
            return;
        };
        self.answered.push(Answered {
            sequence: packet.sequence,
            missing_before: std::mem::take(&mut self.missing),
            sent_ns: packet.sent_ns,
            timed: !packet.stepped,
            reply,
        });
    }

    /// Returns the origin of the times of departure.
    pub(super) fn departures(&self) -> StampOrigin {
        self.departures.summary()
    }

    /// Returns the origin of the times of arrival.
    pub(super) fn arrivals(&self) -> StampOrigin {
        let mut origins = Origins::default();
        for packet in &self.answered {
            let hardware = packet.reply.by_hardware;
            origins.add(if hardware { StampOrigin::Hardware } else { StampOrigin::Kernel });
        }
        origins.summary()
    }

    /// Returns the next period, in which the packets without a reply at the end of this one wait for
    /// a reply that shows their direction.
    pub(super) fn next(&mut self) -> Self {
        Period { missing: std::mem::take(&mut self.missing), ..Period::default() }
    }

    /// Returns the delays of the packets with valid times.
    pub(super) fn times(&self) -> Vec<Times> {
        self.answered.iter().filter_map(Answered::times).collect()
    }

    /// Returns the figures. `carry` connects the periods of a measurement.
    pub(super) fn figures(&self, numbering: StampNumbering, carry: &mut LossState) -> StampFigures {
        let times = self.times();
        let answered = self.answered.len() as u64;
        let losses = self.losses(numbering, carry);
        let directed = (numbering == StampNumbering::Stateful).then_some(losses);
        let rtt = times.iter().map(|times| times.rtt as f64 / 1e6).collect();
        StampFigures {
            sent: self.sent,
            answered,
            lost: Proportion::of(self.sent - answered, self.sent),
            undetermined: directed.map_or(0, |losses| losses.undetermined + self.missing),
            unsent: self.unsent,
            late: self.late,
            invalid: self.invalid,
            untimed: answered - times.len() as u64,
            clock_steps: self.clock_steps,
            restarts: losses.restarts,
            rtt: LatencyQuantiles::of(rtt),
            forward: self.forward(directed),
            reverse: self.reverse(directed),
        }
    }

    fn losses(&self, numbering: StampNumbering, carry: &mut LossState) -> Losses {
        if numbering != StampNumbering::Stateful {
            return Losses::default();
        }
        let numbered: Vec<_> = self
            .answered
            .iter()
            .map(|packet| Numbered {
                number: packet.reply.number,
                received_ns: packet.reply.received_ns,
                missing_before: packet.missing_before,
            })
            .collect();
        attribute(&numbered, &self.extra, carry)
    }

    fn forward(&self, losses: Option<Losses>) -> StampDirection {
        let mut order: Vec<_> = self
            .answered
            .iter()
            .map(|packet| (packet.reply.received_ns, packet.sequence))
            .collect();
        order.sort_unstable();
        let (delay, variation) = self.delays(|times| times.forward);
        let hop_limits = self.answered.iter().map(|packet| packet.reply.forward_hop_limit);
        StampDirection {
            lost: losses.map(|losses| Proportion::of(losses.forward, self.sent)),
            delay,
            variation,
            classes: classes(self.answered.iter().filter_map(|packet| packet.reply.forward_class)),
            // 0 is unknown.
            hop_limits: range(hop_limits.filter(|limit| *limit != 0)),
            ..ordered(&order, self.forward_duplicates, self.sent)
        }
    }

    fn reverse(&self, losses: Option<Losses>) -> StampDirection {
        // The rank of each reply in the order in which the reflector sent them.
        let mut sent: Vec<usize> = (0..self.answered.len()).collect();
        sent.sort_unstable_by_key(|index| {
            let packet = &self.answered[*index];
            (packet.reply.replied_ns, packet.reply.number, packet.sequence)
        });
        let mut order: Vec<_> = sent
            .iter()
            .enumerate()
            .map(|(rank, index)| (self.answered[*index].reply.arrived_ns, rank as u64))
            .collect();
        order.sort_unstable();
        let (delay, variation) = self.delays(|times| times.reverse);
        let replies = self.answered.len() as u64 + losses.map_or(0, |losses| losses.reverse);
        StampDirection {
            lost: losses.map(|losses| Proportion::of(losses.reverse, replies)),
            delay,
            variation,
            classes: classes(self.answered.iter().map(|packet| packet.reply.reverse_class)),
            hop_limits: range(
                self.answered.iter().filter_map(|packet| packet.reply.reverse_hop_limit),
            ),
            ..ordered(&order, self.reverse_duplicates, replies)
        }
    }

    fn delays(
        &self,
        of: impl Fn(&Times) -> i64,
    ) -> (Option<StampDelay>, Option<longhaul_core::result::DelayVariation>) {
        let mut delays = Delays::default();
        let mut all = Vec::with_capacity(self.answered.len());
        for packet in &self.answered {
            let Some(times) = packet.times() else { continue };
            let delay = of(&times);
            delays.take(packet.sequence, 0, delay as u64);
            all.push(delay as f64 / 1e6);
        }
        let at = |part| quantile(&all, part);
        let delay = at(0.0).zip(at(0.5)).zip(at(0.99).zip(at(1.0)));
        let delay = delay.map(|((min_ms, p50_ms), (p99_ms, max_ms))| StampDelay {
            min_ms,
            p50_ms,
            p99_ms,
            max_ms,
        });
        (delay, delays.variation())
    }
}

/// Returns the duplicates and the reordering of a direction, from the times of arrival with the
/// numbers in the order of sending, sorted by time.
fn ordered(order: &[(u64, u64)], duplicates: u64, of: u64) -> StampDirection {
    let mut reordering = Reordering::default();
    order.iter().for_each(|(at, number)| reordering.take(*number, *at));
    StampDirection {
        duplicated: Proportion::of(duplicates, of.max(duplicates)),
        reordered: Proportion::of(reordering.reordered(), order.len() as u64),
        reordering_extent: reordering.extents().0,
        ..StampDirection::default()
    }
}

/// Counts traffic classes, the most frequent first.
fn classes(all: impl Iterator<Item = u8>) -> Vec<StampClass> {
    let mut counts = [0u64; 256];
    all.for_each(|class| counts[usize::from(class)] += 1);
    let mut found: Vec<_> = (0..=255u8)
        .zip(counts)
        .filter(|(_, packets)| *packets > 0)
        .map(|(class, packets)| StampClass { dscp: class >> 2, ecn: class & 3, packets })
        .collect();
    found.sort_by_key(|class| std::cmp::Reverse(class.packets));
    found
}

fn range(all: impl Iterator<Item = u8> + Clone) -> Option<[u8; 2]> {
    Some([all.clone().min()?, all.max()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_of_all_times_is_named_and_others_are_mixed() {
        use StampOrigin::{Hardware, Kernel, Mixed, Program, Software, Unknown};
        for (origins, expected) in [
            (&[][..], Unknown),
            (&[Hardware, Hardware], Hardware),
            (&[Kernel, Kernel], Kernel),
            (&[Program], Program),
            (&[Kernel, Program], Software),
            (&[Hardware, Kernel], Mixed),
            (&[Program, Hardware], Mixed),
        ] {
            let mut found = Origins::default();
            origins.iter().for_each(|origin| found.add(*origin));
            assert_eq!(found.summary(), expected);
        }
    }
}
