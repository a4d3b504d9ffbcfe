use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The alignment of offsets, lengths and memory that every direct-I/O file system takes: the page,
/// which is no smaller than any logical block in use (open(2), O_DIRECT).
pub const DIRECT_ALIGN: usize = 4096;

/// Bytes aligned for direct I/O, zero at first. The pages are touched when they are first used.
#[derive(Debug)]
pub struct AlignedBuffer {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the buffer owns its memory alone, like a Vec<u8>.
unsafe impl Send for AlignedBuffer {}
// SAFETY: shared references give shared access to plain bytes only.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// A buffer of `bytes`, rounded up to [`DIRECT_ALIGN`].
    ///
    /// # Panics
    /// `bytes` is over `isize::MAX`.
    pub fn new(bytes: usize) -> Self {
        let size = bytes.max(1).next_multiple_of(DIRECT_ALIGN);
        let layout =
            Layout::from_size_align(size, DIRECT_ALIGN).expect("a buffer's size fits in memory");
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        AlignedBuffer { start, layout }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `size` initialised bytes for as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed only here.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
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
}
