//! The memory for packets of all links of a topology.

use std::io;
use std::sync::Arc;

use longhaul_core::units::Bytes;
use longhaul_sys::arena::{Arena, ArenaBlock};

use super::warmer::{Reserve, Warmer};

/// The bytes touched at the start: two huge pages, so that the first packets do not wait until the
/// kernel has cleared pages.
const WARM: usize = 4 << 20;

/// The limits of the memory that is touched ahead of use, which is half as much as the memory in
/// use. Both together stay far below 32 MiB, the most that a link without delay may touch.
const AHEAD: std::ops::RangeInclusive<usize> = (6 << 20)..=(48 << 20);

/// The memory for packets of all links of a topology: one arena, and one thread that touches it
/// ahead of use.
///
/// The links share the memory that is touched ahead, so that many links with little traffic need
/// little memory. Each direction of a link has its own budget.
#[derive(Debug)]
pub(crate) struct PacketMemory {
    arena: Arena,
    reserve: Arc<Reserve>,
    _warmer: Warmer,
}

impl PacketMemory {
    /// Reserves address space for packets of `most` bytes, or of `needed` bytes if the host refuses
    /// more, and starts the thread that touches it.
    ///
    /// # Errors
    /// The host has no address space or no thread.
    pub(crate) fn start(most: Bytes, needed: Bytes) -> io::Result<Arc<Self>> {
        let size = |bytes: Bytes| (bytes.get() as usize).clamp(WARM, 1 << 40);
        // Under strict overcommit the mapping of `most` bytes may fail.
        let arena = Arena::reserve(size(most)).or_else(|_| Arena::reserve(size(needed)))?;
        // Kernels before 5.14 do not support the call, and then the first packets wait.
        let _ = arena.prefault().touch(0..WARM);
        let reserve = Reserve::new(arena.prefault(), WARM);
        let warmer = Warmer::start(reserve.clone())?;
        Ok(Arc::new(PacketMemory { arena, reserve, _warmer: warmer }))
    }

    /// Takes a block that is never returned.
    pub(super) fn take(&self, bytes: usize) -> Option<ArenaBlock> {
        let block = self.arena.take(bytes)?;
        let used = self.arena.used();
        let ahead = (used / 2).clamp(*AHEAD.start(), *AHEAD.end());
        self.reserve.want((used + ahead).min(self.arena.length()));
        Some(block)
    }
}

#[cfg(test)]
impl PacketMemory {
    /// Returns memory for tests.
    pub(super) fn of(most: Bytes) -> Arc<Self> {
        Self::start(most, most).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_users_share_what_is_touched_ahead() {
        let memory = PacketMemory::of(Bytes::gib(1));
        let blocks: Vec<ArenaBlock> = (0..80).map(|_| memory.take(64 << 10).unwrap()).collect();
        let wanted = memory.reserve.wanted();
        assert_eq!(blocks.len(), 80);
        assert!((11 << 20..14 << 20).contains(&wanted), "{wanted}");
    }
}
