//! The latency of small requests over a separate connection, before and during a test.
//!
//! The client sends requests at a steady pace, whether or not earlier ones were answered, so that a
//! slow path is not sampled less often. The server returns every byte. A request that a loss delays
//! counts with its delay, as for an application.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::result::LatencyQuantiles;
use longhaul_sys::poll;

/// The number of bytes of a request and of its answer.
const REQUEST_BYTES: usize = 16;
/// The interval between requests during the test.
const PACE: Duration = Duration::from_millis(20);
/// The interval between requests before the test, and their number.
const IDLE_PACE: Duration = Duration::from_millis(10);
const IDLE_REQUESTS: usize = 25;
/// The maximum number of unanswered requests; the client then waits for answers.
const MOST_WAITING: usize = 1024;
/// The longest wait for the last answers.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// Returns all bytes until the peer closes `stream` or this end shuts it down.
pub(super) fn echo(mut stream: &TcpStream) {
    let mut bytes = [0; 64 * REQUEST_BYTES];
    loop {
        match stream.read(&mut bytes) {
            Ok(count @ 1..) if stream.write_all(&bytes[..count]).is_ok() => {}
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

/// The requesting end.
#[derive(Debug)]
pub(super) struct Prober {
    stream: TcpStream,
    /// The sending times of the unanswered requests; answers arrive in order.
    waiting: VecDeque<Instant>,
    /// The bytes of an incomplete answer.
    begun: usize,
    times_ms: Vec<f64>,
}

impl Prober {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Prober { stream, waiting: VecDeque::new(), begun: 0, times_ms: Vec::new() })
    }

    /// Measures the latency of the idle path.
    pub(super) fn idle(&mut self) -> Option<LatencyQuantiles> {
        let mut asked = 0;
        self.ask(IDLE_PACE, || {
            asked += 1;
            asked > IDLE_REQUESTS
        });
        LatencyQuantiles::of(std::mem::take(&mut self.times_ms))
    }

    /// Measures the latency until `over` is set.
    pub(super) fn loaded(&mut self, over: &AtomicBool) -> Option<LatencyQuantiles> {
        self.ask(PACE, || over.load(Ordering::Acquire));
        LatencyQuantiles::of(std::mem::take(&mut self.times_ms))
    }

    /// Sends a request every `pace` until `enough` returns true. A broken connection ends it; the
    /// test reports the reason.
    fn ask(&mut self, pace: Duration, mut enough: impl FnMut() -> bool) {
        let mut due = Instant::now();
        while !enough() {
            if self.waiting.len() < MOST_WAITING {
                let sent_at = Instant::now();
                // A full socket accepts no request; a partly sent request means that the connection
                // is at its end.
                match self.stream.write(&[0x55; REQUEST_BYTES]) {
                    Ok(REQUEST_BYTES) => self.waiting.push_back(sent_at),
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    _ => return,
                }
            }
            due += pace;
            if self.receive_until(due).is_err() {
                return;
            }
        }
        let end = Instant::now() + LAST_WAIT;
        while !self.waiting.is_empty() && Instant::now() < end {
            if self.receive_until((Instant::now() + pace).min(end)).is_err() {
                return;
            }
        }
    }

    fn receive_until(&mut self, due: Instant) -> io::Result<()> {
        let mut bytes = [0; 64 * REQUEST_BYTES];
        while let Some(left) = due.checked_duration_since(Instant::now()) {
            if !poll::readable(&self.stream, left) {
                continue;
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    let now = Instant::now();
                    self.begun += count;
                    while self.begun >= REQUEST_BYTES {
                        self.begun -= REQUEST_BYTES;
                        // Answers without requests are an error of the peer and have no time.
                        let sent = self.waiting.pop_front().ok_or(ErrorKind::InvalidData)?;
                        self.times_ms.push((now - sent).as_secs_f64() * 1e3);
                    }
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener};
    use std::thread;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn every_request_is_answered_and_timed() {
        let (near, far) = pair();
        thread::scope(|scope| {
            scope.spawn(|| echo(&far));
            let mut prober = Prober::new(near.try_clone().unwrap()).unwrap();
            let idle = prober.idle().unwrap();
            assert_eq!(idle.answered, IDLE_REQUESTS as u64);
            assert!(idle.min_ms > 0.0 && idle.max_ms < 20_000.0, "{idle:?}");
            let over = AtomicBool::new(true);
            assert_eq!(prober.loaded(&over), None);
            near.shutdown(Shutdown::Both).unwrap();
        });
    }

    #[test]
    fn a_server_that_sends_nothing_or_too_much_yields_no_times() {
        let (near, mut far) = pair();
        far.write_all(&[0; 100 * REQUEST_BYTES]).unwrap();
        let mut prober = Prober::new(near).unwrap();
        assert!(prober.idle().is_none_or(|idle| idle.answered < 2));
        let (near, far) = pair();
        let mut prober = Prober::new(near).unwrap();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(300));
            drop(far);
        });
        assert_eq!(prober.idle(), None);
    }
}
