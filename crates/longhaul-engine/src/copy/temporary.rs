//! Temporary files: their names, `.NAME.longhaul-TOKEN-ENTRY.part`, and the mark that one is in use.
//!
//! TOKEN has eight hexadecimal digits and ENTRY is a decimal number. NAME is the final name, cut
//! after 200 bytes.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;

/// Bytes of a final name that are kept: NAME_MAX is 255, and the other parts of a temporary name
/// need the rest.
const KEPT_BYTES: usize = 200;
const MARK: &[u8] = b".longhaul-";
const END: &[u8] = b".part";
const TOKEN_DIGITS: usize = 8;

/// Returns the temporary name of entry `entry`, whose final name is `name`.
pub(super) fn temporary_name(name: &OsStr, token: u32, entry: u64) -> OsString {
    let suffix = format!("-{entry}");
    let token = format!("{token:08x}");
    OsString::from_vec(
        [b".", kept(name.as_bytes()), MARK, token.as_bytes(), suffix.as_bytes(), END].concat(),
    )
}

/// Returns whether `temporary` has the exact form of a temporary name of `name`.
pub(super) fn is_temporary_of(name: &[u8], temporary: &[u8]) -> bool {
    let middle = || {
        let rest = temporary.strip_prefix(b".")?.strip_prefix(kept(name))?;
        rest.strip_prefix(MARK)?.strip_suffix(END)
    };
    middle().is_some_and(|middle| {
        let Some((token, entry)) = middle.split_at_checked(TOKEN_DIGITS) else { return false };
        let hexadecimal = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let Some(entry) = entry.strip_prefix(b"-") else { return false };
        let number = (1..=20).contains(&entry.len()) && entry.iter().all(u8::is_ascii_digit);
        token.iter().all(hexadecimal) && number
    })
}

/// Returns whether `temporary` is a temporary name of any file, with `token`.
pub(super) fn has_token(temporary: &[u8], token: u32) -> bool {
    let mark = [MARK, format!("{token:08x}-").as_bytes()].concat();
    let at = temporary.windows(mark.len()).rposition(|window| window == mark);
    at.is_some_and(|at| at > 1 && is_temporary_of(&temporary[1..at], temporary))
}

/// Marks an open temporary file as in use until it is closed or [released](release); false if
/// another session uses it. A file system without locks has no such marks.
pub(super) fn hold(file: impl AsFd) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK)
}

/// Ends the use of a temporary file that [`hold`] has marked.
pub(super) fn release(file: impl AsFd) {
    // A file system without locks has nothing to release.
    let _ = flock(file, FlockOperation::Unlock);
}

/// Returns whether a session, in any process, uses the temporary file `name` in `dir`.
pub(super) fn is_held(dir: impl AsFd, name: &OsStr) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::empty()).is_ok_and(|file| !hold(file))
}

fn kept(name: &[u8]) -> &[u8] {
    &name[..name.len().min(KEPT_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_form_is_a_temporary_name() {
        let long = [b'x'; 255];
        for name in [&b"a"[..], b"a.longhaul-00000000-1.part", &long, &[0xff, b'-']] {
            let temporary = temporary_name(OsStr::from_bytes(name), 0xab12, u64::MAX);
            assert!(temporary.len() <= 255);
            assert!(is_temporary_of(name, temporary.as_bytes()), "{temporary:?}");
            assert!(!is_temporary_of(b"other", temporary.as_bytes()), "{temporary:?}");
            assert!(has_token(temporary.as_bytes(), 0xab12), "{temporary:?}");
            assert!(!has_token(temporary.as_bytes(), 0xab13), "{temporary:?}");
        }
        for other in [
            &b"a"[..],
            b"precious.part",
            b".a.longhaul-0000000g-1.part",
            b".a.longhaul-00000000-.part",
            b".a.longhaul-00000000-1x.part",
            b".a.longhaul-00000000-1/../x.part",
            b".a.longhaul-00000000.part",
            b".a.longhaul-000000000-1.part",
            b".longhaul-00000000-1.part",
        ] {
            assert!(!is_temporary_of(b"a", other), "{other:?}");
            assert!(!has_token(other, 0), "{other:?}");
        }
    }
}
