//! A stream of unknown length that can be read once, such as standard input.
//!
//! The bytes are kept until the sink has written them, so that a corrupted block can be sent again
//! and a new session can resume. The number of kept bytes limits the rate to this number per round
//! trip plus the 200 ms between two reports of the sink. The number follows the path:
//! [`WINDOW_BYTES`] plus twice the measured bandwidth-delay product. A sink that lost bytes after
//! it had reported them ends the copy, because they cannot be read again.
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::lock;
use crate::session::random_keying_material;

/// The bytes that are kept in addition to the bandwidth-delay product: 200 ms or more at 5 Gb/s.
/// Together with the buffers of one reader and sixteen connections they stay below 256 MiB.
const WINDOW_BYTES: u64 = 128 << 20;
/// The same in blocks, if they are small.
const WINDOW_BLOCKS: u64 = 4096;
/// The interval at which a wait checks for the end of the copy.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// A stream that can be read once.
pub struct Feed {
    /// Identifies the stream of this process.
    stamp: u64,
    input: Mutex<Input>,
    kept: Mutex<Kept>,
    freed: Condvar,
    /// The BDP in bytes.
    on_path: AtomicU64,
}

/// A source of bytes that can be waited for.
pub trait StreamReader: Read + AsFd + Send {}

impl<T: Read + AsFd + Send> StreamReader for T {}

struct Input {
    from: Box<dyn StreamReader>,
    /// The block being filled.
    begun: Vec<u8>,
}

#[derive(Default)]
struct Kept {
    /// Blocks that the sink has written, from the first on.
    written: u64,
    /// Blocks that were read.
    read: u64,
    blocks: BTreeMap<u64, Vec<u8>>,
    /// The total number of bytes, once the end was reached.
    size: Option<u64>,
}

/// The reason why a file cannot be sent, for the user.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("cannot open it: {0}")]
    Open(io::Error),
    #[error("cannot read it: {0}")]
    Read(io::Error),
    #[error("it changed during the copy; copy it again")]
    Changed,
    #[error("it became shorter during the copy; copy it again")]
    Shrunk,
    #[error("the sink lost a part of the stream, which cannot be read twice; copy it again")]
    Poured,
}

/// The outcome of a wait for a block.
pub(super) enum Next {
    /// The block of this number was read.
    Block(u64),
    /// The end, after so many bytes.
    End(u64),
    /// The copy is over.
    Over,
}

impl Feed {
    /// Reads from `from`.
    pub fn new(from: impl StreamReader + 'static) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = random_keying_material();
        Feed {
            stamp: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            input: Mutex::new(Input { from: Box::new(from), begun: Vec::new() }),
            kept: Mutex::default(),
            freed: Condvar::new(),
            on_path: AtomicU64::new(0),
        }
    }

    /// Sets the BDP.
    pub(super) fn path_holds(&self, bytes: u64) {
        self.on_path.store(bytes, Ordering::Relaxed);
        self.freed.notify_all();
    }

    /// Returns the number of blocks that may be kept.
    fn window(&self, block_bytes: u64) -> usize {
        let bytes = WINDOW_BYTES.saturating_add(2 * self.on_path.load(Ordering::Relaxed));
        (bytes / block_bytes).clamp(1, WINDOW_BLOCKS) as usize
    }

    pub(super) fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Returns the numbers of the blocks that were read and can be sent again, if the sink has all
    /// blocks before them; `has` returns whether it has a block.
    pub(super) fn again(&self, has: impl Fn(u64) -> bool) -> Result<Vec<u64>, ReadError> {
        let kept = lock(&self.kept);
        if !(0..kept.written).all(&has) {
            return Err(ReadError::Poured);
        }
        Ok(kept.blocks.keys().copied().filter(|block| !has(*block)).collect())
    }

    /// Reads the next block of `block_bytes`, once there is space to keep it.
    pub(super) fn next(&self, block_bytes: u64, over: impl Fn() -> bool) -> io::Result<Next> {
        {
            let mut kept = lock(&self.kept);
            if let Some(size) = kept.size {
                return Ok(Next::End(size));
            }
            while kept.blocks.len() >= self.window(block_bytes) {
                if over() {
                    return Ok(Next::Over);
                }
                let waited = self.freed.wait_timeout(kept, STOP_CHECK);
                kept = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        let Some(block) = lock(&self.input).fill(block_bytes as usize, over)? else {
            return Ok(Next::Over);
        };
        let mut kept = lock(&self.kept);
        let length = block.len() as u64;
        if length < block_bytes {
            kept.size = Some(kept.read * block_bytes + length);
        }
        if length == 0 {
            return Ok(Next::End(kept.read * block_bytes));
        }
        let number = kept.read;
        kept.blocks.insert(number, block);
        kept.read += 1;
        Ok(Next::Block(number))
    }

    /// Copies block `number` into `buffer` and returns its length.
    pub(super) fn copy(&self, number: u64, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let kept = lock(&self.kept);
        let block = kept.blocks.get(&number).ok_or(ReadError::Poured)?;
        buffer[..block.len()].copy_from_slice(block);
        Ok(block.len())
    }

    /// Discards the first `blocks`, which the sink has written.
    pub(super) fn written(&self, blocks: u64) {
        let mut kept = lock(&self.kept);
        let blocks = blocks.min(kept.read);
        if blocks > kept.written {
            kept.written = blocks;
            kept.blocks = kept.blocks.split_off(&blocks);
            self.freed.notify_all();
        }
    }
}

impl Input {
    /// Returns a block of `length` bytes, or fewer at the end; `None` if the copy is over.
    fn fill(&mut self, length: usize, over: impl Fn() -> bool) -> io::Result<Option<Vec<u8>>> {
        let mut have = self.begun.len();
        self.begun.resize(length, 0);
        let outcome = loop {
            if have == length {
                break Ok(true);
            }
            if over() {
                break Ok(false);
            }
            // A terminal, a pipe or a socket can be silent for a long time.
            let check = Timespec { tv_sec: 0, tv_nsec: STOP_CHECK.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.from, PollFlags::IN)], Some(&check)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => break Err(error.into()),
            }
            match self.from.read(&mut self.begun[have..]) {
                Ok(0) => break Ok(true),
                Ok(got) => have += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.begun.truncate(have);
        outcome.map(|read| read.then(|| std::mem::take(&mut self.begun)))
    }
}

impl fmt::Debug for Feed {
    /// Formats a constant, because the name of a copy is derived from the text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Feed")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn data_are_kept_until_the_sink_has_written_them() {
        let (from, mut to) = std::io::pipe().unwrap();
        let feed = Feed::new(from);
        to.write_all(&[1; 10_000]).unwrap();
        let next = || feed.next(4096, || false).unwrap();
        assert!(matches!(next(), Next::Block(0)) && matches!(next(), Next::Block(1)));
        // The function waits for the rest of a block, and keeps the rest when the copy is over.
        assert!(matches!(feed.next(4096, || true).unwrap(), Next::Over));
        to.write_all(&[2; 100]).unwrap();
        drop(to);
        assert!(matches!(next(), Next::Block(2)));
        assert!(matches!(next(), Next::End(10_100)) && matches!(next(), Next::End(10_100)));
        let mut buffer = [0; 4096];
        assert_eq!(feed.copy(2, &mut buffer).unwrap(), 10_100 - 8192);
        assert_eq!((buffer[0], buffer[10_099 - 8192]), (1, 2));
        feed.written(1);
        assert!(matches!(feed.copy(0, &mut buffer), Err(ReadError::Poured)));
        assert_eq!(feed.again(|block| block == 0).unwrap(), [1, 2]);
        assert!(matches!(feed.again(|_| false), Err(ReadError::Poured)));
    }

    #[test]
    fn the_amount_of_kept_data_follows_the_path() {
        let feed = Feed::new(std::io::pipe().unwrap().0);
        assert_eq!(feed.window(4 << 20), 32);
        feed.path_holds(100 << 20);
        assert_eq!(feed.window(4 << 20), 82, "128 MiB, and twice what is on the path");
        assert_eq!(feed.window(4096), WINDOW_BLOCKS as usize);
        feed.path_holds(0);
        assert_eq!(feed.window(4 << 20), 32);
        assert_eq!(feed.window(1 << 40), 1, "one block there must be");
    }

    #[test]
    fn input_of_whole_blocks_ends_at_a_block() {
        let (from, mut to) = std::io::pipe().unwrap();
        let feed = Feed::new(from);
        to.write_all(&[1; 4096]).unwrap();
        drop(to);
        assert!(matches!(feed.next(4096, || false).unwrap(), Next::Block(0)));
        assert!(matches!(feed.next(4096, || false).unwrap(), Next::End(4096)));
        let (from, _) = std::io::pipe().unwrap();
        let empty = Feed::new(from);
        assert!(matches!(empty.next(4096, || false).unwrap(), Next::End(0)));
    }
}
