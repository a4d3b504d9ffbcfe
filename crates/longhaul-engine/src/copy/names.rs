//! The names that are reserved for files of longhaul beside a copy: journals, temporary files,
//! directories of a diagnosis. No peer may create, link or delete a file with such a name, and no
//! copy sends one.
//!
//! - `.longhaul-*` is a journal (`.longhaul-KEY.journal`) or the directory of a diagnosis.
//! - `.NAME.longhaul-HEX-N.part` is a file that is being received.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul_core::wire::copy::CopyKey;

/// The beginning of every name of the first kind.
const PREFIX: &[u8] = b".longhaul-";
/// The start of the name of the directory that a diagnosis copies into.
pub(crate) const DIAGNOSIS_PREFIX: &str = ".longhaul-diagnose-";
/// The number of hexadecimal digits that follow [`DIAGNOSIS_PREFIX`].
pub(crate) const DIAGNOSIS_DIGITS: usize = 12;
/// Between the name and the number of a temporary file.
const INFIX: &[u8] = b".longhaul-";
const SUFFIX: &[u8] = b".part";
/// The length of the random part of a temporary name, in hexadecimal digits.
const HEX_DIGITS: std::ops::RangeInclusive<usize> = 8..=64;

/// The reason why an entry with such a name is refused.
pub(super) const RESERVED: &str = "longhaul keeps such names for its own files";

/// Returns the name of the journal of copy `key`.
pub(super) fn journal_name(key: &CopyKey) -> String {
    format!(".longhaul-{}.journal", key.as_str())
}

/// Returns whether the last part of a path, `name`, is reserved. Some file systems do not
/// distinguish capitals from small letters, so capitals count as well.
pub(super) fn is_reserved(name: &[u8]) -> bool {
    begins_like_ours(name) || is_temporary(name)
}

/// Returns whether any part of `path` is reserved.
pub(super) fn has_reserved(path: &Path) -> bool {
    path.components().any(|part| is_reserved(part.as_os_str().as_bytes()))
}

/// Splits `path` after the directory of a diagnosis, the part `.longhaul-diagnose-HEX`; `None` if no
/// part has exactly that form, or if it is the last part.
pub(super) fn split_at_diagnosis(path: &Path) -> Option<(&Path, &Path)> {
    let directory = path
        .ancestors()
        .skip(1)
        .find(|above| above.file_name().is_some_and(|name| is_diagnosis(name.as_bytes())))?;
    Some((directory, path.strip_prefix(directory).ok()?))
}

fn is_diagnosis(name: &[u8]) -> bool {
    let Some(token) = name.strip_prefix(DIAGNOSIS_PREFIX.as_bytes()) else { return false };
    token.len() == DIAGNOSIS_DIGITS && token.iter().all(u8::is_ascii_hexdigit)
}

/// Returns whether `name` has exactly the form of a temporary file: `.NAME.longhaul-HEX-N.part`.
pub(super) fn is_temporary(name: &[u8]) -> bool {
    if !name.starts_with(b".") {
        return false;
    }
    let name = name.to_ascii_lowercase();
    let Some(inner) = name.strip_prefix(b".").and_then(|name| name.strip_suffix(SUFFIX)) else {
        return false;
    };
    let Some(at) = inner.windows(INFIX.len()).rposition(|window| window == INFIX) else {
        return false;
    };
    let mut numbers = inner[at + INFIX.len()..].split(|byte| *byte == b'-');
    let hex =
        |part: &[u8]| HEX_DIGITS.contains(&part.len()) && part.iter().all(u8::is_ascii_hexdigit);
    let number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    at > 0
        && numbers.next().is_some_and(hex)
        && numbers.next().is_some_and(number)
        && numbers.next().is_none()
}

fn begins_like_ours(name: &[u8]) -> bool {
    name.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journals_and_temporary_files_are_recognized() {
        let key = CopyKey::new(5);
        for name in [
            journal_name(&key).as_str(),
            ".longhaul-",
            ".longhaul-x",
            ".LongHaul-x.journal",
            ".longhaul-diagnose-0a",
            ".f.longhaul-00000000-0.part",
            ".F.LONGHAUL-00000000-0.PART",
            ".a.longhaul-b.longhaul-0123456789abcdef0123456789abcdef-12.part",
            "..longhaul-00000000-0.longhaul-00000000-0.part",
        ] {
            assert!(is_reserved(name.as_bytes()), "{name}");
        }
        for name in [
            "longhaul-x",
            ".longhaul",
            "x.longhaul-00000000-0.part",
            ".f.longhaul-0-0.part",
            ".f.longhaul-00000000-.part",
            ".f.longhaul-00000000-0-0.part",
            ".f.longhaul-0000000g-0.part",
            ".f.longhaul-00000000-0.parts",
            ".f.longhaul-00000000-x.part",
            ".part",
            "",
        ] {
            assert!(!is_reserved(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn every_part_of_a_path_counts() {
        assert!(has_reserved(Path::new("a/.longhaul-x/b")));
        assert!(has_reserved(Path::new("../.f.longhaul-00000000-0.part")));
        assert!(!has_reserved(Path::new("a/longhaul/.b")));
    }

    #[test]
    fn only_a_path_below_the_directory_of_a_diagnosis_is_split() {
        let split = |path| split_at_diagnosis(Path::new(path));
        let directory = Path::new("a/.longhaul-diagnose-0123456789ab");
        assert_eq!(split("a/.longhaul-diagnose-0123456789ab/1"), Some((directory, "1".as_ref())));
        for path in [
            "a/.longhaul-diagnose-0123456789ab",
            "a/.longhaul-diagnose-x/1",
            "a/.longhaul-diagnose-/1",
            "a/.Longhaul-diagnose-0123456789ab/1",
            "a/b",
        ] {
            assert_eq!(split(path), None, "{path}");
        }
    }
}
