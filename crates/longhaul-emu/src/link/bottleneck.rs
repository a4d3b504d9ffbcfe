use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};

use super::LinkTime;

/// Sends packets one after the other, each taking its bytes' time at the rate. No credit is saved
/// while idle: a burst after a pause leaves at the rate, not at once.
#[derive(Debug, Clone)]
pub(super) struct Bottleneck {
    rate_bps: u64,
    queue_bytes: u64,
    /// When the last accepted packet will have been sent.
    free_at: LinkTime,
    /// What rounding `free_at` down to a nanosecond left out, in bits x 10^9 below one rate.
    /// Carrying it keeps the mean rate exact over any number of packets.
    remainder: u64,
}

impl Bottleneck {
    pub(super) fn new(rate: Rate, queue: Option<Bytes>) -> Self {
        Bottleneck {
            rate_bps: rate.bps().max(1),
            queue_bytes: queue.map_or(u64::MAX, Bytes::get),
            free_at: LinkTime::default(),
            remainder: 0,
        }
    }

    /// When a packet of `bytes` that enters at `now` has been sent; `None` if the queue is full.
    pub(super) fn send(&mut self, now: LinkTime, bytes: u64) -> Option<LinkTime> {
        if self.free_at <= now {
            self.free_at = now;
            self.remainder = 0;
        } else {
            // A packet that finds the link idle is always taken, whatever its size; else even a
            // short queue would stop a super-packet for good.
            let waiting = self.bytes_sent_in(self.free_at.since(now));
            if waiting.saturating_add(bytes) > self.queue_bytes {
                return None;
            }
        }
        let bit_nanos = u128::from(bytes) * 8_000_000_000 + u128::from(self.remainder);
        let rate = u128::from(self.rate_bps);
        self.free_at = self.free_at + Duration::from_nanos((bit_nanos / rate) as u64);
        self.remainder = (bit_nanos % rate) as u64;
        Some(self.free_at)
    }

    fn bytes_sent_in(&self, span: Duration) -> u64 {
        (span.as_nanos() * u128::from(self.rate_bps) / 8_000_000_000) as u64
    }
}
