//! A copy between two servers: the client asks the source to send to the sink.
//!
//! The client has an authenticated control channel with each server. It gives the source the
//! secret of its session with the sink, which permits only data connections of that session. The
//! source connects to the sink, so the data do not pass through the client. The control messages
//! do: the client sees the progress, and the copy ends when the client ends.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Instant;

use longhaul_core::plan::CopyOptions;
use longhaul_core::result::{CopyResult, EndReport};
use longhaul_core::wire::RefusalKind;
use longhaul_core::wire::copy::{
    CopyReply, CopyRequest, EntryKind, Introduction, SinkMessage, SinkReport, SourceMessage,
    SourceReport,
};

use super::key::KeyMaker;
use super::retry::{Reconnect, persist};
use super::summary::{CopySessions, result};
use super::{REPLY_TIMEOUT, RemoteFiles, check_rereads};
use crate::copy::name_list::{send_names, sent_path};
use crate::copy::progress::{CopyProgress, CopyRun};
use crate::copy::reports::FileReports;
use crate::copy::streams::{STREAM_LIMIT, first_streams, socket_options};
use crate::copy::verdict::TransferReports;
use crate::copy::watchdog::{SILENCE_LIMIT, TICK, Watchdog, patience};
use crate::error::{EngineError, Result, WaitsFor};
use crate::lock;
use crate::session::{ControlReceiver, ControlSender, DataDialer, Session};

/// Bytes per read and write of data that pass through the client.
const PUMP_BYTES: usize = 256 << 10;

/// The ends of a copy between two others.
pub struct ThirdPartyEnds<'a> {
    /// Opens a session with the source.
    pub source: &'a mut dyn FnMut() -> Result<Session>,
    /// The files at the source.
    pub files: RemoteFiles<'a>,
    /// The path at the sink.
    pub target: &'a Path,
}

/// Copies between `ends`; `line` connects to the sink. `notice` receives the reason if the data
/// have to go through this host.
///
/// # Errors
/// As for [`push`](super::push).
pub fn between(
    line: Reconnect<'_>,
    ends: ThirdPartyEnds<'_>,
    run: CopyRun<'_>,
    notice: &dyn Fn(&str),
) -> Result<CopyResult> {
    let CopyRun { options, progress, stop } = run;
    let ThirdPartyEnds { source, files, target } = ends;
    let mut whole = CopySessions::begin(options, progress);
    let top = files.top();
    let wired: Vec<_> = files.paths.iter().map(|path| sent_path(path)).collect::<Result<_>>()?;
    let wired_target = sent_path(target)?;
    let secret = line.secret;
    let outcome = persist(line, run, |sink| {
        let from = source()?;
        let key = KeyMaker::new(secret, "between").server(from.peer()).server(sink.peer());
        let key = key.files(&files).to(target);
        let (to_sink, mut from_sink, sink_dialer) = sink.welcomed()?.split();
        let target = wired_target.clone();
        to_sink.send(&CopyRequest::Receive {
            key: key.clone(),
            target,
            top,
            options: options.clone(),
        })?;
        let (wanted_first, rereads) = reply(&mut from_sink)?;
        check_rereads(to_sink.peer(), rereads, options)?;
        let listed = files.names.is_some();
        let request = |to| {
            let (paths, options) = (wired.clone(), options.clone());
            CopyRequest::Forward {
                paths,
                asks: wanted_first,
                listed,
                key: Some(key.clone()),
                options,
                to,
            }
        };
        let lent =
            Introduction::new(sink_dialer.addresses(), sink_dialer.secret().keying_material());
        let direct = !lent.addresses.is_empty();
        let (to_source, from_source, dialer) = match ask(from, &request(lent.clone()), files.names)
        {
            Ok((sender, receiver, dialer)) => (sender, receiver, (!direct).then_some(dialer)),
            Err(EngineError::Refused { kind: RefusalKind::Unreachable, reason, .. }) => {
                notice(&reason);
                let without = Introduction::new(&[], *lent.keying());
                let (sender, receiver, dialer) = ask(source()?, &request(without), files.names)?;
                (sender, receiver, Some(dialer))
            }
            Err(error) => return Err(error),
        };
        let pumps = match dialer {
            None => None,
            Some(from) => {
                let mut pumps = Pumps { from, to: sink_dialer, opened: 0 };
                pumps.open(first_streams(options), options)?;
                Some(pumps)
            }
        };
        let relay = Relay {
            to_source,
            to_sink,
            progress,
            options,
            state: Mutex::default(),
            finished: OnceLock::new(),
            watchdog: Watchdog::new(patience(options)),
        };
        relay.run(from_source, from_sink, pumps, stop).inspect_err(|_| whole.lost(progress))
    })?;
    let State { sink, source, reports, .. } = outcome;
    let Some(sink) = sink else { return Err(EngineError::Interrupted) };
    let mut summary = whole.summarize(options, &sink, !reports.failures.is_empty(), &[]);
    let source = source.unwrap_or_default();
    summary.retransmits = Some(source.retransmits);
    summary.streams = source.path.streams;
    let reports = reports.with_not_kept(sink.not_kept);
    let sink = EndReport { end: sink.end, stages: sink.stages };
    let path = source.path;
    let source = EndReport { end: source.end, stages: source.stages };
    let transfer = TransferReports { source, sink, path };
    Ok(result(summary, transfer, &whole.circumstances(progress), reports))
}

/// Makes a request of a source and waits for its answer.
fn ask(
    session: Session,
    request: &CopyRequest,
    names: Option<&[PathBuf]>,
) -> Result<(ControlSender, ControlReceiver, DataDialer)> {
    let (sender, mut receiver, dialer) = session.welcomed()?.split();
    sender.send(request)?;
    if let Some(names) = names {
        send_names(&sender, names)?;
    }
    reply(&mut receiver)?;
    Ok((sender, receiver, dialer))
}

/// Returns whether the source waits for decisions of the sink, and whether the server can read
/// files back.
fn reply(receiver: &mut ControlReceiver) -> Result<(bool, bool)> {
    receiver.set_timeout(Some(REPLY_TIMEOUT))?;
    match receiver.receive()? {
        CopyReply::Ready { asks: wanted_first, rereads } => Ok((wanted_first, rereads)),
        CopyReply::Refused { kind, reason } => {
            Err(EngineError::Refused { peer: receiver.peer().to_owned(), kind, reason })
        }
    }
}

/// Control messages on their way through the client.
struct Relay<'a> {
    to_source: ControlSender,
    to_sink: ControlSender,
    progress: &'a CopyProgress,
    options: &'a CopyOptions,
    state: Mutex<State>,
    /// The time at which the sink reported the end.
    finished: OnceLock<Instant>,
    watchdog: Watchdog,
}

/// The reports that have passed through the client.
#[derive(Default)]
struct State {
    sink: Option<SinkReport>,
    source: Option<SourceReport>,
    reports: FileReports,
    error: Option<EngineError>,
}

impl Relay<'_> {
    fn run(
        self,
        mut from_source: ControlReceiver,
        mut from_sink: ControlReceiver,
        pumps: Option<Pumps>,
        stop: &AtomicBool,
    ) -> Result<State> {
        self.progress.begin();
        from_source.set_timeout(Some(SILENCE_LIMIT))?;
        from_sink.set_timeout(Some(SILENCE_LIMIT))?;
        let closers = [
            Box::new(from_source.closer()) as Box<dyn Fn() + Send + Sync>,
            Box::new(from_sink.closer()),
        ];
        let over = AtomicBool::new(false);
        let (relay, over, closers) = (&self, &over, &closers);
        let close = || closers.iter().for_each(|close| close());
        thread::scope(|scope| {
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    if let Some(time) = relay.watchdog.stalled(0, false) {
                        let peer = relay.to_sink.peer().to_owned();
                        relay.fail(EngineError::Stalled { peer, waits_for: WaitsFor::GoOn, time });
                        close();
                        return;
                    }
                    if stop.load(Ordering::Relaxed) {
                        relay.fail(EngineError::Interrupted);
                        let _ = relay.to_sink.send(&SourceMessage::Abort { again: false });
                        let reason = "the client was interrupted".to_owned();
                        let abort = SinkMessage::Abort { reason, again: false, kind: None };
                        let _ = relay.to_source.send(&abort);
                        close();
                        return;
                    }
                    thread::park_timeout(TICK);
                }
            });
            scope.spawn(move || {
                if let Err(error) = relay.follow_source(&mut from_source, pumps)
                    && relay.finished.get().is_none()
                {
                    relay.fail(error);
                }
                over.store(true, Ordering::Relaxed);
                close();
            });
            if let Err(error) = relay.follow_sink(&mut from_sink) {
                relay.fail(error);
                close();
            }
        });
        let mut state = self.state.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        match state.error.take() {
            Some(error) => Err(error),
            None => Ok(state),
        }
    }

    /// Passes on the messages of the source until it leaves, or until it has sent messages for too long
    /// after the end.
    fn follow_source(&self, from: &mut ControlReceiver, mut pumps: Option<Pumps>) -> Result<()> {
        let limit = SILENCE_LIMIT.min(self.watchdog.patience());
        loop {
            let message: SourceMessage = from.receive()?;
            if self.finished.get().is_some_and(|finished| finished.elapsed() > limit) {
                return Ok(());
            }
            match &message {
                SourceMessage::Alive { stages } if stages.read.unwrap_or(0.0) > 0.0 => {
                    self.watchdog.claim();
                }
                SourceMessage::Alive { .. } => {}
                _ => self.watchdog.step(),
            }
            match &message {
                SourceMessage::Entries(entries) => {
                    for entry in entries {
                        if let EntryKind::File { size_bytes } = entry.kind {
                            let total = &self.progress.total_bytes;
                            total.fetch_add(size_bytes.get(), Ordering::Relaxed);
                            self.progress.total_files.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
                SourceMessage::End { .. } => self.progress.listed.store(true, Ordering::Relaxed),
                SourceMessage::Failed { path, reason, .. } => {
                    lock(&self.state).reports.fail(path.to_string(), reason.clone());
                }
                SourceMessage::Skipped { path, reason } => {
                    lock(&self.state).reports.skip(path.to_string(), reason.clone());
                }
                SourceMessage::Report(report) => {
                    lock(&self.state).source = Some((**report).clone());
                }
                SourceMessage::Alive { stages } => self.progress.source_is(*stages),
                SourceMessage::Streams { wanted } => {
                    // The source opens the connections, or the client does; the sink does not.
                    if let Some(pumps) = &mut pumps {
                        // The copy continues with fewer connections than requested.
                        let _ = pumps.open(*wanted, self.options);
                    }
                    continue;
                }
                SourceMessage::Length { .. } | SourceMessage::Abort { .. } => {}
            }
            let passed = self.to_sink.send(&message);
            if let SourceMessage::Abort { again } = message {
                let peer = from.peer().to_owned();
                let reason = "the source stopped sending".to_owned();
                return Err(EngineError::Failed { peer, reason, again });
            }
            // A sink that has finished may leave before the source's report.
            if self.finished.get().is_none() {
                passed?;
            }
        }
    }

    /// Passes on the messages of the sink until it has finished.
    fn follow_sink(&self, from: &mut ControlReceiver) -> Result<()> {
        loop {
            let message: SinkMessage = from.receive()?;
            self.watchdog.note_message(&message);
            match &message {
                SinkMessage::Progress { written_bytes, kept_bytes, done, .. } => {
                    self.progress.kept_bytes.store(kept_bytes.get(), Ordering::Relaxed);
                    self.progress.moved_bytes.store(written_bytes.get(), Ordering::Relaxed);
                    self.progress.files.fetch_add(done.len() as u64, Ordering::Relaxed);
                }
                SinkMessage::Failed { path, reason, .. } => {
                    lock(&self.state).reports.fail(path.to_string(), reason.clone());
                }
                SinkMessage::Actions(actions) => {
                    lock(&self.state).reports.peer_acts(actions.clone());
                }
                SinkMessage::Digests(digests) => {
                    lock(&self.state).reports.peer_digests(digests.clone());
                }
                SinkMessage::Finished(report) => {
                    lock(&self.state).sink = Some(report.clone());
                    let _ = self.finished.set(Instant::now());
                    return self.to_source.send(&message);
                }
                SinkMessage::Abort { reason, again, kind } => {
                    let _ = self.to_source.send(&message);
                    let reason = reason.clone();
                    return Err(EngineError::aborted(from.peer(), reason, *again, *kind));
                }
                SinkMessage::Wanted { .. }
                | SinkMessage::Limit { .. }
                | SinkMessage::Resend { .. } => {}
            }
            self.to_source.send(&message)?;
        }
    }

    /// Stores the reason for the failure; a later one does not replace it.
    fn fail(&self, error: EngineError) {
        let mut state = lock(&self.state);
        if state.error.is_none() {
            state.error = Some(error);
        }
    }
}

/// Data connections that go through the client.
struct Pumps {
    from: DataDialer,
    to: DataDialer,
    opened: u32,
}

impl Pumps {
    /// Opens connections until there are `wanted`.
    fn open(&mut self, wanted: u32, options: &CopyOptions) -> Result<()> {
        let before_connect = socket_options(options);
        let prepare = |socket: &_| before_connect.apply(socket).map_err(std::io::Error::other);
        while self.opened < wanted.min(STREAM_LIMIT) {
            let from = self.from.open(self.opened, prepare)?;
            let to = self.to.open(self.opened, prepare)?;
            self.opened += 1;
            // It ends with its connections.
            thread::spawn(move || pump(&from, &to));
        }
        Ok(())
    }
}

/// Passes bytes on until one of the two ends.
fn pump(mut from: &TcpStream, mut to: &TcpStream) {
    let mut buffer = vec![0; PUMP_BYTES];
    while let Ok(got @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..got]).is_err() {
            let _ = from.shutdown(Shutdown::Both);
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
#[path = "between_tests.rs"]
mod tests;
