//! The control channel: messages in both directions at once, over TLS or over a pair of pipes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longhaul_core::wire::{read_frame, write_frame};
use rustls::Connection;
use serde::{Serialize, de::DeserializeOwned};

use crate::error::{EngineError, Result};
use crate::lock::lock;

/// Sends control messages; clones share the channel, and each message goes out whole.
#[derive(Clone)]
pub struct ControlSender {
    writer: Arc<Mutex<Box<dyn Write + Send>>>,
    peer: Arc<str>,
}

/// Receives control messages.
pub struct ControlReceiver {
    reader: Box<dyn Read + Send>,
    limits: Arc<dyn Limits>,
    peer: Arc<str>,
}

/// What can be done to a channel while another thread waits in it.
trait Limits: Send + Sync {
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
    fn close(&self);
}

/// A control channel over a pair of pipes or sockets, such as those of an ssh process.
pub fn control(
    reader: impl Read + AsFd + Send + 'static,
    writer: impl Write + AsFd + Send + 'static,
    peer: &str,
) -> (ControlSender, ControlReceiver) {
    let limits = Arc::new(PipeLimits::default());
    let reader = PipeReader { pipe: reader, limits: limits.clone() };
    let writer = PipeWriter { pipe: writer, limits: limits.clone() };
    assemble(reader, writer, limits, peer)
}

fn assemble(
    reader: impl Read + Send + 'static,
    writer: impl Write + Send + 'static,
    limits: Arc<dyn Limits>,
    peer: &str,
) -> (ControlSender, ControlReceiver) {
    let peer: Arc<str> = peer.into();
    let sender =
        ControlSender { writer: Arc::new(Mutex::new(Box::new(writer))), peer: peer.clone() };
    (sender, ControlReceiver { reader: Box::new(reader), limits, peer })
}

/// A control channel over an established TLS connection.
pub(super) fn control_over_tls(
    mut connection: Connection,
    socket: TcpStream,
    peer: &str,
) -> io::Result<(ControlSender, ControlReceiver)> {
    // A whole message is sealed before any of it is sent; its length is bounded by its frame.
    connection.set_buffer_limit(None);
    let limits = Arc::new(SocketLimits(socket.try_clone()?));
    let link = Arc::new(TlsLink { connection: Mutex::new(connection), socket });
    let reader = TlsReader { link: link.clone(), chunk: vec![0; 16 << 10], fresh: 0..0 };
    Ok(assemble(reader, TlsWriter(link), limits, peer))
}

impl ControlSender {
    /// Sends one message.
    ///
    /// # Errors
    /// The channel is broken.
    pub fn send<T: Serialize>(&self, message: &T) -> Result<()> {
        let mut writer = lock(&self.writer);
        write_frame(&mut *writer, message)
            .and_then(|()| Ok(writer.flush()?))
            .map_err(|source| EngineError::Control { peer: self.peer.to_string(), source })
    }

    /// Who is at the other end, for messages.
    pub fn peer(&self) -> &str {
        &self.peer
    }
}

impl ControlReceiver {
    /// Waits for one message.
    ///
    /// # Errors
    /// The channel is closed or broken, was silent for longer than its timeout, or brought
    /// something else than a `T`.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<T> {
        read_frame(&mut self.reader)
            .map_err(|source| EngineError::Control { peer: self.peer.to_string(), source })
    }

    /// How long [`receive`](Self::receive) waits for bytes; `None` is for ever.
    ///
    /// # Errors
    /// The socket is gone.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        self.limits
            .set_timeout(timeout)
            .map_err(|source| EngineError::System { operation: "set a socket timeout", source })
    }

    /// Who is at the other end, for messages.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Ends the present and every later [`receive`](Self::receive), from any thread.
    pub fn closer(&self) -> impl Fn() + Send + Sync + 'static {
        let limits = self.limits.clone();
        move || limits.close()
    }
}

struct SocketLimits(TcpStream);

impl Limits for SocketLimits {
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(timeout)
    }

    fn close(&self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// How often a reader of a pipe looks whether it was closed.
const CLOSED_CHECK: Duration = Duration::from_millis(100);

/// A pipe has no timeouts and no shutdown of its own.
#[derive(Default)]
struct PipeLimits {
    closed: AtomicBool,
    timeout: Mutex<Option<Duration>>,
}

impl Limits for PipeLimits {
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        *lock(&self.timeout) = timeout;
        Ok(())
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

struct PipeReader<R> {
    pipe: R,
    limits: Arc<PipeLimits>,
}

impl<R: Read + AsFd> Read for PipeReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let start = Instant::now();
        while !longhaul_sys::poll::readable(&self.pipe, CLOSED_CHECK) {
            if self.limits.closed.load(Ordering::Relaxed) {
                return Ok(0);
            }
            if lock(&self.limits.timeout).is_some_and(|timeout| start.elapsed() > timeout) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        self.pipe.read(buf)
    }
}

/// What a pipe takes without waiting once it takes anything (`PIPE_BUF`, pipe(7)).
const PIPE_BUF: usize = 4096;

/// A writer that a closed channel does not hold: the program behind a pipe may have stalled.
struct PipeWriter<W> {
    pipe: W,
    limits: Arc<PipeLimits>,
}

impl<W: Write + AsFd> Write for PipeWriter<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        while !longhaul_sys::poll::writable(&self.pipe, CLOSED_CHECK) {
            if self.limits.closed.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
        self.pipe.write(&buf[..buf.len().min(PIPE_BUF)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pipe.flush()
    }
}

/// A TLS connection that one thread reads while another writes.
///
/// Order of locks: the writer holds the sending side first, then the connection, and lets go of
/// the connection before it blocks in the kernel. So a full socket never stops the reader, and two
/// peers that both write cannot wait for each other.
struct TlsLink {
    connection: Mutex<Connection>,
    socket: TcpStream,
}

struct TlsReader {
    link: Arc<TlsLink>,
    /// Bytes from the socket, of which `fresh` have not been taken apart yet.
    chunk: Vec<u8>,
    fresh: Range<usize>,
}

struct TlsWriter(Arc<TlsLink>);

impl Read for TlsReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match lock(&self.link.connection).reader().read(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Messages have lengths and the last one says so: an end without TLS's own
                // goodbye, as a killed peer leaves it, is an end like any other.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            if self.fresh.is_empty() {
                let got = (&self.link.socket).read(&mut self.chunk)?;
                self.fresh = 0..got;
            }
            // One step at a time: rustls takes no more while plaintext waits to be read. At the
            // end of the stream `fresh` is empty, and rustls is told of it.
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
            let mut connection = lock(&self.0.connection);
            connection.writer().write_all(buf)?;
            while connection.wants_write() {
                connection.write_tls(&mut records)?;
            }
        }
        (&self.0.socket).write_all(&records)?;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
