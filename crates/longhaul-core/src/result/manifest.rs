//! Manifests, and the result of comparing files with one.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::CopyFailure;
use crate::units::Bytes;
use crate::wire::FilePath;

/// The first line of a manifest, which identifies it.
const HEADER: &str = "# longhaul manifest 1: BLAKE3";
const COVERS: &str = "# covers ";
const DIGEST_BYTES: usize = 32;

/// The digests of a copy's files, as a text file beside the files.
///
/// Each file is a line in the format of `b3sum`, in the order of paths. Lines that begin with `#`
/// are specific to longhaul. `docs/design/results.md` describes the format.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Manifest {
    /// The directories that contain only listed files, relative to the manifest's directory; an
    /// empty path means the manifest's directory itself.
    pub covers: Vec<Vec<u8>>,
    /// The files.
    pub files: Vec<ManifestFile>,
}

/// One file of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ManifestFile {
    /// The path relative to the manifest's directory.
    pub path: Vec<u8>,
    /// The BLAKE3 digest.
    pub digest: [u8; DIGEST_BYTES],
}

/// The reason why a text is not a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The first line does not identify a manifest of this version.
    #[error("it does not begin with '{HEADER}'")]
    Header,
    /// A line is invalid.
    #[error("line {0} is not a BLAKE3 digest, two spaces and a relative path")]
    Line(usize),
}

impl Manifest {
    /// Returns the text.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = format!("{HEADER}\n").into_bytes();
        for covered in &self.covers {
            text.extend_from_slice(COVERS.as_bytes());
            text.extend(escaped(covered).1);
            text.extend_from_slice(b"/\n");
        }
        for ManifestFile { path, digest } in &self.files {
            let (is_escaped, path) = escaped(path);
            let line = if is_escaped { "\\" } else { "" };
            text.extend_from_slice(format!("{line}{}  ", hex(digest)).as_bytes());
            text.extend(path);
            text.push(b'\n');
        }
        text
    }

    /// Parses the text.
    ///
    /// # Errors
    /// The text is not a manifest of this version, or is damaged.
    pub fn from_bytes(text: &[u8]) -> Result<Self, ManifestError> {
        let mut lines = text.split(|byte| *byte == b'\n').zip(1..);
        if lines.next().is_none_or(|(line, _)| line != HEADER.as_bytes()) {
            return Err(ManifestError::Header);
        }
        let mut manifest = Manifest::default();
        for (line, number) in lines.filter(|(line, _)| !line.is_empty()) {
            let bad = || ManifestError::Line(number);
            if let Some(covered) = line.strip_prefix(COVERS.as_bytes()) {
                let covered = covered.strip_suffix(b"/").and_then(unescaped).ok_or_else(bad)?;
                if !covered.is_empty() && !is_plain(&covered) {
                    return Err(bad());
                }
                manifest.covers.push(covered);
            } else if line[0] != b'#' {
                manifest.files.push(file(line).ok_or_else(bad)?);
            }
        }
        Ok(manifest)
    }
}

fn file(line: &[u8]) -> Option<ManifestFile> {
    let (is_escaped, line) = match line {
        [b'\\', rest @ ..] => (true, rest),
        line => (false, line),
    };
    let (hex, rest) = line.split_at_checked(2 * DIGEST_BYTES)?;
    let path = rest.strip_prefix(b"  ")?;
    let path = if is_escaped { unescaped(path)? } else { path.to_vec() };
    let digest = digest_from_hex(std::str::from_utf8(hex).ok()?)?;
    is_plain(&path).then_some(ManifestFile { path, digest })
}

/// Returns whether a path stays within the manifest's directory.
fn is_plain(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').all(|part| !matches!(part, b"" | b"." | b".."))
}

/// Formats a digest in lower-case hexadecimal digits.
pub fn hex(digest: &[u8; DIGEST_BYTES]) -> String {
    digest.iter().fold(String::with_capacity(2 * DIGEST_BYTES), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Parses the output of [`hex`].
pub fn digest_from_hex(text: &str) -> Option<[u8; DIGEST_BYTES]> {
    let mut digest = [0; DIGEST_BYTES];
    if text.len() != 2 * DIGEST_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(digest)
}

/// Returns a path with `\\`, `\n` and `\r` for the bytes that would break a line, in the format of
/// sha256sum(1) and b3sum, and whether it was changed.
fn escaped(path: &[u8]) -> (bool, Vec<u8>) {
    let mut text = Vec::with_capacity(path.len());
    for byte in path {
        match byte {
            b'\\' => text.extend_from_slice(b"\\\\"),
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\r' => text.extend_from_slice(b"\\r"),
            byte => text.push(*byte),
        }
    }
    (text.len() != path.len(), text)
}

fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut path = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        path.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                _ => return None,
            },
            byte => *byte,
        });
    }
    Some(path)
}

/// The schema of [`ManifestCheck`] in JSON.
pub const CHECK_SCHEMA: &str = "longhaul.check/1";

/// The comparison of files with a manifest; `docs/design/results.md` describes every field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ManifestCheck {
    /// [`CHECK_SCHEMA`].
    pub schema: String,
    /// The number of files that match the manifest.
    pub unchanged_files: u64,
    /// The bytes in these files.
    pub unchanged_bytes: Bytes,
    /// The recorded files with different contents.
    pub changed: Vec<FilePath>,
    /// The recorded files that are missing.
    pub missing: Vec<FilePath>,
    /// The files in the manifest's directories that it does not list.
    pub extra: Vec<FilePath>,
    /// The files that could not be read.
    pub failures: Vec<CopyFailure>,
}

impl ManifestCheck {
    /// Returns whether every recorded file matches.
    pub fn holds(&self) -> bool {
        self.changed.is_empty() && self.missing.is_empty() && self.failures.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            covers: vec![b"run17".to_vec(), Vec::new()],
            files: vec![
                ManifestFile { path: b"run17/a b".to_vec(), digest: [0xab; 32] },
                ManifestFile { path: b"odd\\na\nme\xff".to_vec(), digest: [1; 32] },
            ],
        }
    }

    #[test]
    fn a_manifest_is_read_as_written() {
        let text = manifest().to_bytes();
        assert_eq!(Manifest::from_bytes(&text), Ok(manifest()));
        assert!(text.starts_with(b"# longhaul manifest 1: BLAKE3\n# covers run17/\n# covers /\n"));
    }

    #[test]
    fn a_manifest_of_the_first_version_reads() {
        let text = include_bytes!("../../tests/fixtures/manifest-1.b3");
        let manifest = Manifest::from_bytes(text).unwrap();
        assert_eq!(manifest.covers, [b"run17"]);
        let paths: Vec<_> = manifest.files.iter().map(|file| file.path.as_slice()).collect();
        assert_eq!(paths, [&b"run17/a"[..], b"run17/with\nline"]);
        // The BLAKE3 digest of "abc" as published by its authors.
        let abc = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";
        assert_eq!(hex(&manifest.files[0].digest), abc);
    }

    #[test]
    fn a_malformed_manifest_is_refused() {
        assert_eq!(Manifest::from_bytes(b""), Err(ManifestError::Header));
        assert_eq!(Manifest::from_bytes(b"GIF89a"), Err(ManifestError::Header));
        let digest = "ab".repeat(32);
        for line in [
            "short  x".to_owned(),
            format!("{digest} x"),
            format!("{digest}  ../x"),
            format!("{digest}  /etc/x"),
            format!("{digest}  "),
            format!("\\{digest}  a\\x"),
            format!("{}  x", "\u{e9}".repeat(32)),
            "# covers ../".to_owned(),
        ] {
            let text = format!("{HEADER}\n{line}\n");
            assert_eq!(
                Manifest::from_bytes(text.as_bytes()),
                Err(ManifestError::Line(2)),
                "{line}"
            );
        }
    }
}
