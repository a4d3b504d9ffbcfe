//! The time limit of a whole message on a control channel, however slowly its bytes pass.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock;

/// The time limit for sending a message: the longest, a mebibyte, passes at 140 kb/s.
const MESSAGE_LIMIT: Duration = Duration::from_secs(60);

/// The time limit of a message, and the deadline of the present one.
#[derive(Default)]
pub(super) struct MessageClock(Mutex<(Option<Duration>, Option<Instant>)>);

impl MessageClock {
    /// Creates the clock of a sender.
    pub(super) fn of_sender() -> Arc<Self> {
        Arc::new(MessageClock(Mutex::new((Some(MESSAGE_LIMIT), None))))
    }

    pub(super) fn set_timeout(&self, timeout: Option<Duration>) {
        lock(&self.0).0 = timeout;
    }

    pub(super) fn begin(&self) {
        let mut clock = lock(&self.0);
        clock.1 = clock.0.map(|timeout| Instant::now() + timeout);
    }

    /// Returns the remaining time of the present message; `None` is unlimited.
    pub(super) fn left(&self) -> io::Result<Option<Duration>> {
        let Some(until) = lock(&self.0).1 else { return Ok(None) };
        match until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }
}

/// Writes all of `bytes` in the time of `clock`: the socket's timeout starts again with every byte that
/// a slow reader accepts.
pub(super) fn write_within(
    mut socket: &TcpStream,
    mut bytes: &[u8],
    clock: &MessageClock,
) -> io::Result<()> {
    while !bytes.is_empty() {
        socket.set_write_timeout(clock.left()?)?;
        match socket.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Shutdown, TcpListener};
    use std::thread;

    use super::*;

    #[test]
    fn a_slow_reader_cannot_extend_the_time_of_a_message() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let reading = thread::spawn(move || {
            let mut bytes = [0; 16 << 10];
            while far.read(&mut bytes).is_ok_and(|got| got > 0) {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let clock = MessageClock(Mutex::new((Some(Duration::from_millis(300)), None)));
        clock.begin();
        // Loopback buffers a few megabytes, and the reader takes 16 KiB at a time.
        let error = write_within(&near, &vec![0; 64 << 20], &clock).unwrap_err();
        assert!(
            matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock),
            "{error}"
        );
        near.shutdown(Shutdown::Both).unwrap();
        reading.join().unwrap();
    }
}
