//! Anonymous memory mappings.

use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

/// A private, zeroed mapping, with huge pages if the kernel has them; unmapped on drop.
///
/// Its pages are allocated at the first write, so it can be sized for the worst case. A forked
/// child does not inherit it, which keeps the fork cheap and the pages uncopied.
#[derive(Debug)]
pub struct Mapping {
    region: Arc<Region>,
}

/// Allocates the pages of a [`Mapping`] before they are written, from any thread.
#[derive(Debug, Clone)]
pub struct Prefault {
    region: Arc<Region>,
}

/// The address range, unmapped when its last owner drops it.
#[derive(Debug)]
struct Region {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: only the mapping can reach the contents of the range, like a boxed slice.
unsafe impl Send for Region {}
// SAFETY: a shared mapping is only read, and writing needs `&mut`; Prefault accesses no contents.
unsafe impl Sync for Region {}

impl Mapping {
    /// Reserves `length` bytes of address space.
    ///
    /// # Errors
    /// `length` is zero or exceeds the limit of the address space.
    pub fn reserve(length: usize) -> io::Result<Self> {
        // SAFETY: a new anonymous mapping at an address that the kernel chooses overlaps nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Both are hints: without huge pages everything works, only slower.
        for advice in [libc::MADV_HUGEPAGE, libc::MADV_DONTFORK] {
            // SAFETY: the range is the new mapping, and neither hint changes its contents.
            unsafe { libc::madvise(start, length, advice) };
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { region: Arc::new(Region { start, length }) })
    }

    /// Disables huge pages for `range`, of which little will be used.
    pub(super) fn keep_small(&self, range: Range<usize>) {
        let page = rustix::param::page_size();
        let end = range.end.min(self.region.length);
        let start = range.start.min(end).next_multiple_of(page);
        if start < end {
            // SAFETY: the range lies within the mapping, and the hint changes no contents.
            unsafe {
                let from = self.region.start.as_ptr().add(start);
                libc::madvise(from.cast(), end - start, libc::MADV_NOHUGEPAGE)
            };
        }
    }

    /// Returns a handle that can allocate pages in advance.
    pub fn prefault(&self) -> Prefault {
        Prefault { region: self.region.clone() }
    }
}

impl Prefault {
    /// Allocates the pages of `range`, limited to the mapping, without changing their contents
    /// (`MADV_POPULATE_WRITE`, Linux 5.14).
    ///
    /// # Errors
    /// `InvalidInput` from an older kernel, or out of memory.
    pub fn touch(&self, range: Range<usize>) -> io::Result<()> {
        let page = rustix::param::page_size();
        let end = range.end.min(self.region.length);
        let start = range.start.min(end) / page * page;
        // SAFETY: the range lies within the mapping, which lives as long as the region, and the
        // advice changes no content.
        let result = unsafe {
            let from = self.region.start.as_ptr().add(start);
            libc::madvise(from.cast(), end - start, libc::MADV_POPULATE_WRITE)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the whole range is mapped, readable and zeroed for as long as self lives.
        unsafe { std::slice::from_raw_parts(self.region.start.as_ptr(), self.region.length) }
    }
}

impl DerefMut for Mapping {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and &mut self makes the slice the only one.
        unsafe { std::slice::from_raw_parts_mut(self.region.start.as_ptr(), self.region.length) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by reserve and no slice of it outlives self.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_machine_has_can_be_reserved_and_is_zero() {
        let mut mapping = Mapping::reserve(1 << 40).unwrap();
        assert_eq!(mapping[(1 << 39) + 5], 0);
        mapping[(1 << 40) - 1] = 7;
        assert_eq!(mapping[(1 << 40) - 1], 7);
        assert!(Mapping::reserve(0).is_err());
    }

    #[test]
    fn pages_appear_beforehand_and_keep_their_content() {
        let mut mapping = Mapping::reserve(8 << 20).unwrap();
        mapping[5] = 7;
        let prefault = mapping.prefault();
        std::thread::spawn(move || prefault.touch(1..usize::MAX).unwrap()).join().unwrap();
        assert_eq!((mapping[5], mapping[(8 << 20) - 1]), (7, 0));
        let prefault = mapping.prefault();
        drop(mapping);
        prefault.touch(0..4096).unwrap();
        prefault.touch(usize::MAX..usize::MAX).unwrap();
    }
}
