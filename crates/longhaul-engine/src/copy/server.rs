//! The server of a copy: checks a request and runs the source or the sink.

use std::ffi::OsStr;
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_core::plan::filter::Filters;
use longhaul_core::plan::{CopyOptions, OwnerMode};
use longhaul_core::result::CopyLimit;
use longhaul_core::text::chain;
use longhaul_core::units::Bytes;
use longhaul_core::wire::copy::{ADDRESSES_LIMIT, CopyReply, CopyRequest, Introduction};
use longhaul_core::wire::{BLOCK_LIMIT, FilePath, RefusalKind};

use super::check::{CheckOrder, serve_check};
use super::name_list::receive_names;
use super::names::{RESERVED, has_reserved};
use super::progress::{CopyProgress, CopyRun};
use super::quota::QuotaUse;
use super::sink::{Destination, Sink};
use super::source::{self, SourcePlan, SourceRoot, SourceTerms};
use super::stored_bytes::stored_bytes;
use super::streams::{
    Channels, ConnectionSource, STREAM_LIMIT, Streams, first_streams, receive_bytes, socket_options,
};
use super::tree::Tree;
use super::verdict::slowest_stage;
use super::watchdog::bounded;
use crate::FUZZ_HASTE;
use crate::error::{EngineError, Result};
use crate::session::{
    Announced, ControlReceiver, ControlSender, DataAcceptor, DataDialer, KeyQuota, Operation,
    Rights, ServedSession, SessionSecret, WorkRecord,
};

/// The longest time for the client's request and its data connections.
const OPENING_TIMEOUT: Duration = Duration::from_millis(30_000 / FUZZ_HASTE);

/// The maximum number of addresses of another server that are recorded.
const ADDRESSES_NOTED: usize = 8;

/// A request that is accepted.
enum Task {
    Receive(Box<Sink>, CopyOptions),
    Send(SourcePlan, SourceTerms, CopyOptions),
    Forward(SourcePlan, SourceTerms, CopyOptions, Introduction),
}

impl Task {
    fn options(&self) -> &CopyOptions {
        match self {
            Task::Receive(_, options)
            | Task::Send(_, _, options)
            | Task::Forward(_, _, options, _) => options,
        }
    }
}

/// Answers the request of a client that may not copy at all.
///
/// # Errors
/// The refusal, or the error of sending it.
pub fn refuse(session: ServedSession, kind: RefusalKind, reason: String) -> Result<()> {
    let ServedSession { sender, mut receiver, record, .. } = session;
    receiver.set_timeout(Some(OPENING_TIMEOUT))?;
    let request: CopyRequest = receiver.receive()?;
    note_request(&request, &record);
    names_of(&request, &mut receiver)?;
    Err(refusal(&sender, kind, reason))
}

/// Refuses the request of a client, and returns the refusal, or the error of sending it.
fn refusal(sender: &ControlSender, kind: RefusalKind, reason: String) -> EngineError {
    match sender.send(&CopyReply::Refused { kind, reason: reason.clone() }) {
        Ok(()) => EngineError::Refused { peer: sender.peer().to_owned(), kind, reason },
        Err(error) => error,
    }
}

/// Serves one copy within `tree`; the client is authorized already.
///
/// # Errors
/// The error, which was reported to the client where possible.
pub fn serve(session: ServedSession, tree: &Tree, stop: &AtomicBool) -> Result<()> {
    let ServedSession { sender, mut receiver, streams, record, rate, quota, .. } = session;
    receiver.set_timeout(Some(OPENING_TIMEOUT))?;
    let request: CopyRequest = receiver.receive()?;
    note_request(&request, &record);
    if let CopyRequest::Check { manifest, dir, give_up_ms } = &request {
        let patience = give_up_ms.map(Duration::from_millis);
        let order = CheckOrder { manifest, dir: dir.as_ref(), patience };
        return record.time(|| serve_check(&sender, tree, &order, stop));
    }
    let names = names_of(&request, &mut receiver)?;
    let client_left = receiver.peer_check();
    let is_over = || stop.load(Ordering::Relaxed) || client_left();
    let planned =
        within_quota(&request, tree, quota).and_then(|tree| plan(request, names, &tree, &is_over));
    let task = match planned {
        Ok(task) => task,
        Err((kind, reason)) => return Err(refusal(&sender, kind, reason)),
    };
    let wanted_first = matches!(&task, Task::Receive(sink, _) if sink.wanted_first());
    let options = task.options();
    if options.nice {
        // For this thread and the threads that it starts. Without the privilege it has no effect.
        let _ = longhaul_sys::cpu::yield_to_others();
    }
    if matches!(task, Task::Receive(..)) {
        streams.receive_at_least(receive_bytes(options));
    }
    let first = first_streams(options);
    let further = STREAM_LIMIT - first;
    if let Err(shortage) =
        streams.announce(Announced { streams: first, further, ..Announced::default() })
    {
        return Err(refusal(&sender, RefusalKind::Limit, shortage.to_string()));
    }
    let dialed = match &task {
        Task::Forward(_, _, options, to) if !to.addresses.is_empty() => match dial(to, options) {
            Ok(dialed) => Some(dialed),
            Err(error) => {
                let reason = format!("cannot reach the target: {}", chain(&error));
                return Err(refusal(&sender, RefusalKind::Unreachable, reason));
            }
        },
        _ => None,
    };
    sender.send(&CopyReply::Ready { asks: wanted_first, rereads: true })?;
    let streams = data_connections(&task, dialed, streams)?;
    let link = Channels { sender, receiver, streams: streams.with_shared_rate(rate) };
    let progress = CopyProgress::default();
    progress.set_limit(options.rate_bps);
    let copied = record.time(|| carry(task, link, &progress, stop));
    note_copy(&record, &progress, copied.as_ref().ok());
    copied.map(drop)
}

/// Records the bytes and files of a copy, and its outcome if it has ended with one.
fn note_copy(record: &WorkRecord, progress: &CopyProgress, copied: Option<&Copied>) {
    record.note(|work| {
        work.bytes = progress.moved();
        work.resumed = progress.resumed();
        work.files = Some(progress.files());
        if let Some(copied) = copied {
            work.failures = copied.failures as u64;
            work.limit = copied.limit;
        }
    });
}

/// Returns the data connections of a task: those that were `dialed` to another server, or the client's.
fn data_connections(
    task: &Task,
    dialed: Option<(Vec<TcpStream>, DataDialer)>,
    acceptor: DataAcceptor,
) -> Result<Streams> {
    let options = task.options();
    let before_connect = socket_options(options);
    if let Some((first, dialer)) = dialed {
        return Ok(Streams::new(first, ConnectionSource::Dial(dialer), before_connect));
    }
    let first = acceptor.accept_all(first_streams(options), OPENING_TIMEOUT)?;
    let streams = Streams::new(first, ConnectionSource::Accept(acceptor), before_connect);
    Ok(match task {
        // The client passes on data that is sealed for the sink.
        Task::Forward(_, _, _, to) => {
            streams.of_session(SessionSecret::from_keying_material(to.keying()))
        }
        _ => streams,
    })
}

/// The outcome of a copy, for the audit log.
struct Copied {
    failures: usize,
    limit: Option<CopyLimit>,
}

fn carry(task: Task, link: Channels, progress: &CopyProgress, stop: &AtomicBool) -> Result<Copied> {
    match task {
        Task::Receive(sink, options) => {
            let done = sink.run(link, CopyRun { options: &options, progress, stop })?;
            let source = done.source.map(|source| source.stages).unwrap_or_default();
            let limit = slowest_stage(&source, &done.report.stages);
            Ok(Copied { failures: done.reports.failures.len(), limit })
        }
        Task::Send(plan, terms, options) | Task::Forward(plan, terms, options, _) => {
            let done =
                source::run(link, &plan, terms, CopyRun { options: &options, progress, stop })?;
            let limit = slowest_stage(&done.source.stages, &done.sink.stages);
            Ok(Copied { failures: done.reports.failures.len(), limit })
        }
    }
}

/// Records the operation and its paths as the client wrote them.
fn note_request(request: &CopyRequest, record: &WorkRecord) {
    let path = |path| Path::new(OsStr::from_bytes(FilePath::as_bytes(path)));
    match request {
        CopyRequest::Receive { target, .. } => record.note_request(Operation::Put, [path(target)]),
        CopyRequest::Send { paths, .. } => {
            record.note_request(Operation::Get, paths.iter().map(path));
        }
        CopyRequest::Forward { paths, to, .. } => {
            record.note_request(Operation::Forward, paths.iter().map(path));
            let first = to.addresses.iter().take(ADDRESSES_NOTED).map(ToString::to_string);
            record.with_other(first.collect::<Vec<_>>().join(","));
        }
        CopyRequest::Check { manifest, dir, .. } => {
            record.note_request(Operation::Check, [manifest].into_iter().chain(dir).map(path));
        }
    }
}

/// Receives the names that follow a request with a list.
fn names_of(request: &CopyRequest, receiver: &mut ControlReceiver) -> Result<Option<Vec<PathBuf>>> {
    match request {
        CopyRequest::Send { listed: true, .. } | CopyRequest::Forward { listed: true, .. } => {
            receive_names(receiver).map(Some)
        }
        _ => Ok(None),
    }
}

/// Returns the roots of a request's paths and names.
fn roots(
    paths: &[FilePath],
    names: Option<Vec<PathBuf>>,
) -> std::result::Result<Vec<SourceRoot>, (RefusalKind, String)> {
    let path = |path: &FilePath| Path::new(OsStr::from_bytes(path.as_bytes())).to_owned();
    match (paths, names) {
        (paths, None) => Ok(paths.iter().map(|root| SourceRoot::Path(path(root))).collect()),
        ([base], Some(names)) => {
            Ok(vec![SourceRoot::Listed { base: path(base), names: Arc::new(names) }])
        }
        (_, Some(_)) => Err((RefusalKind::Invalid, "a list is of one directory".to_owned())),
    }
}

/// Limits an upload into the files by `quota`.
fn within_quota(
    request: &CopyRequest,
    tree: &Tree,
    quota: Option<KeyQuota>,
) -> std::result::Result<Tree, (RefusalKind, String)> {
    let Some(quota) = quota.filter(|_| matches!(request, CopyRequest::Receive { .. })) else {
        return Ok(tree.clone());
    };
    let root = tree.clone();
    let count = Box::new(move || stored_bytes(&root));
    let begun = QuotaUse::begin(quota, count).map_err(|error| {
        let reason = format!("cannot count the files of this key's quota: {error}");
        (RefusalKind::Files, reason)
    })?;
    Ok(tree.clone().with_quota(Some(begun)))
}

fn plan(
    request: CopyRequest,
    names: Option<Vec<PathBuf>>,
    tree: &Tree,
    is_over: &dyn Fn() -> bool,
) -> std::result::Result<Task, (RefusalKind, String)> {
    let path = |path: &FilePath| Path::new(OsStr::from_bytes(path.as_bytes())).to_owned();
    match request {
        CopyRequest::Receive { key, target, top, options } => {
            let options = bounded(options);
            check(&options)?;
            check_write(tree.rights(), &options)?;
            let destination = Destination::place(tree, &path(&target), top, &key, &options)
                .map_err(|error| (RefusalKind::Files, error.to_string()))?;
            let sink = Sink::open(destination, &key, &options, is_over)
                .map_err(|busy| (RefusalKind::Files, busy.to_string()))?;
            Ok(Task::Receive(Box::new(sink), options))
        }
        CopyRequest::Send { paths, asks: wanted_first, key, options, .. } => {
            let options = bounded(options);
            check(&options)?;
            check_read(tree.rights())?;
            let roots = roots(&paths, names)?;
            let plan = SourcePlan { tree: tree.clone(), roots };
            Ok(Task::Send(plan, SourceTerms { wanted_first, key }, options))
        }
        CopyRequest::Forward { paths, asks: wanted_first, key, options, to, .. } => {
            let options = bounded(options);
            check(&options)?;
            check_read(tree.rights())?;
            if !tree.may_go_elsewhere() {
                let reason = "third-party copies are disabled".to_owned();
                return Err((RefusalKind::NotAuthorized, reason));
            }
            if to.addresses.len() > ADDRESSES_LIMIT {
                return Err((RefusalKind::Invalid, "too many addresses".to_owned()));
            }
            let roots = roots(&paths, names)?;
            let plan = SourcePlan { tree: tree.clone(), roots };
            Ok(Task::Forward(plan, SourceTerms { wanted_first, key }, options, to))
        }
        // Answered before.
        CopyRequest::Check { .. } => Err((RefusalKind::Invalid, "not a copy".to_owned())),
    }
}

/// Opens the data connections of a session whose secret the client has passed on.
fn dial(to: &Introduction, options: &CopyOptions) -> Result<(Vec<TcpStream>, DataDialer)> {
    let dialer = DataDialer::introduced(to);
    let before_connect = socket_options(options);
    let prepare = |socket: &_| before_connect.apply(socket).map_err(std::io::Error::other);
    let first = (0..first_streams(options)).map(|stream| dialer.open(stream, prepare));
    Ok((first.collect::<Result<_>>()?, dialer))
}

fn check_read(rights: Rights) -> std::result::Result<(), (RefusalKind, String)> {
    if rights.may_read() {
        Ok(())
    } else {
        Err((RefusalKind::NotAuthorized, "the server is write-only".to_owned()))
    }
}

fn check_write(
    rights: Rights,
    options: &CopyOptions,
) -> std::result::Result<(), (RefusalKind, String)> {
    let refuse = |reason: &str| Err((RefusalKind::NotAuthorized, reason.to_owned()));
    let tree = &options.tree;
    if !rights.may_create() {
        return refuse("the server is read-only");
    }
    if rights.may_replace() {
        return Ok(());
    }
    // Each of these would reveal or change existing files, or create files that deceive the owner
    // of the drop box.
    if tree.asks_first() || tree.delete.is_some() {
        return refuse("the server accepts only new files: no updates, no deletion and no dry run");
    }
    if tree.owner != OwnerMode::Ignore || tree.xattrs || tree.manifest.is_some() {
        return refuse(
            "the server keeps only modes and times: no owners, no attributes and no \
            manifest",
        );
    }
    Ok(())
}

/// Checks the options of a peer.
///
/// # Errors
/// The reason for the refusal.
pub(crate) fn check(options: &CopyOptions) -> std::result::Result<(), (RefusalKind, String)> {
    let invalid = |reason: String| Err((RefusalKind::Invalid, reason));
    if let Err(error) = Filters::check(&options.tree.filters) {
        return invalid(error.to_string());
    }
    let manifest = options.tree.manifest.as_ref();
    if manifest.is_some_and(|name| !name.as_bytes().is_empty() && !name.is_plain_relative()) {
        return invalid("a manifest with a path outside the target".to_owned());
    }
    if manifest.is_some_and(|name| has_reserved(Path::new(OsStr::from_bytes(name.as_bytes())))) {
        return invalid(format!("a manifest of this name: {RESERVED}"));
    }
    let streams = first_streams(options);
    if !(1..=STREAM_LIMIT).contains(&streams) {
        return invalid(format!("{streams} streams; the server accepts 1 to {STREAM_LIMIT}"));
    }
    let block = options.block_bytes;
    let aligned = block.get().is_multiple_of(longhaul_sys::memory::DIRECT_ALIGN as u64);
    if block == Bytes::new(0) || block > BLOCK_LIMIT || !aligned {
        return invalid(format!(
            "blocks of {block}; the server accepts whole pages up to \
            {BLOCK_LIMIT}"
        ));
    }
    Ok(())
}
