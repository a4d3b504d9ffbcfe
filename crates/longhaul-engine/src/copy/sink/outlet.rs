//! Standard output: bytes that are passed on in order instead of stored.
//!
//! Blocks arrive over several connections, in order on each of them ([`TreeOptions::ordered`]). A
//! connection waits if its block is more than [`WINDOW`] blocks ahead. The next block to pass on
//! is the first one on its connection, so the wait always ends. The position outlives a session,
//! so no byte is passed on twice after a lost connection.
//!
//! [`TreeOptions::ordered`]: longhaul_core::plan::TreeOptions::ordered

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex, PoisonError};

use longhaul_core::plan::CopyOptions;

use crate::copy::pool::PoolBuffer;
use crate::lock;

/// The maximum number of blocks, from the next one on, that can be received: the smallest pool has
/// a buffer for each.
const WINDOW: u64 = 16;

/// An output that takes bytes in order.
pub struct Outlet {
    state: Mutex<State>,
    moved: Condvar,
}

struct State {
    out: Box<dyn Write + Send>,
    /// The stamp of the file that is passed on.
    stamp: Option<u64>,
    /// Bytes passed on.
    next: u64,
    /// Blocks that arrived early, by offset.
    early: BTreeMap<u64, (usize, PoolBuffer)>,
    block_bytes: u64,
    hasher: Option<blake3::Hasher>,
    closed: bool,
}

impl Outlet {
    /// Passes on to `out`.
    pub fn new(out: impl Write + Send + 'static) -> Self {
        let state = State {
            out: Box::new(out),
            stamp: None,
            next: 0,
            early: BTreeMap::new(),
            block_bytes: 0,
            hasher: None,
            closed: false,
        };
        Outlet { state: Mutex::new(state), moved: Condvar::new() }
    }

    /// Begins a session; returns whether an earlier one has passed on any bytes.
    pub(super) fn begin(&self, options: &CopyOptions) -> bool {
        let mut state = lock(&self.state);
        state.early.clear();
        state.block_bytes = options.block_bytes.get();
        state.closed = false;
        if options.tree.digests && state.next == 0 {
            state.hasher = Some(blake3::Hasher::new());
        }
        state.next > 0
    }

    /// Returns the number of bytes of the file of this `stamp` that were passed on; `None` if they
    /// belong to another file.
    pub(super) fn resume_at(&self, stamp: u64) -> Option<u64> {
        let mut state = lock(&self.state);
        let same = *state.stamp.get_or_insert(stamp) == stamp;
        same.then_some(state.next)
    }

    /// Returns the digest of the bytes that were passed on, if it is requested.
    pub(super) fn digest(&self) -> Option<blake3::Hash> {
        lock(&self.state).hasher.as_ref().map(blake3::Hasher::finalize)
    }

    /// Waits until the block at `offset` can be received; `None` if the copy is over.
    pub(super) fn wait_for(&self, offset: u64) -> Option<()> {
        let far = |state: &mut State| {
            !state.closed && offset >= state.next.saturating_add(WINDOW * state.block_bytes)
        };
        let state =
            self.moved.wait_while(lock(&self.state), far).unwrap_or_else(PoisonError::into_inner);
        (!state.closed).then_some(())
    }

    /// Takes the block of `length` bytes at `offset`, and passes on all blocks that follow in
    /// order.
    pub(super) fn put(&self, offset: u64, length: usize, buffer: PoolBuffer) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.early.insert(offset, (length, buffer));
        loop {
            let next = state.next;
            let Some((length, buffer)) = state.early.remove(&next) else { return Ok(()) };
            state.pass_on(&buffer[..length])?;
            self.moved.notify_all();
        }
    }

    /// Passes on a whole small file.
    pub(super) fn put_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut state = lock(&self.state);
        if state.next > 0 {
            return Ok(());
        }
        state.pass_on(bytes)
    }

    /// Ends every wait: the session is over.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.moved.notify_all();
    }
}

impl State {
    fn pass_on(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.out.flush()?;
        self.next += bytes.len() as u64;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
        Ok(())
    }
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longhaul_core::units::Bytes;

    use super::*;
    use crate::copy::pool::Pool;

    /// A writer whose bytes can be read.
    #[derive(Clone, Default)]
    struct SharedOutput(Arc<Mutex<Vec<u8>>>);

    impl Write for SharedOutput {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            lock(&self.0).extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn blocks_in_any_order_are_passed_on_in_order() {
        let out = SharedOutput::default();
        let outlet = Outlet::new(out.clone());
        let pool = Pool::new(4, 4096);
        let block = |byte: u8| {
            let mut buffer = pool.take().unwrap();
            buffer[..10].fill(byte);
            buffer
        };
        let options = CopyOptions { block_bytes: Bytes::new(10), ..CopyOptions::default() };
        assert!(!outlet.begin(&options));
        assert_eq!(outlet.resume_at(7), Some(0));
        outlet.put(20, 4, block(3)).unwrap();
        outlet.put(10, 10, block(2)).unwrap();
        assert!(lock(&out.0).is_empty());
        assert!(outlet.wait_for(150).is_some());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| outlet.wait_for(160));
            outlet.put(0, 10, block(1)).unwrap();
            assert!(waiting.join().unwrap().is_some());
        });
        let expected = [vec![1; 10], vec![2; 10], vec![3; 4]].concat();
        assert_eq!(*lock(&out.0), expected);
        // A later session resumes, only with the same file.
        assert!(outlet.begin(&options));
        assert_eq!((outlet.resume_at(7), outlet.resume_at(8)), (Some(24), None));
        outlet.close();
        assert_eq!(outlet.wait_for(0), None);
    }
}
