//! Checks a manifest on the server that has it. The server sends the findings, not the files.
//!
//! The server reads and hashes files beneath its root that the client's key may read. It reports
//! every second, and stops when the connection of the client ends.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, bounded};
use longhaul_core::result::{CHECK_SCHEMA, CopyFailure, Manifest, ManifestCheck};
use longhaul_core::units::Bytes;
use longhaul_core::wire::copy::{CheckMessage, CopyReply, CopyRequest};
use longhaul_core::wire::{FilePath, RefusalKind};

use super::check_tree;
use crate::copy::client::REPLY_TIMEOUT;
use crate::copy::name_list::sent_path;
use crate::copy::tree::Tree;
use crate::copy::watchdog::{SILENCE_LIMIT, Watchdog};
use crate::error::{EngineError, Result, WaitsFor};
use crate::session::{ControlReceiver, ControlSender, Session};

/// The longest manifest that is read: some two million files.
const MANIFEST_LIMIT_BYTES: u64 = 256 << 20;
/// The interval of the server's progress messages, which also show whether the client still exists.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of a list's item besides its text.
const ITEM_BYTES: usize = 32;
/// The maximum number of bytes of findings that a client keeps.
const FINDINGS_BYTES: usize = 1 << 30;
/// Bytes of paths and reasons in one message: tripled by their spelling, below the frame limit.
const BATCH_BYTES: usize = 128 << 10;

/// Lets the other end of `session` compare the files in `dir` there, or beside the manifest, with what
/// `manifest` there has recorded.
///
/// # Errors
/// It refuses, has no such manifest, is lost, or made no progress for `patience`; or `stop` was set.
pub fn check_far(
    session: Session,
    manifest: &Path,
    dir: Option<&Path>,
    patience: Duration,
    stop: &AtomicBool,
) -> Result<ManifestCheck> {
    let (sender, mut receiver, _) = session.welcomed()?.split();
    let dir = dir.map(sent_path).transpose()?;
    let (manifest, give_up_ms) = (sent_path(manifest)?, Some(patience.as_millis() as u64));
    sender.send(&CopyRequest::Check { manifest, dir, give_up_ms })?;
    receiver.set_timeout(Some(REPLY_TIMEOUT))?;
    if let CopyReply::Refused { kind, reason } = receiver.receive()? {
        return Err(EngineError::Refused { peer: sender.peer().to_owned(), kind, reason });
    }
    receiver.set_timeout(Some(SILENCE_LIMIT))?;
    gather(&mut receiver, &Watchdog::new(patience), stop)
}

/// Gathers the findings of the server.
fn gather(
    receiver: &mut ControlReceiver,
    watchdog: &Watchdog,
    stop: &AtomicBool,
) -> Result<ManifestCheck> {
    let peer = receiver.peer().to_owned();
    let mut room = FINDINGS_BYTES;
    let mut result = ManifestCheck { schema: CHECK_SCHEMA.to_owned(), ..ManifestCheck::default() };
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(EngineError::Interrupted);
        }
        let message: CheckMessage = receiver.receive()?;
        match message {
            CheckMessage::Alive => watchdog.claim(),
            _ => watchdog.step(),
        }
        if let Some(time) = watchdog.stalled(0, false) {
            return Err(EngineError::Stalled { peer, waits_for: WaitsFor::Check, time });
        }
        room = room.checked_sub(bytes_of(&message)).ok_or_else(|| {
            let what = "it has found more than fits into memory";
            EngineError::Protocol { peer: peer.clone(), what }
        })?;
        match message {
            CheckMessage::Alive | CheckMessage::Progress { .. } => {}
            CheckMessage::Changed(paths) => result.changed.extend(paths),
            CheckMessage::Missing(paths) => result.missing.extend(paths),
            CheckMessage::Extra(paths) => result.extra.extend(paths),
            CheckMessage::Failures(failures) => result.failures.extend(failures),
            CheckMessage::Failed { reason } => {
                return Err(EngineError::Failed { peer, reason, again: false });
            }
            CheckMessage::Done { unchanged_files, unchanged_bytes } => {
                return Ok(ManifestCheck { unchanged_files, unchanged_bytes, ..result });
            }
        }
    }
}

/// Returns the memory of a message's findings in bytes.
fn bytes_of(message: &CheckMessage) -> usize {
    match message {
        CheckMessage::Changed(paths)
        | CheckMessage::Missing(paths)
        | CheckMessage::Extra(paths) => {
            paths.iter().map(|path| ITEM_BYTES + path.as_bytes().len()).sum()
        }
        CheckMessage::Failures(failures) => failures
            .iter()
            .map(|failure| ITEM_BYTES + failure.path.len() + failure.reason.len())
            .sum(),
        _ => 0,
    }
}

/// The request of a client for a check.
pub(in crate::copy) struct CheckOrder<'a> {
    pub(in crate::copy) manifest: &'a FilePath,
    pub(in crate::copy) dir: Option<&'a FilePath>,
    /// The client's limit of time without progress; `None` for a client without progress messages.
    pub(in crate::copy) patience: Option<Duration>,
}

/// Answers a client that asks for a check within `tree`.
pub(in crate::copy) fn serve_check(
    sender: &ControlSender,
    tree: &Tree,
    order: &CheckOrder<'_>,
    stop: &AtomicBool,
) -> Result<()> {
    let path = |path: &FilePath| Path::new(OsStr::from_bytes(path.as_bytes())).to_owned();
    let (manifest, dir) = (path(order.manifest), order.dir.map(path));
    let (recorded, base) = match open(tree, &manifest, dir.as_deref()) {
        Ok(opened) => opened,
        Err((kind, reason)) => {
            sender.send(&CopyReply::Refused { kind, reason: reason.clone() })?;
            return Err(EngineError::Refused { peer: sender.peer().to_owned(), kind, reason });
        }
    };
    sender.send(&CopyReply::Ready { asks: false, rereads: false })?;
    let (over, checked) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut shown = 0;
    thread::scope(|scope| {
        let (done, outcome) = bounded(1);
        let (over, checked) = (&over, &checked);
        scope.spawn(move || {
            // The receiver waits for it.
            let _ = done.send(check_tree(&recorded, &base, checked, over));
        });
        loop {
            match outcome.recv_timeout(ALIVE_INTERVAL) {
                Ok(Ok(result)) => return send_result(sender, result),
                Ok(Err(error)) => {
                    sender.send(&CheckMessage::Failed { reason: error.to_string() })?;
                    return Err(error);
                }
                Err(RecvTimeoutError::Disconnected) => return Err(EngineError::Interrupted),
                Err(RecvTimeoutError::Timeout) => {
                    let bytes = checked.load(Ordering::Relaxed);
                    let moved = std::mem::replace(&mut shown, bytes) != bytes;
                    let checked_bytes = Bytes::new(bytes);
                    let alive = match order.patience {
                        Some(_) if moved => sender.send(&CheckMessage::Progress { checked_bytes }),
                        _ => sender.send(&CheckMessage::Alive),
                    };
                    if alive.is_err() || stop.load(Ordering::Relaxed) {
                        over.store(true, Ordering::Relaxed);
                        alive?;
                    }
                }
            }
        }
    })
}

/// Opens the manifest and the directory of its files.
fn open(
    tree: &Tree,
    manifest: &Path,
    dir: Option<&Path>,
) -> std::result::Result<(Manifest, Tree), (RefusalKind, String)> {
    if !tree.rights().may_read() {
        return Err((RefusalKind::NotAuthorized, "the server is write-only".to_owned()));
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
        let why = format!("it is longer than {limit}; check it on its host");
        return Err(cannot("use the manifest", manifest, &why));
    }
    let recorded = Manifest::from_bytes(&text)
        .map_err(|error| cannot("use the manifest", manifest, &error))?;
    let beside = manifest.parent().filter(|above| !above.as_os_str().is_empty());
    let base = dir.or(beside).unwrap_or(Path::new("."));
    let base_dir = tree.open_dir(base).map_err(|error| cannot("open", base, &error))?;
    Ok((recorded, Tree::from_dir(base_dir)))
}

/// Sends the findings, in as many messages as they need.
fn send_result(sender: &ControlSender, found: ManifestCheck) -> Result<()> {
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
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::session::control;

    /// Lets a client gather what a server sends, until one of them ends. `next` makes the message of
    /// a number from 0; one comes every minute of virtual time, and the limit is 100 s.
    fn gather_from(next: impl Fn(u64) -> CheckMessage + Sync) -> Result<ManifestCheck> {
        let channel = || {
            let (near, far) = UnixStream::pair().unwrap();
            (control(near.try_clone().unwrap(), near, "a server"), far)
        };
        let ((_, mut receiver), far) = channel();
        let (sender, _unused) = control(far.try_clone().unwrap(), far, "a client");
        let watchdog = Watchdog::new(Duration::from_secs(100));
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0.. {
                    let taken = || watchdog.noted() > number || over.load(Ordering::Relaxed);
                    if over.load(Ordering::Relaxed) || sender.send(&next(number)).is_err() {
                        return;
                    }
                    while !taken() {
                        thread::sleep(Duration::from_millis(1));
                    }
                    watchdog.pass(Duration::from_secs(60));
                }
            });
            let result = gather(&mut receiver, &watchdog, &AtomicBool::new(false));
            over.store(true, Ordering::Relaxed);
            result
        })
    }

    #[test]
    fn a_server_that_makes_no_progress_is_not_waited_for() {
        let stalled = gather_from(|_| CheckMessage::Alive);
        let Err(EngineError::Stalled { time, .. }) = stalled else { panic!("{stalled:?}") };
        assert!(time >= Duration::from_secs(12 * 100), "signs of life are believed for a while");
    }

    #[test]
    fn a_server_that_reads_is_waited_for() {
        let result = gather_from(|minute| {
            if minute < 60 {
                CheckMessage::Progress { checked_bytes: Bytes::new(1) }
            } else {
                let unchanged_bytes = Bytes::new(5);
                CheckMessage::Done { unchanged_files: 1, unchanged_bytes }
            }
        });
        assert_eq!(result.unwrap().unchanged_files, 1);
    }

    #[test]
    fn a_server_has_no_end_of_findings() {
        let paths = vec![FilePath::new("p".repeat(4000)).unwrap(); 10];
        let each = bytes_of(&CheckMessage::Extra(paths.clone()));
        assert_eq!(each, 10 * (4000 + ITEM_BYTES));
        let failures = vec![CopyFailure { path: "p".into(), reason: "r".into() }];
        assert_eq!(bytes_of(&CheckMessage::Failures(failures)), 2 + ITEM_BYTES);
    }

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
