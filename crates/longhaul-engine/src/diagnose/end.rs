//! The work of one end of a diagnosis, done by this process or by a server.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longhaul_core::plan::CopyOptions;
use longhaul_core::result::{DiskStepReport, EndView, Finding, HostUse, SubsetReport};
use longhaul_core::text::chain;
use longhaul_core::units::{Bytes, Rate};
use longhaul_core::wire::{DIAGNOSE_LIMIT_SECONDS, DiagnoseEvent, DiagnoseOrder};

use super::local_end::{LocalEnd, OpenedLocalEnd, Role};
use super::write::Writing;
use crate::copy::Tree;
use crate::copy::tree::wire_path;
use crate::error::{EngineError, Result};
use crate::session::{ControlReceiver, ControlSender, Session};

/// The time that an answer may take beyond the time limit of its order.
const ANSWER_SLACK: Duration = Duration::from_secs(20);

/// One end of a diagnosis.
pub(super) enum EndWorker {
    /// This process works.
    Local(Box<LocalEnd>),
    /// A server works.
    Remote(RemoteEnd),
}

/// An end at a server, which executes one order after the other.
pub(super) struct RemoteEnd {
    sender: ControlSender,
    receiver: ControlReceiver,
}

/// An end that was opened, and the first examination of its host.
pub(super) struct OpenedEnd {
    pub(super) worker: EndWorker,
    pub(super) view: EndView,
    pub(super) subset: Option<SubsetReport>,
    pub(super) failure: Option<String>,
}

impl EndWorker {
    /// Opens the end at this host.
    pub(super) fn local(role: &Role, options: &CopyOptions) -> OpenedEnd {
        let opened = LocalEnd::open(&Tree::anywhere(), role, options);
        let OpenedLocalEnd { local_end, view, subset, failure } = opened;
        let failure = failure.map(|error| chain(&error));
        OpenedEnd { worker: EndWorker::Local(Box::new(local_end)), view, subset, failure }
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
        let mut end = RemoteEnd { sender, receiver };
        match end.ask(&DiagnoseOrder::Open { sources, target, options: options.clone() })? {
            DiagnoseEvent::Opened { mut view, subset, failure } => {
                // The user knows the host by the name in the command.
                view.host = end.sender.peer().to_owned();
                Ok(OpenedEnd { worker: EndWorker::Remote(end), view: *view, subset, failure })
            }
            DiagnoseEvent::Refused { kind, reason } => {
                Err(EngineError::Refused { peer: end.sender.peer().to_owned(), kind, reason })
            }
            event => Err(end.unexpected(event)),
        }
    }

    pub(super) fn read(
        &mut self,
        options: &CopyOptions,
        time: Duration,
        stop: &AtomicBool,
    ) -> Result<DiskStepReport> {
        match self {
            EndWorker::Local(end) => end.read(options, time, None, stop),
            EndWorker::Remote(end) => {
                let (options, seconds) = (options.clone(), time.as_secs_f64());
                end.report(&DiagnoseOrder::Read { options, seconds })
            }
        }
    }

    pub(super) fn write(&mut self, writing: Writing, stop: &AtomicBool) -> Result<DiskStepReport> {
        match self {
            EndWorker::Local(end) => end.write(writing, stop),
            EndWorker::Remote(end) => {
                let Writing { bytes, files, durable, time, .. } = writing;
                let (bytes, seconds) = (Bytes::new(bytes), time.as_secs_f64());
                end.report(&DiagnoseOrder::Write { bytes, files, durable, seconds })
            }
        }
    }

    /// Drops the subset from the page cache.
    pub(super) fn forget(&mut self, options: &CopyOptions) -> Result<()> {
        match self {
            EndWorker::Local(end) => end.forget(options),
            EndWorker::Remote(end) => {
                match end.ask(&DiagnoseOrder::Forget { options: options.clone() })? {
                    DiagnoseEvent::Forgotten => Ok(()),
                    event => Err(end.unexpected(event)),
                }
            }
        }
    }

    /// Creates an empty directory at the sink and returns its path for a copy.
    pub(super) fn fresh(&mut self) -> Result<PathBuf> {
        match self {
            EndWorker::Local(end) => end.fresh(),
            EndWorker::Remote(end) => match end.ask(&DiagnoseOrder::Fresh)? {
                DiagnoseEvent::Fresh { path } => {
                    Ok(PathBuf::from(OsStr::from_bytes(path.as_bytes())))
                }
                event => Err(end.unexpected(event)),
            },
        }
    }

    /// Returns the load of the host since the last call; `None` if the server cannot report it.
    pub(super) fn sample(&mut self) -> Option<HostUse> {
        match self {
            EndWorker::Local(end) => Some(end.sample()),
            EndWorker::Remote(end) => match end.ask(&DiagnoseOrder::HostUse) {
                Ok(DiagnoseEvent::HostUse(used)) => Some(used),
                _ => None,
            },
        }
    }

    /// Examines the host as `longhaul doctor` does.
    pub(super) fn examine(&mut self, rate: Rate, rtt: Duration) -> Result<Vec<Finding>> {
        match self {
            EndWorker::Local(end) => Ok(end.examine(rate, rtt)),
            EndWorker::Remote(end) => {
                let rtt_ms = rtt.as_secs_f64() * 1e3;
                match end.ask(&DiagnoseOrder::Examine { rate_bps: rate, rtt_ms })? {
                    DiagnoseEvent::Findings(findings) => Ok(findings),
                    event => Err(end.unexpected(event)),
                }
            }
        }
    }
}

impl RemoteEnd {
    /// Gives an order that reads or writes, and returns its report.
    fn report(&mut self, order: &DiagnoseOrder) -> Result<DiskStepReport> {
        match self.ask(order)? {
            DiagnoseEvent::Done(report) => Ok(*report),
            event => Err(self.unexpected(event)),
        }
    }

    fn ask(&mut self, order: &DiagnoseOrder) -> Result<DiagnoseEvent> {
        let limit = Duration::from_secs_f64(DIAGNOSE_LIMIT_SECONDS) + ANSWER_SLACK;
        self.receiver.set_timeout(Some(limit))?;
        self.sender.send(order)?;
        self.receiver.receive()
    }

    /// Returns the error of an answer that does not belong to its order.
    fn unexpected(&self, event: DiagnoseEvent) -> EngineError {
        let peer = self.sender.peer().to_owned();
        match event {
            DiagnoseEvent::Failed { reason } => EngineError::Failed { peer, reason, again: false },
            _ => EngineError::Protocol { peer, what: "it sent an unexpected answer" },
        }
    }
}
