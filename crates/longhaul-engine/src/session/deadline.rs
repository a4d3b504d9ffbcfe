//! Deadlines for opening a connection, even if the peer's bytes arrive one by one.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The time limit for opening a connection: three SYNs over the longest usual path.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for opening a connection and for its request.
pub(crate) const OPENING_TIMEOUT: Duration = Duration::from_secs(20);

/// Sets the timeout of every read and write.
pub(super) fn set_timeouts(socket: &TcpStream, timeout: Option<Duration>) -> std::io::Result<()> {
    socket.set_read_timeout(timeout)?;
    socket.set_write_timeout(timeout)
}

/// A socket with a deadline for all its reads and writes; the socket's timeout would start again
/// with every byte.
pub(crate) struct DeadlineSocket<'a> {
    socket: &'a TcpStream,
    deadline: Instant,
}

impl<'a> DeadlineSocket<'a> {
    /// Limits `socket` to [`OPENING_TIMEOUT`] from now.
    pub(crate) fn opened(socket: &'a TcpStream) -> Self {
        DeadlineSocket::at(socket, Instant::now() + OPENING_TIMEOUT)
    }

    /// Limits `socket` to `deadline`.
    pub(crate) fn at(socket: &'a TcpStream, deadline: Instant) -> Self {
        DeadlineSocket { socket, deadline }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        match self.deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }
}

impl Read for DeadlineSocket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(buffer)
    }
}

impl Write for DeadlineSocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn single_bytes_do_not_extend_a_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let dribble = thread::spawn(move || {
            while near.write_all(&[1]).is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let begun = Instant::now();
        let mut until =
            DeadlineSocket { socket: &far, deadline: begun + Duration::from_millis(200) };
        let slow = until.read_exact(&mut [0; 1 << 20]).unwrap_err();
        assert!(matches!(slow.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock));
        assert!(begun.elapsed() < Duration::from_secs(30));
        drop(far);
        dribble.join().unwrap();
    }
}
