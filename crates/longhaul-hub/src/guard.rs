//! The limits per network: failed logins, and *places*, the permits to use a limited resource.
//! Their memory is bounded.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock::MINUTE;

/// The failures within a window after which logins are refused.
const MOST_FAILURES: u32 = 10;
/// The length of a window in ms.
const WINDOW_MS: i64 = 5 * MINUTE;
/// The maximum number of counters in memory.
const MOST_COUNTERS: usize = 8192;

/// The maximum number of networks whose failed logins of an hour are separate events.
const MOST_REPORTED: usize = 100;

/// The counters of failed logins by network and by user.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    counters: Mutex<HashMap<String, Counter>>,
    /// The networks with failed logins in an hour.
    reported: Mutex<(i64, HashSet<String>)>,
}

#[derive(Debug, Clone, Copy)]
struct Counter {
    since_ms: i64,
    failures: u32,
}

/// The decision on a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The password may be checked.
    Allowed,
    /// Too many logins failed; try again after some seconds.
    Refused {
        /// The seconds until the window ends.
        seconds: i64,
    },
}

impl Guard {
    /// Decides on a login of `user` from `address` at `now`, the uptime in ms, and counts it as failed until
    /// [`succeeded`](Self::succeeded). Counting first bounds simultaneous logins, too.
    pub(crate) fn admit(&self, address: IpAddr, user: &str, now: i64) -> Admission {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        if counters.len() + 2 > MOST_COUNTERS {
            counters.retain(|_, counter| now - counter.since_ms < WINDOW_MS);
        }
        let keys = keys(address, user);
        let full = counters.len() + 2 > MOST_COUNTERS;
        let waits = keys.iter().filter_map(|key| {
            let counter = counters.get(key)?;
            let left = counter.since_ms + WINDOW_MS - now;
            (left > 0 && counter.failures >= MOST_FAILURES).then_some(left)
        });
        if let Some(left) = waits.max().or(full.then_some(WINDOW_MS)) {
            return Admission::Refused { seconds: left / 1000 + 1 };
        }
        for key in keys {
            let counter = counters.entry(key).or_insert(Counter { since_ms: now, failures: 0 });
            if now - counter.since_ms >= WINDOW_MS {
                *counter = Counter { since_ms: now, failures: 0 };
            }
            counter.failures += 1;
        }
        Admission::Allowed
    }

    /// Forgets the failures of a user after a correct password, and does not count this login as a
    /// failure of the network. The other failures stay: somebody who knows one password may guess
    /// those of other users.
    pub(crate) fn succeeded(&self, address: IpAddr, user: &str) {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let [of_user, of_network] = keys(address, user);
        counters.remove(&of_user);
        if let Some(counter) = counters.get_mut(&of_network) {
            counter.failures = counter.failures.saturating_sub(1);
            if counter.failures == 0 {
                counters.remove(&of_network);
            }
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

/// Returns the counters of a login: the user from this network, and the network. One network cannot
/// lock a user out of another.
fn keys(address: IpAddr, user: &str) -> [String; 2] {
    let network = network(address);
    let user: String = user.chars().take(64).collect();
    [format!("{network} {user}"), network]
}

/// Returns the name of the network of `address`: an IPv4 address, or a /64 of IPv6.
pub(crate) fn network(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        // A host commonly has a whole /64.
        IpAddr::V6(address) => format!("{:x}", u128::from(address) >> 64),
    }
}

/// The maximum number of networks in memory, besides those that hold a place.
const MOST_NETWORKS: usize = 8192;

/// The places of each network.
#[derive(Debug)]
pub(crate) struct Shares {
    /// The places of one network.
    most: usize,
    places: Mutex<HashMap<(String, bool), Arc<Semaphore>>>,
}

impl Shares {
    /// Permits `most` places to each network.
    pub(crate) fn new(most: usize) -> Self {
        Shares { most, places: Mutex::default() }
    }

    /// Returns the places of the network of `address`: one set for authenticated senders, and one
    /// for others.
    pub(crate) fn of(&self, address: IpAddr, proven: bool) -> Arc<Semaphore> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= MOST_NETWORKS {
            places.retain(|_, places| Arc::strong_count(places) > 1);
        }
        let new = || Arc::new(Semaphore::new(self.most));
        places.entry((network(address), proven)).or_insert_with(new).clone()
    }
}

/// The places of a resource: all of them, and those of one network.
#[derive(Debug)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    shares: Shares,
}

/// A taken place; its drop frees it.
#[derive(Debug)]
pub(crate) struct Place {
    _share: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

impl Places {
    /// Permits `most` places, and `of_network` places to each network.
    pub(crate) fn new(most: usize, of_network: usize) -> Self {
        Places { all: Arc::new(Semaphore::new(most)), shares: Shares::new(of_network) }
    }

    /// Takes a place for `address`. Returns `None` if none is free within `limit`.
    pub(crate) async fn take(&self, address: IpAddr, limit: Duration) -> Option<Place> {
        let place = async {
            let share = self.shares.of(address, true).acquire_owned().await.ok()?;
            let place = self.all.clone().acquire_owned().await.ok()?;
            Some(Place { _share: share, _place: place })
        };
        tokio::time::timeout(limit, place).await.ok()?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn places_are_free_again_after_use() {
        let places = Places::new(2, 1);
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let take = |text: &str| places.take(address(text), Duration::ZERO);
        let first = take("192.0.2.1").await.unwrap();
        assert!(take("192.0.2.1").await.is_none(), "the share of the network");
        let _second = take("192.0.2.2").await.unwrap();
        assert!(take("192.0.2.3").await.is_none(), "all places");
        drop(first);
        assert!(take("192.0.2.3").await.is_some());
    }

    #[test]
    fn ten_thousand_logins_are_refused_in_bounded_memory() {
        let guard = Guard::default();
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        let allowed = (0..10_000)
            .filter(|_| guard.admit(address, "admin", 1000) == Admission::Allowed)
            .count();
        assert_eq!(allowed, MOST_FAILURES as usize);
        let other: IpAddr = "192.0.2.2".parse().unwrap();
        assert_eq!(guard.admit(other, "admin", 1000), Admission::Allowed);
        guard.succeeded(other, "admin");
        for at in 0..20_000u32 {
            guard.admit(IpAddr::V4(at.into()), "x", 2000);
        }
        assert!(guard.counters.lock().unwrap().len() <= MOST_COUNTERS);
        // The window ends.
        assert_eq!(guard.admit(address, "admin", 1000 + WINDOW_MS), Admission::Allowed);
    }

    #[test]
    fn a_correct_password_does_not_forget_guesses_of_others() {
        let guard = Guard::default();
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        let guess = |at: u32| guard.admit(address, &format!("user{at}"), 0) == Admission::Allowed;
        for at in 0..MOST_FAILURES {
            assert!(guess(at));
            if at + 1 < MOST_FAILURES {
                assert_eq!(guard.admit(address, "eve", 0), Admission::Allowed);
                guard.succeeded(address, "eve");
            }
        }
        assert!(!guess(100), "the guesses of the network");
    }

    #[test]
    fn failed_logins_of_many_networks_have_one_event() {
        let guard = Guard::default();
        let named = |at: u128| guard.reported(IpAddr::V6((at << 64).into()), 7).is_some();
        assert_eq!((1..=10_000).filter(|at| named(*at)).count(), MOST_REPORTED);
        assert!(named(1) && !named(10_000));
        assert!(guard.reported(IpAddr::V6((10_000_u128 << 64).into()), 8).is_some());
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        let guard = Guard::default();
        for at in 0..10u16 {
            let address: IpAddr = format!("2001:db8::{at:x}").parse().unwrap();
            assert_eq!(guard.admit(address, &format!("user{at}"), 0), Admission::Allowed);
        }
        let next: IpAddr = "2001:db8::ffff".parse().unwrap();
        assert!(matches!(guard.admit(next, "other", 0), Admission::Refused { .. }));
    }

    #[test]
    fn a_network_takes_its_share_only() {
        let shares = Shares::new(2);
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let take = |text: &str| shares.of(address(text), true).try_acquire_owned();
        let held = [take("2001:db8::1").unwrap(), take("2001:db8::2").unwrap()];
        assert!(take("2001:db8::3").is_err());
        assert!(take("2001:db8:0:1::1").is_ok());
        assert!(shares.of(address("2001:db8::1"), false).try_acquire_owned().is_ok());
        for number in 0..20_000u32 {
            shares.of(IpAddr::V4(number.into()), true);
        }
        assert!(shares.places.lock().unwrap().len() <= MOST_NETWORKS);
        assert!(take("2001:db8::3").is_err(), "a network that holds places is not forgotten");
        drop(held);
        assert!(take("2001:db8::3").is_ok());
    }
}
