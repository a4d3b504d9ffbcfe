//! Buffers for direct I/O.

use std::ops::{Deref, DerefMut};

use super::Mapping;

/// The alignment in bytes of offsets, lengths and memory that every file system accepts for direct
/// I/O: a page, which is at least as large as every logical block in use (open(2), O_DIRECT).
pub const DIRECT_ALIGN: usize = 4096;
/// The size of a huge page on x86-64 and on arm64 with 4 KiB pages. Direct I/O pins memory by page:
/// a block of 4 MiB has two huge pages instead of a thousand small ones.
const HUGE_PAGE: usize = 2 << 20;

/// A zeroed buffer aligned for direct I/O. A long buffer uses huge pages if the kernel has some.
/// Pages are allocated at first use.
#[derive(Debug)]
pub struct AlignedBuffer {
    mapping: Mapping,
    start: usize,
    bytes: usize,
}

impl AlignedBuffer {
    /// Creates a buffer of `bytes`, rounded up to [`DIRECT_ALIGN`].
    ///
    /// # Panics
    /// The address space of the process is exhausted.
    pub fn new(bytes: usize) -> Self {
        let bytes = bytes.max(1).next_multiple_of(DIRECT_ALIGN);
        let spare = if bytes >= HUGE_PAGE { HUGE_PAGE } else { 0 };
        let mapping = Mapping::reserve(bytes + spare).expect("there is address space for a buffer");
        let start = match spare {
            0 => 0,
            spare => mapping.as_ptr().align_offset(spare),
        };
        if spare > 0 {
            // The few bytes beyond the last whole huge page would use another one.
            mapping.keep_small(start + bytes / HUGE_PAGE * HUGE_PAGE..mapping.len());
        }
        AlignedBuffer { mapping, start, bytes }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.mapping[self.start..self.start + self.bytes]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.mapping[self.start..self.start + self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_rounded_and_zero() {
        let mut buffer = AlignedBuffer::new(5000);
        assert_eq!(buffer.len(), 8192);
        assert_eq!(buffer.as_ptr() as usize % DIRECT_ALIGN, 0);
        assert!(buffer.iter().all(|byte| *byte == 0));
        buffer[8191] = 1;
        assert_eq!(buffer[8191], 1);
    }

    /// Returns the resident memory of this process in bytes.
    fn resident() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
        pages * rustix::param::page_size()
    }

    #[test]
    fn a_little_more_than_huge_pages_takes_little_more() {
        const BUFFERS: usize = 40;
        let before = resident();
        let mut buffers: Vec<_> =
            (0..BUFFERS).map(|_| AlignedBuffer::new((4 << 20) + 16)).collect();
        for buffer in &mut buffers {
            for offset in [0, 2 << 20, 4 << 20] {
                buffer[offset] = 1;
            }
        }
        // A huge page per tail would add half of the buffers' size.
        let most = BUFFERS * (5 << 20);
        let taken = resident().saturating_sub(before);
        assert!(taken < most, "{taken} bytes, of {most} at the most");
    }

    #[test]
    fn a_long_one_begins_at_a_huge_page() {
        let mut buffer = AlignedBuffer::new((4 << 20) + 16);
        assert_eq!(buffer.len(), (4 << 20) + DIRECT_ALIGN);
        assert_eq!(buffer.as_ptr() as usize % HUGE_PAGE, 0);
        let last = buffer.len() - 1;
        buffer[last] = 1;
        assert_eq!((buffer[0], buffer[last]), (0, 1));
    }
}
