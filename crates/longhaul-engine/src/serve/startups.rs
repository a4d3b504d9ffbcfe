//! The unauthenticated connections, and the choice of the one that is dropped if there are too
//! many.
//!
//! A connection is unauthenticated until it has completed the handshake and its request, or has
//! proved that it belongs to a session. If there are `start` or more of them, a new connection
//! causes the server to drop one with a probability that rises to 1 at `full`, as with
//! `MaxStartups` of sshd_config(5). sshd drops the new connection, so silent connections can
//! exclude all clients. This server drops the oldest connection of the address with the most
//! connections, if it is older than the longest normal handshake, or silent for longer than a
//! normal client. It drops the new connection only if there is no such connection.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock;

/// The age below which a connection that has sent data is not dropped for another one: a handshake
/// takes three round trips of at most half a second, by satellite.
const HANDSHAKE_TIME: Duration = Duration::from_millis(1500);

/// The age below which a silent connection is not dropped: a client sends its first bytes with the
/// end of TCP's handshake.
const SILENT_TIME: Duration = Duration::from_millis(250);

/// The limits on unauthenticated connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartupLimits {
    /// The number from which on a connection is dropped per arrival with the probability `percent`.
    pub start: usize,
    /// The probability at `start`; it grows linearly to 100 at `full`.
    pub percent: u8,
    /// The maximum number of connections.
    pub full: usize,
    /// The maximum number of connections of one address (of one /64 for IPv6), except loopback.
    pub each_address: usize,
}

impl Default for StartupLimits {
    /// Returns limits for 1024 threads that wait up to 20 s, which take some 40 MiB. Half of them
    /// are never dropped, so that 500 clients may arrive at once. One address may have as many:
    /// four copies of 128 streams behind one NAT.
    fn default() -> Self {
        StartupLimits { start: 512, percent: 30, full: 1024, each_address: 512 }
    }
}

impl StartupLimits {
    /// Returns the probability in percent that a connection is dropped when another arrives at
    /// `open`.
    fn drop_percent(&self, open: usize) -> u8 {
        if open >= self.full {
            return 100;
        }
        if open < self.start {
            return 0;
        }
        let grown = (open - self.start) * usize::from(100 - self.percent);
        self.percent + (grown / (self.full - self.start)) as u8
    }

    /// Returns the limits with at most `most` connections.
    pub(super) fn within(self, most: usize) -> Self {
        if self.full <= most {
            return self;
        }
        let full = most.max(1);
        StartupLimits { start: self.start.min(full * 3 / 4).max(1), full, ..self }
    }
}

/// The unauthenticated connections of a server.
#[derive(Debug)]
pub(super) struct Startups {
    limits: StartupLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    arrivals: u64,
    /// The connections by number of arrival, so that the oldest is the first.
    open: BTreeMap<u64, Opening>,
    /// The number of connections per address.
    sources: HashMap<IpAddr, usize>,
}

struct Opening {
    source: IpAddr,
    since: Instant,
    /// True after the client has sent data.
    first_bytes: bool,
    /// Ends the connection, which wakes its thread.
    close: Box<dyn Fn() + Send>,
}

impl std::fmt::Debug for Opening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} since {:?}", self.source, self.since)
    }
}

/// The reason why a new connection is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DropCause {
    /// Too many connections of its address.
    Address,
    /// Too many connections.
    All,
}

/// An unauthenticated connection; it counts until dropped.
#[derive(Debug)]
pub(super) struct Startup {
    startups: Arc<Startups>,
    number: u64,
}

impl Startups {
    pub(super) fn new(limits: StartupLimits) -> Arc<Self> {
        Arc::new(Startups { limits, state: Mutex::default() })
    }

    /// Counts a new connection of `source`, which `close` ends. `roll` is a random number below
    /// 100. Fails if the new connection is to be dropped.
    pub(super) fn admit(
        self: &Arc<Self>,
        source: IpAddr,
        now: Instant,
        roll: u8,
        close: impl Fn() + Send + 'static,
    ) -> Result<Startup, DropCause> {
        let mut state = lock(&self.state);
        let here = state.sources.get(&source).copied().unwrap_or(0);
        if !source.is_loopback() && here >= self.limits.each_address {
            state.drop_oldest(source, now).ok_or(DropCause::Address)?;
        } else if roll < self.limits.drop_percent(state.open.len()) {
            let dropped = state.largest_source().and_then(|most| state.drop_oldest(most, now));
            dropped.ok_or(DropCause::All)?;
        }
        state.arrivals += 1;
        let number = state.arrivals;
        *state.sources.entry(source).or_default() += 1;
        state.open.insert(
            number,
            Opening { source, since: now, first_bytes: false, close: Box::new(close) },
        );
        Ok(Startup { startups: self.clone(), number })
    }
}

impl State {
    /// Returns the address with the most connections, and of several the one with the oldest
    /// connection.
    fn largest_source(&self) -> Option<IpAddr> {
        let most = self.sources.values().max()?;
        let has_most = |opening: &&Opening| self.sources.get(&opening.source) == Some(most);
        self.open.values().find(has_most).map(|opening| opening.source)
    }

    /// Ends the oldest silent connection of `source`, or the oldest one; `None` if all are too
    /// young.
    fn drop_oldest(&mut self, source: IpAddr, now: Instant) -> Option<()> {
        let age = |opening: &Opening| now.saturating_duration_since(opening.since);
        let mut here = self.open.iter().filter(|(_, opening)| opening.source == source);
        let oldest = here.clone().next().filter(|(_, oldest)| age(oldest) >= HANDSHAKE_TIME);
        let silent = here
            .find(|(_, opening)| !opening.first_bytes)
            .filter(|(_, silent)| age(silent) >= SILENT_TIME);
        let number = *silent.or(oldest)?.0;
        self.remove(number).map(|opening| (opening.close)())
    }

    fn remove(&mut self, number: u64) -> Option<Opening> {
        let opening = self.open.remove(&number)?;
        if let Some(count) = self.sources.get_mut(&opening.source) {
            *count -= 1;
            // Unused addresses are removed.
            if *count == 0 {
                self.sources.remove(&opening.source);
            }
        }
        Some(opening)
    }
}

impl Startup {
    /// Records that the client has sent data.
    pub(super) fn first_bytes(&self) {
        if let Some(opening) = lock(&self.startups.state).open.get_mut(&self.number) {
            opening.first_bytes = true;
        }
    }

    /// Returns whether it was dropped for another one.
    pub(super) fn was_dropped(&self) -> bool {
        !lock(&self.startups.state).open.contains_key(&self.number)
    }
}

impl Drop for Startup {
    fn drop(&mut self) {
        lock(&self.startups.state).remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([198, 51, 100, last])
    }

    struct Server {
        startups: Arc<Startups>,
        begun: Instant,
        closed: Arc<AtomicUsize>,
    }

    impl Server {
        fn new(limits: StartupLimits) -> Self {
            let startups = Startups::new(limits);
            Server { startups, begun: Instant::now(), closed: Arc::default() }
        }

        fn admit(&self, source: IpAddr, millis: u64, roll: u8) -> Option<Startup> {
            let closed = self.closed.clone();
            let now = self.begun + Duration::from_millis(millis);
            let close = move || {
                closed.fetch_add(1, Ordering::Relaxed);
            };
            self.startups.admit(source, now, roll, close).ok()
        }

        fn closed(&self) -> usize {
            self.closed.load(Ordering::Relaxed)
        }
    }

    const FEW: StartupLimits = StartupLimits { start: 10, percent: 30, full: 20, each_address: 15 };

    #[test]
    fn the_probability_grows_from_start_to_full() {
        let percents = [9, 10, 15, 19, 20, 21].map(|open| FEW.drop_percent(open));
        assert_eq!(percents, [0, 30, 65, 93, 100, 100]);
        let one = StartupLimits { start: 1, full: 1, ..FEW };
        assert_eq!([0, 1].map(|open| one.drop_percent(open)), [0, 100]);
        let small = StartupLimits::default().within(8);
        assert_eq!((small.start, small.full), (6, 8));
        assert_eq!(one.within(10), one);
    }

    #[test]
    fn silent_connections_give_way_to_new_ones_and_the_number_is_bounded() {
        let server = Server::new(FEW);
        let silent: Vec<_> =
            (0..100).filter_map(|n| server.admit(address((n % 4) as u8), 0, 99)).collect();
        assert_eq!((silent.len(), server.closed()), (20, 0), "the young ones are kept");
        // An honest client arrives later and is admitted every time.
        for round in 1..=30 {
            let honest = server.admit(address(200), 2000 + round, 99).expect("it gets in");
            assert!(!honest.was_dropped());
            assert!(lock(&server.startups.state).open.len() <= 20);
        }
        assert!(server.closed() > 0);
        assert_eq!(silent.iter().filter(|s| s.was_dropped()).count(), server.closed());
        drop(silent);
        let state = lock(&server.startups.state);
        assert!(state.open.is_empty() && state.sources.is_empty());
    }

    #[test]
    fn one_address_has_its_limit_and_loopback_has_none() {
        let server = Server::new(FEW);
        let held: Vec<_> = (0..16).map(|_| server.admit(address(1), 0, 99)).collect();
        assert_eq!(held.iter().flatten().count(), 15);
        assert!(server.admit(address(2), 0, 99).is_some(), "another has its own");
        let late = server.admit(address(1), 2000, 99);
        assert!(late.is_some() && held[0].as_ref().unwrap().was_dropped());
        drop((held, late));
        let tunnels: Vec<_> = (0..20).map(|_| server.admit([127, 0, 0, 1].into(), 0, 99)).collect();
        assert!(tunnels.iter().all(Option::is_some));
    }

    #[test]
    fn the_address_with_most_connections_loses_them() {
        let server = Server::new(FEW);
        let single: Vec<_> = (0..5).map(|n| server.admit(address(100 + n), 0, 99)).collect();
        let many: Vec<_> = (0..15).map(|_| server.admit(address(1), 1, 99)).collect();
        let new: Vec<_> = (0..7).map(|_| server.admit(address(2), 2000, 99)).collect();
        assert!(new.iter().all(Option::is_some));
        assert!(single.iter().flatten().all(|startup| !startup.was_dropped()));
        assert_eq!(many.iter().flatten().filter(|startup| startup.was_dropped()).count(), 7);
        // Now the new connections are as many, and young: another is refused.
        let eighth = server.admit(address(2), 2000, 99);
        assert!(eighth.is_some() && server.admit(address(2), 2000, 99).is_none());
    }

    #[test]
    fn a_silent_connection_gives_way_before_one_that_is_slow() {
        let server = Server::new(StartupLimits { start: 3, full: 3, ..FEW });
        let held: Vec<_> = (0..3).filter_map(|_| server.admit(address(1), 0, 99)).collect();
        held[0].first_bytes();
        assert!(server.admit(address(2), 200, 99).is_none(), "all are young");
        let second = server.admit(address(2), 300, 99);
        let dropped = |number: usize| held[number].was_dropped();
        assert!(second.is_some() && dropped(1) && !dropped(0) && !dropped(2));
        held[2].first_bytes();
        assert!(server.admit(address(3), 1000, 99).is_none(), "these have sent something");
        assert!(server.admit(address(3), 1600, 99).is_some() && dropped(0));
    }

    #[test]
    fn early_drop_is_by_chance() {
        let server = Server::new(FEW);
        let held: Vec<_> = (0..10).map(|n| server.admit(address(n), 0, 99)).collect();
        assert_eq!(held.iter().flatten().count(), 10);
        assert!(server.admit(address(50), 0, 29).is_none(), "30 % at the start");
        assert!(server.admit(address(50), 0, 30).is_some());
    }
}
