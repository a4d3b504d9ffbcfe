//! The control channel: messages in both directions at once, over TLS or over a pair of pipes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::wire::{HostKeys, read_frame, write_frame};
use rustls::Connection;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::deadline::OPENING_TIMEOUT;
use super::message_clock::{MessageClock, write_within};
use super::rotation::Learner;
use crate::error::{EngineError, Result};
use crate::{HASTE, lock};

/// Sends control messages. Clones share the channel, and messages are never interleaved.
#[derive(Clone)]
pub struct ControlSender {
    writer: Arc<Mutex<Box<dyn Write + Send>>>,
    clock: Arc<MessageClock>,
    peer: Arc<str>,
}

/// Receives control messages.
pub struct ControlReceiver {
    reader: Box<dyn Read + Send>,
    limits: Arc<dyn Limits>,
    peer: Arc<str>,
    /// Records the keys that a trusted server announces.
    learner: Option<Box<Learner>>,
}

/// The operations on a channel while another thread waits in it.
trait Limits: Send + Sync {
    fn set_timeout(&self, timeout: Option<Duration>);
    /// Starts the time of a message.
    fn begin(&self);
    fn close(&self);
    /// Returns whether the peer has closed the channel, if that can be determined without reading.
    fn is_closed_by_peer(&self) -> bool;
}

/// Creates a control channel over a pair of pipes or sockets, such as those of an ssh process.
pub fn control(
    reader: impl Read + AsFd + Send + 'static,
    writer: impl Write + AsFd + Send + 'static,
    peer: &str,
) -> (ControlSender, ControlReceiver) {
    let (limits, clock) = (Arc::new(PipeLimits::default()), MessageClock::of_sender());
    let reader = PipeReader { pipe: reader, limits: limits.clone() };
    let writer = PipeWriter { pipe: writer, limits: limits.clone(), clock: clock.clone() };
    assemble(reader, (writer, clock), limits, peer)
}

fn assemble(
    reader: impl Read + Send + 'static,
    (writer, clock): (impl Write + Send + 'static, Arc<MessageClock>),
    limits: Arc<dyn Limits>,
    peer: &str,
) -> (ControlSender, ControlReceiver) {
    let peer: Arc<str> = peer.into();
    let writer: Box<dyn Write + Send> = Box::new(writer);
    let sender = ControlSender { writer: Arc::new(Mutex::new(writer)), clock, peer: peer.clone() };
    (sender, ControlReceiver { reader: Box::new(reader), limits, peer, learner: None })
}

/// Creates a control channel over an established TLS connection.
pub(super) fn control_over_tls(
    mut connection: Connection,
    socket: Arc<TcpStream>,
    peer: &str,
) -> io::Result<(ControlSender, ControlReceiver)> {
    // A message is sealed completely before it is sent; its frame bounds its length.
    connection.set_buffer_limit(None);
    let limits = Arc::new(SocketLimits { socket: socket.clone(), clock: MessageClock::default() });
    // The time limit of the handshake also applies to the first message.
    limits.set_timeout(Some(OPENING_TIMEOUT));
    let link = Arc::new(TlsLink { connection: Mutex::new(connection), socket });
    let (chunk, fresh) = (vec![0; 16 << 10], 0..0);
    let reader = TlsReader { link: link.clone(), limits: limits.clone(), chunk, fresh };
    let clock = MessageClock::of_sender();
    let writer = TlsWriter { link, clock: clock.clone() };
    Ok(assemble(reader, (writer, clock), limits, peer))
}

impl ControlSender {
    /// Sends one message.
    ///
    /// # Errors
    /// The channel is broken, or the peer did not accept the message in time.
    pub fn send<T: Serialize>(&self, message: &T) -> Result<()> {
        self.write(&mut **lock(&self.writer), message)
    }

    /// Sends one message as [`send`](Self::send) does, unless another thread is sending one: that
    /// thread can wait for a peer that is busy.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(crate) fn send_if_idle<T: Serialize>(&self, message: &T) -> Result<()> {
        match self.idle_writer() {
            Some(mut writer) => self.write(&mut **writer, message),
            None => Ok(()),
        }
    }

    /// Sends the last message. If the peer does not accept it within `limit`, it is lost.
    pub(crate) fn send_last<T: Serialize>(&self, message: &T, limit: Duration) {
        let deadline = Instant::now() + limit;
        self.set_timeout(limit);
        while Instant::now() < deadline {
            if let Some(mut writer) = self.idle_writer() {
                let _ = self.write(&mut **writer, message);
                return;
            }
            thread::sleep(LAST_CHECK);
        }
    }

    /// Returns the writer unless another thread is sending.
    fn idle_writer(&self) -> Option<MutexGuard<'_, Box<dyn Write + Send>>> {
        match self.writer.try_lock() {
            Ok(writer) => Some(writer),
            Err(TryLockError::Poisoned(writer)) => Some(writer.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn write<T: Serialize>(&self, mut writer: &mut dyn Write, message: &T) -> Result<()> {
        self.clock.begin();
        write_frame(&mut writer, message)
            .and_then(|()| Ok(writer.flush()?))
            .map_err(|source| EngineError::Control { peer: self.peer.to_string(), source })
    }

    /// Sets the time in which the peer must accept a message, by default a minute.
    pub(crate) fn set_timeout(&self, timeout: Duration) {
        self.clock.set_timeout(Some(timeout));
    }

    /// Sends bytes that need not be a message, for peers of tests and benchmarks.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    #[doc(hidden)]
    pub fn send_bytes(&self, bytes: &[u8]) -> Result<()> {
        let mut writer = lock(&self.writer);
        self.clock.begin();
        writer.write_all(bytes).and_then(|()| writer.flush()).map_err(|error| {
            EngineError::Control { peer: self.peer.to_string(), source: error.into() }
        })
    }

    /// Returns the name of the peer for messages.
    pub fn peer(&self) -> &str {
        &self.peer
    }
}

impl ControlReceiver {
    /// Waits for one message.
    ///
    /// # Errors
    /// The channel is closed or broken, was silent beyond its timeout, or the message is not a `T`.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.limits.begin();
        read_frame(&mut self.reader)
            .map_err(|source| EngineError::Control { peer: self.peer.to_string(), source })
    }

    /// Sets the time limit of [`receive`](Self::receive) for a whole message; `None` is unlimited.
    ///
    /// # Errors
    /// The socket is gone.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        self.limits.set_timeout(timeout);
        Ok(())
    }

    /// Returns the name of the peer for messages.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Sets the `learner` that records the keys that the server announces.
    pub(super) fn set_learner(&mut self, learner: Option<Learner>) {
        self.learner = learner.map(Box::new);
    }

    /// Records the keys that the server announces.
    pub(super) fn learn(&self, announced: &HostKeys) {
        if let Some(learner) = &self.learner {
            learner.learn(announced);
        }
    }

    /// Returns a function that checks, from any thread, whether the peer has closed the channel. It
    /// always returns false for a channel over pipes.
    pub(crate) fn peer_check(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let limits = self.limits.clone();
        move || limits.is_closed_by_peer()
    }

    /// Ends the present and every later [`receive`](Self::receive), from any thread.
    pub fn closer(&self) -> impl Fn() + Send + Sync + 'static {
        let limits = self.limits.clone();
        move || limits.close()
    }
}

struct SocketLimits {
    socket: Arc<TcpStream>,
    clock: MessageClock,
}

impl Limits for SocketLimits {
    fn set_timeout(&self, timeout: Option<Duration>) {
        self.clock.set_timeout(timeout);
    }

    fn begin(&self) {
        self.clock.begin();
    }

    fn close(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn is_closed_by_peer(&self) -> bool {
        longhaul_sys::poll::is_closed(&*self.socket)
    }
}

/// The interval at which a thread with the last message checks whether another one is being sent.
const LAST_CHECK: Duration = Duration::from_millis(5);

/// The interval at which a reader of a pipe checks whether the channel was closed.
const CLOSED_CHECK: Duration = Duration::from_millis(100 / HASTE);

/// The limits of a channel over pipes, which have no timeouts and no shutdown.
#[derive(Default)]
struct PipeLimits {
    closed: AtomicBool,
    clock: MessageClock,
}

impl Limits for PipeLimits {
    fn set_timeout(&self, timeout: Option<Duration>) {
        self.clock.set_timeout(timeout);
    }

    fn begin(&self) {
        self.clock.begin();
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    fn is_closed_by_peer(&self) -> bool {
        false
    }
}

struct PipeReader<R> {
    pipe: R,
    limits: Arc<PipeLimits>,
}

impl<R: Read + AsFd> Read for PipeReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while !longhaul_sys::poll::readable(&self.pipe, CLOSED_CHECK) {
            if self.limits.closed.load(Ordering::Relaxed) {
                return Ok(0);
            }
            self.limits.clock.left()?;
        }
        self.pipe.read(buf)
    }
}

/// The bytes that a pipe accepts without blocking after poll(2) reports it as writable (`PIPE_BUF`,
/// pipe(7)).
const PIPE_BUF: usize = 4096;

/// A writer that ends when the channel is closed, or when the program behind the pipe has stalled for
/// too long.
struct PipeWriter<W> {
    pipe: W,
    limits: Arc<PipeLimits>,
    clock: Arc<MessageClock>,
}

impl<W: Write + AsFd> Write for PipeWriter<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        while !longhaul_sys::poll::writable(&self.pipe, CLOSED_CHECK) {
            if self.limits.closed.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.clock.left()?;
        }
        self.pipe.write(&buf[..buf.len().min(PIPE_BUF)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pipe.flush()
    }
}

/// A TLS connection that one thread reads while another writes.
///
/// Order of locks: the writer locks the sending side first, then the connection, and unlocks the
/// connection before it blocks in the kernel. So a full socket never stops the reader, and two
/// peers that both write cannot wait for each other.
struct TlsLink {
    connection: Mutex<Connection>,
    socket: Arc<TcpStream>,
}

struct TlsReader {
    link: Arc<TlsLink>,
    limits: Arc<SocketLimits>,
    /// Bytes from the socket, of which `fresh` are unprocessed.
    chunk: Vec<u8>,
    fresh: Range<usize>,
}

struct TlsWriter {
    link: Arc<TlsLink>,
    clock: Arc<MessageClock>,
}

impl Read for TlsReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match lock(&self.link.connection).reader().read(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Messages have lengths, and the last one is marked, so an end without TLS's
                // close_notify, as of a killed peer, is an end like any other.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            if self.fresh.is_empty() {
                self.link.socket.set_read_timeout(self.limits.clock.left()?)?;
                let got = (&*self.link.socket).read(&mut self.chunk)?;
                self.fresh = 0..got;
            }
            // In small steps, because rustls accepts no more while plaintext waits to be read. At
            // the end of the stream `fresh` is empty, which rustls takes as the end.
            let mut connection = lock(&self.link.connection);
            let taken = connection.read_tls(&mut &self.chunk[self.fresh.clone()])?;
            self.fresh.start += taken;
            connection.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

impl Write for TlsWriter {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut records = Vec::with_capacity(buf.len() + 256);
        {
            let mut connection = lock(&self.link.connection);
            connection.writer().write_all(buf)?;
            while connection.wants_write() {
                connection.write_tls(&mut records)?;
            }
        }
        write_within(&self.link.socket, &records, &self.clock)?;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;
