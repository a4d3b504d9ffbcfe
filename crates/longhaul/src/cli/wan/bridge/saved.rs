//! The original settings of the interfaces of a bridge, in a file of the runtime directory.
//!
//! The guard holds a lock on the file. A file with a free lock belongs to a killed guard.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::super::runtime;
use super::settings::{Original, restore};
use crate::output::print_message;

/// The end of the names of the files.
const ENDING: &str = ".settings";

/// The largest size of a file in bytes. 10 000 routes need less than a fifth.
const MAX_SIZE: u64 = 32 << 20;

/// A file with settings, which this process has locked.
#[derive(Debug)]
pub(super) struct SavedFile {
    path: PathBuf,
    _lock: File,
}

#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    /// The inode of the network namespace.
    namespace: u64,
    originals: Vec<Original>,
}

impl SavedFile {
    /// Writes the settings, before they change.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn write(originals: Vec<Original>) -> anyhow::Result<SavedFile> {
        let saved = Saved { namespace: namespace()?, originals };
        let path = path_of(saved.namespace, std::process::id())?;
        let partial = path.with_extension("partial");
        let write = || {
            // A killed process with the same id may have left it.
            let _ = fs::remove_file(&partial);
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
            file.lock()?;
            let text = serde_json::to_vec(&saved)?;
            // Settings that could not be restored must not change.
            if text.len() as u64 > MAX_SIZE {
                return Err(io::Error::from(io::ErrorKind::FileTooLarge));
            }
            file.write_all(&text)?;
            fs::rename(&partial, &path)?;
            io::Result::Ok(file)
        };
        let file = write().with_context(|| {
            let _ = fs::remove_file(&partial);
            format!("cannot save the settings of the interfaces in {}", path.display())
        })?;
        Ok(SavedFile { path, _lock: file })
    }

    /// Returns whether the file of the guard with this process id exists.
    pub(super) fn exists(guard: u32) -> anyhow::Result<bool> {
        let path = path_of(namespace()?, guard)?;
        path.try_exists().with_context(|| format!("cannot read {}", path.display()))
    }

    /// Removes the file of settings that are restored.
    pub(super) fn remove(self) -> anyhow::Result<()> {
        fs::remove_file(&self.path)
            .with_context(|| format!("cannot remove {}", self.path.display()))
    }

    /// Opens the file of a killed guard. Returns `None` if its guard lives, or the file no longer
    /// exists.
    fn left_over(path: &Path) -> anyhow::Result<Option<(SavedFile, Saved)>> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let found = file.metadata()?;
        // Another process may have restored the settings after the file was opened here.
        let exists = || fs::metadata(path).is_ok_and(|there| there.ino() == found.ino());
        if file.try_lock().is_err() || !exists() {
            return Ok(None);
        }
        let user = rustix::process::geteuid().as_raw();
        if !found.is_file() || found.uid() != user || found.mode() & 0o077 != 0 {
            bail!("it is not a private file of this user");
        }
        let mut text = Vec::new();
        (&file).take(MAX_SIZE).read_to_end(&mut text)?;
        let saved = serde_json::from_slice(&text)?;
        Ok(Some((SavedFile { path: path.to_owned(), _lock: file }, saved)))
    }
}

/// Restores the settings that killed guards have left in this network namespace. Prints the names
/// of the interfaces, and the settings that cannot be restored.
///
/// # Errors
/// The runtime directory cannot be read.
pub(in super::super) fn restore_left_over() -> anyhow::Result<()> {
    let directory = runtime::directory()?;
    let entries =
        fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let own = namespace()?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if !path.to_string_lossy().ends_with(ENDING) {
            continue;
        }
        match SavedFile::left_over(&path) {
            Ok(Some((_, saved)))
                // A bridge that lost its guard restores the settings at its end.
                if saved.namespace != own || saved.originals.iter().any(Original::is_in_use) => {}
            Ok(Some((file, saved))) => match restore_all(saved.originals) {
                Ok(()) => file.remove()?,
                Err(error) => print_message(format_args!(
                    "warning: {error:#}; a killed bridge had changed it, and {} has the original \
                     settings; repeat the command, or remove the file",
                    path.display()
                )),
            },
            Ok(None) => {}
            Err(error) => print_message(format_args!(
                "warning: cannot restore settings from {}: {error:#}; remove the file to end this warning",
                path.display()
            )),
        }
    }
    Ok(())
}

/// Restores the settings of the interfaces that still exist, and prints their names.
fn restore_all(mut originals: Vec<Original>) -> anyhow::Result<()> {
    originals.retain(Original::exists);
    restore(&originals)?;
    let names: BTreeSet<&str> =
        originals.iter().map(|original| original.interface.as_str()).collect();
    if !names.is_empty() {
        let names: Vec<&str> = names.into_iter().collect();
        print_message(format_args!(
            "restored the settings of {}, which a killed bridge had changed",
            names.join(" and ")
        ));
    }
    Ok(())
}

/// Returns the path of the file of the guard with this process id.
fn path_of(namespace: u64, guard: u32) -> anyhow::Result<PathBuf> {
    Ok(runtime::directory()?.join(format!("bridge-{namespace}-{guard}{ENDING}")))
}

/// Returns the inode of the network namespace.
fn namespace() -> anyhow::Result<u64> {
    let found = fs::metadata("/proc/thread-self/ns/net");
    Ok(found.context("cannot read the network namespace in /proc")?.ino())
}
