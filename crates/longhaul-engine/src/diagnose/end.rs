//! The work of one end of a diagnosis, done by this process or by a server.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longhaul_core::plan::CopyOptions;
use longhaul_core::result::{AloneReport, EndView, Finding, HostUse, SampleReport};
use longhaul_core::text::chain;
use longhaul_core::units::{Bytes, Rate};
use longhaul_core::wire::{DIAGNOSE_LIMIT_SECONDS, DiagnoseEvent, DiagnoseOrder};

use super::local_end::{LocalEnd, Opened, Role};
use super::write::Writing;
use crate::copy::Tree;
use crate::copy::tree::wire_path;
use crate::error::{EngineError, Result};
use crate::session::{ControlReceiver, ControlSender, Session};

/// The time that an answer may take beyond the time limit of its order.
const AROUND: Duration = Duration::from_secs(20);

/// One end of a diagnosis.
pub(super) enum EndWorker {
    Local(Box<LocalEnd>),
    Remote(ControlSender, ControlReceiver),
}

/// An end that was opened, and the first examination of its host.
pub(super) struct OpenedEnd {
    pub(super) worker: EndWorker,
    pub(super) view: EndView,
    pub(super) sample: Option<SampleReport>,
    pub(super) failure: Option<String>,
}

impl EndWorker {
    /// Opens the end at this host.
    pub(super) fn local(role: &Role, options: &CopyOptions) -> OpenedEnd {
        let opened = LocalEnd::open(&Tree::anywhere(), role, options);
        let Opened { local_end, view, sample, failure } = opened;
        let failure = failure.map(|error| chain(&error));
        OpenedEnd { worker: EndWorker::Local(Box::new(local_end)), view, sample, failure }
    }

    /// Opens the end at the server of `session`.
    ///
    /// # Errors
    /// The server refuses, or the channel breaks.
    pub(super) fn remote(
        session: Session,
        role: &Role,
        options: &CopyOptions,
    ) -> Result<OpenedEnd> {
        let (sender, receiver, _) = session.split();
        let (sources, target) = match role {
            Role::Source(paths) => (paths.iter().map(|path| wire_path(path)).collect(), None),
            Role::Sink(target) => {
                let target = target.as_deref().unwrap_or(Path::new("/dev/null"));
                (Vec::new(), Some(wire_path(target)))
            }
        };
        let mut worker = EndWorker::Remote(sender, receiver);
        match worker.ask(&DiagnoseOrder::Open { sources, target, options: options.clone() })? {
            DiagnoseEvent::Opened { mut view, sample, failure } => {
                // The user knows the host by the name in the command.
                view.host = worker.peer().to_owned();
                Ok(OpenedEnd { worker, view: *view, sample, failure })
            }
            DiagnoseEvent::Refused { kind, reason } => {
                Err(EngineError::Refused { peer: worker.peer().to_owned(), kind, reason })
            }
            _ => Err(worker.out_of_turn()),
        }
    }

    pub(super) fn read(
        &mut self,
        options: &CopyOptions,
        time: Duration,
        stop: &AtomicBool,
    ) -> Result<AloneReport> {
        if let EndWorker::Local(local_end) = self {
            return local_end.read(options, time, None, stop);
        }
        let (options, seconds) = (options.clone(), time.as_secs_f64());
        self.alone(&DiagnoseOrder::Read { options, seconds })
    }

    pub(super) fn write(&mut self, writing: Writing, stop: &AtomicBool) -> Result<AloneReport> {
        if let EndWorker::Local(local_end) = self {
            return local_end.write(writing, stop);
        }
        let Writing { bytes, files, durable, time, .. } = writing;
        let (bytes, seconds) = (Bytes::new(bytes), time.as_secs_f64());
        self.alone(&DiagnoseOrder::Write { bytes, files, durable, seconds })
    }

    /// Drops the sample from the page cache.
    pub(super) fn forget(&mut self, options: &CopyOptions) -> Result<()> {
        if let EndWorker::Local(local_end) = self {
            return local_end.forget(options);
        }
        match self.ask(&DiagnoseOrder::Forget { options: options.clone() })? {
            DiagnoseEvent::Forgotten => Ok(()),
            event => Err(self.unexpected(event)),
        }
    }

    /// Creates an empty directory at the sink and returns its path for a copy.
    pub(super) fn fresh(&mut self) -> Result<PathBuf> {
        if let EndWorker::Local(local_end) = self {
            return local_end.fresh();
        }
        match self.ask(&DiagnoseOrder::Fresh)? {
            DiagnoseEvent::Fresh { path } => Ok(PathBuf::from(OsStr::from_bytes(path.as_bytes()))),
            event => Err(self.unexpected(event)),
        }
    }

    /// Returns the load of the host since the last call; `None` if the server cannot report it.
    pub(super) fn look(&mut self) -> Option<HostUse> {
        if let EndWorker::Local(local_end) = self {
            return Some(local_end.look());
        }
        match self.ask(&DiagnoseOrder::Look) {
            Ok(DiagnoseEvent::Looked(used)) => Some(used),
            _ => None,
        }
    }

    /// Examines the host as `longhaul doctor` does.
    pub(super) fn examine(&mut self, rate: Rate, rtt: Duration) -> Result<Vec<Finding>> {
        if let EndWorker::Local(local_end) = self {
            return Ok(local_end.examine(rate, rtt));
        }
        let order = DiagnoseOrder::Examine { rate_bps: rate, rtt_ms: rtt.as_secs_f64() * 1e3 };
        match self.ask(&order)? {
            DiagnoseEvent::Findings(findings) => Ok(findings),
            event => Err(self.unexpected(event)),
        }
    }

    fn alone(&mut self, order: &DiagnoseOrder) -> Result<AloneReport> {
        match self.ask(order)? {
            DiagnoseEvent::Done(report) => Ok(*report),
            event => Err(self.unexpected(event)),
        }
    }

    fn ask(&mut self, order: &DiagnoseOrder) -> Result<DiagnoseEvent> {
        let EndWorker::Remote(sender, receiver) = self else {
            return Err(EngineError::Interrupted);
        };
        receiver.set_timeout(Some(Duration::from_secs_f64(DIAGNOSE_LIMIT_SECONDS) + AROUND))?;
        sender.send(order)?;
        receiver.receive()
    }

    fn peer(&self) -> &str {
        match self {
            EndWorker::Local(_) => "this host",
            EndWorker::Remote(sender, _) => sender.peer(),
        }
    }

    fn unexpected(&self, event: DiagnoseEvent) -> EngineError {
        match event {
            DiagnoseEvent::Failed { reason } => {
                EngineError::Failed { peer: self.peer().to_owned(), reason, again: false }
            }
            _ => self.out_of_turn(),
        }
    }

    fn out_of_turn(&self) -> EngineError {
        EngineError::Protocol { peer: self.peer().to_owned(), what: "it answered out of turn" }
    }
}
