use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::{CopyOptions, Protection};
use longhaul_core::result::{
    Action, COPY_SCHEMA, CopyFailure, CopyResult, CopySummary, DigestOf, EndReport, NotKept,
    StageTimes, TransferEnd,
};
use longhaul_core::units::Rate;
use longhaul_core::wire::copy::{CopyReply, CopyRequest, SinkReport, Top};
use longhaul_core::wire::{RefusalKind, WirePath};
use longhaul_sys::tcp::TcpInfo;

use super::link::{Link, socket_options};
use super::progress::Progress;
use super::server::STREAM_LIMIT;
use super::sink::{self, Destination};
use super::source::{self, SourcePlan, SourceRoot};
use super::tree::Tree;
use super::verdict::verdict;
use crate::error::{EngineError, Result};
use crate::session::Session;

/// How long the far side may take to look at its target or sources.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// Sends `plan` to `target` at the other end of `session`.
///
/// # Errors
/// The copy could not be made or went on no longer. Single files that failed are in the result.
pub fn push(
    session: Session,
    plan: &SourcePlan,
    target: &Path,
    options: &CopyOptions,
    progress: &Progress,
    stop: &AtomicBool,
) -> Result<CopyResult> {
    let start = Instant::now();
    let request = CopyRequest::Receive {
        target: wire_path(target)?,
        top: plan.top(),
        options: options.clone(),
    };
    let link = open(session, &request, options)?;
    let same_host = same_host(&link);
    let outcome = source::run(link, plan, options, progress, stop)?;
    let mut summary = summarise(start.elapsed(), options, &outcome.sink, &outcome.tcp);
    summary.retransmits = Some(outcome.source.retransmits);
    let source = EndReport { end: outcome.source.end, stages: outcome.source.stages };
    let sink = EndReport { end: outcome.sink.end, stages: outcome.sink.stages };
    let told = Told {
        failures: outcome.failures,
        skipped: outcome.skipped,
        not_kept: outcome.sink.not_kept,
        actions: outcome.actions,
        digests: outcome.digests,
    };
    Ok(result(summary, source, sink, same_host, told))
}

/// Fetches `paths` from the other end of `session` to `target` here.
///
/// # Errors
/// As for [`push`].
pub fn pull(
    session: Session,
    paths: &[PathBuf],
    target: &Path,
    options: &CopyOptions,
    progress: &Progress,
    stop: &AtomicBool,
) -> Result<CopyResult> {
    let start = Instant::now();
    let top = match paths {
        [path] if SourceRoot::is_contents(path) => Top::Contents,
        [_] => Top::One,
        _ => Top::Several,
    };
    let destination =
        Destination::place(&Tree::anywhere(), target, top, options).map_err(|error| {
            EngineError::Refused {
                peer: "the target".to_owned(),
                kind: RefusalKind::Files,
                reason: error.to_string(),
            }
        })?;
    let paths = paths.iter().map(|path| wire_path(path)).collect::<Result<_>>()?;
    let request = CopyRequest::Send { paths, options: options.clone() };
    let link = open(session, &request, options)?;
    let same_host = same_host(&link);
    let outcome = sink::run(link, destination, options, progress, stop)?;
    let elapsed = outcome.completed.duration_since(start);
    let mut summary = summarise(elapsed, options, &outcome.report, &outcome.tcp);
    let source = match outcome.source {
        Some(report) => {
            summary.retransmits = Some(report.retransmits);
            EndReport { end: report.end, stages: report.stages }
        }
        None => EndReport { end: TransferEnd::default(), stages: StageTimes::default() },
    };
    let sink = EndReport { end: outcome.report.end, stages: outcome.report.stages };
    let told = Told {
        failures: outcome.failures,
        skipped: outcome.skipped,
        not_kept: outcome.report.not_kept,
        actions: outcome.actions,
        digests: outcome.digests,
    };
    Ok(result(summary, source, sink, same_host, told))
}

/// What is told of single files.
struct Told {
    failures: Vec<CopyFailure>,
    skipped: Vec<CopyFailure>,
    not_kept: Vec<NotKept>,
    actions: Vec<Action>,
    digests: Vec<DigestOf>,
}

fn result(
    summary: CopySummary,
    source: EndReport,
    sink: EndReport,
    same_host: Option<f64>,
    told: Told,
) -> CopyResult {
    let verdict = verdict(&source, &sink, same_host);
    let Told { failures, skipped, not_kept, actions, digests } = told;
    let schema = COPY_SCHEMA.to_owned();
    CopyResult {
        schema,
        summary,
        verdict,
        source,
        sink,
        failures,
        skipped,
        not_kept,
        actions,
        digests,
    }
}

/// Makes the request and opens the data connections, all in one round trip: the server knows the
/// session's secret since the handshake, so that connections may come before its reply is here.
fn open(session: Session, request: &CopyRequest, options: &CopyOptions) -> Result<Link> {
    let (sender, mut receiver, dialer) = session.split();
    receiver.set_timeout(Some(REPLY_TIMEOUT))?;
    sender.send(request)?;
    let before_connect = socket_options(options);
    let prepare = |socket: &_| before_connect.apply(socket).map_err(std::io::Error::other);
    let (reply, sockets) = thread::scope(|scope| {
        let (dialer, prepare) = (&dialer, &prepare);
        let dialing: Vec<_> = (0..options.streams.min(STREAM_LIMIT))
            .map(|stream| scope.spawn(move || dialer.open(stream, prepare)))
            .collect();
        let reply = receiver.receive();
        let sockets: Result<Vec<_>> =
            dialing.into_iter().map(|dial| dial.join().unwrap_or_else(|_| lost())).collect();
        (reply, sockets)
    });
    match reply? {
        CopyReply::Ready => {}
        CopyReply::Refused { kind, reason } => {
            return Err(EngineError::Refused { peer: sender.peer().to_owned(), kind, reason });
        }
    }
    Ok(Link { sender, receiver, sockets: sockets?, secret: dialer.secret().clone() })
}

/// What stands for the result of a thread that panicked, which has said why.
fn lost<T>() -> Result<T> {
    Err(EngineError::Interrupted)
}

/// The cores of this host, if the other end of the link is on it as well.
fn same_host(link: &Link) -> Option<f64> {
    let socket = link.sockets.first()?;
    let same = socket.local_addr().ok()?.ip() == socket.peer_addr().ok()?.ip();
    let cores = std::thread::available_parallelism().ok()?;
    same.then_some(cores.get() as f64)
}

fn summarise(
    elapsed: Duration,
    options: &CopyOptions,
    sink: &SinkReport,
    tcp: &[TcpInfo],
) -> CopySummary {
    CopySummary {
        throughput_bps: Rate::mean(sink.bytes, elapsed),
        bytes: sink.bytes,
        files: sink.files,
        seconds: elapsed.as_secs_f64(),
        verified: options.protection.verifies(),
        encrypted: options.protection == Protection::Sealed,
        durable: sink.durable,
        streams: options.streams,
        resent_blocks: sink.resent_blocks,
        retransmits: None,
        rtt_ms: tcp.iter().map(|info| info.rtt.as_secs_f64() * 1e3).min_by(f64::total_cmp),
        dry_run: options.tree.dry_run,
        unchanged_files: sink.unchanged_files,
        deleted: sink.deleted,
        manifest: sink.manifest.as_ref().map(ToString::to_string),
    }
}

fn wire_path(path: &Path) -> Result<WirePath> {
    WirePath::new(path.as_os_str().as_bytes()).ok_or_else(|| EngineError::File {
        operation: "use",
        path: path.to_owned(),
        source: std::io::ErrorKind::InvalidInput.into(),
    })
}
