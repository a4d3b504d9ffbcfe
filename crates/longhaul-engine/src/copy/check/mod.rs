//! Compares files with the manifest that a copy has written beside them, on this host or on a server.

mod remote;

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::{io, thread};

use longhaul_core::result::{CHECK_SCHEMA, CopyFailure, Manifest, ManifestCheck, ManifestFile};
use longhaul_core::units::Bytes;

use crate::copy::digest::whole_digest;
use crate::copy::tree::{FileKind, Tree, wire_path};
use crate::error::{EngineError, Result};
use crate::lock;

pub use remote::check_far;
pub(super) use remote::{CheckOrder, serve_check};

/// Threads that read and hash one file each: BLAKE3 processes about 3 GB/s on one core.
const THREADS: usize = 4;

/// The findings so far.
#[derive(Default)]
struct Findings {
    files: u64,
    bytes: u64,
    changed: BTreeSet<PathBuf>,
    missing: BTreeSet<PathBuf>,
    failures: Vec<CopyFailure>,
}

/// Reads every file that `manifest` lists below `base` and compares its digest.
///
/// # Errors
/// `base` is not a directory, or `stop` was set.
pub fn check(manifest: &Manifest, base: &Path, stop: &AtomicBool) -> Result<ManifestCheck> {
    let tree = Tree::beneath(base).map_err(EngineError::file("open", base))?;
    check_tree(manifest, &tree, &AtomicU64::new(0), stop)
}

/// Compares the files of `tree` as [`check`] does. Adds the bytes that it reads to `checked`.
fn check_tree(
    manifest: &Manifest,
    tree: &Tree,
    checked: &AtomicU64,
    stop: &AtomicBool,
) -> Result<ManifestCheck> {
    let found = Mutex::new(Findings::default());
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS.min(manifest.files.len()) {
            scope.spawn(|| {
                while let Some(file) = manifest.files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    compare(tree, file, &found, (checked, stop));
                }
            });
        }
    });
    if stop.load(Ordering::Relaxed) {
        return Err(EngineError::Interrupted);
    }
    let mut found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let listed: HashSet<&[u8]> = manifest.files.iter().map(|file| file.path.as_slice()).collect();
    let mut extra = Vec::new();
    for covered in &manifest.covers {
        look_for_extra(
            tree,
            Path::new(OsStr::from_bytes(covered)),
            &listed,
            &mut found,
            &mut extra,
        );
    }
    extra.sort();
    extra.dedup();
    let paths = |paths: BTreeSet<PathBuf>| paths.iter().map(|path| wire_path(path)).collect();
    Ok(ManifestCheck {
        schema: CHECK_SCHEMA.to_owned(),
        unchanged_files: found.files,
        unchanged_bytes: Bytes::new(found.bytes),
        changed: paths(found.changed),
        missing: paths(found.missing),
        extra: extra.iter().map(|path| wire_path(path)).collect(),
        failures: found.failures,
    })
}

fn compare(
    tree: &Tree,
    file: &ManifestFile,
    found: &Mutex<Findings>,
    (checked, stop): (&AtomicU64, &AtomicBool),
) {
    let path = Path::new(OsStr::from_bytes(&file.path));
    let outcome = digest(tree, path, (checked, stop));
    // A file without bytes is progress, too.
    checked.fetch_add(1, Ordering::Relaxed);
    let mut found = lock(found);
    match outcome {
        Ok(Some((digest, bytes))) if digest == file.digest => {
            found.files += 1;
            found.bytes += bytes;
        }
        // A file of another type counts as changed.
        Ok(_) => {
            found.changed.insert(path.to_owned());
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            found.missing.insert(path.to_owned());
        }
        Err(error) => found.failures.push(failure(path, &format!("cannot read it: {error}"))),
    }
}

/// Returns the digest and size of a regular file; `None` for other files.
fn digest(
    tree: &Tree,
    path: &Path,
    (checked, stop): (&AtomicU64, &AtomicBool),
) -> io::Result<Option<([u8; 32], u64)>> {
    if tree.metadata(path)?.kind != FileKind::File {
        return Ok(None);
    }
    let read = |got| {
        checked.fetch_add(got, Ordering::Relaxed);
        !stop.load(Ordering::Relaxed)
    };
    whole_digest(&mut tree.open_file(path)?, read).map(Some)
}

/// Adds the paths below `dir` that are not listed; links are listed, not followed.
fn look_for_extra(
    tree: &Tree,
    dir: &Path,
    listed: &HashSet<&[u8]>,
    found: &mut Findings,
    extra: &mut Vec<PathBuf>,
) {
    let names = match tree.list(dir) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => {
            found.failures.push(failure(dir, &format!("cannot list it: {error}")));
            return;
        }
    };
    for name in names {
        let path = dir.join(name);
        match tree.lookup(&path, false) {
            Ok((_, metadata)) if metadata.kind == FileKind::Directory => {
                look_for_extra(tree, &path, listed, found, extra);
            }
            Ok((_, metadata)) => {
                let is_manifest = dir == Path::new("") && path.extension() == Some("b3".as_ref());
                let counts = metadata.kind == FileKind::File && !is_manifest;
                if counts && !listed.contains(path.as_os_str().as_bytes()) {
                    extra.push(path);
                }
            }
            Err(_) => {}
        }
    }
}

fn failure(path: &Path, reason: &str) -> CopyFailure {
    CopyFailure { path: path.display().to_string(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::copy::digest::READ_BYTES;

    #[test]
    fn missing_changed_and_extra_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("t/sub")).unwrap();
        let file = |path: &str, bytes: &[u8]| {
            fs::write(at(path), bytes).unwrap();
            let digest = *blake3::hash(bytes).as_bytes();
            ManifestFile { path: path.as_bytes().to_vec(), digest }
        };
        let files = vec![
            file("t/a", b"one"),
            file("t/sub/b", &vec![7; READ_BYTES + 1]),
            file("t/gone", b""),
            file("t/other", b"same length"),
            file("t/kind", b"x"),
        ];
        let manifest = Manifest { covers: vec![b"t".to_vec()], files };
        let stop = AtomicBool::new(false);
        let result = check(&manifest, dir.path(), &stop).unwrap();
        assert!(result.holds() && result.extra.is_empty(), "{result:?}");
        assert_eq!(result.unchanged_files, 5);

        fs::remove_file(at("t/gone")).unwrap();
        fs::write(at("t/other"), b"SAME LENGTH").unwrap();
        fs::remove_file(at("t/kind")).unwrap();
        fs::create_dir(at("t/kind")).unwrap();
        fs::write(at("t/sub/new"), "x").unwrap();
        fs::write(at("outside"), "x").unwrap();
        let result = check(&manifest, dir.path(), &stop).unwrap();
        let names = |paths: &[longhaul_core::wire::FilePath]| {
            paths.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(!result.holds());
        assert_eq!(result.unchanged_files, 2);
        assert_eq!(result.unchanged_bytes.get(), 3 + READ_BYTES as u64 + 1);
        assert_eq!(names(&result.missing), ["t/gone"]);
        assert_eq!(names(&result.changed), ["t/kind", "t/other"]);
        assert_eq!(names(&result.extra), ["t/sub/new"]);
    }
}
