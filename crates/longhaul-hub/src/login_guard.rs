//! The limits on failed logins. Their memory is bounded, and attackers from many networks cannot lock
//! out a user whose network is known.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use crate::clock::{MINUTE, SECOND};
use crate::guard::network;

/// The failures within a window after which logins are refused.
const MOST_FAILURES: u32 = 10;
/// The length of a window in ms.
const WINDOW_MS: i64 = 5 * MINUTE;
/// The maximum number of networks with a counter.
const MOST_NETWORKS: usize = 8192;
/// The maximum number of regions with a counter.
const MOST_REGIONS: usize = 4096;
/// The maximum number of known networks of a user.
const MOST_KNOWN: usize = 16;
/// The maximum number of networks whose failed logins of an hour are separate events.
const MOST_REPORTED: usize = 100;

/// The counters of failed logins.
///
/// A *known* network of a user is one of the latest from which the correct password came. Its counter
/// is separate, so failures of others do not affect it. All other logins count by network. While too
/// many networks have a counter, a new network counts by its region, which is larger: no counter is
/// removed before its window ends, so nobody gets more guesses.
#[derive(Debug, Default)]
pub(crate) struct LoginGuard {
    counters: Mutex<Counters>,
    /// The networks with failed logins in an hour.
    reported: Mutex<(i64, HashSet<String>)>,
}

#[derive(Debug)]
struct Counters {
    /// The known networks by user; the latest is the last. Only a correct password adds one.
    known: HashMap<String, Vec<(String, Counter)>>,
    networks: Table,
    regions: Table,
}

impl Default for Counters {
    fn default() -> Self {
        let (networks, regions) = (Table::new(MOST_NETWORKS), Table::new(MOST_REGIONS));
        Counters { known: HashMap::new(), networks, regions }
    }
}

/// The decision on a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The password may be checked.
    Allowed {
        /// True if the network is a known one of the user.
        known: bool,
    },
    /// Too many logins failed; try again after some seconds.
    Refused {
        /// The seconds until the window ends.
        seconds: i64,
    },
}

impl LoginGuard {
    /// Decides on a login of `user` from `address` at `now`, the uptime in ms, and counts it as failed
    /// until [`succeeded`](Self::succeeded) or [`released`](Self::released). Counting first bounds
    /// simultaneous logins, too.
    pub(crate) fn admit(&self, address: IpAddr, user: &str, now: i64) -> Admission {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let (network, region) = (network(address), region(address));
        if let Some(counter) = counters.known_to(user, &network) {
            let left = counter.count(now);
            return left.map_or(Admission::Allowed { known: true }, refused);
        }
        let Counters { networks, regions, .. } = &mut *counters;
        let left = match networks.counter(network, now) {
            Some(counter) => counter.count(now),
            None => regions.counter(region, now).map_or(Some(WINDOW_MS), |one| one.count(now)),
        };
        left.map_or(Admission::Allowed { known: false }, refused)
    }

    /// Makes the network of `address` a known one of `user` after a correct password, and forgets the
    /// user's failures there. The failures of the network for other users stay: somebody who knows one
    /// password may guess those of other users.
    pub(crate) fn succeeded(&self, address: IpAddr, user: &str) {
        self.released(address, user);
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let network = network(address);
        let known = counters.known.entry(user.to_owned()).or_default();
        known.retain(|(known, _)| *known != network);
        if known.len() >= MOST_KNOWN {
            known.remove(0);
        }
        known.push((network, Counter::default()));
    }

    /// Does not count a login as failed whose password was not checked.
    pub(crate) fn released(&self, address: IpAddr, user: &str) {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let network = network(address);
        if let Some(counter) = counters.known_to(user, &network) {
            counter.failures = counter.failures.saturating_sub(1);
        } else if !counters.networks.release(&network) {
            counters.regions.release(&region(address));
        }
    }

    /// Returns the network of `address`, if its failed logins of an hour are an event of their own:
    /// those of the first networks. All others have one event, so that their number is bounded.
    pub(crate) fn reported(&self, address: IpAddr, hour: i64) -> Option<String> {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.0 != hour {
            *reported = (hour, HashSet::new());
        }
        let network = network(address);
        let known = reported.1.contains(&network);
        (known || reported.1.len() < MOST_REPORTED).then(|| {
            reported.1.insert(network.clone());
            network
        })
    }
}

impl Counters {
    fn known_to(&mut self, user: &str, network: &str) -> Option<&mut Counter> {
        let known = self.known.get_mut(user)?;
        known.iter_mut().find(|(known, _)| known == network).map(|(_, counter)| counter)
    }
}

fn refused(left_ms: i64) -> Admission {
    Admission::Refused { seconds: left_ms / SECOND + 1 }
}

/// Returns the name of the region of `address`: a /16 of IPv4, or a /32 of IPv6, which is the usual
/// allocation of a provider.
fn region(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => format!("{}.", u32::from(address) >> 16),
        IpAddr::V6(address) => format!("{:x}:", u128::from(address) >> 96),
    }
}

/// The failures within a window.
#[derive(Debug, Clone, Copy, Default)]
struct Counter {
    since_ms: i64,
    failures: u32,
}

impl Counter {
    /// Counts a failure, or returns the ms until the window ends if it has too many failures.
    fn count(&mut self, now: i64) -> Option<i64> {
        if self.is_over(now) {
            *self = Counter { since_ms: now, failures: 0 };
        }
        if self.failures >= MOST_FAILURES {
            return Some(self.since_ms + WINDOW_MS - now);
        }
        self.failures += 1;
        None
    }

    fn is_over(&self, now: i64) -> bool {
        now - self.since_ms >= WINDOW_MS
    }
}

/// Counters by name.
#[derive(Debug)]
struct Table {
    most: usize,
    counters: HashMap<String, Counter>,
    /// The time of the last removal of counters whose window is over.
    cleaned_ms: i64,
}

impl Table {
    fn new(most: usize) -> Self {
        Table { most, counters: HashMap::new(), cleaned_ms: i64::MIN }
    }

    /// Returns the counter of a name, or `None` if it has none and the table is full.
    fn counter(&mut self, name: String, now: i64) -> Option<&mut Counter> {
        // A full table is searched once per second, not per login.
        if self.counters.len() >= self.most && now.saturating_sub(self.cleaned_ms) >= SECOND {
            self.cleaned_ms = now;
            self.counters.retain(|_, counter| counter.failures > 0 && !counter.is_over(now));
        }
        if self.counters.len() >= self.most && !self.counters.contains_key(&name) {
            return None;
        }
        Some(self.counters.entry(name).or_insert(Counter { since_ms: now, failures: 0 }))
    }

    /// Subtracts a failure of a name. Returns whether it had one.
    fn release(&mut self, name: &str) -> bool {
        let Some(counter) = self.counters.get_mut(name).filter(|one| one.failures > 0) else {
            return false;
        };
        counter.failures -= 1;
        if counter.failures == 0 {
            self.counters.remove(name);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: Admission = Admission::Allowed { known: false };
    const KNOWN: Admission = Admission::Allowed { known: true };

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Fills the counters from as many networks of 10.0.0.0/8 as they hold, and from more.
    fn flood(guard: &LoginGuard, now: i64) {
        for at in 0..20_000u32 {
            guard.admit(IpAddr::V4((0x0a00_0000 + at).into()), "admin", now);
        }
    }

    #[test]
    fn ten_thousand_logins_are_refused_in_bounded_memory() {
        let guard = LoginGuard::default();
        let one = address("192.0.2.1");
        let allowed = (0..10_000).filter(|_| guard.admit(one, "admin", 1000) == UNKNOWN).count();
        assert_eq!(allowed, MOST_FAILURES as usize);
        let other = address("192.0.2.2");
        assert_eq!(guard.admit(other, "admin", 1000), UNKNOWN);
        guard.succeeded(other, "admin");
        for at in 0..200_000u32 {
            guard.admit(IpAddr::V4((at << 12).into()), "x", 2000);
        }
        let counters = guard.counters.lock().unwrap();
        assert_eq!(counters.networks.counters.len(), MOST_NETWORKS);
        assert_eq!(counters.regions.counters.len(), MOST_REGIONS);
        drop(counters);
        // The window ends.
        assert_eq!(guard.admit(one, "admin", 2000 + WINDOW_MS), UNKNOWN);
    }

    #[test]
    fn many_networks_lock_out_neither_known_users_nor_other_regions() {
        let guard = LoginGuard::default();
        let (office, elsewhere) = (address("10.9.9.9"), address("203.0.113.1"));
        assert_eq!(guard.admit(office, "ann", 0), UNKNOWN);
        guard.succeeded(office, "ann");
        flood(&guard, 1000);
        assert_eq!(guard.admit(office, "ann", 2000), KNOWN);
        assert_eq!(guard.admit(elsewhere, "ann", 2000), UNKNOWN);
        // Guesses of others behind the same address do not affect the known user.
        while guard.admit(office, "admin", 2000) == UNKNOWN {}
        assert_eq!(guard.admit(office, "ann", 2000), KNOWN);
        // The known network has no more guesses than another one.
        let allowed = (0..100).filter(|_| guard.admit(office, "ann", 2000) == KNOWN).count();
        assert_eq!(allowed, MOST_FAILURES as usize - 2);
    }

    #[test]
    fn a_flood_gives_nobody_more_guesses() {
        let guard = LoginGuard::default();
        let guesser = address("192.0.2.1");
        for _ in 0..MOST_FAILURES {
            assert_eq!(guard.admit(guesser, "admin", 0), UNKNOWN);
        }
        flood(&guard, 1000);
        assert!(matches!(guard.admit(guesser, "admin", 5000), Admission::Refused { .. }));
        // 10.1.0.0/16 has no counters of networks any more.
        let next = |at: u32| guard.admit(IpAddr::V4((0x0a01_0000 + at).into()), "admin", 5000);
        let allowed = (0..1000).filter(|at| next(*at) == UNKNOWN).count();
        assert_eq!(allowed, MOST_FAILURES as usize);
    }

    #[test]
    fn a_user_has_few_known_networks() {
        let guard = LoginGuard::default();
        let home = address("192.0.2.1");
        guard.succeeded(home, "ann");
        for at in 0..100u32 {
            guard.succeeded(IpAddr::V4((0x0a00_0000 + at).into()), "eve");
            guard.succeeded(home, "eve");
        }
        assert_eq!(guard.counters.lock().unwrap().known["eve"].len(), MOST_KNOWN);
        assert_eq!(guard.admit(home, "ann", 0), KNOWN);
    }

    #[test]
    fn a_login_that_was_not_checked_is_no_failure() {
        let guard = LoginGuard::default();
        let one = address("192.0.2.1");
        for _ in 0..100 {
            assert_eq!(guard.admit(one, "ann", 0), UNKNOWN);
            guard.released(one, "ann");
        }
    }

    #[test]
    fn a_correct_password_does_not_forget_guesses_of_others() {
        let guard = LoginGuard::default();
        let one = address("192.0.2.1");
        let guess = |at: u32| guard.admit(one, &format!("user{at}"), 0) == UNKNOWN;
        for at in 0..MOST_FAILURES {
            assert!(guess(at));
            if at + 1 < MOST_FAILURES {
                assert!(matches!(guard.admit(one, "eve", 0), Admission::Allowed { .. }));
                guard.succeeded(one, "eve");
            }
        }
        assert!(!guess(100), "the guesses of the network");
    }

    #[test]
    fn failed_logins_of_many_networks_have_one_event() {
        let guard = LoginGuard::default();
        let named = |at: u128| guard.reported(IpAddr::V6((at << 64).into()), 7).is_some();
        assert_eq!((1..=10_000).filter(|at| named(*at)).count(), MOST_REPORTED);
        assert!(named(1) && !named(10_000));
        assert!(guard.reported(IpAddr::V6((10_000_u128 << 64).into()), 8).is_some());
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        let guard = LoginGuard::default();
        for at in 0..10u16 {
            let address: IpAddr = format!("2001:db8::{at:x}").parse().unwrap();
            assert_eq!(guard.admit(address, &format!("user{at}"), 0), UNKNOWN);
        }
        let next: IpAddr = "2001:db8::ffff".parse().unwrap();
        assert!(matches!(guard.admit(next, "other", 0), Admission::Refused { .. }));
    }
}
