use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::{CopyOptions, Protection, Verify};
use longhaul_core::result::{
    Action, COPY_SCHEMA, CopyFailure, CopyResult, CopySummary, DigestOf, EndReport, NotKept,
    PathReport,
};
use longhaul_core::units::{Bytes, Rate};
use longhaul_core::wire::copy::{CopyReply, CopyRequest, SinkReport, Top};
use longhaul_core::wire::{FilePath, RefusalKind};
use longhaul_sys::tcp::TcpInfo;

use super::key::KeyMaker;
use super::link::{Channels, first_streams, socket_options};
use super::name_list::send_names;
use super::progress::Progress;
pub use super::retry::Lifeline;
use super::retry::persist;
use super::sink::{Destination, Outlet, Sink};
use super::source::{self, SourcePlan, SourceRoot, Terms};
use super::streams::{More, STREAM_LIMIT, Streams};
use super::tree::Tree;
use super::verdict::limit;
use crate::HASTE;
use crate::error::{EngineError, Result};
use crate::session::{Session, await_welcome};

/// How long the far side may take to look at its target or sources.
/// A sink whose earlier attempt has not ended yet waits for it first.
pub(super) const REPLY_TIMEOUT: Duration = Duration::from_millis(60_000 / HASTE);

/// Sends `plan` to `target` at the other end of `line`.
///
/// # Errors
/// The copy could not be made or went on no longer. Single files that failed are in the result.
pub fn push(
    line: Lifeline<'_>,
    plan: &SourcePlan,
    target: &Path,
    options: &CopyOptions,
    progress: &Progress,
    stop: &AtomicBool,
) -> Result<CopyResult> {
    let mut whole = CopySessions::begin(options, progress);
    let secret = line.secret;
    let wired = wire_path(target)?;
    let outcome = persist(line, progress, stop, |session| {
        let key = KeyMaker::new(secret, "push").server(session.peer()).plan(plan).to(target);
        let (copy, target) = (key.clone(), wired.clone());
        let top = plan.top();
        let options_sent = options.clone();
        let request = CopyRequest::Receive { key: copy, target, top, options: options_sent };
        let (link, asks) = open(session, &request, None, options)?;
        whole.look(&link);
        let terms = Terms { asks, key: Some(key) };
        source::run(link, plan, terms, options, progress, stop)
            .inspect_err(|_| whole.lost(progress))
    })?;
    let mut summary =
        whole.summarise(options, &outcome.sink, !outcome.failures.is_empty(), &outcome.tcp);
    summary.retransmits = Some(outcome.source.retransmits);
    summary.streams = outcome.source.path.streams;
    let path = outcome.source.path;
    let source = EndReport { end: outcome.source.end, stages: outcome.source.stages };
    let sink = EndReport { end: outcome.sink.end, stages: outcome.sink.stages };
    let told = Told {
        failures: outcome.failures,
        skipped: outcome.skipped,
        not_kept: outcome.sink.not_kept,
        actions: outcome.actions,
        digests: outcome.digests,
    };
    let limits = (whole.same_host, progress.limit());
    Ok(result(summary, source, sink, path, limits, told))
}

/// What is asked of a far end.
#[derive(Debug, Clone, Copy)]
pub struct FarFiles<'a> {
    /// What is copied, by its paths there.
    pub paths: &'a [PathBuf],
    /// Of the directory that is the only path these alone, by their paths relative to it.
    pub names: Option<&'a [PathBuf]>,
}

impl FarFiles<'_> {
    /// What stands at the top level.
    pub(super) fn top(&self) -> Top {
        match self.paths {
            [_] if self.names.is_some() => Top::Contents,
            [path] if SourceRoot::is_contents(path) => Top::Contents,
            [_] => Top::One,
            _ => Top::Several,
        }
    }
}

/// Where what is fetched goes to.
#[derive(Debug, Clone, Copy)]
pub enum Landing<'a> {
    /// This path.
    Path(&'a Path),
    /// Out, in order: one file. The options are [`ordered`].
    ///
    /// [`ordered`]: longhaul_core::plan::TreeOptions::ordered
    Outlet(&'a Arc<Outlet>),
}

/// Fetches `files` from the other end of `line` to `target` here.
///
/// # Errors
/// As for [`push`].
pub fn pull(
    line: Lifeline<'_>,
    files: FarFiles<'_>,
    target: Landing<'_>,
    options: &CopyOptions,
    progress: &Progress,
    stop: &AtomicBool,
) -> Result<CopyResult> {
    let mut whole = CopySessions::begin(options, progress);
    let refused = |reason: String| EngineError::Refused {
        peer: "the target".to_owned(),
        kind: RefusalKind::Files,
        reason,
    };
    let wired: Vec<_> = files.paths.iter().map(|path| wire_path(path)).collect::<Result<_>>()?;
    let secret = line.secret;
    let outcome = persist(line, progress, stop, |session| {
        let place = match target {
            Landing::Path(path) => path,
            Landing::Outlet(_) => Path::new("-"),
        };
        let key = KeyMaker::new(secret, "pull").server(session.peer()).files(&files).to(place);
        let destination = match target {
            Landing::Outlet(outlet) => Destination::Outlet(outlet.clone()),
            Landing::Path(path) => {
                Destination::place(&Tree::anywhere(), path, files.top(), options)
                    .map_err(|error| refused(error.to_string()))?
            }
        };
        let sink = Sink::open(destination, &key, options, &|| stop.load(Ordering::Relaxed))
            .map_err(|busy| refused(busy.to_string()))?;
        let paths = wired.clone();
        let (asks, listed) = (sink.asks(), files.names.is_some());
        let request =
            CopyRequest::Send { paths, asks, listed, key: Some(key), options: options.clone() };
        let (link, _) = open(session, &request, files.names, options)?;
        whole.look(&link);
        sink.run(link, options, progress, stop).inspect_err(|_| whole.lost(progress))
    })?;
    whole.end(outcome.completed);
    let mut summary =
        whole.summarise(options, &outcome.report, !outcome.failures.is_empty(), &outcome.tcp);
    let (source, path) = match outcome.source {
        Some(report) => {
            summary.retransmits = Some(report.retransmits);
            summary.streams = report.path.streams;
            (EndReport { end: report.end, stages: report.stages }, report.path)
        }
        None => Default::default(),
    };
    let sink = EndReport { end: outcome.report.end, stages: outcome.report.stages };
    let told = Told {
        failures: outcome.failures,
        skipped: outcome.skipped,
        not_kept: outcome.report.not_kept,
        actions: outcome.actions,
        digests: outcome.digests,
    };
    let limits = (whole.same_host, progress.limit());
    Ok(result(summary, source, sink, path, limits, told))
}

/// What is told of single files.
pub(super) struct Told {
    pub(super) failures: Vec<CopyFailure>,
    pub(super) skipped: Vec<CopyFailure>,
    pub(super) not_kept: Vec<NotKept>,
    pub(super) actions: Vec<Action>,
    pub(super) digests: Vec<DigestOf>,
}

/// The whole of a copy, over however many sessions.
pub(super) struct CopySessions {
    start: Instant,
    end: Option<Instant>,
    same_host: Option<f64>,
    /// Sessions that were lost.
    reconnects: u32,
    /// What was there when the first session began, if it was lost.
    resumed: Option<Bytes>,
}

impl CopySessions {
    pub(super) fn begin(options: &CopyOptions, progress: &Progress) -> Self {
        progress.set_limit(options.rate_bps);
        if options.nice {
            // A kernel that refuses has no manners to offer.
            let _ = longhaul_sys::cpu::yield_to_others();
        }
        CopySessions {
            start: Instant::now(),
            end: None,
            same_host: None,
            reconnects: 0,
            resumed: None,
        }
    }

    fn look(&mut self, link: &Channels) {
        self.same_host = same_host(link);
    }

    pub(super) fn lost(&mut self, progress: &Progress) {
        self.reconnects += 1;
        if progress.moved().get() > 0 {
            self.resumed.get_or_insert(progress.resumed());
        }
    }

    fn end(&mut self, at: Instant) {
        self.end = Some(at);
    }

    pub(super) fn summarise(
        &self,
        options: &CopyOptions,
        sink: &SinkReport,
        failed: bool,
        tcp: &[TcpInfo],
    ) -> CopySummary {
        let elapsed = self.end.unwrap_or_else(Instant::now).duration_since(self.start);
        // Of nothing there is nothing to guarantee.
        let any = !failed || sink.files + sink.unchanged_files > 0;
        // What an earlier session of this command has moved was not there before it.
        let resumed = self.resumed.unwrap_or(sink.resumed_bytes);
        let moved = Bytes::new(sink.bytes.get().saturating_sub(resumed.get()));
        CopySummary {
            throughput_bps: Rate::mean(moved, elapsed),
            bytes: sink.bytes,
            resumed_bytes: resumed,
            files: sink.files,
            seconds: elapsed.as_secs_f64(),
            verified: any && options.protection.verifies(),
            verification: (any && options.protection.verifies()).then_some(options.verify),
            encrypted: options.protection == Protection::Sealed,
            durable: any && sink.durable,
            streams: 0,
            reconnects: self.reconnects,
            resent_blocks: sink.resent_blocks,
            retransmits: None,
            rtt_ms: tcp.iter().map(|info| info.rtt.as_secs_f64() * 1e3).min_by(f64::total_cmp),
            dry_run: options.tree.dry_run,
            unchanged_files: sink.unchanged_files,
            deleted: sink.deleted,
            manifest: sink.manifest.as_ref().map(ToString::to_string),
        }
    }
}

pub(super) fn result(
    summary: CopySummary,
    source: EndReport,
    sink: EndReport,
    path: PathReport,
    (same_host, rate_limit): (Option<f64>, Option<Rate>),
    told: Told,
) -> CopyResult {
    let limit = limit(&summary, &source, &sink, &path, same_host, rate_limit);
    let Told { failures, skipped, not_kept, actions, digests } = told;
    let schema = COPY_SCHEMA.to_owned();
    CopyResult {
        schema,
        summary,
        // The program words it.
        verdict: String::new(),
        limit,
        path,
        source,
        sink,
        failures,
        skipped,
        not_kept,
        actions,
        digests,
    }
}

/// Makes the request and opens the data connections, all in one round trip, in which a server that is
/// not busy says its welcome too: it knows the session's secret since the handshake, so that
/// connections may come before its replies are here.
/// Also returns whether the sink is to be asked what it wants.
fn open(
    session: Session,
    request: &CopyRequest,
    names: Option<&[PathBuf]>,
    options: &CopyOptions,
) -> Result<(Channels, bool)> {
    let (sender, mut receiver, dialer, queued) = session.split_early();
    sender.send(request)?;
    if let Some(names) = names {
        send_names(&sender, names)?;
    }
    let before_connect = socket_options(options);
    let prepare = |socket: &_| before_connect.apply(socket).map_err(std::io::Error::other);
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
    let asks = match reply? {
        CopyReply::Ready { asks, rereads } => {
            if matches!(request, CopyRequest::Receive { .. }) {
                check_rereads(sender.peer(), rereads, options)?;
            }
            asks
        }
        CopyReply::Refused { kind, reason } => {
            return Err(EngineError::Refused { peer: sender.peer().to_owned(), kind, reason });
        }
    };
    let streams = Streams::new(sockets?, More::Dial(dialer), before_connect);
    Ok((Channels { sender, receiver, streams }, asks))
}

/// Refuses a sink that would not read back what it is to.
pub(super) fn check_rereads(peer: &str, rereads: bool, options: &CopyOptions) -> Result<()> {
    if rereads || options.verify == Verify::InFlight {
        return Ok(());
    }
    let reason = "it is of a version that cannot read files back; leave --verify away".to_owned();
    Err(EngineError::Refused { peer: peer.to_owned(), kind: RefusalKind::Version, reason })
}

/// What stands for the result of a thread that panicked, which has said why.
fn lost<T>() -> Result<T> {
    Err(EngineError::Interrupted)
}

/// The cores of this host, if the other end of the link is on it as well.
fn same_host(link: &Channels) -> Option<f64> {
    if !link.streams.are_direct() {
        return None;
    }
    let socket = link.streams.sample()?;
    let same = socket.local_addr().ok()?.ip() == socket.peer_addr().ok()?.ip();
    let cores = std::thread::available_parallelism().ok()?;
    same.then_some(cores.get() as f64)
}

pub(super) fn wire_path(path: &Path) -> Result<FilePath> {
    FilePath::new(path.as_os_str().as_bytes()).ok_or_else(|| EngineError::File {
        operation: "use",
        path: path.to_owned(),
        source: std::io::ErrorKind::InvalidInput.into(),
    })
}
