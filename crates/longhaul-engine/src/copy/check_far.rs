//! A manifest checked by the host that has it: what is sent is what was found, not the files.
//!
//! The server reads and hashes beneath its root, as far as the client's key may read there, and
//! shows every second that it lives; when the client leaves, it stops.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, bounded};
use longhaul_core::result::{CHECK_SCHEMA, CheckResult, CopyFailure, Manifest};
use longhaul_core::units::Bytes;
use longhaul_core::wire::copy::{CheckMessage, CopyReply, CopyRequest};
use longhaul_core::wire::{FilePath, RefusalKind};

use super::check::check_tree;
use super::client::{REPLY_TIMEOUT, wire_path};
use super::link::SILENCE_LIMIT;
use super::tree::Tree;
use crate::error::{EngineError, Result};
use crate::session::{ControlSender, Session};

/// The longest manifest that is read: some two million files.
const MANIFEST_LIMIT_BYTES: u64 = 256 << 20;
/// How often the server shows that it lives, and hears whether the client does.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of paths and reasons in one message: tripled by their spelling, below the frame limit.
const BATCH_BYTES: usize = 128 << 10;

/// Lets the other end of `session` compare the files in `dir` there, or beside the manifest, with what
/// `manifest` there has recorded.
///
/// # Errors
/// It refuses, has no such manifest, or is lost; or `stop` was set.
pub fn check_far(
    session: Session,
    manifest: &Path,
    dir: Option<&Path>,
    stop: &AtomicBool,
) -> Result<CheckResult> {
    let (sender, mut receiver, _) = session.welcomed()?.split();
    let dir = dir.map(wire_path).transpose()?;
    sender.send(&CopyRequest::Check { manifest: wire_path(manifest)?, dir })?;
    receiver.set_timeout(Some(REPLY_TIMEOUT))?;
    if let CopyReply::Refused { kind, reason } = receiver.receive()? {
        return Err(EngineError::Refused { peer: sender.peer().to_owned(), kind, reason });
    }
    receiver.set_timeout(Some(SILENCE_LIMIT))?;
    let mut result = CheckResult { schema: CHECK_SCHEMA.to_owned(), ..CheckResult::default() };
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(EngineError::Interrupted);
        }
        match receiver.receive()? {
            CheckMessage::Alive => {}
            CheckMessage::Changed(paths) => result.changed.extend(paths),
            CheckMessage::Missing(paths) => result.missing.extend(paths),
            CheckMessage::Extra(paths) => result.extra.extend(paths),
            CheckMessage::Failures(failures) => result.failures.extend(failures),
            CheckMessage::Failed { reason } => {
                let peer = sender.peer().to_owned();
                return Err(EngineError::Failed { peer, reason, again: false });
            }
            CheckMessage::Done { unchanged_files, unchanged_bytes } => {
                return Ok(CheckResult { unchanged_files, unchanged_bytes, ..result });
            }
        }
    }
}

/// Answers a client that asks for a check within `tree`.
pub(super) fn serve_check(
    sender: &ControlSender,
    tree: &Tree,
    manifest: &FilePath,
    dir: Option<&FilePath>,
    stop: &AtomicBool,
) -> Result<()> {
    let path = |path: &FilePath| Path::new(OsStr::from_bytes(path.as_bytes())).to_owned();
    let (manifest, dir) = (path(manifest), dir.map(path));
    let (recorded, base) = match open(tree, &manifest, dir.as_deref()) {
        Ok(opened) => opened,
        Err((kind, reason)) => {
            sender.send(&CopyReply::Refused { kind, reason: reason.clone() })?;
            return Err(EngineError::Refused { peer: sender.peer().to_owned(), kind, reason });
        }
    };
    sender.send(&CopyReply::Ready { asks: false, rereads: false })?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (done, outcome) = bounded(1);
        let over = &over;
        scope.spawn(move || {
            // Who waits for it leaves no sooner.
            let _ = done.send(check_tree(&recorded, &base, over));
        });
        loop {
            match outcome.recv_timeout(ALIVE_INTERVAL) {
                Ok(Ok(result)) => return tell(sender, result),
                Ok(Err(error)) => {
                    sender.send(&CheckMessage::Failed { reason: error.to_string() })?;
                    return Err(error);
                }
                Err(RecvTimeoutError::Disconnected) => return Err(EngineError::Interrupted),
                Err(RecvTimeoutError::Timeout) => {
                    let alive = sender.send(&CheckMessage::Alive);
                    if alive.is_err() || stop.load(Ordering::Relaxed) {
                        over.store(true, Ordering::Relaxed);
                        alive?;
                    }
                }
            }
        }
    })
}

/// The manifest and the files that it is about.
fn open(
    tree: &Tree,
    manifest: &Path,
    dir: Option<&Path>,
) -> std::result::Result<(Manifest, Tree), (RefusalKind, String)> {
    if !tree.rights().may_read() {
        return Err((RefusalKind::NotAuthorised, "the server is write-only".to_owned()));
    }
    let cannot = |what: &str, path: &Path, why: &dyn std::fmt::Display| {
        (RefusalKind::Files, format!("cannot {what} {}: {why}", path.display()))
    };
    let mut text = Vec::new();
    tree.open_file(manifest)
        .and_then(|file| file.take(MANIFEST_LIMIT_BYTES + 1).read_to_end(&mut text))
        .map_err(|error| cannot("read", manifest, &error))?;
    if text.len() as u64 > MANIFEST_LIMIT_BYTES {
        let limit = Bytes::new(MANIFEST_LIMIT_BYTES);
        let why = format!("it is longer than {limit}; check it at its host");
        return Err(cannot("use the manifest", manifest, &why));
    }
    let recorded = Manifest::from_bytes(&text)
        .map_err(|error| cannot("use the manifest", manifest, &error))?;
    let beside = manifest.parent().filter(|above| !above.as_os_str().is_empty());
    let base = dir.or(beside).unwrap_or(Path::new("."));
    let base_dir = tree.open_dir(base).map_err(|error| cannot("open", base, &error))?;
    Ok((recorded, Tree::from_dir(base_dir)))
}

/// Tells what was found, in as many messages as it takes.
fn tell(sender: &ControlSender, found: CheckResult) -> Result<()> {
    let paths = |paths, message: fn(Vec<FilePath>) -> CheckMessage| {
        batches(
            paths,
            |path: &FilePath| path.as_bytes().len(),
            |batch| sender.send(&message(batch)),
        )
    };
    paths(found.changed, CheckMessage::Changed)?;
    paths(found.missing, CheckMessage::Missing)?;
    paths(found.extra, CheckMessage::Extra)?;
    let length = |failure: &CopyFailure| failure.path.len() + failure.reason.len();
    batches(found.failures, length, |batch| sender.send(&CheckMessage::Failures(batch)))?;
    let (unchanged_files, unchanged_bytes) = (found.unchanged_files, found.unchanged_bytes);
    sender.send(&CheckMessage::Done { unchanged_files, unchanged_bytes })
}

/// Passes `all` on in batches of some [`BATCH_BYTES`].
fn batches<T>(
    all: Vec<T>,
    length: impl Fn(&T) -> usize,
    mut pass: impl FnMut(Vec<T>) -> Result<()>,
) -> Result<()> {
    /// What an item takes besides its bytes.
    const ITEM_BYTES: usize = 32;
    let (mut batch, mut bytes) = (Vec::new(), 0);
    for item in all {
        bytes += length(&item) + ITEM_BYTES;
        batch.push(item);
        if bytes >= BATCH_BYTES {
            bytes = 0;
            pass(std::mem::take(&mut batch))?;
        }
    }
    if batch.is_empty() { Ok(()) } else { pass(batch) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_go_in_several_messages() {
        let all: Vec<_> = (0..10_000).map(|number| format!("{number:070}")).collect();
        let (mut passed, mut messages) = (Vec::new(), 0);
        batches(all.clone(), String::len, |batch| {
            assert!(batch.iter().map(String::len).sum::<usize>() <= BATCH_BYTES);
            messages += 1;
            passed.extend(batch);
            Ok(())
        })
        .unwrap();
        assert_eq!(passed, all);
        assert_eq!(messages, 8);
        batches(Vec::<String>::new(), String::len, |_| panic!("nothing is no message")).unwrap();
    }
}
