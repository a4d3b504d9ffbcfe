//! Passes the control messages of a copy between two servers through the client, and the data if the
//! source cannot reach the sink.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Instant;

use longhaul_core::plan::CopyOptions;
use longhaul_core::wire::copy::{EntryKind, SinkMessage, SinkReport, SourceMessage, SourceReport};

use crate::copy::progress::CopyProgress;
use crate::copy::reports::FileReports;
use crate::copy::streams::{STREAM_LIMIT, first_streams, socket_options};
use crate::copy::watchdog::{SILENCE_LIMIT, TICK, Watchdog, patience};
use crate::error::{EngineError, Result, WaitsFor};
use crate::lock;
use crate::session::{ControlReceiver, ControlSender, DataDialer};

/// Bytes per read and write of data that pass through the client.
const PUMP_BYTES: usize = 256 << 10;

/// Control messages on their way through the client.
pub(super) struct Relay<'a> {
    to_source: ControlSender,
    to_sink: ControlSender,
    progress: &'a CopyProgress,
    options: &'a CopyOptions,
    state: Mutex<RelayedReports>,
    /// The time at which the sink reported the end.
    finished: OnceLock<Instant>,
    watchdog: Watchdog,
}

/// The reports that have passed through the client.
#[derive(Default)]
pub(super) struct RelayedReports {
    pub(super) sink: Option<SinkReport>,
    pub(super) source: Option<SourceReport>,
    pub(super) reports: FileReports,
    error: Option<EngineError>,
}

impl<'a> Relay<'a> {
    pub(super) fn new(
        to_source: ControlSender,
        to_sink: ControlSender,
        options: &'a CopyOptions,
        progress: &'a CopyProgress,
    ) -> Self {
        Relay {
            to_source,
            to_sink,
            progress,
            options,
            state: Mutex::default(),
            finished: OnceLock::new(),
            watchdog: Watchdog::new(patience(options)),
        }
    }

    /// Passes messages on until the copy has ended.
    pub(super) fn run(
        self,
        mut from_source: ControlReceiver,
        mut from_sink: ControlReceiver,
        pumps: Option<Pumps>,
        stop: &AtomicBool,
    ) -> Result<RelayedReports> {
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
                        // A copy whose sink has finished is complete.
                        if relay.finished.get().is_none() {
                            let (peer, waits_for) =
                                (relay.to_sink.peer().to_owned(), WaitsFor::GoOn);
                            relay.fail(EngineError::Stalled { peer, waits_for, time });
                        }
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

    /// Passes on the messages of the source until it leaves, or until it has sent messages for too
    /// long after the end.
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
                    lock(&self.state).reports.peer_acts(actions.clone())?;
                }
                SinkMessage::Digests(digests) => {
                    lock(&self.state).reports.peer_digests(digests.clone())?;
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
pub(super) struct Pumps {
    from: DataDialer,
    to: DataDialer,
    opened: u32,
}

impl Pumps {
    /// Opens the connections that a copy begins with, between the two servers of the dialers.
    pub(super) fn start(from: DataDialer, to: DataDialer, options: &CopyOptions) -> Result<Self> {
        let mut pumps = Pumps { from, to, opened: 0 };
        pumps.open(first_streams(options), options)?;
        Ok(pumps)
    }

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
#[path = "relay_tests.rs"]
mod tests;
