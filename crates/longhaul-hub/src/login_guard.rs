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
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The password may be checked.
    Allowed(Attempt),
    /// Too many logins failed; try again after some seconds.
    Refused {
        /// The seconds until the window ends.
        seconds: i64,
    },
}

/// A login that its counter counts as failed until it succeeds or is released.
#[must_use = "a dropped attempt stays a failed one"]
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    address: IpAddr,
    user: String,
    scope: Scope,
    /// The start of the window in which it counts.
    since_ms: i64,
}

/// The kind of the counter of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Known,
    Network,
    Region,
}

impl Attempt {
    /// Returns whether the network was a known one of the user.
    pub(crate) fn is_from_known(&self) -> bool {
        self.scope == Scope::Known
    }
}

impl LoginGuard {
    /// Decides on a login of `user` from `address` at `now`, the uptime in ms, and counts it as failed
    /// until [`succeeded`](Self::succeeded) or [`released`](Self::released). Counting first bounds
    /// simultaneous logins, too.
    pub(crate) fn admit(&self, address: IpAddr, user: &str, now: i64) -> Admission {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let (scope, counted) = counters.count(address, user, now);
        match counted {
            Ok(since_ms) => {
                Admission::Allowed(Attempt { address, user: user.to_owned(), scope, since_ms })
            }
            Err(left_ms) => Admission::Refused { seconds: left_ms / SECOND + 1 },
        }
    }

    /// Makes the network of an attempt a known one of its user after a correct password, and forgets the
    /// user's failures there. The failures of the network for other users stay: somebody who knows one
    /// password may guess those of other users.
    pub(crate) fn succeeded(&self, attempt: Attempt) {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        counters.release(&attempt);
        let network = network(attempt.address);
        let known = counters.known.entry(attempt.user).or_default();
        known.retain(|(known, _)| *known != network);
        if known.len() >= MOST_KNOWN {
            known.remove(0);
        }
        known.push((network, Counter::default()));
    }

    /// Subtracts an attempt whose password was not checked, so that it does not count as failed.
    pub(crate) fn released(&self, attempt: &Attempt) {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).release(attempt);
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

    /// Counts a failure, as [`Counter::count`], and returns the kind of its counter.
    fn count(&mut self, address: IpAddr, user: &str, now: i64) -> (Scope, Result<i64, i64>) {
        let network = network(address);
        if let Some(counter) = self.known_to(user, &network) {
            return (Scope::Known, counter.count(now));
        }
        if let Some(counter) = self.networks.counter(network, now) {
            return (Scope::Network, counter.count(now));
        }
        let counter = self.regions.counter(region(address), now);
        (Scope::Region, counter.map_or(Err(WINDOW_MS), |one| one.count(now)))
    }

    /// Subtracts an attempt from the counter that counted it.
    fn release(&mut self, attempt: &Attempt) {
        let network = network(attempt.address);
        match attempt.scope {
            Scope::Known => {
                if let Some(counter) = self.known_to(&attempt.user, &network) {
                    counter.release(attempt.since_ms);
                }
            }
            Scope::Network => self.networks.release(&network, attempt.since_ms),
            Scope::Region => self.regions.release(&region(attempt.address), attempt.since_ms),
        }
    }
}

/// Returns the name of the region of `address`: a /16 of IPv4, or a /32 of IPv6, which is the usual
/// allocation of a provider.
fn region(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => format!("{}.", u32::from(address) >> 16),
        IpAddr::V6(address) => format!("{:x}:", u128::from(address) >> 96),
    }
}

/// The failures within a window. The window of a new counter is over: the first failure begins one.
#[derive(Debug, Clone, Copy)]
struct Counter {
    since_ms: i64,
    failures: u32,
}

impl Default for Counter {
    fn default() -> Self {
        Counter { since_ms: -WINDOW_MS, failures: 0 }
    }
}

impl Counter {
    /// Counts a failure, and returns the start of its window.
    ///
    /// # Errors
    /// The ms until the window ends, if it has too many failures.
    fn count(&mut self, now: i64) -> Result<i64, i64> {
        if self.is_over(now) {
            *self = Counter { since_ms: now, failures: 0 };
        }
        if self.failures >= MOST_FAILURES {
            return Err(self.since_ms + WINDOW_MS - now);
        }
        self.failures += 1;
        Ok(self.since_ms)
    }

    /// Subtracts a failure of the window that began at `since_ms`. A later window does not have it.
    fn release(&mut self, since_ms: i64) {
        if self.since_ms == since_ms {
            self.failures = self.failures.saturating_sub(1);
        }
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

    /// Subtracts a failure of a name, as [`Counter::release`].
    fn release(&mut self, name: &str, since_ms: i64) {
        let Some(counter) = self.counters.get_mut(name) else { return };
        counter.release(since_ms);
        if counter.failures == 0 {
            self.counters.remove(name);
        }
    }
}

#[cfg(test)]
mod tests;
