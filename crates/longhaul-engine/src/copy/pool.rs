//! The buffers of one end of a copy, whose number bounds its memory.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use longhaul_core::plan::CopyOptions;
use longhaul_sys::memory::AlignedBuffer;

use super::data_connection::RECEIVE_SLACK;
use super::disk::DIRECT_FROM_BYTES;
use super::streams::MOST_STREAMS;

/// The number of buffers of one end, in addition to those per connection.
const POOL_BUFFERS_BASE: usize = 16;
/// The number of buffers per connection: one in use, and one in its queue.
const POOL_BUFFERS_PER_STREAM: usize = 2;
/// The number of pack buffers in addition to one per connection: two per reader or writer, one in
/// use and one in its queue.
const PACK_BUFFERS_BASE: usize = 8;
/// The maximum number of bytes of all buffers of an end: twelve of the largest blocks. The data in
/// flight are in the kernel's socket buffers, whose size follows the bandwidth-delay product. These
/// buffers hold the data while a disk stalls: 160 ms at 10 Gb/s.
const POOL_BYTES: usize = 192 << 20;

/// The maximum number of bytes of small files in one block: so many that the cost of a header, a
/// table and a queue's locks is negligible, and so few that packs use all connections at once.
pub(super) const PACK_BYTES: usize = 1 << 20;

/// Returns whether a file of `size` bytes is sent in a pack with others, in one block of
/// `block_bytes`. A stream is never sent in a pack.
pub(super) fn fits_in_pack(size: u64, block_bytes: u64) -> bool {
    size == 0 || size < DIRECT_FROM_BYTES.min(block_bytes)
}

/// The buffers of one end: for blocks, and smaller ones for packs. In a large buffer a pack would
/// use only half of its huge pages, and the first use of memory is slow if a hypervisor must
/// provide it.
#[derive(Clone)]
pub(super) struct Pools {
    pub(super) blocks: Pool,
    /// `None` if blocks are not larger than packs.
    pub(super) packs: Option<Pool>,
}

impl Pools {
    /// Waits for a buffer for `bytes`; `None` once the pools are closed.
    pub(super) fn take(&self, bytes: usize) -> Option<PoolBuffer> {
        match &self.packs {
            Some(packs) if bytes <= PACK_BYTES => packs.take(),
            _ => self.blocks.take(),
        }
    }

    /// Lets every waiting and later [`take`](Self::take) return `None`.
    pub(super) fn close(&self) {
        self.blocks.close();
        self.packs.iter().for_each(Pool::close);
    }
}

/// Creates the buffers of an end with these options.
pub(super) fn pools(options: &CopyOptions) -> Pools {
    let streams = options.fixed_streams().unwrap_or(MOST_STREAMS);
    let block = options.block_bytes.get() as usize;
    let count = POOL_BUFFERS_BASE + POOL_BUFFERS_PER_STREAM * streams as usize;
    // Blocks in order wait for each other: each connection needs its own buffer.
    let most = if options.tree.ordered { count } else { POOL_BYTES / block };
    let packs = || {
        let count = PACK_BUFFERS_BASE + streams as usize;
        Pool::new(count, PACK_BYTES + RECEIVE_SLACK)
    };
    Pools {
        blocks: Pool::new(count.min(most), block + RECEIVE_SLACK),
        packs: (block > PACK_BYTES).then(packs),
    }
}

/// Buffers of one size. Their number limits the memory, and the lead of one stage over the next.
///
/// The buffer that was returned last is taken first. If the stages are equally fast, few buffers
/// are in use, and they stay in the cache.
#[derive(Clone)]
pub(super) struct Pool(Arc<PoolShared>);

struct PoolShared {
    state: Mutex<State>,
    returned: Condvar,
    buffer_bytes: usize,
}

struct State {
    free: Vec<AlignedBuffer>,
    unmade: usize,
    closed: bool,
}

impl Pool {
    /// Creates a pool of `count` buffers of `buffer_bytes`, which are allocated when they are first
    /// needed.
    pub(super) fn new(count: usize, buffer_bytes: usize) -> Self {
        let state = State { free: Vec::with_capacity(count), unmade: count, closed: false };
        Pool(Arc::new(PoolShared {
            state: Mutex::new(state),
            returned: Condvar::new(),
            buffer_bytes,
        }))
    }

    /// Waits for a buffer; `None` once the pool is closed.
    pub(super) fn take(&self) -> Option<PoolBuffer> {
        let mut state = self.0.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(buffer) = state.free.pop() {
                return Some(PoolBuffer { buffer: Some(buffer), pool: self.clone() });
            }
            if state.unmade > 0 {
                state.unmade -= 1;
                drop(state);
                let buffer = AlignedBuffer::new(self.0.buffer_bytes);
                return Some(PoolBuffer { buffer: Some(buffer), pool: self.clone() });
            }
            state = self.0.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets every waiting and later [`take`](Self::take) return `None`.
    pub(super) fn close(&self) {
        self.0.lock().closed = true;
        self.0.returned.notify_all();
    }
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer that returns to its pool when it is dropped.
pub(super) struct PoolBuffer {
    buffer: Option<AlignedBuffer>,
    pool: Pool,
}

impl Deref for PoolBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }
}

impl DerefMut for PoolBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buffer.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for PoolBuffer {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.0.lock().free.push(buffer);
            self.pool.0.returned.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_buffer_back_is_the_first_out() {
        let pool = Pool::new(2, 4096);
        let (first, second) = (pool.take().unwrap(), pool.take().unwrap());
        let address = second.as_ptr();
        drop(first);
        drop(second);
        assert_eq!(pool.take().unwrap().as_ptr(), address);
    }

    #[test]
    fn closing_wakes_who_waits() {
        let pool = Pool::new(1, 4096);
        let held = pool.take();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.take().is_none());
            pool.close();
            assert!(waiting.join().unwrap());
        });
        drop(held);
    }
}
