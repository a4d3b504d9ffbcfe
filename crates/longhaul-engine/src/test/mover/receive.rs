use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::thread::Thread;
use std::time::{Duration, Instant};

use longhaul_sys::memory::AlignedBuffer;
use longhaul_sys::tcp::set_receive_low_water;
use rustix::net::{RecvFlags, recv};

use super::Slot;

/// How a receiver reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::test) struct Reading {
    /// Bytes in one read, at most.
    pub(in crate::test) buffer_bytes: usize,
    /// The kernel drops the bytes instead of copying them (`MSG_TRUNC`, tcp(7)).
    pub(in crate::test) skip_copy: bool,
    /// Let more arrive before a read where the rate allows; not with a window of the user's, of
    /// which it would take a part away.
    pub(in crate::test) gather: bool,
}

/// Reads `stream` until the peer closes its half. `first` is set when the first bytes are there.
pub(in crate::test) fn receive(
    slot: &Slot,
    mut stream: &TcpStream,
    reading: Reading,
    first: &OnceLock<Instant>,
    sampler: &Thread,
) {
    slot.run(sampler, || {
        // On a page, for the reason that a sender's is.
        let mut buffer = AlignedBuffer::new(reading.buffer_bytes);
        let buffer = &mut buffer[..reading.buffer_bytes];
        let mut received = 0u64;
        let mut gathering = reading.gather.then(|| Gathering::new(reading.buffer_bytes));
        loop {
            let took = match reading.skip_copy {
                false => stream.read(buffer),
                true => recv(stream, &mut *buffer, RecvFlags::TRUNC)
                    .map(|(_, count)| count)
                    .map_err(io::Error::from),
            };
            match took {
                Ok(0) => break,
                Ok(count) => {
                    if received == 0 {
                        let _ = first.set(Instant::now());
                        sampler.unpark();
                    }
                    received += count as u64;
                    slot.moved.set(received);
                    if let Some(gathering) = &mut gathering
                        && let Some(bytes) = gathering.read(count)
                    {
                        // A kernel that refuses wakes us more often, that is all.
                        let _ = set_receive_low_water(stream, bytes);
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let end = Instant::now();
        // An end with nothing before it starts the clock too, for a share of no bytes.
        let _ = first.set(end);
        Ok(end)
    });
}

/// How long data may gather: far less than an interval or a round trip over a long path, and many
/// times what it costs to wake a thread.
const GATHER_TIME: Duration = Duration::from_micros(200);
/// How much may gather: waking for each 512 KiB instead of each packet took a third off the CPU
/// time of a gigabyte over loopback (bench/runs/2026-11-21-epyc-2core/flow.md).
const MOST_GATHERED: u64 = 512 << 10;
/// How often the amount is fitted to the rate.
const FIT_EVERY: Duration = Duration::from_millis(10);
/// Less than this is not worth waiting for.
const LEAST_GATHERED: u64 = 16 << 10;

/// Fits the socket's low-water mark to its rate, so that a fast stream wakes its reader seldom
/// and a slow one is counted as it comes.
#[derive(Debug)]
struct Gathering {
    most: u64,
    mark: u64,
    since: Instant,
    bytes: u64,
}

impl Gathering {
    fn new(buffer_bytes: usize) -> Self {
        let most = MOST_GATHERED.min(buffer_bytes as u64);
        Gathering { most, mark: 1, since: Instant::now(), bytes: 0 }
    }

    /// Takes note of a read. Returns the new mark when it is to be changed.
    fn read(&mut self, count: usize) -> Option<u32> {
        self.bytes += count as u64;
        // The clock is cheap but not free: one look for each 64 KiB is enough.
        if self.bytes < LEAST_GATHERED * 4 && self.mark == 1 {
            return None;
        }
        let now = Instant::now();
        let elapsed = now - self.since;
        if elapsed < FIT_EVERY {
            return None;
        }
        let mark = self.fit(self.bytes, elapsed);
        (self.since, self.bytes) = (now, 0);
        let changed = mark != self.mark;
        self.mark = mark;
        changed.then_some(mark as u32)
    }

    /// The mark for a rate, in powers of two so that it does not change with every ripple.
    fn fit(&self, bytes: u64, elapsed: Duration) -> u64 {
        let wanted = bytes as f64 * GATHER_TIME.as_secs_f64() / elapsed.as_secs_f64();
        match (wanted as u64).min(self.most) {
            wanted @ LEAST_GATHERED.. => 1 << wanted.ilog2(),
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_streams_gather_and_slow_ones_do_not() {
        let gathering = Gathering::new(1 << 20);
        let fit = |gigabits: f64| {
            gathering.fit((gigabits * 1e9 / 8.0 / 100.0) as u64, Duration::from_millis(10))
        };
        assert_eq!((fit(0.1), fit(0.5)), (1, 1));
        assert_eq!((fit(1.0), fit(10.0), fit(30.0)), (16 << 10, 128 << 10, 512 << 10));
        assert_eq!(fit(400.0), 512 << 10);
        let small = Gathering::new(100_000);
        assert_eq!(small.fit(1 << 30, Duration::from_millis(10)), 65536);
    }

    #[test]
    fn a_stream_that_slows_down_is_counted_as_it_comes_again() {
        let mut gathering = Gathering::new(1 << 20);
        gathering.since -= Duration::from_millis(20);
        assert_eq!(gathering.read(80_000_000), Some(512 << 10));
        assert_eq!(gathering.read(1000), None, "too soon to tell");
        gathering.since -= Duration::from_secs(1);
        assert_eq!(gathering.read(1000), Some(1));
    }
}
