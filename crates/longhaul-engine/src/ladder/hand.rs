//! A hand at one end: the workshop of this host, or one behind a session.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longhaul_core::plan::CopyOptions;
use longhaul_core::result::{AloneReport, EndView, Finding, HostUse, SampleReport};
use longhaul_core::text::chain;
use longhaul_core::units::{Bytes, Rate};
use longhaul_core::wire::{RUNG_LIMIT_SECONDS, RungEvent, RungOrder};

use super::workshop::{Opened, Role, Workshop};
use super::write::Writing;
use crate::copy::Tree;
use crate::copy::tree::wire_path;
use crate::error::{EngineError, Result};
use crate::session::{ControlReceiver, ControlSender, Session};

/// How long the far end may take for an order beyond its own limit.
const AROUND: Duration = Duration::from_secs(20);

/// What does the work of one end.
pub(super) enum Hand {
    Here(Box<Workshop>),
    There(ControlSender, ControlReceiver),
}

/// A hand, and what it saw.
pub(super) struct Shaken {
    pub(super) hand: Hand,
    pub(super) view: EndView,
    pub(super) sample: Option<SampleReport>,
    pub(super) failure: Option<String>,
}

impl Hand {
    /// The one of this host.
    pub(super) fn here(role: &Role, options: &CopyOptions) -> Shaken {
        let opened = Workshop::open(&Tree::anywhere(), role, options);
        let Opened { workshop, view, sample, failure } = opened;
        let failure = failure.map(|error| chain(&error));
        Shaken { hand: Hand::Here(Box::new(workshop)), view, sample, failure }
    }

    /// The one at the other end of `session`.
    ///
    /// # Errors
    /// It refuses, or the channel breaks.
    pub(super) fn there(session: Session, role: &Role, options: &CopyOptions) -> Result<Shaken> {
        let (sender, receiver, _) = session.split();
        let (sources, target) = match role {
            Role::Source(paths) => (paths.iter().map(|path| wire_path(path)).collect(), None),
            Role::Sink(target) => {
                let target = target.as_deref().unwrap_or(Path::new("/dev/null"));
                (Vec::new(), Some(wire_path(target)))
            }
        };
        let mut hand = Hand::There(sender, receiver);
        match hand.ask(&RungOrder::Open { sources, target, options: options.clone() })? {
            RungEvent::Opened { mut view, sample, failure } => {
                // By the name that the user knows it by.
                view.host = hand.peer().to_owned();
                Ok(Shaken { hand, view: *view, sample, failure })
            }
            RungEvent::Refused { kind, reason } => {
                Err(EngineError::Refused { peer: hand.peer().to_owned(), kind, reason })
            }
            _ => Err(hand.out_of_turn()),
        }
    }

    pub(super) fn read(
        &mut self,
        options: &CopyOptions,
        time: Duration,
        stop: &AtomicBool,
    ) -> Result<AloneReport> {
        if let Hand::Here(workshop) = self {
            return workshop.read(options, time, stop);
        }
        let (options, seconds) = (options.clone(), time.as_secs_f64());
        self.alone(&RungOrder::Read { options, seconds })
    }

    pub(super) fn write(&mut self, writing: Writing, stop: &AtomicBool) -> Result<AloneReport> {
        if let Hand::Here(workshop) = self {
            return workshop.write(writing, stop);
        }
        let Writing { bytes, files, durable, time } = writing;
        let (bytes, seconds) = (Bytes::new(bytes), time.as_secs_f64());
        self.alone(&RungOrder::Write { bytes, files, durable, seconds })
    }

    /// Has the page cache forget the sample.
    pub(super) fn forget(&mut self, options: &CopyOptions) -> Result<()> {
        if let Hand::Here(workshop) = self {
            return workshop.forget(options);
        }
        match self.ask(&RungOrder::Forget { options: options.clone() })? {
            RungEvent::Forgotten => Ok(()),
            event => Err(self.unexpected(event)),
        }
    }

    /// An empty directory at the sink, for a copy to go into.
    pub(super) fn fresh(&mut self) -> Result<PathBuf> {
        if let Hand::Here(workshop) = self {
            return workshop.fresh();
        }
        match self.ask(&RungOrder::Fresh)? {
            RungEvent::Fresh { path } => Ok(PathBuf::from(OsStr::from_bytes(path.as_bytes()))),
            event => Err(self.unexpected(event)),
        }
    }

    /// What the host did since the last look; `None` when it cannot be told.
    pub(super) fn look(&mut self) -> Option<HostUse> {
        if let Hand::Here(workshop) = self {
            return Some(workshop.look());
        }
        match self.ask(&RungOrder::Look) {
            Ok(RungEvent::Looked(used)) => Some(used),
            _ => None,
        }
    }

    /// What the doctor finds there.
    pub(super) fn examine(&mut self, rate: Rate, rtt: Duration) -> Result<Vec<Finding>> {
        if let Hand::Here(workshop) = self {
            return Ok(workshop.examine(rate, rtt));
        }
        let order = RungOrder::Examine { rate_bps: rate, rtt_ms: rtt.as_secs_f64() * 1e3 };
        match self.ask(&order)? {
            RungEvent::Findings(findings) => Ok(findings),
            event => Err(self.unexpected(event)),
        }
    }

    fn alone(&mut self, order: &RungOrder) -> Result<AloneReport> {
        match self.ask(order)? {
            RungEvent::Done(report) => Ok(*report),
            event => Err(self.unexpected(event)),
        }
    }

    fn ask(&mut self, order: &RungOrder) -> Result<RungEvent> {
        let Hand::There(sender, receiver) = self else { return Err(EngineError::Interrupted) };
        receiver.set_timeout(Some(Duration::from_secs_f64(RUNG_LIMIT_SECONDS) + AROUND))?;
        sender.send(order)?;
        receiver.receive()
    }

    fn peer(&self) -> &str {
        match self {
            Hand::Here(_) => "this host",
            Hand::There(sender, _) => sender.peer(),
        }
    }

    fn unexpected(&self, event: RungEvent) -> EngineError {
        match event {
            RungEvent::Failed { reason } => {
                EngineError::Failed { peer: self.peer().to_owned(), reason, again: false }
            }
            _ => self.out_of_turn(),
        }
    }

    fn out_of_turn(&self) -> EngineError {
        EngineError::Protocol { peer: self.peer().to_owned(), what: "it answered out of turn" }
    }
}
