//! An arena: a large mapping from which several threads take disjoint blocks.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::memory::{Mapping, Prefault, Region};

/// The alignment of blocks: one cache line.
const ALIGNMENT: usize = 64;

/// A mapping from which threads take disjoint blocks. Blocks are never returned; the mapping lives
/// as long as the arena or any block.
#[derive(Debug)]
pub struct Arena {
    region: Arc<Region>,
    used: AtomicUsize,
}

/// A block of an arena: zeroed memory of one owner.
#[derive(Debug)]
pub struct ArenaBlock {
    start: NonNull<u8>,
    length: usize,
    /// Keeps the memory mapped.
    _region: Arc<Region>,
}

// SAFETY: a block is the only way to its bytes, like a boxed slice.
unsafe impl Send for ArenaBlock {}
// SAFETY: a shared block is only read, and writing needs `&mut`.
unsafe impl Sync for ArenaBlock {}

impl Arena {
    /// Reserves `length` bytes of address space. Pages are allocated at their first use.
    ///
    /// # Errors
    /// `length` is zero or exceeds the limit of the address space.
    pub fn reserve(length: usize) -> io::Result<Self> {
        Ok(Arena { region: Mapping::reserve(length)?.into_region(), used: AtomicUsize::new(0) })
    }

    /// Takes a block of `length` bytes, or `None` if the arena has too few bytes left.
    pub fn take(&self, length: usize) -> Option<ArenaBlock> {
        let size = length.checked_next_multiple_of(ALIGNMENT)?;
        let (mut seen, order) = (self.used.load(Ordering::Relaxed), Ordering::Relaxed);
        loop {
            let end = seen.checked_add(size).filter(|end| *end <= self.region.length())?;
            match self.used.compare_exchange_weak(seen, end, order, order) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        // SAFETY: `seen` lies within the mapping.
        let start = unsafe { self.region.start().add(seen) };
        Some(ArenaBlock { start, length, _region: self.region.clone() })
    }

    /// Returns the bytes taken so far.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the size in bytes.
    pub fn length(&self) -> usize {
        self.region.length()
    }

    /// Returns a handle that can allocate pages in advance.
    pub fn prefault(&self) -> Prefault {
        Prefault::new(self.region.clone())
    }
}

impl ArenaBlock {
    /// Splits the block into blocks of `size` bytes each, which must be a multiple of 64. The rest
    /// of the block is lost.
    pub fn split(self, size: usize) -> impl Iterator<Item = ArenaBlock> {
        let count =
            if size.is_multiple_of(ALIGNMENT) { self.length.checked_div(size) } else { None };
        (0..count.unwrap_or(0)).map(move |index| ArenaBlock {
            // SAFETY: the part lies within this block, which is consumed, and overlaps no other.
            start: unsafe { self.start.add(index * size) },
            length: size,
            _region: self._region.clone(),
        })
    }
}

impl Deref for ArenaBlock {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range is mapped while the region lives, zeroed at first, and belongs only to
        // this block.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for ArenaBlock {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and &mut self makes the slice the only one.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_several_threads_do_not_overlap() {
        let arena = Arena::reserve(1 << 20).unwrap();
        let take = |mark: u8| {
            let mut blocks: Vec<ArenaBlock> = std::iter::from_fn(|| arena.take(1000)).collect();
            blocks.iter_mut().for_each(|block| block.fill(mark));
            assert!(blocks.iter().all(|block| block.iter().all(|byte| *byte == mark)));
            blocks.len()
        };
        let taken: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..4).map(|mark| scope.spawn(move || take(mark))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, (1 << 20) / 1024);
        assert!(arena.take(1000).is_none() && arena.take(usize::MAX).is_none());
    }

    #[test]
    fn a_block_outlives_its_arena_and_is_split_into_disjoint_parts() {
        let arena = Arena::reserve(1 << 16).unwrap();
        let block = arena.take(1000).unwrap();
        assert_eq!(arena.used(), 1024);
        drop(arena);
        let mut parts: Vec<ArenaBlock> = block.split(256).collect();
        assert_eq!(parts.len(), 3);
        for (mark, part) in parts.iter_mut().enumerate() {
            part.fill(mark as u8);
        }
        assert!(parts.iter().enumerate().all(|(mark, part)| part[255] == mark as u8));
    }
}
