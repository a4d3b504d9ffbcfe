//! What passes on the control channel from the source.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use longhaul_core::wire::copy::{Entry, EntryKind, SourceMessage};

use super::ledger::SinkFile;
use super::run::{Shared, broken};
use super::store::Attributes;
use crate::copy::link::keep;
use crate::error::{EngineError, Result};
use crate::lock::lock;
use crate::session::ControlReceiver;

/// Hears the source out; ends only with the channel.
pub(super) fn follow_source(
    shared: &Shared<'_>,
    control: &mut ControlReceiver,
) -> Result<std::convert::Infallible> {
    let peer = control.peer().to_owned();
    let mut announced = 0;
    loop {
        match control.receive()? {
            SourceMessage::Entries(entries) => {
                announced += entries.len() as u64;
                for entry in entries {
                    take_entry(shared, entry, &peer)?;
                }
            }
            SourceMessage::Failed { id, path, reason } => {
                keep(&mut lock(&shared.failures), path.to_string(), reason);
                if id.is_some_and(|id| shared.ledger.failed(id).is_some()) {
                    shared.ledger.failure_told();
                }
            }
            SourceMessage::Skipped { path, reason } => {
                keep(&mut lock(&shared.skipped), path.to_string(), reason);
            }
            SourceMessage::End { entries } if entries == announced => {
                shared.progress.listed.store(true, Ordering::Relaxed);
                shared.ledger.end(entries);
            }
            SourceMessage::End { .. } => {
                return Err(broken(&peer, "it announced another number of entries"));
            }
            SourceMessage::Report(report) => *lock(&shared.source) = Some(report),
            SourceMessage::Alive => {}
            SourceMessage::Abort => return Err(EngineError::Interrupted),
        }
    }
}

fn take_entry(shared: &Shared<'_>, entry: Entry, peer: &str) -> Result<()> {
    if !entry.path.is_plain_relative() {
        return Err(broken(peer, "it names a path that leads elsewhere"));
    }
    let Entry { id, path, kind, mode, mtime_seconds, mtime_ns } = entry;
    let path = shared.store.path(path.as_bytes());
    let attributes = Attributes { mode, mtime_seconds, mtime_ns };
    let EntryKind::File { size_bytes } = kind else {
        match shared.store.make_dir(&path) {
            Ok(()) => {
                shared.finisher.made_dir(&path);
                lock(&shared.dirs).push((path, attributes));
            }
            Err(error) => shared.tell_failed(Some(id), &path, "create", &error)?,
        }
        return numbered(shared.ledger.announce(id, None), peer);
    };
    let size = size_bytes.get();
    shared.progress.total_bytes.fetch_add(size, Ordering::Relaxed);
    shared.progress.total_files.fetch_add(1, Ordering::Relaxed);
    let block_bytes = shared.options.block_bytes.get();
    let file = Arc::new(SinkFile::new(id, path, size, attributes, block_bytes));
    numbered(shared.ledger.announce(id, Some(file)), peer)
}

fn numbered(good: bool, peer: &str) -> Result<()> {
    if good { Ok(()) } else { Err(broken(peer, "its entries are numbered wrongly")) }
}
