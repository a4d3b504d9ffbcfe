//! The control channel: messages in both directions at once, over TLS or over a pair of pipes.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use longhaul_core::wire::{read_frame, write_frame};
use rustls::Connection;
use serde::{Serialize, de::DeserializeOwned};

use crate::error::{EngineError, Result};

/// Sends control messages; clones share the channel, and each message goes out whole.
#[derive(Clone)]
pub struct ControlSender {
    writer: Arc<Mutex<Box<dyn Write + Send>>>,
    peer: Arc<str>,
}

/// Receives control messages.
pub struct ControlReceiver {
    reader: Box<dyn Read + Send>,
    /// The socket under the channel, for timeouts; `None` for pipes.
    socket: Option<TcpStream>,
    peer: Arc<str>,
}

/// A control channel over a pair of byte streams, such as the pipes of an ssh process.
pub fn control(
    reader: impl Read + Send + 'static,
    writer: impl Write + Send + 'static,
    peer: &str,
) -> (ControlSender, ControlReceiver) {
    let peer: Arc<str> = peer.into();
    let sender =
        ControlSender { writer: Arc::new(Mutex::new(Box::new(writer))), peer: peer.clone() };
    (sender, ControlReceiver { reader: Box::new(reader), socket: None, peer })
}

/// A control channel over an established TLS connection.
pub(super) fn control_over_tls(
    mut connection: Connection,
    socket: TcpStream,
    peer: &str,
) -> io::Result<(ControlSender, ControlReceiver)> {
    // A whole message is sealed before any of it is sent; its length is bounded by its frame.
    connection.set_buffer_limit(None);
    let timeouts = socket.try_clone()?;
    let link = Arc::new(TlsLink { connection: Mutex::new(connection), socket });
    let (sender, mut receiver) =
        control(TlsReader { link: link.clone(), chunk: vec![0; 16 << 10] }, TlsWriter(link), peer);
    receiver.socket = Some(timeouts);
    Ok((sender, receiver))
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

    /// How long [`receive`](Self::receive) waits for bytes; `None` is for ever. Has no effect on
    /// pipes: the ssh under them has timeouts of its own.
    ///
    /// # Errors
    /// The socket is gone.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        socket
            .set_read_timeout(timeout)
            .map_err(|source| EngineError::System { operation: "set a socket timeout", source })
    }

    /// Who is at the other end, for messages.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Ends every present and later [`receive`](Self::receive), from any thread.
    pub fn closer(&self) -> ControlCloser {
        ControlCloser(self.socket.as_ref().and_then(|socket| socket.try_clone().ok()))
    }
}

/// Closes a control channel from another thread; see [`ControlReceiver::closer`].
pub struct ControlCloser(Option<TcpStream>);

impl ControlCloser {
    /// Closes it. Pipes are closed by ending the process behind them instead.
    pub fn close(&self) {
        if let Some(socket) = &self.0 {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
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
    chunk: Vec<u8>,
}

struct TlsWriter(Arc<TlsLink>);

impl Read for TlsReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match lock(&self.link.connection).reader().read(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            let got = (&self.link.socket).read(&mut self.chunk)?;
            let mut fresh = &self.chunk[..got];
            let mut connection = lock(&self.link.connection);
            loop {
                // At the end of the stream `fresh` is empty, and rustls is told of it.
                connection.read_tls(&mut fresh)?;
                connection.process_new_packets().map_err(io::Error::other)?;
                if fresh.is_empty() {
                    break;
                }
            }
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while the lock was held is a bug that has been reported; the channel then breaks by
    // itself, so its state need not be trusted.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
