//! The sending threads of TCP streams with an equal number of blocks.

use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use longhaul_sys::tcp::{TcpInfo, tcp_info};

use super::Slot;
use super::pacer::Pacer;
use super::tcp::Sending;
use crate::lock;
use crate::test::block_format::{BlockFormat, BlockState};

/// The maximum number of blocks by which a stream may be ahead of another one. The receiver reads
/// the streams in turn, so that the rest would only wait in buffers.
const MOST_AHEAD: u64 = 8;
/// The longest time in which a waiting thread does not see the stop flag.
const STOP_CHECK: Duration = Duration::from_millis(20);

/// The turns of the streams of one end, so that all end after the same number of blocks.
#[derive(Debug)]
pub(in crate::test) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
    /// The number of blocks of all streams together; `None` until the stop flag.
    total: Option<u64>,
}

#[derive(Debug)]
struct State {
    /// The blocks that each stream has begun.
    begun: Vec<u64>,
    /// The number of blocks after which every stream ends, once the test stops.
    end: Option<u64>,
}

impl Turns {
    pub(in crate::test) fn new(streams: usize, total: Option<u64>) -> Self {
        let state = State { begun: vec![0; streams], end: None };
        Turns { state: Mutex::new(state), changed: Condvar::new(), total }
    }

    /// Waits for the next block of `stream`. Returns its number, or `None` at the end.
    fn next(&self, stream: usize, stop: &AtomicBool) -> Option<u64> {
        let mut state = lock(&self.state);
        loop {
            if stop.load(Ordering::Relaxed) {
                state.stop();
            }
            let number = state.begun[stream];
            if number >= state.end.unwrap_or(u64::MAX).min(self.share(stream, state.begun.len())) {
                return None;
            }
            let least = state.begun.iter().copied().min().unwrap_or(0);
            if number < least + MOST_AHEAD {
                state.begun[stream] += 1;
                self.changed.notify_all();
                return Some(number);
            }
            let waited = self.changed.wait_timeout(state, STOP_CHECK);
            state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    /// Returns the number of blocks of `stream` in turns over `streams`.
    fn share(&self, stream: usize, streams: usize) -> u64 {
        let (stream, streams) = (stream as u64, streams as u64);
        self.total.map_or(u64::MAX, |total| total / streams + u64::from(stream < total % streams))
    }

    /// Ends all streams without further blocks.
    fn abandon(&self) {
        lock(&self.state).end = Some(0);
        self.changed.notify_all();
    }
}

impl State {
    /// Sets the end to the blocks of the stream that is ahead.
    fn stop(&mut self) {
        let most = self.begun.iter().copied().max();
        self.end = self.end.or(most);
    }
}

/// Sends whole blocks in the turns of stream `number` and closes its half of `stream`.
pub(in crate::test) fn send_blocks(
    slot: &Slot,
    stream: &TcpStream,
    mut block: Vec<u8>,
    turn: (&Turns, usize, &dyn BlockFormat),
    sending: Sending<'_>,
) {
    let Sending { mut pacer, stop, sampler, .. } = sending;
    let (turns, own, format) = turn;
    slot.run(sampler, || {
        let mut sent = 0;
        while let Some(number) = turns.next(own, stop) {
            format.write(&mut block, state(stream, number, format.needs_state()));
            let mut moved = |count: usize| {
                sent += count as u64;
                slot.moved.set(sent);
            };
            let outcome = send_block(stream, &block, pacer.as_mut(), stop, &mut moved);
            if let Err(error) = outcome {
                turns.abandon();
                return Err(error);
            }
        }
        match stream.shutdown(Shutdown::Write) {
            Err(e) if e.kind() != ErrorKind::NotConnected => Err(e),
            _ => Ok(Instant::now()),
        }
    });
}

fn state(stream: &TcpStream, number: u64, needed: bool) -> BlockState {
    let info = if needed { tcp_info(stream).unwrap_or_default() } else { TcpInfo::default() };
    BlockState {
        number,
        retransmits: info.retransmits,
        cwnd_bytes: u64::from(info.congestion_window_segments) * u64::from(info.send_mss),
    }
}

/// Sends a whole block at the rate of `pacer`; the rest of a block after the stop flag is not
/// paced.
fn send_block(
    mut stream: &TcpStream,
    block: &[u8],
    mut pacer: Option<&mut Pacer>,
    stop: &AtomicBool,
    moved: &mut dyn FnMut(usize),
) -> io::Result<()> {
    let mut rest = block;
    while !rest.is_empty() {
        let allowed = pacer.as_mut().map_or(0, |pacer| pacer.allowance(stop));
        let count = if allowed == 0 { rest.len() } else { rest.len().min(allowed as usize) };
        match stream.write(&rest[..count]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => {
                moved(count);
                rest = &rest[count..];
                if let Some(pacer) = &mut pacer {
                    pacer.spend(count as u64);
                }
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Lets `streams` threads take turns, until the first one has had `most` of them or no block is
    /// left; returns the blocks of each thread.
    fn run(streams: usize, total: Option<u64>, most: u64) -> Vec<u64> {
        let turns = Turns::new(streams, total);
        let stop = AtomicBool::new(false);
        let take = |stream| {
            let mut count = 0;
            while turns.next(stream, &stop).is_some() {
                count += 1;
                if stream == 0 {
                    thread::sleep(Duration::from_micros(50));
                    if count == most {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            }
            count
        };
        thread::scope(|scope| {
            let take = &take;
            let threads: Vec<_> =
                (0..streams).map(|stream| scope.spawn(move || take(stream))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn streams_of_different_speed_end_after_the_same_number_of_blocks() {
        let blocks = run(4, None, 100);
        assert!(blocks[0] >= 100 && blocks.iter().all(|count| *count == blocks[0]), "{blocks:?}");
    }

    #[test]
    fn a_number_of_blocks_is_divided_in_turns() {
        assert_eq!(run(4, Some(10), u64::MAX), [3, 3, 2, 2]);
        assert_eq!(run(2, Some(1), u64::MAX), [1, 0]);
    }

    #[test]
    fn a_failed_stream_ends_the_others() {
        let turns = Turns::new(2, None);
        let stop = AtomicBool::new(false);
        assert_eq!(turns.next(0, &stop), Some(0));
        turns.abandon();
        assert_eq!(turns.next(1, &stop), None);
    }
}
