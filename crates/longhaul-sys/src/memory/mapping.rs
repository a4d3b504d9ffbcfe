use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

/// A private, zeroed mapping, in huge pages where the kernel has them; returned on drop.
///
/// Its pages appear when first written, so that it may be sized for the worst case. A forked
/// child does not get it, which keeps a fork cheap and the pages uncopied.
#[derive(Debug)]
pub struct Mapping {
    region: Arc<Region>,
}

/// Makes pages of a [`Mapping`] appear before they are written, from any thread.
#[derive(Debug, Clone)]
pub struct Prefault {
    region: Arc<Region>,
}

/// The address range, unmapped when the last that knows it is gone.
#[derive(Debug)]
struct Region {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the range is memory whose content only the mapping reaches, like a boxed slice.
unsafe impl Send for Region {}
// SAFETY: a shared mapping is only read, writing takes &mut of it; Prefault reaches no content.
unsafe impl Sync for Region {}

impl Mapping {
    /// Reserves `length` bytes of address space.
    ///
    /// # Errors
    /// `length` is zero, or the address space is limited below it.
    pub fn reserve(length: usize) -> io::Result<Self> {
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice overlaps nothing.
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
        // Both are wishes: a kernel without huge pages works, only slower.
        for advice in [libc::MADV_HUGEPAGE, libc::MADV_DONTFORK] {
            // SAFETY: the range is the mapping just made, and neither advice changes its content.
            unsafe { libc::madvise(start, length, advice) };
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { region: Arc::new(Region { start, length }) })
    }

    /// Takes no huge pages for `range`, of which little will be used.
    pub(super) fn keep_small(&self, range: Range<usize>) {
        let page = rustix::param::page_size();
        let end = range.end.min(self.region.length);
        let start = range.start.min(end).next_multiple_of(page);
        if start < end {
            // SAFETY: the range lies within the mapping, and the advice, a wish, changes no content.
            unsafe {
                let from = self.region.start.as_ptr().add(start);
                libc::madvise(from.cast(), end - start, libc::MADV_NOHUGEPAGE)
            };
        }
    }

    /// The means to make its pages appear beforehand.
    pub fn prefault(&self) -> Prefault {
        Prefault { region: self.region.clone() }
    }
}

impl Prefault {
    /// Makes the pages of `range`, as far as the mapping has it, appear as if they had been
    /// written, and changes nothing in them (`MADV_POPULATE_WRITE`, Linux 5.14).
    ///
    /// # Errors
    /// `InvalidInput` from an older kernel, or no memory.
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
