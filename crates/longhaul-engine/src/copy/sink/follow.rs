//! What passes on the control channel from the source.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::Sender;
use longhaul_core::wire::copy::{Entry, EntryKind, Held, SinkMessage, SourceMessage};

use super::finish::{Form, Whole};
use super::ledger::{SinkFile, Stage};
use super::recorder::Left;
use super::run::{Shared, broken};
use super::store::Attributes;
use crate::copy::blocks::BlockSet;
use crate::copy::link::keep;
use crate::error::{EngineError, Result};
use crate::lock::lock;
use crate::session::ControlReceiver;

/// Spans in one [`SinkMessage::Wanted`]: some 25 bytes each keep it below the frame limit.
const HELD_SPANS: usize = 16 << 10;

/// Hears the source out; ends only with the channel.
pub(super) fn follow_source(
    shared: &Shared<'_>,
    control: &mut ControlReceiver,
    whole: &Sender<Vec<Whole>>,
) -> Result<std::convert::Infallible> {
    let peer = control.peer().to_owned();
    let mut announced = 0;
    loop {
        match control.receive()? {
            SourceMessage::Entries(entries) => {
                announced += entries.len() as u64;
                take_entries(shared, entries, whole, &peer)?;
            }
            SourceMessage::Failed { id, path, reason } => {
                keep(&mut lock(&shared.failures), path.to_string(), reason);
                if let Some(file) = id.and_then(|id| shared.ledger.failed(id)) {
                    shared.recorder.dropped(&file);
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
            SourceMessage::Streams { wanted } => shared.streams_wanted(wanted),
            SourceMessage::Report(report) => *lock(&shared.source) = Some(report),
            SourceMessage::Alive => {}
            SourceMessage::Abort { again: false } => return Err(EngineError::Interrupted),
            SourceMessage::Abort { again: true } => {
                let reason = "it lost a connection".to_owned();
                return Err(EngineError::Failed { peer, reason, again: true });
            }
        }
    }
}

/// Takes a batch, and tells a source that asks which of it is wanted.
fn take_entries(
    shared: &Shared<'_>,
    entries: Vec<Entry>,
    whole: &Sender<Vec<Whole>>,
    peer: &str,
) -> Result<()> {
    let mut held = Vec::new();
    let mut spans = 0;
    let mut next = 0;
    let wanted = |before, held: &mut Vec<Held>| {
        let held = std::mem::take(held);
        shared.control.send(&SinkMessage::Wanted { before, held })
    };
    for entry in entries {
        next = entry.id + 1;
        if let Some(file) = take_entry(shared, entry, whole, peer)? {
            spans += file.blocks.as_ref().map_or(0, Vec::len);
            held.push(file);
        }
        if spans > HELD_SPANS && shared.asks {
            wanted(next, &mut held)?;
            spans = 0;
        }
    }
    if shared.asks { wanted(next, &mut held) } else { Ok(()) }
}

/// Takes an entry, and returns what there is of it already.
fn take_entry(
    shared: &Shared<'_>,
    entry: Entry,
    whole: &Sender<Vec<Whole>>,
    peer: &str,
) -> Result<Option<Held>> {
    if !entry.path.is_plain_relative() {
        return Err(broken(peer, "it names a path that leads elsewhere"));
    }
    let path = shared.store.path(entry.path.as_bytes());
    let Entry { id, mode, mtime_seconds, mtime_ns, .. } = entry;
    let attributes = Attributes { mode, mtime_seconds, mtime_ns };
    let EntryKind::File { size_bytes } = entry.kind else {
        match shared.store.make_dir(&path) {
            Ok(()) => {
                shared.finisher.made_dir(&path);
                lock(&shared.dirs).push((path, attributes));
            }
            Err(error) => shared.tell_failed(Some(id), &path, "create", &error)?,
        }
        numbered(shared.ledger.announce(id, None), peer)?;
        return Ok(None);
    };
    let size = size_bytes.get();
    shared.progress.total_bytes.fetch_add(size, Ordering::Relaxed);
    shared.progress.total_files.fetch_add(1, Ordering::Relaxed);
    let block_bytes = shared.options.block_bytes.get();
    let mut file = SinkFile::new(&entry, path, size, attributes, block_bytes);
    let blocks = file.lock().blocks();
    let holes = BlockSet::from_spans(entry.holes.as_deref().unwrap_or_default(), blocks)
        .ok_or_else(|| broken(peer, "it announced a hole that is not in the file"))?;
    let left = match shared.asks {
        true => shared.recorder.left(shared.store, &file, blocks),
        false => Left::Nothing,
    };
    let held = |blocks| Some(Held { id, blocks });
    match left {
        Left::Placed => {
            file.resumed = size;
            let file = Arc::new(file);
            numbered(shared.ledger.announce(id, Some(file.clone())), peer)?;
            shared.ledger.add_resumed(size);
            shared.ledger.done(&file);
            Ok(held(None))
        }
        Left::Partial(partial, mut there) => {
            let resumed = (there.count() * block_bytes).min(size);
            file.resumed = resumed;
            for (first, count) in holes.spans() {
                there.insert(first, first + count);
            }
            let (spans, partial) = (there.spans(), Arc::new(partial));
            {
                let mut state = file.lock();
                state.written = there;
                state.partial = Stage::Open(Some(partial.clone()));
            }
            let file = Arc::new(file);
            shared.ledger.add_resumed(resumed);
            shared.recorder.begun(&file, &partial, true);
            announce(shared, file, whole, peer)?;
            Ok(held(Some(spans)))
        }
        Left::Nothing => {
            file.lock().written = holes;
            announce(shared, Arc::new(file), whole, peer)?;
            Ok(None)
        }
    }
}

/// Announces a file, and passes it on at once if no block of it is to come.
fn announce(
    shared: &Shared<'_>,
    file: Arc<SinkFile>,
    whole: &Sender<Vec<Whole>>,
    peer: &str,
) -> Result<()> {
    numbered(shared.ledger.announce(file.id, Some(file.clone())), peer)?;
    let form = {
        let mut state = file.lock();
        // A file of no blocks comes in a pack.
        if state.blocks() == 0 || !state.is_whole() {
            return Ok(());
        }
        match std::mem::replace(&mut state.partial, Stage::Gone) {
            Stage::Open(partial) => Ok(partial),
            _ => shared
                .store
                .create(file.id, &file.path, file.size, file.sparse)
                .map(|partial| partial.map(Arc::new)),
        }
    };
    match form {
        Ok(partial) => {
            let form = partial.map_or(Form::Dropped, Form::Open);
            // The finisher leaves only when the copy is over.
            let _ = whole.send(vec![Whole { file, form }]);
        }
        Err(error) => shared.fail(&file, "create", &error),
    }
    Ok(())
}

fn numbered(good: bool, peer: &str) -> Result<()> {
    if good { Ok(()) } else { Err(broken(peer, "its entries are numbered wrongly")) }
}
