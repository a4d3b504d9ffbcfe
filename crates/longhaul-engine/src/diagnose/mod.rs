//! The steps of `longhaul diagnose`: each part of a copy measured separately, then the whole copy.
//!
//! The steps are: read the source, memory to memory over the path, source to the memory of the
//! sink's host, memory to the sink's disk, write at the sink, and the whole copy. They run in
//! rounds, so that a change of the host or path affects all of them. Each step runs the code of a
//! test ([`test`](crate::test)) or of a copy ([`copy`](crate::copy)). An end works in this process
//! or behind a session ([`serve`]).
//!
//! Files are read past the page cache, or after they were dropped from it. The steps write to a
//! temporary directory beside the target. It is removed at the end, and by the server also when its
//! client is killed. `longhaul_core::diagnosis` judges the results.

mod end;
mod local_end;
mod pace;
mod run;
mod scratch;
mod serve;
mod steps;
mod write;

use std::path::PathBuf;
use std::time::Duration;

use local_end::Role;
use longhaul_core::plan::CopyOptions;
use longhaul_core::result::{DiagnosisStep, End};
use longhaul_core::units::Bytes;
use longhaul_core::wire::Service;

use crate::error::Result;
use crate::session::{HostPort, Session};

pub use run::{DiagnoseOutcome, DiagnoseProgress, run};
pub use serve::{refuse, serve};

#[cfg(test)]
mod tests;

/// The direction of the diagnosed copy, seen from this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyDirection {
    /// Both ends are at this host.
    Local,
    /// From this host to another.
    Push,
    /// From another host to this one.
    Pull,
    /// Between two other hosts; with the address of the sink's server, if it has one.
    Between(Option<HostPort>),
}

impl CopyDirection {
    /// Returns whether `end` is at this host.
    fn is_here(&self, end: End) -> bool {
        match self {
            CopyDirection::Local => true,
            CopyDirection::Push => end == End::Sender,
            CopyDirection::Pull => end == End::Receiver,
            CopyDirection::Between(_) => false,
        }
    }

    /// Returns the end at which a test or a copy opens its session.
    fn other(&self) -> End {
        match self {
            CopyDirection::Local | CopyDirection::Push | CopyDirection::Between(_) => End::Receiver,
            CopyDirection::Pull => End::Sender,
        }
    }
}

/// The plan of a diagnosis.
#[derive(Debug, Clone)]
pub struct DiagnosePlan {
    /// The direction of the copy.
    pub way: CopyDirection,
    /// The path to copy; `None` copies memory.
    pub source: Option<PathBuf>,
    /// The target; `None` drops the bytes.
    pub target: Option<PathBuf>,
    /// The options of the copy.
    pub options: CopyOptions,
    /// The time per step, over all its rounds.
    pub time: Duration,
    /// The bytes that each step copies in a round; by default as many as the time allows.
    pub size: Option<Bytes>,
    /// The number of rounds.
    pub rounds: u32,
    /// The number of connections in the step with several.
    pub streams: u32,
}

impl DiagnosePlan {
    /// The default time per step: a diagnosis then takes less than a minute.
    pub const TIME: Duration = Duration::from_millis(3500);
    /// The default number of rounds.
    pub const ROUNDS: u32 = 2;
    /// The default number of connections: as many as a copy has soon after its start.
    pub const STREAMS: u32 = 4;

    /// Returns the steps of this plan. Without files at an end, the steps that read or write them
    /// are omitted.
    pub fn steps(&self) -> impl Iterator<Item = DiagnosisStep> + '_ {
        DiagnosisStep::ALL.into_iter().filter(|step| match step {
            DiagnosisStep::Read => self.source.is_some(),
            DiagnosisStep::Write => self.target.is_some(),
            DiagnosisStep::ReadSend | DiagnosisStep::SendWrite => {
                self.source.is_some() && self.target.is_some()
            }
            DiagnosisStep::Whole => self.source.is_some() || self.target.is_some(),
            DiagnosisStep::MemoryOne | DiagnosisStep::Memory | DiagnosisStep::Protected => true,
        })
    }

    /// Returns the title of a step of this plan.
    pub fn title(&self, step: DiagnosisStep) -> String {
        step.title(self.options.streams.unwrap_or(self.streams))
    }

    fn role(&self, end: End) -> Role {
        match end {
            End::Sender => Role::Source(self.source.iter().cloned().collect()),
            End::Receiver => Role::Sink(self.target.clone()),
        }
    }
}

/// Opens the sessions of a diagnosis.
pub trait Openers {
    /// Opens a session with the host of `end` for `service`.
    ///
    /// # Errors
    /// The host is unreachable, or refuses.
    fn open(&mut self, end: End, service: Service) -> Result<Session>;

    /// Waits for the processes of the last session, which has ended.
    fn done(&mut self);
}
