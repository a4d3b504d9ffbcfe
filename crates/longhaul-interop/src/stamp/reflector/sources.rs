//! The limit on the packets of each source, in bounded memory.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use longhaul_engine::serve::network;

/// The maximum number of sources that are counted, some 2 MiB.
const MOST_SOURCES: usize = 16_384;
/// A source may send the packets of this time at once.
const BURST: Duration = Duration::from_secs(1);

/// The limits on packets per second. One limit holds per source: an IPv4 address, or the /64 of an
/// IPv6 address. Another holds for all sources together.
#[derive(Debug)]
pub(super) struct Sources {
    rate: f64,
    all: Bucket,
    all_rate: f64,
    each: HashMap<IpAddr, Bucket>,
}

/// A token bucket.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn full(rate: f64, now: Instant) -> Self {
        Bucket { tokens: rate * BURST.as_secs_f64(), at: now }
    }

    fn take(&mut self, rate: f64, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + since * rate).min(rate * BURST.as_secs_f64());
        self.at = now;
        let enough = self.tokens >= 1.0;
        self.tokens -= if enough { 1.0 } else { 0.0 };
        enough
    }
}

impl Sources {
    /// Creates limits of `rate` packets per second per source, and of `all_rate` for all.
    pub(super) fn new(rate: u32, all_rate: u32, now: Instant) -> Self {
        let (rate, all_rate) = (rate.into(), all_rate.into());
        Sources { rate, all: Bucket::full(all_rate, now), all_rate, each: HashMap::new() }
    }

    /// Counts a packet of `source` and returns whether it is within the limits.
    pub(super) fn admit(&mut self, source: IpAddr, now: Instant) -> bool {
        let source = network(source);
        if self.each.len() >= MOST_SOURCES && !self.each.contains_key(&source) {
            self.forget(now);
        }
        let bucket = self.each.entry(source).or_insert_with(|| Bucket::full(self.rate, now));
        // A source above its limit does not use up the limit of all.
        bucket.take(self.rate, now) && self.all.take(self.all_rate, now)
    }

    /// Removes the sources whose bucket is full again, or if there are none, the older half.
    fn forget(&mut self, now: Instant) {
        self.each.retain(|_, bucket| now.saturating_duration_since(bucket.at) < BURST);
        if self.each.len() >= MOST_SOURCES {
            let mut times: Vec<Instant> = self.each.values().map(|bucket| bucket.at).collect();
            let (_, middle, _) = times.select_nth_unstable(MOST_SOURCES / 2);
            let middle = *middle;
            self.each.retain(|_, bucket| bucket.at > middle);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0xc000_0000 + number).into()
    }

    #[test]
    fn a_source_above_its_rate_does_not_affect_others() {
        let now = Instant::now();
        let mut sources = Sources::new(100, 1000, now);
        let passed = (0..1000).filter(|_| sources.admit(address(1), now)).count();
        assert_eq!(passed, 100);
        assert!(sources.admit(address(2), now));
        let later = now + Duration::from_millis(100);
        let passed = (0..1000).filter(|_| sources.admit(address(1), later)).count();
        assert_eq!(passed, 10);
    }

    #[test]
    fn all_sources_together_have_a_limit() {
        let now = Instant::now();
        let mut sources = Sources::new(100, 1000, now);
        let passed = (0..5000).filter(|number| sources.admit(address(*number), now)).count();
        assert_eq!(passed, 1000);
    }

    #[test]
    fn memory_is_bounded() {
        let now = Instant::now();
        let mut sources = Sources::new(100, u32::MAX, now);
        for number in 0..3 * MOST_SOURCES as u32 {
            assert!(sources.admit(address(number), now + Duration::from_nanos(number.into())));
        }
        assert!(sources.each.len() <= MOST_SOURCES);
        // An address of the same /64 has the same bucket.
        let (one, other): (IpAddr, IpAddr) =
            ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        assert!((0..100).all(|_| sources.admit(one, now)));
        assert!(!sources.admit(other, now));
    }
}
