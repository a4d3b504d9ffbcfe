//! Writeback and close of files, and the part of them in the page cache.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};

/// Starts the writeback of dirty pages in `length` bytes of `file` at `offset` without waiting for
/// it (sync_file_range(2)). A length of 0 means up to the end. The data are not durable afterwards,
/// but a later sync is shorter.
///
/// # Errors
/// The call failed; some file systems do not support it.
pub fn begin_writeback(file: &File, offset: u64, length: u64) -> io::Result<()> {
    sync_range(file, offset, length, libc::SYNC_FILE_RANGE_WRITE)
}

/// Starts the writeback like [`begin_writeback`] and waits until the disk has accepted the data.
/// They are not durable afterwards.
///
/// # Errors
/// The call failed.
pub fn write_back(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_range(file, offset, length, flags)
}

fn sync_range(file: &File, offset: u64, length: u64, flags: libc::c_uint) -> io::Result<()> {
    let (offset, length) = (offset as libc::off64_t, length as libc::off64_t);
    // SAFETY: the descriptor is open for as long as `file` is borrowed; no memory is passed.
    let done = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, flags) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes `file`. Network file systems and FUSE pass the writes on at each close(2) and report that
/// the server refused them, for example because of a quota (close(2), "Dealing with error returns").
///
/// # Errors
/// The call failed. The descriptor is closed in any case.
pub fn close(file: File) -> io::Result<()> {
    // SAFETY: the descriptor was owned by `file`, so nothing else uses or closes it.
    if unsafe { libc::close(file.into_raw_fd()) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// `struct cachestat_range` (linux/mman.h).
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

/// `struct cachestat` (linux/mman.h), in pages.
#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Returns the number of bytes in the page cache, of `length` bytes of `file` at `offset`, in whole
/// pages (cachestat(2), since Linux 6.5). Reads no data.
///
/// # Errors
/// The kernel lacks the call, or the file does not use the page cache.
pub fn cached_bytes(file: &File, offset: u64, length: u64) -> io::Result<u64> {
    let range = Range { offset, length };
    let mut stat = CacheStat::default();
    let none: libc::c_uint = 0;
    // SAFETY: both structures have the kernel's layout and live until the call returns.
    let done = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            std::ptr::from_ref(&range),
            std::ptr::from_mut(&mut stat),
            none,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(stat.cached * rustix::param::page_size() as u64)
}

/// The number of cachestat(2), equal on all architectures (include/uapi/asm-generic/unistd.h).
const CACHESTAT: libc::c_long = 451;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn freshly_written_data_are_in_the_cache() {
        let path = std::env::temp_dir().join(format!("longhaul-cached-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        file.write_all(&[7; 64 << 10]).unwrap();
        let cached = cached_bytes(&file, 0, 64 << 10);
        std::fs::remove_file(&path).unwrap();
        match cached {
            Ok(cached) => assert_eq!(cached, 64 << 10),
            // Linux before 6.5 lacks the call.
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOSYS)),
        }
    }

    #[test]
    fn a_closed_pipe_has_ended() {
        let (mut reader, writer) = io::pipe().unwrap();
        close(File::from(std::os::fd::OwnedFd::from(writer))).unwrap();
        assert_eq!(io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_file_is_written_back_and_a_pipe_is_not() {
        let path = std::env::temp_dir().join(format!("longhaul-writeback-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        begin_writeback(&file, 0, 0).unwrap();
        write_back(&file, 4096, 8192).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (reader, _writer) = io::pipe().unwrap();
        let reader = File::from(std::os::fd::OwnedFd::from(reader));
        assert_eq!(begin_writeback(&reader, 0, 0).unwrap_err().raw_os_error(), Some(libc::ESPIPE));
    }
}
