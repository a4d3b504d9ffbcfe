//! What a file has in the page cache, and its way to the disk.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Lets the kernel begin to write what is dirty of `file`, and does not wait for it
/// (sync_file_range(2)). Nothing is durable by it: the sync that makes it so finds less to do.
///
/// # Errors
/// As the call says; a file system may have no such thing.
pub fn begin_writeback(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as `file` is borrowed; no memory is passed.
    let done =
        unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_is_written_back_and_a_pipe_is_not() {
        let path = std::env::temp_dir().join(format!("longhaul-writeback-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        begin_writeback(&file).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (reader, _writer) = io::pipe().unwrap();
        let reader = File::from(std::os::fd::OwnedFd::from(reader));
        assert_eq!(begin_writeback(&reader).unwrap_err().raw_os_error(), Some(libc::ESPIPE));
    }
}
