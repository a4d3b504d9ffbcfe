//! Admission of sessions: run, wait or refuse.
//!
//! A limited number of sessions run at once, and only a part of them without an authorized key, so
//! that anonymous clients never keep authorized ones out. Further clients wait in two bounded
//! queues, which take turns. Clients enter only after the handshake and their request, so that
//! silent connections take no turn.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::limits::{ClientLimits, network};
use crate::error::Result;
use crate::lock;

/// The longest time between two messages to a waiting client, which also detect that it has left.
const TELL: Duration = Duration::from_secs(2);

/// The kind of a client, by its key; each kind has a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Anonymous,
    Authorized,
}

impl Kind {
    pub(super) fn of(authorized: bool) -> Self {
        if authorized { Kind::Authorized } else { Kind::Anonymous }
    }
}

/// Admits the sessions of one server.
#[derive(Debug)]
pub(super) struct Admission {
    limits: ClientLimits,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    anonymous: Line,
    authorized: Line,
    tickets: u64,
    /// The kind of the last admitted session.
    last: Option<Kind>,
    /// The sessions and waiting clients per address.
    sources: HashMap<IpAddr, Count>,
}

/// The clients of one kind.
#[derive(Debug, Default)]
struct Line {
    running: usize,
    queue: VecDeque<Waiter>,
}

#[derive(Debug, Clone, Copy)]
struct Waiter {
    ticket: u64,
    source: IpAddr,
}

/// The clients of one address.
#[derive(Debug, Default)]
struct Count {
    all: usize,
    anonymous: usize,
    anonymous_running: usize,
}

/// A waiting or running client; it counts for its address until dropped.
#[derive(Debug)]
struct SessionClient {
    admission: Arc<Admission>,
    kind: Kind,
    source: IpAddr,
}

/// The permission to run, which is returned when dropped.
#[derive(Debug)]
pub(super) struct Pass {
    client: SessionClient,
}

/// The reason of a refusal, as a sentence without a full stop.
pub(super) type Denied = String;

impl State {
    fn line(&mut self, kind: Kind) -> &mut Line {
        match kind {
            Kind::Anonymous => &mut self.anonymous,
            Kind::Authorized => &mut self.authorized,
        }
    }

    fn running(&self) -> usize {
        self.anonymous.running + self.authorized.running
    }

    /// Returns the next client to run and its kind.
    fn next(&self, limits: &ClientLimits) -> Option<(Kind, Waiter)> {
        if self.running() >= limits.at_once {
            return None;
        }
        let authorized = self.authorized.queue.front().map(|waiter| (Kind::Authorized, *waiter));
        let anonymous = self.next_anonymous(limits).map(|waiter| (Kind::Anonymous, waiter));
        match self.last {
            Some(Kind::Authorized) => anonymous.or(authorized),
            _ => authorized.or(anonymous),
        }
    }

    /// Returns the first anonymous client whose address runs less than its share.
    fn next_anonymous(&self, limits: &ClientLimits) -> Option<Waiter> {
        if self.anonymous.running >= limits.anonymous {
            return None;
        }
        let most = limits.anonymous_running_each_address();
        let running = |source| self.sources.get(source).map_or(0, |count| count.anonymous_running);
        self.anonymous.queue.iter().find(|waiter| running(&waiter.source) < most).copied()
    }
}

impl Admission {
    pub(super) fn new(limits: ClientLimits) -> Arc<Self> {
        Arc::new(Admission { limits, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Waits for a turn. `report` gets the client's place in the queue of its kind, from 1, when it
    /// changes and at regular intervals. Its error means that the client has left.
    ///
    /// # Errors
    /// The error of `report`. The inner error is the reason of a refusal.
    pub(super) fn enter(
        self: &Arc<Self>,
        kind: Kind,
        address: IpAddr,
        mut report: impl FnMut(u32) -> Result<()>,
    ) -> Result<std::result::Result<Pass, Denied>> {
        let (client, ticket) = match self.arrive(kind, network(address)) {
            Ok(arrived) => arrived,
            Err(denied) => return Ok(Err(denied)),
        };
        let mut reported = None;
        let mut state = lock(&self.state);
        loop {
            if state.next(&self.limits).is_some_and(|(_, next)| next.ticket == ticket) {
                self.start(&mut state, &client, ticket);
                return Ok(Ok(Pass { client }));
            }
            let queue = &state.line(kind).queue;
            let place = queue.iter().take_while(|waiter| waiter.ticket != ticket).count();
            if reported == Some(place) {
                let waited = self.changed.wait_timeout(state, TELL);
                let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                state = next;
                reported = reported.filter(|_| !timeout.timed_out());
                continue;
            }
            // Without the lock, because sending may block.
            drop(state);
            reported = Some(place);
            let sent = report(place as u32 + 1);
            state = lock(&self.state);
            if let Err(gone) = sent {
                self.leave(&mut state, kind, ticket);
                drop(state);
                return Err(gone);
            }
        }
    }

    /// Counts a client and adds it to its queue.
    fn arrive(
        self: &Arc<Self>,
        kind: Kind,
        source: IpAddr,
    ) -> std::result::Result<(SessionClient, u64), Denied> {
        let mut state = lock(&self.state);
        let limits = &self.limits;
        if let Some(most) = over_address_limit(state.sources.get(&source), kind, limits) {
            return Err(format!(
                "the limit is {} per address; wait until another one of yours ends",
                clients(most)
            ));
        }
        let places = match kind {
            Kind::Anonymous => limits.anonymous,
            Kind::Authorized => limits.at_once,
        };
        // A client that can run at once does not need a place in the queue.
        let free = limits.at_once.saturating_sub(state.running());
        let line = state.line(kind);
        let free = free.min(places.saturating_sub(line.running));
        if line.queue.len() >= limits.waiting.max(free) {
            return Err(match limits.waiting {
                0 => format!("the limit is {} at once; try again later", clients(places)),
                waiting => format!("its queue of {} is full; try again later", clients(waiting)),
            });
        }
        state.tickets += 1;
        let ticket = state.tickets;
        state.line(kind).queue.push_back(Waiter { ticket, source });
        let count = state.sources.entry(source).or_default();
        count.all += 1;
        count.anonymous += usize::from(kind == Kind::Anonymous);
        self.note_waiting(&state);
        Ok((SessionClient { admission: self.clone(), kind, source }, ticket))
    }

    fn start(&self, state: &mut State, client: &SessionClient, ticket: u64) {
        self.leave(state, client.kind, ticket);
        state.line(client.kind).running += 1;
        state.last = Some(client.kind);
        if client.kind == Kind::Anonymous {
            state.sources.entry(client.source).or_default().anonymous_running += 1;
        }
    }

    /// Removes a client from its queue.
    fn leave(&self, state: &mut State, kind: Kind, ticket: u64) {
        state.line(kind).queue.retain(|waiter| waiter.ticket != ticket);
        self.note_waiting(state);
        self.changed.notify_all();
    }

    fn note_waiting(&self, state: &State) {
        self.limits.pool.set_waiting(!state.anonymous.queue.is_empty());
    }
}

/// Returns the limit on one address that another client would exceed.
fn over_address_limit(count: Option<&Count>, kind: Kind, limits: &ClientLimits) -> Option<usize> {
    let count = count?;
    if count.all >= limits.each_address {
        return Some(limits.each_address);
    }
    let most = match limits.waiting {
        // Waiting is disabled.
        0 => limits.anonymous_running_each_address(),
        _ => limits.anonymous_each_address,
    };
    (kind == Kind::Anonymous && count.anonymous >= most).then_some(most)
}

fn clients(count: usize) -> String {
    format!("{count} client{}", if count == 1 { "" } else { "s" })
}

impl Drop for Pass {
    fn drop(&mut self) {
        let SessionClient { admission, kind, source } = &self.client;
        let mut state = lock(&admission.state);
        state.line(*kind).running -= 1;
        if *kind == Kind::Anonymous
            && let Some(count) = state.sources.get_mut(source)
        {
            count.anonymous_running -= 1;
        }
        admission.changed.notify_all();
    }
}

impl Drop for SessionClient {
    fn drop(&mut self) {
        let mut state = lock(&self.admission.state);
        if let Some(count) = state.sources.get_mut(&self.source) {
            count.all -= 1;
            count.anonymous -= usize::from(self.kind == Kind::Anonymous);
            // Unused addresses are removed.
            if count.all == 0 {
                state.sources.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Instant;

    use super::*;
    use crate::error::EngineError;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([198, 51, 100, last])
    }

    fn admission(limits: ClientLimits) -> Arc<Admission> {
        Admission::new(limits)
    }

    fn of(at_once: usize, waiting: usize, each_address: usize) -> Arc<Admission> {
        let defaults = ClientLimits::default();
        admission(ClientLimits { at_once, waiting, each_address, ..defaults })
    }

    fn enter(admission: &Arc<Admission>, from: IpAddr) -> std::result::Result<Pass, Denied> {
        admission.enter(Kind::Authorized, from, |_| Ok(())).unwrap()
    }

    /// Waits on a separate thread, which reports its turn to `entered`.
    fn waiter(
        admission: &Arc<Admission>,
        kind: Kind,
        from: IpAddr,
        entered: mpsc::Sender<(Kind, IpAddr)>,
    ) -> thread::JoinHandle<()> {
        let (admission, (say, sent)) = (admission.clone(), mpsc::channel());
        let thread = thread::spawn(move || {
            let reported = |_| {
                let _ = say.send(());
                Ok(())
            };
            let pass = admission.enter(kind, from, reported).unwrap().unwrap();
            entered.send((kind, from)).unwrap();
            drop(pass);
        });
        sent.recv_timeout(Duration::from_secs(20)).unwrap();
        thread
    }

    #[test]
    fn turns_are_in_order_and_places_are_reported() {
        let admission = of(1, 8, usize::MAX);
        let first = enter(&admission, address(1)).unwrap();
        let (say, sent) = mpsc::channel();
        let waiting: Vec<_> = (0..3)
            .map(|number| {
                let (admission, say) = (admission.clone(), say.clone());
                let thread = thread::spawn(move || {
                    let report = |place| {
                        say.send((number, Some(place))).unwrap();
                        Ok(())
                    };
                    let pass = admission.enter(Kind::Authorized, address(2), report);
                    say.send((number, None)).unwrap();
                    drop(pass.unwrap().unwrap());
                });
                // The server sends each client its position before the next client arrives.
                assert_eq!(sent.recv().unwrap(), (number, Some(number + 1)));
                thread
            })
            .collect();
        drop(first);
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
        let turns: Vec<_> = sent
            .try_iter()
            .filter(|(_, place)| place.is_none())
            .map(|(number, _)| number)
            .collect();
        assert_eq!(turns, [0, 1, 2]);
        assert!(lock(&admission.state).sources.is_empty());
    }

    #[test]
    fn a_full_server_refuses_and_so_does_one_with_too_many_of_an_address() {
        let full = of(1, 0, usize::MAX);
        let only = enter(&full, address(1)).unwrap();
        let denied = enter(&full, address(2)).unwrap_err();
        assert_eq!(denied, "the limit is 1 client at once; try again later");
        drop(only);
        assert!(enter(&full, address(2)).is_ok());

        let fair = of(8, 8, 2);
        let held = [(); 2].map(|()| enter(&fair, address(1)).unwrap());
        let denied = enter(&fair, "::ffff:198.51.100.1".parse().unwrap()).unwrap_err();
        assert!(denied.starts_with("the limit is 2 clients"), "{denied}");
        assert!(denied.contains("per address"), "{denied}");
        assert!(enter(&fair, address(2)).is_ok());
        drop(held);
        assert!(enter(&fair, address(1)).is_ok());
    }

    #[test]
    fn a_client_that_leaves_frees_its_place() {
        let admission = of(1, 1, usize::MAX);
        let held = enter(&admission, address(1)).unwrap();
        let gone = admission.enter(Kind::Authorized, address(2), |_| Err(EngineError::Interrupted));
        assert!(matches!(gone, Err(EngineError::Interrupted)), "{gone:?}");
        let state = lock(&admission.state);
        assert!(state.authorized.queue.is_empty() && state.sources.len() == 1);
        drop(state);
        drop(held);
        assert!(enter(&admission, address(3)).is_ok());
    }

    #[test]
    fn anonymous_clients_never_keep_authorized_ones_out() {
        let defaults = ClientLimits::default();
        let admission = admission(ClientLimits {
            at_once: 4,
            anonymous: 2,
            waiting: 3,
            anonymous_each_address: usize::MAX,
            ..defaults
        });
        let anonymous = |from| admission.enter(Kind::Anonymous, from, |_| Ok(())).unwrap();
        let held = [1, 2].map(|last| anonymous(address(last)).unwrap());
        let (say, entered) = mpsc::channel();
        let waiting: Vec<_> =
            (0..3).map(|_| waiter(&admission, Kind::Anonymous, address(3), say.clone())).collect();
        let denied = anonymous(address(4)).unwrap_err();
        assert_eq!(denied, "its queue of 3 clients is full; try again later");
        // Both remaining places at once.
        let authorized = [(); 2].map(|()| enter(&admission, address(1)).unwrap());
        assert!(entered.try_recv().is_err());
        drop(authorized);
        assert!(enter(&admission, address(1)).is_ok());
        drop(held);
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(!admission.limits.pool.is_contended());
    }

    #[test]
    fn one_address_leaves_half_of_the_anonymous_places_to_others() {
        let limits = ClientLimits { anonymous: 4, ..ClientLimits::default() };
        let admission = admission(limits);
        let anonymous = |from| admission.enter(Kind::Anonymous, from, |_| Ok(())).unwrap();
        let held = [(); 2].map(|()| anonymous(address(1)).unwrap());
        let (say, entered) = mpsc::channel();
        let third = waiter(&admission, Kind::Anonymous, address(1), say);
        assert!(admission.limits.pool.is_contended());
        // The third waits, and another address overtakes it.
        drop(anonymous(address(2)).unwrap());
        assert!(entered.try_recv().is_err());
        drop(held);
        third.join().unwrap();
    }

    #[test]
    fn one_address_has_a_number_of_anonymous_clients() {
        let limits = ClientLimits { anonymous_each_address: 2, ..ClientLimits::default() };
        let admission = admission(limits);
        let anonymous = |from| admission.enter(Kind::Anonymous, from, |_| Ok(())).unwrap();
        let held = [(); 2].map(|()| anonymous(address(1)).unwrap());
        assert!(anonymous(address(1)).is_err() && anonymous(address(2)).is_ok());
        // The limit excludes clients with keys.
        let keys = [(); 8].map(|()| enter(&admission, address(1)).unwrap());
        drop((held, keys));
    }

    #[test]
    fn the_queues_take_turns_and_exclusive_is_one_at_a_time() {
        let limits = ClientLimits { at_once: 1, anonymous: 1, ..ClientLimits::default() };
        let admission = admission(limits);
        let first = enter(&admission, address(1)).unwrap();
        let (say, entered) = mpsc::channel();
        let mut waiting = Vec::new();
        for kind in [Kind::Anonymous, Kind::Authorized] {
            for last in 1..=3 {
                waiting.push(waiter(&admission, kind, address(last), say.clone()));
            }
        }
        drop(first);
        let begun = Instant::now();
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(begun.elapsed() < Duration::from_secs(20));
        let turns: Vec<_> = entered.try_iter().collect();
        let (anonymous, authorized) = (Kind::Anonymous, Kind::Authorized);
        let kinds: Vec<_> = turns.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [anonymous, authorized, anonymous, authorized, anonymous, authorized]);
        let of_one = |of| turns.iter().filter(move |(kind, _)| *kind == of).map(|(_, from)| *from);
        assert!(of_one(anonymous).eq((1..=3).map(address)));
        assert!(of_one(authorized).eq((1..=3).map(address)));
    }
}
