//! The control connection: a state machine over a socket, with a limit on every wait.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use longhaul_sys::poll;

use super::machine::StateMachine;
use super::state::State;
use crate::error::{Fault, InteropError, PeerName, Result, Step};

/// The longest time in which a peer has to do a step of the protocol.
pub(super) const STEP_LIMIT: Duration = Duration::from_secs(20);
/// The longest time in which a peer has to accept bytes.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// The longest sleep between two checks of a flag.
const LOOK: Duration = Duration::from_millis(100);

/// The control connection of one end.
#[derive(Debug)]
pub(super) struct Control<M> {
    pub(super) socket: TcpStream,
    pub(super) peer: PeerName,
    machine: M,
}

impl<M: StateMachine> Control<M> {
    /// Creates the control connection of `machine` to `peer`.
    ///
    /// # Errors
    /// The socket does not accept an option.
    pub(super) fn new(socket: TcpStream, peer: PeerName, machine: M) -> io::Result<Self> {
        // Small messages in turn: Nagle's algorithm would delay them.
        socket.set_nodelay(true)?;
        socket.set_nonblocking(false)?;
        socket.set_write_timeout(Some(WRITE_LIMIT))?;
        Ok(Control { socket, peer, machine })
    }

    /// Sends `bytes`.
    ///
    /// # Errors
    /// The connection is closed or the peer accepts no bytes.
    pub(super) fn send(&mut self, bytes: &[u8], during: Step) -> Result<()> {
        self.socket.write_all(bytes).map_err(|source| self.broken(source, during, WRITE_LIMIT))
    }

    /// Sends a state byte.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(super) fn send_state(&mut self, state: State, during: Step) -> Result<()> {
        self.send(&[state.byte()], during)
    }

    /// Returns the next event if its bytes have arrived.
    ///
    /// # Errors
    /// The peer closed the connection or does not follow the protocol.
    pub(super) fn poll(&mut self, during: Step) -> Result<Option<M::Event>> {
        loop {
            let next = self.machine.next();
            if let Some(event) = next.map_err(|fault| self.fault(fault, during))? {
                return Ok(Some(event));
            }
            if !poll::readable(&self.socket, Duration::ZERO) {
                return Ok(None);
            }
            let mut bytes = [0; 4096];
            match self.socket.read(&mut bytes) {
                Ok(0) => {
                    let closed = self.machine.closed();
                    return closed.map(Some).ok_or_else(|| self.closed(None, during));
                }
                Ok(count) => self.machine.push(&bytes[..count]),
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) => {
                    let closed = self.machine.closed();
                    return closed.map(Some).ok_or_else(|| self.closed(Some(error), during));
                }
            }
        }
    }

    /// Waits for the next event for at most `limit`, while `goes_on` returns true.
    ///
    /// # Errors
    /// As [`poll`](Self::poll), and if the time ends.
    pub(super) fn wait(
        &mut self,
        limit: Duration,
        during: Step,
        goes_on: impl Fn() -> bool,
    ) -> Result<M::Event> {
        let until = Instant::now() + limit;
        loop {
            if let Some(event) = self.poll(during)? {
                return Ok(event);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !goes_on() {
                return Err(InteropError::Silent { peer: self.peer.clone(), during, limit });
            }
            poll::readable(&self.socket, left.min(LOOK));
        }
    }

    pub(super) fn fault(&self, fault: Fault, during: Step) -> InteropError {
        InteropError::Protocol { peer: self.peer.clone(), during, fault }
    }

    fn closed(&self, source: Option<io::Error>, during: Step) -> InteropError {
        InteropError::Closed { peer: self.peer.clone(), during, source }
    }

    fn broken(&self, source: io::Error, during: Step, limit: Duration) -> InteropError {
        match source.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                InteropError::Silent { peer: self.peer.clone(), during, limit }
            }
            _ => self.closed(Some(source), during),
        }
    }
}
