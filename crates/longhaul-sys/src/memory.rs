//! Memory: [`AlignedBuffer`] for direct I/O, [`Mapping`] for large memory that is allocated on
//! first use, and the amount that this process may use.

use std::arch::asm;
use std::ops::{Deref, DerefMut, Range};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::{fs, io};

/// The alignment in bytes that every file system accepts for direct I/O, of offsets, lengths and
/// memory: a page, which is at least as large as every logical block in use (open(2), O_DIRECT).
pub const DIRECT_ALIGN: usize = 4096;
/// The size of a huge page on x86-64, and on arm64 with 4 KiB pages. Direct I/O pins memory by
/// page: a block of 4 MiB has two huge pages instead of a thousand small ones.
const HUGE_PAGE: usize = 2 << 20;

/// A zeroed buffer aligned for direct I/O. A long buffer uses huge pages if they are available.
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
            // The few bytes beyond the last whole huge page would otherwise use a further huge
            // page.
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

/// A private, zeroed mapping, with huge pages if they are available; unmapped on drop.
///
/// Its pages are allocated at the first write, so it can be sized for the worst case. A forked
/// child does not inherit it, so that the fork is cheap and no pages are copied.
#[derive(Debug)]
pub struct Mapping {
    region: Arc<Region>,
}

/// Allocates the pages of a [`Mapping`] before they are written, from any thread.
#[derive(Debug, Clone)]
pub struct Prefault {
    region: Arc<Region>,
}

/// The address range. The last owner unmaps it on drop.
#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: only the mapping can reach the contents of the range, like a boxed slice.
unsafe impl Send for Region {}
// SAFETY: a shared mapping is only read, and writing needs `&mut`; Prefault changes no contents.
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
        // Both are hints: without huge pages everything works, but slower.
        for advice in [libc::MADV_HUGEPAGE, libc::MADV_DONTFORK] {
            // SAFETY: the range is the new mapping, and neither hint changes its contents.
            unsafe { libc::madvise(start, length, advice) };
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { region: Arc::new(Region { start, length }) })
    }

    /// Disables huge pages for `range`, of which only a small part will be used.
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
        Prefault::new(self.region.clone())
    }

    /// Returns the range, for an arena that divides it.
    pub(crate) fn into_region(self) -> Arc<Region> {
        self.region
    }
}

impl Region {
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

impl Prefault {
    pub(crate) fn new(region: Arc<Region>) -> Self {
        Prefault { region }
    }

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

impl Prefault {
    /// Allocates the pages of `range`, limited to the mapping, without changing their contents, by
    /// an access per page.
    ///
    /// Since Linux 6.4, the kernel locks only the mapping for such an access. For
    /// [`touch`](Self::touch) it locks the whole address space. If the caller then waits for a
    /// processor, all threads that allocate memory wait, too.
    pub fn access(&self, range: Range<usize>) {
        let page = rustix::param::page_size();
        let end = range.end.min(self.region.length);
        for at in (range.start.min(end) / page * page..end).step_by(page) {
            // SAFETY: the byte lies within the mapping, which lives as long as the region. The owner
            // may access the byte at the same time without an atomic operation. The instruction
            // is atomic for the processor and changes no bit, so no store of the owner is lost.
            unsafe { write_back(self.region.start.as_ptr().add(at)) };
        }
    }
}

/// Writes the byte at `at` with the value that it has, in one atomic operation.
///
/// It is an instruction and not an atomic type, because other threads access the byte without
/// atomic operations, and because the compiler may replace an addition of 0 by a load.
///
/// # Safety
/// The byte is mapped and writable.
unsafe fn write_back(at: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction accesses the byte only, and changes only the flags.
    unsafe {
        asm!("lock or byte ptr [{at}], 0", at = in(reg) at, options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instructions access the byte only.
    unsafe {
        asm!(
            "2: ldxrb {value:w}, [{at}]",
            "stxrb {failed:w}, {value:w}, [{at}]",
            "cbnz {failed:w}, 2b",
            at = in(reg) at,
            value = out(reg) _,
            failed = out(reg) _,
            options(nostack),
        );
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

/// Returns the bytes of memory that this process may use: those of the machine, or the lowest limit
/// of its control groups, whichever is less.
pub fn usable_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let machine = info.totalram as u64 * u64::from(info.mem_unit);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = group_limit(&groups, |file| {
        fs::read_to_string(Path::new("/sys/fs/cgroup").join(file)).ok()
    });
    limit.map_or(machine, |limit| limit.min(machine))
}

/// Returns the lowest limit of the groups in `/proc/self/cgroup` (cgroups(7)) and their ancestors:
/// `memory.max` in version 2, `memory.limit_in_bytes` in version 1. A value that is not a number,
/// such as `max`, is not a limit.
fn group_limit(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let (base, name) = match controllers {
            "" => ("", "memory.max"),
            _ if controllers.split(',').any(|each| each == "memory") => {
                ("memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let group = Path::new(group.trim_start_matches('/'));
        group
            .ancestors()
            .filter_map(|group| {
                read(&Path::new(base).join(group).join(name))?.trim().parse::<u64>().ok()
            })
            .min()
    });
    limits.min()
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

    #[test]
    fn accessed_pages_are_resident_and_keep_their_content() {
        const LENGTH: usize = 64 << 20;
        let mut mapping = Mapping::reserve(LENGTH).unwrap();
        mapping[5] = 7;
        let before = resident();
        let prefault = mapping.prefault();
        std::thread::spawn(move || prefault.access(1..usize::MAX)).join().unwrap();
        let taken = resident().saturating_sub(before);
        assert!(taken > LENGTH / 2, "{taken} bytes of {LENGTH}");
        assert_eq!((mapping[5], mapping[LENGTH - 1]), (7, 0));
    }

    #[test]
    fn the_least_limit_on_the_way_to_the_root_counts() {
        let read = |file: &Path| {
            let text = match file.to_str()? {
                "memory.max" => "max",
                "a/memory.max" => "1000",
                "a/b/memory.max" => "2000",
                "memory/jobs/memory.limit_in_bytes" => "700",
                "memory/memory.limit_in_bytes" => "9223372036854771712",
                _ => return None,
            };
            Some(format!("{text}\n"))
        };
        assert_eq!(group_limit("0::/a/b\n", read), Some(1000));
        assert_eq!(group_limit("0::/\n", read), None);
        assert_eq!(group_limit("5:cpu:/x\n4:hugetlb,memory:/jobs\n0::/\n", read), Some(700));
        assert_eq!(group_limit("", read), None);
    }

    #[test]
    fn this_process_has_some() {
        assert!(usable_bytes() > 64 << 20);
    }
}
