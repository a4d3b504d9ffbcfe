//! The BLAKE3 digest of a whole file, read in order.

use std::fs::File;
use std::io::{self, Read};

/// The bytes of one read.
pub(super) const READ_BYTES: usize = 1 << 20;

/// Returns the digest of `file` and its size. `read` gets the number of bytes of each read, and
/// returns false to stop.
///
/// # Errors
/// The file cannot be read, or `read` returned false (`Interrupted`).
pub(super) fn whole_digest(
    file: &mut File,
    mut read: impl FnMut(u64) -> bool,
) -> io::Result<([u8; 32], u64)> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((*hasher.finalize().as_bytes(), hasher.count())),
            got if !read(got as u64) => return Err(io::ErrorKind::Interrupted.into()),
            got => hasher.update(&buffer[..got]),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_digest_covers_all_bytes_and_can_be_stopped() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes = vec![7; READ_BYTES + 9];
        file.write_all(&bytes).unwrap();
        let rewound = || {
            let mut file = file.try_clone().unwrap();
            io::Seek::rewind(&mut file).unwrap();
            file
        };
        let mut count = 0;
        let found = whole_digest(&mut rewound(), |got| {
            count += got;
            true
        });
        let expected = (*blake3::hash(&bytes).as_bytes(), bytes.len() as u64);
        assert_eq!((found.unwrap(), count), (expected, bytes.len() as u64));
        let stopped = whole_digest(&mut rewound(), |_| false).unwrap_err();
        assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
    }
}
