//! A worker at one end: the local end of this host, or one behind a session.

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

/// How long the far end may take for an order beyond its own limit.
const AROUND: Duration = Duration::from_secs(20);

/// What does the work of one end.
pub(super) enum EndWorker {
    Local(Box<LocalEnd>),
    Remote(ControlSender, ControlReceiver),
}

/// A worker, and what it saw.
pub(super) struct OpenedEnd {
    pub(super) worker: EndWorker,
    pub(super) view: EndView,
    pub(super) sample: Option<SampleReport>,
    pub(super) failure: Option<String>,
}

impl EndWorker {
    /// The one of this host.
    pub(super) fn local(role: &Role, options: &CopyOptions) -> OpenedEnd {
        let opened = LocalEnd::open(&Tree::anywhere(), role, options);
        let Opened { local_end, view, sample, failure } = opened;
        let failure = failure.map(|error| chain(&error));
        OpenedEnd { worker: EndWorker::Local(Box::new(local_end)), view, sample, failure }
    }

    /// The one at the other end of `session`.
    ///
    /// # Errors
    /// It refuses, or the channel breaks.
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
                // By the name that the user knows it by.
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
            return local_end.read(options, time, stop);
        }
        let (options, seconds) = (options.clone(), time.as_secs_f64());
        self.alone(&DiagnoseOrder::Read { options, seconds })
    }

    pub(super) fn write(&mut self, writing: Writing, stop: &AtomicBool) -> Result<AloneReport> {
        if let EndWorker::Local(local_end) = self {
            return local_end.write(writing, stop);
        }
        let Writing { bytes, files, durable, time } = writing;
        let (bytes, seconds) = (Bytes::new(bytes), time.as_secs_f64());
        self.alone(&DiagnoseOrder::Write { bytes, files, durable, seconds })
    }

    /// Has the page cache forget the sample.
    pub(super) fn forget(&mut self, options: &CopyOptions) -> Result<()> {
        if let EndWorker::Local(local_end) = self {
            return local_end.forget(options);
        }
        match self.ask(&DiagnoseOrder::Forget { options: options.clone() })? {
            DiagnoseEvent::Forgotten => Ok(()),
            event => Err(self.unexpected(event)),
        }
    }

    /// An empty directory at the sink, for a copy to go into.
    pub(super) fn fresh(&mut self) -> Result<PathBuf> {
        if let EndWorker::Local(local_end) = self {
            return local_end.fresh();
        }
        match self.ask(&DiagnoseOrder::Fresh)? {
            DiagnoseEvent::Fresh { path } => Ok(PathBuf::from(OsStr::from_bytes(path.as_bytes()))),
            event => Err(self.unexpected(event)),
        }
    }

    /// What the host did since the last look; `None` when it cannot be told.
    pub(super) fn look(&mut self) -> Option<HostUse> {
        if let EndWorker::Local(local_end) = self {
            return Some(local_end.look());
        }
        match self.ask(&DiagnoseOrder::Look) {
            Ok(DiagnoseEvent::Looked(used)) => Some(used),
            _ => None,
        }
    }

    /// What the doctor finds there.
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
