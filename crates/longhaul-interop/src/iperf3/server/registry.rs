//! The tests that wait for their data connections.

use std::collections::HashSet;
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::iperf3::output::Finished;
use crate::iperf3::state::COOKIE_BYTES;

/// A function that gets every finished test.
pub type Observer = Box<dyn Fn(&Finished) + Send + Sync>;

/// The cookie that connects the data connections of a test to its control connection.
pub(super) type Cookie = [u8; COOKIE_BYTES];

/// The tests that wait for their data connections.
#[derive(Debug, Default)]
pub(super) struct Registry {
    waiting: Mutex<Vec<Waiting>>,
    /// The addresses with a test that waits for UDP flows.
    sources: Mutex<HashSet<IpAddr>>,
    left: Condvar,
}

#[derive(Debug)]
struct Waiting {
    cookie: Cookie,
    source: IpAddr,
    streams: Destination,
}

/// The receiver of the data connections of a test.
#[derive(Debug, Clone)]
pub(super) enum Destination {
    /// The connections with their numbers in the order of the listener.
    Tcp(Sender<(u64, TcpStream)>),
    Udp(Sender<UdpSocket>),
}

/// A test that waits for its data connections until dropped.
#[derive(Debug)]
pub(super) struct Registered<'a> {
    registry: &'a Registry,
    cookie: Cookie,
    source: Option<IpAddr>,
}

impl Registry {
    /// Adds a test of a client at `source`. Tests with UDP flows from one address take turns,
    /// because a first datagram does not name its test.
    ///
    /// Returns `None` if the turn does not come within `limit`.
    pub(super) fn add(
        &self,
        cookie: Cookie,
        source: IpAddr,
        streams: Destination,
        limit: Duration,
    ) -> Option<Registered<'_>> {
        let udp = matches!(streams, Destination::Udp(_));
        if udp {
            let sources = lock(&self.sources);
            let taken = |sources: &mut HashSet<IpAddr>| sources.contains(&source);
            let waited = self.left.wait_timeout_while(sources, limit, taken);
            let (mut sources, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if !sources.insert(source) {
                return None;
            }
        }
        lock(&self.waiting).push(Waiting { cookie, source, streams });
        Some(Registered { registry: self, cookie, source: udp.then_some(source) })
    }

    /// Passes a TCP connection that began with `cookie` to its test. Returns it if no test waits.
    pub(super) fn pass(
        &self,
        cookie: &Cookie,
        number: u64,
        stream: TcpStream,
    ) -> Option<TcpStream> {
        let waiting = lock(&self.waiting);
        for test in waiting.iter().filter(|test| test.cookie == *cookie) {
            if let Destination::Tcp(streams) = &test.streams {
                let _ = streams.send((number, stream));
                return None;
            }
        }
        Some(stream)
    }

    /// Passes the flow that `open` creates to the test of the client at `source`, if one waits.
    pub(super) fn pass_flow(&self, source: IpAddr, open: impl FnOnce() -> Option<UdpSocket>) {
        let waiting = lock(&self.waiting);
        let found =
            waiting.iter().filter(|test| test.source == source).find_map(|test| {
                match &test.streams {
                    Destination::Udp(flows) => Some(flows.clone()),
                    Destination::Tcp(_) => None,
                }
            });
        drop(waiting);
        if let Some(flows) = found
            && let Some(flow) = open()
        {
            let _ = flows.send(flow);
        }
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        lock(&self.registry.waiting).retain(|test| test.cookie != self.cookie);
        if let Some(source) = self.source {
            lock(&self.registry.sources).remove(&source);
            self.registry.left.notify_all();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn tests_with_flows_from_one_address_take_turns() {
        let registry = Registry::default();
        let source = IpAddr::from([192, 0, 2, 1]);
        let add = |cookie: u8, source, limit| {
            let (flows, _) = mpsc::channel();
            registry.add([cookie; COOKIE_BYTES], source, Destination::Udp(flows), limit)
        };
        let first = add(1, source, Duration::ZERO).unwrap();
        assert!(add(2, source, Duration::from_millis(10)).is_none());
        assert!(add(3, IpAddr::from([192, 0, 2, 2]), Duration::ZERO).is_some());
        drop(first);
        assert!(add(2, source, Duration::ZERO).is_some());
        assert!(lock(&registry.waiting).is_empty());
    }
}
