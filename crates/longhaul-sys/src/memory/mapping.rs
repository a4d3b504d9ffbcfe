use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A private, zeroed mapping, in huge pages where the kernel has them; returned on drop.
///
/// Its pages appear when first written, so that it may be sized for the worst case. A forked
/// child does not get it, which keeps a fork cheap and the pages uncopied.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is memory that only this value reaches, like a boxed slice.
unsafe impl Send for Mapping {}
// SAFETY: what is shared is only read; writing takes &mut self.
unsafe impl Sync for Mapping {}

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
        Ok(Mapping { start, length })
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the whole range is mapped, readable and zeroed for as long as self lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for Mapping {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and &mut self makes the slice the only one.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Mapping {
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
}
