use std::time::Duration;

use longhaul_core::plan::LinkDirection;
use longhaul_core::units::{Bytes, Rate};

use super::{LinkTime, PacketShape};

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves the link whole at this time.
    Deliver {
        /// When.
        at: LinkTime,
    },
    /// It does not.
    Drop(DropReason),
}

/// Why the link itself drops a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// The queue before the bottleneck had no room for it.
    QueueFull,
}

/// One direction of a link: an optional bottleneck with a drop-tail queue, then a delay.
#[derive(Debug, Clone)]
pub struct LinkModel {
    delay: Duration,
    bottleneck: Option<Bottleneck>,
}

impl LinkModel {
    /// The model of `direction`. `queue` bounds the bytes that wait for its rate, if it has one;
    /// `None` is no bound.
    pub fn new(direction: &LinkDirection, queue: Option<Bytes>) -> Self {
        let bottleneck = direction.rate_bps.map(|rate| Bottleneck::new(rate, queue));
        LinkModel { delay: direction.delay, bottleneck }
    }

    /// Offers a packet that enters the link at `now`.
    pub fn offer(&mut self, now: LinkTime, packet: PacketShape) -> Verdict {
        let sent = match &mut self.bottleneck {
            None => now,
            Some(bottleneck) => match bottleneck.send(now, packet.bytes()) {
                Ok(sent) => sent,
                Err(reason) => return Verdict::Drop(reason),
            },
        };
        Verdict::Deliver { at: sent + self.delay }
    }
}

/// Sends packets one after the other, each taking its bytes' time at the rate. No credit is saved
/// while idle: a burst after a pause leaves at the rate, not at once.
#[derive(Debug, Clone)]
struct Bottleneck {
    rate_bps: u64,
    queue_bytes: u64,
    /// When the last accepted packet will have been sent.
    free_at: LinkTime,
    /// What rounding `free_at` down to a nanosecond left out, in bits x 10^9 below one rate.
    /// Carrying it keeps the mean rate exact over any number of packets.
    remainder: u64,
}

impl Bottleneck {
    fn new(rate: Rate, queue: Option<Bytes>) -> Self {
        Bottleneck {
            rate_bps: rate.bps().max(1),
            queue_bytes: queue.map_or(u64::MAX, Bytes::get),
            free_at: LinkTime::default(),
            remainder: 0,
        }
    }

    /// When a packet of `bytes` that enters at `now` has been sent.
    fn send(&mut self, now: LinkTime, bytes: u64) -> Result<LinkTime, DropReason> {
        if self.free_at <= now {
            self.free_at = now;
            self.remainder = 0;
        } else {
            // A packet that finds the link idle is always taken, whatever its size; else even a
            // short queue would stop a super-packet for good.
            let waiting = self.bytes_sent_in(self.free_at.since(now));
            if waiting.saturating_add(bytes) > self.queue_bytes {
                return Err(DropReason::QueueFull);
            }
        }
        let bit_nanos = u128::from(bytes) * 8_000_000_000 + u128::from(self.remainder);
        let rate = u128::from(self.rate_bps);
        self.free_at = self.free_at + Duration::from_nanos((bit_nanos / rate) as u64);
        self.remainder = (bit_nanos % rate) as u64;
        Ok(self.free_at)
    }

    fn bytes_sent_in(&self, span: Duration) -> u64 {
        (span.as_nanos() * u128::from(self.rate_bps) / 8_000_000_000) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn model(delay_ms: u64, rate_bps: Option<u64>, queue: Option<u64>) -> LinkModel {
        let delay = Duration::from_millis(delay_ms);
        let direction = LinkDirection { delay, rate_bps: rate_bps.map(Rate::from_bps) };
        LinkModel::new(&direction, queue.map(Bytes::new))
    }

    fn packet(bytes: u64) -> PacketShape {
        PacketShape::single(bytes as u32)
    }

    fn arrivals(model: &mut LinkModel, offers: &[(u64, u64)]) -> Vec<Option<u64>> {
        let arrival = |&(nanos, bytes): &(u64, u64)| match model
            .offer(LinkTime::from_nanos(nanos), packet(bytes))
        {
            Verdict::Deliver { at } => Some(at.as_nanos()),
            Verdict::Drop(DropReason::QueueFull) => None,
        };
        offers.iter().map(arrival).collect()
    }

    #[test]
    fn verdicts_follow_the_plan() {
        type Case = (&'static str, LinkModel, &'static [(u64, u64)], &'static [Option<u64>]);
        // At 8 Mb/s a byte takes 1 us, so that 1000 bytes take 1 ms.
        let cases: [Case; 7] = [
            ("no delay, no rate", model(0, None, None), &[(5, 1500)], &[Some(5)]),
            (
                "a delay moves every packet alike",
                model(45, None, None),
                &[(0, 64), (7, 65_535), (7, 64)],
                &[Some(45 * MS), Some(45 * MS + 7), Some(45 * MS + 7)],
            ),
            (
                "a rate spaces packets that enter together",
                model(0, Some(8_000_000), None),
                &[(0, 1000), (0, 1000), (0, 500)],
                &[Some(MS), Some(2 * MS), Some(2 * MS + MS / 2)],
            ),
            (
                "the delay comes after the rate",
                model(10, Some(8_000_000), None),
                &[(0, 1000), (0, 1000)],
                &[Some(11 * MS), Some(12 * MS)],
            ),
            (
                "an idle link saves no credit",
                model(0, Some(8_000_000), None),
                &[(0, 1000), (100 * MS, 1000), (100 * MS, 1000)],
                &[Some(MS), Some(101 * MS), Some(102 * MS)],
            ),
            (
                "the tail is dropped when the queue is full, and a drop takes no room",
                model(0, Some(8_000_000), Some(2000)),
                &[(0, 1000), (0, 1000), (0, 1000), (MS, 1000)],
                &[Some(MS), Some(2 * MS), None, Some(3 * MS)],
            ),
            (
                "a packet larger than the queue passes an idle link",
                model(0, Some(8_000_000), Some(2000)),
                &[(0, 9000), (0, 1)],
                &[Some(9 * MS), None],
            ),
        ];
        for (what, mut model, offers, expected) in cases {
            assert_eq!(arrivals(&mut model, offers), expected, "{what}");
        }
    }

    /// Offers at uneven times and of uneven sizes, always the same ones.
    fn uneven_offers(count: u64) -> Vec<(u64, u64)> {
        let mut now = 0;
        (0..count)
            .map(|i| {
                let scrambled = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
                now += scrambled % 20_000;
                (now, 40 + scrambled % 65_000)
            })
            .collect()
    }

    #[test]
    fn order_is_kept() {
        for rate in [None, Some(1_000_000_000), Some(100_000_000_000)] {
            let mut model = model(7, rate, Some(1 << 20));
            let times: Vec<u64> =
                arrivals(&mut model, &uneven_offers(10_000)).into_iter().flatten().collect();
            assert!(times.is_sorted(), "at {rate:?}");
        }
    }

    #[test]
    fn the_mean_rate_is_exact_over_many_packets() {
        // 3 Gb/s and 1499 bytes: no packet takes a whole number of nanoseconds.
        let mut model = model(0, Some(3_000_000_000), None);
        let offers = vec![(0, 1499); 100_000];
        let last = arrivals(&mut model, &offers)[99_999].unwrap();
        assert_eq!(last, 1499 * 8 * 100_000 / 3);
    }

    #[test]
    fn the_queue_never_holds_more_than_its_budget() {
        let (rate, queue) = (1_000_000_000, 300_000);
        let mut model = model(0, Some(rate), Some(queue));
        let offers = uneven_offers(10_000);
        let mut dropped = 0;
        for ((now, bytes), arrival) in offers.iter().zip(arrivals(&mut model, &offers)) {
            match arrival {
                // The wait and the packet's own time at the rate.
                Some(at) => {
                    assert!((at - now) * rate / 8_000_000_000 <= queue.max(*bytes));
                }
                None => dropped += 1,
            }
        }
        assert!(dropped > 0, "the load was meant to exceed the rate");
    }
}
