use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longhaul_core::plan::CopyOptions;
use longhaul_core::units::Bytes;
use longhaul_core::wire::copy::{CopyReply, CopyRequest};
use longhaul_core::wire::{BLOCK_LIMIT, RefusalKind, WirePath};

use super::link::Link;
use super::progress::Progress;
use super::sink::{self, Destination};
use super::source::{self, SourcePlan, SourceRoot};
use super::tree::Tree;
use crate::error::{EngineError, Result};
use crate::session::ServedSession;

/// Most data connections of one copy.
pub(super) const STREAM_LIMIT: u32 = 128;
/// How long the client may take to make its request and to open its data connections.
const OPENING_TIMEOUT: Duration = Duration::from_secs(30);

/// What is decided before the reply.
enum Task {
    Receive(Destination, CopyOptions),
    Send(SourcePlan, CopyOptions),
}

/// Serves one copy within `tree`; the client is authorised already.
///
/// # Errors
/// What went wrong, which the client has been told where it could be.
pub fn serve(session: ServedSession, tree: &Tree, stop: &AtomicBool) -> Result<()> {
    let ServedSession { sender, mut receiver, streams, .. } = session;
    receiver.set_timeout(Some(OPENING_TIMEOUT))?;
    let request: CopyRequest = receiver.receive()?;
    let task = match plan(request, tree) {
        Ok(task) => task,
        Err((kind, reason)) => {
            sender.send(&CopyReply::Refused { kind, reason: reason.clone() })?;
            return Err(EngineError::Refused { peer: sender.peer().to_owned(), kind, reason });
        }
    };
    sender.send(&CopyReply::Ready)?;
    let (Task::Receive(_, options) | Task::Send(_, options)) = &task;
    let sockets = streams.accept_all(options.streams, OPENING_TIMEOUT)?;
    let link = Link { sender, receiver, sockets, secret: streams.secret().clone() };
    let progress = Progress::default();
    match task {
        Task::Receive(destination, options) => {
            sink::run(link, destination, &options, &progress, stop).map(|_| ())
        }
        Task::Send(plan, options) => {
            source::run(link, &plan, &options, &progress, stop).map(|_| ())
        }
    }
}

fn plan(request: CopyRequest, tree: &Tree) -> std::result::Result<Task, (RefusalKind, String)> {
    let path = |path: &WirePath| Path::new(OsStr::from_bytes(path.as_bytes())).to_owned();
    match request {
        CopyRequest::Receive { target, top, options } => {
            check(&options)?;
            let destination = Destination::place(tree, &path(&target), top, &options)
                .map_err(|error| (RefusalKind::Files, error.to_string()))?;
            Ok(Task::Receive(destination, options))
        }
        CopyRequest::Send { paths, options } => {
            check(&options)?;
            let roots = paths.iter().map(|root| SourceRoot::Path(path(root))).collect();
            Ok(Task::Send(SourcePlan { tree: tree.clone(), roots }, options))
        }
    }
}

fn check(options: &CopyOptions) -> std::result::Result<(), (RefusalKind, String)> {
    let invalid = |reason: String| Err((RefusalKind::Invalid, reason));
    if !(1..=STREAM_LIMIT).contains(&options.streams) {
        return invalid(format!("{} streams; 1 to {STREAM_LIMIT} are served", options.streams));
    }
    let block = options.block_bytes;
    let aligned = block.get().is_multiple_of(longhaul_sys::memory::DIRECT_ALIGN as u64);
    if block == Bytes::new(0) || block > BLOCK_LIMIT || !aligned {
        return invalid(format!("blocks of {block}; whole pages up to {BLOCK_LIMIT} are served"));
    }
    Ok(())
}
