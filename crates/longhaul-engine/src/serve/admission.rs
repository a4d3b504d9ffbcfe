//! Who is served now, who waits, and who is turned away.
//!
//! So many sessions run at once; the next ones wait in a queue of bounded length, in the order in
//! which they came, and are told their place. Only a client that has finished its handshake and
//! said what it wants gets here, so that those who connect and say nothing take nobody's turn.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::error::Result;
use crate::lock::lock;

/// A waiting client hears its place at least this often, and one that is gone is noticed.
const TELL: Duration = Duration::from_secs(2);

/// How many clients a server takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLimits {
    /// Sessions at once; 1 measures each client alone.
    pub at_once: usize,
    /// Clients that wait for their turn; 0 turns away who finds no place.
    pub waiting: usize,
    /// Sessions and waiting clients of one address (of one /64, for IPv6).
    pub each_address: usize,
}

impl Default for ClientLimits {
    /// 64 at once, which is what a large host's cores and memory stand (a test may take
    /// 256 MiB); 512 waiting; no limit on one address.
    fn default() -> Self {
        ClientLimits { at_once: 64, waiting: 512, each_address: usize::MAX }
    }
}

/// The door of one server.
#[derive(Debug)]
pub(super) struct Admission {
    limits: ClientLimits,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    queue: VecDeque<u64>,
    tickets: u64,
    /// Sessions and waiting clients by address.
    addresses: HashMap<IpAddr, usize>,
}

/// One client at the door or behind it; counted for its address until dropped.
#[derive(Debug)]
struct Visitor {
    admission: Arc<Admission>,
    address: IpAddr,
}

/// The right to run; gives it back when dropped.
#[derive(Debug)]
pub(super) struct Pass {
    visitor: Visitor,
}

/// Why a client is turned away, as a sentence without a full stop.
pub(super) type Denied = String;

impl Admission {
    pub(super) fn new(limits: ClientLimits) -> Arc<Self> {
        Arc::new(Admission { limits, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Waits for a turn. `tell` is called with the client's place, from 1, when it changes and
    /// every now and then; its error means that the client is gone.
    ///
    /// # Errors
    /// That of `tell`. The inner error is the reason to turn the client away.
    pub(super) fn enter(
        self: &Arc<Self>,
        address: IpAddr,
        mut tell: impl FnMut(u32) -> Result<()>,
    ) -> Result<std::result::Result<Pass, Denied>> {
        let (visitor, ticket) = match self.arrive(network(address)) {
            Ok(arrived) => arrived,
            Err(denied) => return Ok(Err(denied)),
        };
        let mut told = None;
        let mut state = lock(&self.state);
        loop {
            let place = state.queue.iter().take_while(|waiting| **waiting != ticket).count();
            if place == 0 && state.running < self.limits.at_once {
                state.queue.pop_front();
                state.running += 1;
                self.changed.notify_all();
                return Ok(Ok(Pass { visitor }));
            }
            if told == Some(place) {
                let waited = self.changed.wait_timeout(state, TELL);
                let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                state = next;
                told = told.filter(|_| !timeout.timed_out());
                continue;
            }
            // Not under the lock: the client may be slow to hear it.
            drop(state);
            told = Some(place);
            let heard = tell(place as u32 + 1);
            state = lock(&self.state);
            if let Err(gone) = heard {
                state.queue.retain(|waiting| *waiting != ticket);
                self.changed.notify_all();
                drop(state);
                return Err(gone);
            }
        }
    }

    /// Counts a client and puts it at the end of the queue.
    fn arrive(self: &Arc<Self>, address: IpAddr) -> std::result::Result<(Visitor, u64), Denied> {
        let mut state = lock(&self.state);
        let limits = &self.limits;
        let there = state.addresses.get(&address).copied().unwrap_or(0);
        if there >= limits.each_address {
            return Err(format!(
                "it serves {} of one address at once; wait until yours are done",
                clients(limits.each_address)
            ));
        }
        // Whoever can run at once does not wait.
        if state.queue.len() >= limits.waiting.max(limits.at_once.saturating_sub(state.running)) {
            return Err(match limits.waiting {
                0 => format!("it serves {} at once, and they are there", clients(limits.at_once)),
                waiting => format!("its queue of {} is full; try later", clients(waiting)),
            });
        }
        *state.addresses.entry(address).or_default() += 1;
        state.tickets += 1;
        let ticket = state.tickets;
        state.queue.push_back(ticket);
        Ok((Visitor { admission: self.clone(), address }, ticket))
    }
}

fn clients(count: usize) -> String {
    format!("{count} client{}", if count == 1 { "" } else { "s" })
}

impl Drop for Pass {
    fn drop(&mut self) {
        lock(&self.visitor.admission.state).running -= 1;
        self.visitor.admission.changed.notify_all();
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        let mut state = lock(&self.admission.state);
        if let Some(count) = state.addresses.get_mut(&self.address) {
            *count -= 1;
            // Addresses that are gone take no memory.
            if *count == 0 {
                state.addresses.remove(&self.address);
            }
        }
    }
}

/// The part of an address that one client can be expected to have to itself.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::error::EngineError;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([198, 51, 100, last])
    }

    fn door(at_once: usize, waiting: usize, each_address: usize) -> Arc<Admission> {
        Admission::new(ClientLimits { at_once, waiting, each_address })
    }

    fn enter(door: &Arc<Admission>, from: IpAddr) -> std::result::Result<Pass, Denied> {
        door.enter(from, |_| Ok(())).unwrap()
    }

    #[test]
    fn turns_are_taken_in_order_and_places_are_told() {
        let door = door(1, 8, usize::MAX);
        let first = enter(&door, address(1)).unwrap();
        let (say, heard) = mpsc::channel();
        let waiting: Vec<_> = (0..3)
            .map(|number| {
                let (door, say) = (door.clone(), say.clone());
                let thread = thread::spawn(move || {
                    let tell = |place| {
                        say.send((number, Some(place))).unwrap();
                        Ok(())
                    };
                    let pass = door.enter(address(2), tell).unwrap().unwrap();
                    say.send((number, None)).unwrap();
                    drop(pass);
                });
                // Each is told its place before the next one comes.
                assert_eq!(heard.recv().unwrap(), (number, Some(number + 1)));
                thread
            })
            .collect();
        drop(first);
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
        let turns: Vec<_> = heard
            .try_iter()
            .filter(|(_, place)| place.is_none())
            .map(|(number, _)| number)
            .collect();
        assert_eq!(turns, [0, 1, 2]);
        assert!(lock(&door.state).addresses.is_empty());
    }

    #[test]
    fn a_full_house_and_a_greedy_address_are_turned_away() {
        let full = door(1, 0, usize::MAX);
        let only = enter(&full, address(1)).unwrap();
        let denied = enter(&full, address(2)).unwrap_err();
        assert_eq!(denied, "it serves 1 client at once, and they are there");
        drop(only);
        assert!(enter(&full, address(2)).is_ok());

        let fair = door(8, 8, 2);
        let held = [(); 2].map(|()| enter(&fair, address(1)).unwrap());
        let denied = enter(&fair, "::ffff:198.51.100.1".parse().unwrap()).unwrap_err();
        assert!(denied.starts_with("it serves 2 clients of one address"), "{denied}");
        assert!(enter(&fair, address(2)).is_ok());
        drop(held);
        assert!(enter(&fair, address(1)).is_ok());
        let one: IpAddr = "2001:db8::1".parse().unwrap();
        assert_eq!(network(one), network("2001:db8::ffff:1".parse().unwrap()));
        assert_ne!(network(one), network("2001:db8:0:1::1".parse().unwrap()));
    }

    #[test]
    fn who_goes_away_gives_up_the_place() {
        let door = door(1, 1, usize::MAX);
        let held = enter(&door, address(1)).unwrap();
        let gone = door.enter(address(2), |_| Err(EngineError::Interrupted));
        assert!(matches!(gone, Err(EngineError::Interrupted)), "{gone:?}");
        let state = lock(&door.state);
        assert!(state.queue.is_empty() && state.addresses.len() == 1);
        drop(state);
        drop(held);
        assert!(enter(&door, address(3)).is_ok());
    }
}
