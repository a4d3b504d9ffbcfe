//! Penalties for addresses whose connections keep failing, as `PerSourcePenalties` of
//! sshd_config(5).
//!
//! Each failure adds its time to the penalty of the address. Above a minimum, and until the penalty
//! is over, the server refuses new connections of that address; open connections continue. Loopback
//! is exempt, because tunnels make many clients appear there.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock;

/// The smallest penalty that is enforced.
const LEAST: Duration = Duration::from_secs(15);
/// The longest penalty.
const MOST: Duration = Duration::from_secs(600);
/// The maximum number of addresses with penalties, some 5 MiB; the penalties that end first are
/// removed.
const MOST_SOURCES: usize = 65_536;

/// The kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server's thread panicked.
    Crash,
    /// The connection was not authenticated in time.
    GraceExceeded,
    /// The server serves no client without an authorized key.
    Refused,
    /// The handshake or the proof of a data connection was invalid, or the key may not use the
    /// requested service.
    Authentication,
    /// The connection was closed without data.
    NothingSaid,
}

impl Failure {
    /// Returns the time that the failure adds; the defaults of OpenSSH 9.8.
    fn penalty(self) -> Duration {
        Duration::from_secs(match self {
            Failure::Crash => 90,
            Failure::GraceExceeded => 20,
            Failure::Refused => 10,
            Failure::Authentication => 5,
            Failure::NothingSaid => 1,
        })
    }
}

/// The penalties of a server.
#[derive(Debug, Default)]
pub(super) struct Penalties {
    enabled: bool,
    sources: Mutex<HashMap<IpAddr, Penalty>>,
}

#[derive(Debug, Clone, Copy)]
struct Penalty {
    until: Instant,
    /// True after the penalty has reached the minimum.
    enforced: bool,
}

impl Penalties {
    pub(super) fn new(enabled: bool) -> Self {
        Penalties { enabled, sources: Mutex::default() }
    }

    /// Adds the time of `failure` to the penalty of `source`.
    pub(super) fn add(&self, source: IpAddr, failure: Failure, now: Instant) {
        if !self.enabled || source.is_loopback() {
            return;
        }
        let mut sources = lock(&self.sources);
        if sources.len() >= MOST_SOURCES && !sources.contains_key(&source) {
            forget(&mut sources, now);
        }
        let penalty = sources.entry(source).or_insert(Penalty { until: now, enforced: false });
        if penalty.until <= now {
            *penalty = Penalty { until: now, enforced: false };
        }
        penalty.until = (penalty.until + failure.penalty()).min(now + MOST);
        penalty.enforced |= penalty.until - now >= LEAST;
    }

    /// Returns the remaining time for which connections of `source` are refused.
    pub(super) fn refuses(&self, source: IpAddr, now: Instant) -> Option<Duration> {
        let sources = lock(&self.sources);
        let penalty = sources.get(&source).filter(|penalty| penalty.enforced)?;
        penalty.until.checked_duration_since(now).filter(|left| !left.is_zero())
    }
}

/// Removes the penalties that are over, or if there are none, the sixteenth that ends first.
fn forget(sources: &mut HashMap<IpAddr, Penalty>, now: Instant) {
    sources.retain(|_, penalty| penalty.until > now);
    if sources.len() >= MOST_SOURCES {
        let mut ends: Vec<Instant> = sources.values().map(|penalty| penalty.until).collect();
        let (_, end, _) = ends.select_nth_unstable(MOST_SOURCES / 16);
        sources.retain(|_, penalty| penalty.until > *end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuses(penalties: &Penalties, source: IpAddr, now: Instant) -> bool {
        penalties.refuses(source, now).is_some()
    }

    fn address(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0xc000_0000 + number).into()
    }

    #[test]
    fn failures_add_up_to_a_penalty_that_ends() {
        let (penalties, now) = (Penalties::new(true), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        for _ in 0..2 {
            penalties.add(address(1), Failure::Authentication, now);
            assert!(!refuses(&penalties, address(1), now), "10 s are below the minimum");
        }
        penalties.add(address(1), Failure::Authentication, now);
        assert!(refuses(&penalties, address(1), now) && !refuses(&penalties, address(2), now));
        assert!(
            refuses(&penalties, address(1), after(14))
                && !refuses(&penalties, address(1), after(15))
        );
        // A rare failure is never enforced.
        for hour in 1..100 {
            penalties.add(address(3), Failure::Refused, after(3600 * hour));
            assert!(!refuses(&penalties, address(3), after(3600 * hour)));
        }
        penalties.add(address(4), Failure::GraceExceeded, now);
        assert!(refuses(&penalties, address(4), now));
    }

    #[test]
    fn a_penalty_has_a_maximum() {
        let (penalties, now) = (Penalties::new(true), Instant::now());
        (0..100).for_each(|_| penalties.add(address(1), Failure::Crash, now));
        assert!(refuses(&penalties, address(1), now + MOST - Duration::from_secs(1)));
        assert!(!refuses(&penalties, address(1), now + MOST));
    }

    #[test]
    fn loopback_and_a_server_without_penalties_refuse_no_client() {
        let now = Instant::now();
        let loopback: IpAddr = "127.0.0.1".parse().unwrap();
        let penalties = Penalties::new(true);
        penalties.add(loopback, Failure::Crash, now);
        assert!(!refuses(&penalties, loopback, now));
        let off = Penalties::new(false);
        off.add(address(1), Failure::Crash, now);
        assert!(!refuses(&off, address(1), now));
    }

    #[test]
    fn the_table_is_bounded_and_keeps_the_longest_penalties() {
        let (penalties, now) = (Penalties::new(true), Instant::now());
        penalties.add(address(u32::MAX >> 4), Failure::Crash, now);
        for number in 0..MOST_SOURCES as u32 + 10_000 {
            let later = now + Duration::from_micros(number.into());
            penalties.add(address(number), Failure::NothingSaid, later);
        }
        assert!(lock(&penalties.sources).len() <= MOST_SOURCES);
        assert!(refuses(&penalties, address(u32::MAX >> 4), now));
    }
}
