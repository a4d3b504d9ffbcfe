//! The threads that move bytes. Each owns its count and its buffer; other threads only look.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use longhaul_sys::cpu::ThreadClock;

/// A count on cache lines of its own: two, since Intel's prefetcher takes them in pairs. One
/// thread writes it, the sampler reads it once an interval.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicU64);

/// A stream as its thread leaves it for others to see.
#[derive(Debug)]
pub(super) struct Slot {
    moved: Count,
    /// The connection; the sampler shuts it down to wake a thread that waits in it.
    pub(super) stream: TcpStream,
    clock: OnceLock<ThreadClock>,
    ended: OnceLock<Ended>,
}

/// How a stream's thread ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// When the last byte had been taken by the kernel, or the end of data been read.
    pub(super) at: Instant,
    /// The thread's CPU time.
    pub(super) cpu: Duration,
    /// What broke the stream off.
    pub(super) failure: Option<io::Error>,
}

impl Slot {
    pub(super) fn new(stream: TcpStream) -> Self {
        Slot { moved: Count::default(), stream, clock: OnceLock::new(), ended: OnceLock::new() }
    }

    /// Bytes moved so far.
    pub(super) fn bytes(&self) -> u64 {
        self.moved.0.load(Ordering::Relaxed)
    }

    /// CPU time of the stream's thread so far.
    pub(super) fn cpu(&self) -> Duration {
        let ended = || self.ended.get().map(|ended| ended.cpu);
        // A thread that ends between the two looks has left its time behind by the second.
        ended()
            .or_else(|| self.clock.get()?.elapsed().ok())
            .or_else(ended)
            .unwrap_or(Duration::ZERO)
    }

    /// The clock of the stream's thread; `None` before it runs.
    pub(super) fn clock(&self) -> Option<ThreadClock> {
        self.clock.get().copied()
    }

    /// How the thread ended; `None` while it runs.
    pub(super) fn ended(&self) -> Option<&Ended> {
        self.ended.get()
    }

    /// Runs `work` as this slot's thread and leaves its end to see.
    fn run(&self, sampler: &Thread, work: impl FnOnce() -> io::Result<()>) {
        let clock = ThreadClock::current();
        let _ = self.clock.set(clock);
        let failure = work().err();
        let at = Instant::now();
        let cpu = clock.elapsed().unwrap_or(Duration::ZERO);
        let _ = self.ended.set(Ended { at, cpu, failure });
        sampler.unpark();
    }
}

/// Bytes to send: noise, because a path that compresses would shine on zeros. All senders of a
/// test read the same ones, which keeps them in cache.
pub(super) fn noise(length: usize) -> Vec<u8> {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        // Marsaglia's xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Sends `bytes` over and over until `share` are sent or `stop` is set, then closes its half.
///
/// `stop` is to be followed by a shutdown of the writing half from outside, which ends a write
/// that waits for the peer; what the kernel took before counts, and is sent.
pub(super) fn send(
    slot: &Slot,
    bytes: &[u8],
    share: Option<u64>,
    stop: &AtomicBool,
    sampler: &Thread,
) {
    slot.run(sampler, || {
        let mut sent = 0u64;
        while !stop.load(Ordering::Relaxed) {
            let left = share.map_or(u64::MAX, |share| share - sent);
            if left == 0 {
                break;
            }
            match (&slot.stream).write(&bytes[..bytes.len().min(left as usize)]) {
                Ok(count) => {
                    sent += count as u64;
                    slot.moved.0.store(sent, Ordering::Relaxed);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::BrokenPipe && stop.load(Ordering::Acquire) => {
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        match slot.stream.shutdown(Shutdown::Write) {
            // The peer, which has closed already, says so elsewhere.
            Err(e) if e.kind() != ErrorKind::NotConnected => Err(e),
            _ => Ok(()),
        }
    });
}

/// Reads until the peer closes its half. `first` is set when the first bytes are there.
pub(super) fn receive(
    slot: &Slot,
    buffer_bytes: usize,
    first: &OnceLock<Instant>,
    sampler: &Thread,
) {
    slot.run(sampler, || {
        let mut buffer = vec![0; buffer_bytes];
        let mut received = 0u64;
        loop {
            match (&slot.stream).read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    if received == 0 {
                        let _ = first.set(Instant::now());
                        sampler.unpark();
                    }
                    received += count as u64;
                    slot.moved.0.store(received, Ordering::Relaxed);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        // An end with nothing before it starts the clock too, for a share of no bytes.
        let _ = first.set(Instant::now());
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_does_not_compress() {
        let bytes = noise(100_003);
        assert_eq!(bytes.len(), 100_003);
        let mut seen = [0u32; 256];
        bytes.iter().for_each(|&byte| seen[usize::from(byte)] += 1);
        assert!(seen.iter().all(|count| (250..550).contains(count)), "{seen:?}");
    }

    #[test]
    fn counts_do_not_share_cache_lines() {
        assert_eq!(std::mem::align_of::<Slot>(), 128);
        assert_eq!(std::mem::size_of::<Count>(), 128);
    }
}
