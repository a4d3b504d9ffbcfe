//! The sending and the receiving thread of a TCP stream.

use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use longhaul_sys::memory::AlignedBuffer;
use longhaul_sys::tcp::set_receive_low_water;
use rustix::net::{RecvFlags, recv};

use super::Slot;
use super::pacer::Pacer;
use super::supply::Supply;
use crate::test::block_format::BlockFormat;

/// The task of a sending thread.
pub(in crate::test) struct Sending<'a> {
    /// The number of bytes to send; `None` is unlimited.
    pub(in crate::test) share: Option<u64>,
    /// The timer that paces the stream, if one does.
    pub(in crate::test) pacer: Option<Pacer>,
    /// Ends the stream early.
    pub(in crate::test) stop: &'a AtomicBool,
    /// True to leave the connection open at the end.
    pub(in crate::test) open: bool,
    /// The thread to wake at the end.
    pub(in crate::test) sampler: &'a Thread,
}

/// The longest time in which a thread of an open connection does not see the stop flag.
const STOP_CHECK: Duration = Duration::from_millis(50);
/// The time between the last data and the stop flag that belongs to the delay of the flag.
const STOP_GRACE: Duration = Duration::from_millis(150);

/// Sends from `supply` until `share` bytes are sent or `stop` is set, at the pacer's rate. Then it
/// closes its half of `stream`, unless the connection is to stay open.
///
/// After `stop` another thread must shut down the writing half, which ends a blocked write; a
/// timeout does so on a connection that stays open. The bytes that the kernel accepted before count
/// and are sent.
pub(in crate::test) fn send(
    slot: &Slot,
    stream: &TcpStream,
    supply: &Supply,
    sending: Sending<'_>,
) {
    let Sending { share, mut pacer, stop, open, sampler } = sending;
    slot.run(sampler, || {
        if open {
            stream.set_write_timeout(Some(STOP_CHECK))?;
        }
        let mut feed = supply.feed()?;
        let mut sent = 0u64;
        while !stop.load(Ordering::Relaxed) {
            let left = share.map_or(u64::MAX, |share| share - sent);
            let allowed = pacer.as_mut().map_or(u64::MAX, |pacer| pacer.allowance(stop));
            let count = (feed.length() as u64).min(left).min(allowed);
            if count == 0 {
                break;
            }
            match feed.write(stream, count as usize) {
                Ok(count) => {
                    sent += count as u64;
                    slot.moved.set(sent);
                    if let Some(pacer) = &mut pacer {
                        pacer.spend(count as u64);
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock && open => {}
                Err(e) if is_closed(&e) && stop.load(Ordering::Acquire) => break,
                Err(e) => return Err(e),
            }
        }
        if open {
            return Ok(Instant::now());
        }
        match stream.shutdown(Shutdown::Write) {
            // A peer that has closed reports so on the control channel.
            Err(e) if e.kind() != ErrorKind::NotConnected => Err(e),
            _ => Ok(Instant::now()),
        }
    });
}

/// Returns whether `error` means that an end has closed the connection.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

/// The threads and flags around a receiving thread.
#[derive(Clone, Copy)]
pub(in crate::test) struct Watch<'a> {
    /// Set at the first bytes.
    pub(in crate::test) first: &'a OnceLock<Instant>,
    /// The thread to wake at the first bytes and at the end.
    pub(in crate::test) sampler: &'a Thread,
    /// Ends the stream before the peer closes it; `None` to read until then.
    pub(in crate::test) stop: Option<&'a AtomicBool>,
    /// The reader of fields within the data.
    pub(in crate::test) blocks: Option<&'a dyn BlockFormat>,
}

impl Watch<'_> {
    /// Returns whether the stream has to end.
    pub(in crate::test) fn stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

/// The method of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::test) struct Reading {
    /// The length of the longest read.
    pub(in crate::test) buffer_bytes: usize,
    /// True if the kernel drops the bytes instead of copying them (`MSG_TRUNC`, tcp(7)).
    pub(in crate::test) skip_copy: bool,
    /// True to wait for more data before a read if the rate allows. False with a window that the
    /// user set, because waiting data reduce it.
    pub(in crate::test) gather: bool,
}

/// Reads `stream` until the peer closes its half or the stop flag of `watch` is set.
pub(in crate::test) fn receive(
    slot: &Slot,
    mut stream: &TcpStream,
    reading: Reading,
    watch: Watch<'_>,
) {
    let Watch { first, sampler, stop, blocks } = watch;
    slot.run(sampler, || {
        if stop.is_some() {
            stream.set_read_timeout(Some(STOP_CHECK))?;
        }
        // Aligned to a page, like the sender's buffer.
        let mut buffer = AlignedBuffer::new(reading.buffer_bytes);
        let buffer = &mut buffer[..reading.buffer_bytes];
        let mut received = 0u64;
        let mut last = Instant::now();
        let mut gathering = reading.gather.then(|| LowWaterMark::new(reading.buffer_bytes));
        while !watch.stopped() {
            let took = if reading.skip_copy {
                let dropped = recv(stream, &mut *buffer, RecvFlags::TRUNC);
                dropped.map(|(_, count)| count).map_err(io::Error::from)
            } else {
                stream.read(buffer)
            };
            match took {
                Ok(0) => break,
                Ok(count) => {
                    if received == 0 {
                        let _ = first.set(Instant::now());
                        sampler.unpark();
                    }
                    if let Some(blocks) = blocks {
                        blocks.read(&buffer[..count], received);
                    }
                    received += count as u64;
                    slot.moved.set(received);
                    if stop.is_some() {
                        last = Instant::now();
                    }
                    if let Some(gathering) = &mut gathering
                        && let Some(bytes) = gathering.read(count)
                    {
                        // A kernel without this option only wakes the thread more often.
                        let _ = set_receive_low_water(stream, bytes);
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock && stop.is_some() => {}
                Err(e) if is_closed(&e) && watch.stopped() => break,
                Err(e) => return Err(e),
            }
        }
        let end = Instant::now();
        // An end of data without data starts the clock, too, for a share of no bytes.
        let _ = first.set(end);
        // The flag is seen late; a pause of the sender counts.
        let seen_late = stop.is_some() && end - last < STOP_GRACE;
        Ok(if seen_late { last } else { end })
    });
}

/// The longest time for which data wait: far below an interval or a long round trip, and many times
/// the cost of waking a thread.
const GATHER_TIME: Duration = Duration::from_micros(200);
/// The maximum number of bytes that wait: waking per 512 KiB instead of per packet saved a third of
/// the CPU time per gigabyte over loopback (bench/runs/2026-11-21-epyc-2core/flow.md).
const MOST_GATHERED: u64 = 512 << 10;
/// The interval at which the number of bytes is adapted to the rate.
const FIT_EVERY: Duration = Duration::from_millis(10);
/// The minimum number of bytes for which a wait is worthwhile.
const LEAST_GATHERED: u64 = 16 << 10;

/// Adapts the socket's low-water mark to its rate, so that a fast stream wakes its reader rarely
/// and a slow one is counted as it arrives.
#[derive(Debug)]
struct LowWaterMark {
    most: u64,
    mark: u64,
    since: Instant,
    bytes: u64,
}

impl LowWaterMark {
    fn new(buffer_bytes: usize) -> Self {
        let most = MOST_GATHERED.min(buffer_bytes as u64);
        LowWaterMark { most, mark: 1, since: Instant::now(), bytes: 0 }
    }

    /// Records a read. Returns the new mark if it changes.
    fn read(&mut self, count: usize) -> Option<u32> {
        self.bytes += count as u64;
        // Reading the clock costs time; once per 64 KiB is enough.
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

    /// Returns the mark for a rate, as a power of two, so that small changes of the rate do not
    /// change it.
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
        let gathering = LowWaterMark::new(1 << 20);
        let fit = |gigabits: f64| {
            gathering.fit((gigabits * 1e9 / 8.0 / 100.0) as u64, Duration::from_millis(10))
        };
        assert_eq!((fit(0.1), fit(0.5)), (1, 1));
        assert_eq!((fit(1.0), fit(10.0), fit(30.0)), (16 << 10, 128 << 10, 512 << 10));
        assert_eq!(fit(400.0), 512 << 10);
        let small = LowWaterMark::new(100_000);
        assert_eq!(small.fit(1 << 30, Duration::from_millis(10)), 65536);
    }

    #[test]
    fn a_stream_that_slows_down_is_counted_as_it_comes_again() {
        let mut gathering = LowWaterMark::new(1 << 20);
        gathering.since -= Duration::from_millis(20);
        assert_eq!(gathering.read(80_000_000), Some(512 << 10));
        assert_eq!(gathering.read(1000), None, "the sample is too short");
        gathering.since -= Duration::from_secs(1);
        assert_eq!(gathering.read(1000), Some(1));
    }
}
