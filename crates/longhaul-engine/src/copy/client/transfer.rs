//! Copies between this host and a server: one of the two is the source, the other the sink.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use longhaul_core::plan::CopyOptions;
use longhaul_core::result::{CopyResult, EndReport};
use longhaul_core::wire::RefusalKind;
use longhaul_core::wire::copy::{CopyReply, CopyRequest};
use longhaul_sys::tcp::{connect_with_data, grow_receive_buffer};
use socket2::Socket;

use super::key::KeyMaker;
use super::memory::RateMemory;
use super::retry::{Reconnect, persist};
use super::summary::{CopySessions, result};
use super::{REPLY_TIMEOUT, RemoteFiles, check_rereads};
use crate::copy::name_list::{send_names, sent_path};
use crate::copy::past_rates::Direction;
use crate::copy::progress::CopyRun;
use crate::copy::requested::Requested;
use crate::copy::sink::{Destination, Outlet, Sink};
use crate::copy::source::{self, SourcePlan, SourceTerms};
use crate::copy::streams::{
    Channels, ConnectionSource, STREAM_LIMIT, Streams, first_streams, receive_bytes, socket_options,
};
use crate::copy::tree::Tree;
use crate::copy::verdict::TransferReports;
use crate::error::{EngineError, Result};
use crate::session::{LONG_PATH, Session, await_welcome};

/// Sends `plan` to `target` at the server of `line`.
///
/// # Errors
/// The copy failed. Single files that failed are in the result.
pub fn push(
    line: Reconnect<'_>,
    plan: &SourcePlan,
    target: &Path,
    run: CopyRun<'_>,
) -> Result<CopyResult> {
    let CopyRun { options, progress, .. } = run;
    let mut sessions = CopySessions::begin(options, progress);
    let (secret, memory) = (line.secret, RateMemory::new(line.past, Direction::To));
    let wired = sent_path(target)?;
    let outcome = persist(line, run, |session| {
        let options = &memory.options(options, &session);
        let run = CopyRun { options, ..run };
        let key = KeyMaker::new(secret, "push").server(session.peer()).plan(plan).to(target);
        let (copy, target) = (key.clone(), wired.clone());
        let top = plan.top();
        let options_sent = options.clone();
        let request = CopyRequest::Receive { key: copy, target, top, options: options_sent };
        let opened = open(session, &request, None, options);
        let (link, wanted_first) = opened.map_err(|error| memory.refused(error, options))?;
        sessions.note_host(&link);
        let terms = SourceTerms { wanted_first, key: Some(key) };
        source::run(link, plan, terms, run).inspect_err(|_| sessions.lost(progress))
    })?;
    let mut summary = sessions.summarize(
        options,
        &outcome.sink,
        !outcome.reports.failures.is_empty(),
        &outcome.tcp,
    );
    summary.retransmits = Some(outcome.source.retransmits);
    summary.streams = outcome.source.path.streams;
    let path = outcome.source.path;
    memory.note(&path, options, progress.moved());
    let source = EndReport { end: outcome.source.end, stages: outcome.source.stages };
    let sink = EndReport { end: outcome.sink.end, stages: outcome.sink.stages };
    let reports = outcome.reports.with_not_kept(outcome.sink.not_kept);
    let transfer = TransferReports { source, sink, path };
    Ok(result(summary, transfer, &sessions.circumstances(progress), reports))
}

/// The destination of fetched files.
#[derive(Debug, Clone, Copy)]
pub enum FetchTarget<'a> {
    /// A path.
    Path(&'a Path),
    /// An output that takes one file in order. The options are [`ordered`].
    ///
    /// [`ordered`]: longhaul_core::plan::TreeOptions::ordered
    Outlet(&'a Arc<Outlet>),
}

impl FetchTarget<'_> {
    /// Returns the path that the key of the copy contains.
    fn path(&self) -> &Path {
        match self {
            FetchTarget::Path(path) => path,
            FetchTarget::Outlet(_) => Path::new("-"),
        }
    }
}

/// Fetches `files` from the server of `line` to `target` on this host.
///
/// # Errors
/// As for [`push`].
pub fn pull(
    line: Reconnect<'_>,
    files: RemoteFiles<'_>,
    target: FetchTarget<'_>,
    run: CopyRun<'_>,
) -> Result<CopyResult> {
    let CopyRun { options, progress, .. } = run;
    let mut sessions = CopySessions::begin(options, progress);
    let wired: Vec<_> = files.paths.iter().map(|path| sent_path(path)).collect::<Result<_>>()?;
    let (secret, memory) = (line.secret, RateMemory::new(line.past, Direction::From));
    let outcome = persist(line, run, |session| {
        let options = &memory.options(options, &session);
        let run = CopyRun { options, ..run };
        let key = KeyMaker::new(secret, "pull").server(session.peer());
        let key = key.files(&files).to(target.path());
        let destination = match target {
            FetchTarget::Outlet(outlet) => Destination::Outlet(outlet.clone()),
            FetchTarget::Path(path) => {
                Destination::place(&Tree::anywhere(), path, files.top(), &key, options)
                    .map_err(|error| bad_target(&error))?
            }
        };
        let sink = Sink::open(destination, &key, options, &|| run.stop.load(Ordering::Relaxed))
            .map_err(|busy| bad_target(&busy))?;
        // The server chooses the files of a subset.
        let requested = options.subset.is_none().then(|| Requested::of(files.paths, files.names));
        let sink = sink.expecting(requested.flatten());
        let paths = wired.clone();
        let (wanted_first, listed) = (sink.wanted_first(), files.names.is_some());
        let request = CopyRequest::Send {
            paths,
            asks: wanted_first,
            listed,
            key: Some(key),
            options: options.clone(),
        };
        let opened = open(session, &request, files.names, options);
        let (link, _) = opened.map_err(|error| memory.refused(error, options))?;
        sessions.note_host(&link);
        sink.run(link, run).inspect_err(|_| sessions.lost(progress))
    })?;
    sessions.end(outcome.completed);
    let mut summary = sessions.summarize(
        options,
        &outcome.report,
        !outcome.reports.failures.is_empty(),
        &outcome.tcp,
    );
    let (source, path) = match outcome.source {
        Some(report) => {
            summary.retransmits = Some(report.retransmits);
            summary.streams = report.path.streams;
            memory.note(&report.path, options, progress.moved());
            (EndReport { end: report.end, stages: report.stages }, report.path)
        }
        None => Default::default(),
    };
    let sink = EndReport { end: outcome.report.end, stages: outcome.report.stages };
    let reports = outcome.reports.with_not_kept(outcome.report.not_kept);
    let transfer = TransferReports { source, sink, path };
    Ok(result(summary, transfer, &sessions.circumstances(progress), reports))
}

/// Returns the refusal of a target at this host.
fn bad_target(reason: &dyn std::error::Error) -> EngineError {
    let (peer, kind) = ("the target".to_owned(), RefusalKind::Files);
    EngineError::Refused { peer, kind, reason: reason.to_string() }
}

/// Makes the request and opens the data connections, all in one round trip, which a server that is
/// not busy also uses for its welcome: it knows the secret of the session since the handshake, so
/// that connections can arrive before its replies are read. Also returns whether the source waits
/// for decisions of the sink.
fn open(
    session: Session,
    request: &CopyRequest,
    names: Option<&[PathBuf]>,
    options: &CopyOptions,
) -> Result<(Channels, bool)> {
    let is_long = session.rtt().is_some_and(|rtt| rtt >= LONG_PATH);
    let (sender, mut receiver, dialer, queued) = session.split_early();
    sender.send(request)?;
    if let Some(names) = names {
        send_names(&sender, names)?;
    }
    let before_connect = socket_options(options);
    let receives = is_long && matches!(request, CopyRequest::Send { .. });
    let prepare = |socket: &Socket| {
        if receives {
            // Both only save round trips: the server can send blocks as soon as it has the hello,
            // and autotuning would enlarge the buffer later.
            let _ = connect_with_data(socket);
            let _ = grow_receive_buffer(socket, receive_bytes(options));
        }
        before_connect.apply(socket).map_err(std::io::Error::other)
    };
    let (reply, sockets) = thread::scope(|scope| {
        let (dialer, prepare) = (&dialer, &prepare);
        let dialing: Vec<_> = (0..first_streams(options).min(STREAM_LIMIT))
            .map(|stream| scope.spawn(move || dialer.open(stream, prepare)))
            .collect();
        let welcome =
            queued.map_or(Ok(()), |queued| await_welcome(sender.peer(), &mut receiver, queued));
        let reply = welcome
            .and_then(|()| receiver.set_timeout(Some(REPLY_TIMEOUT)))
            .and_then(|()| receiver.receive());
        let sockets: Result<Vec<_>> =
            dialing.into_iter().map(|dial| dial.join().unwrap_or_else(|_| lost())).collect();
        (reply, sockets)
    });
    let wanted_first = match reply? {
        CopyReply::Ready { asks: wanted_first, rereads } => {
            if matches!(request, CopyRequest::Receive { .. }) {
                check_rereads(sender.peer(), rereads, options)?;
            }
            wanted_first
        }
        CopyReply::Refused { kind, reason } => {
            return Err(EngineError::Refused { peer: sender.peer().to_owned(), kind, reason });
        }
    };
    let streams = Streams::new(sockets?, ConnectionSource::Dial(dialer), before_connect);
    Ok((Channels { sender, receiver, streams }, wanted_first))
}

/// Returns the error of a thread that panicked.
fn lost<T>() -> Result<T> {
    Err(EngineError::Interrupted)
}
