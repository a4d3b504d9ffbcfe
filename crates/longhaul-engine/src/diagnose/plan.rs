use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::plan::CopyOptions;
use longhaul_core::result::{DiagnosisStep, End};
use longhaul_core::units::Bytes;
use longhaul_core::wire::Service;

use super::local_end::Role;
use crate::error::Result;
use crate::session::{HostPort, Session};

/// Who asks whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyDirection {
    /// Both ends are this host.
    Local,
    /// From here to there.
    Push,
    /// From there to here.
    Pull,
    /// From one far end to another, whose server is this one, if there is one.
    Between(Option<HostPort>),
}

impl CopyDirection {
    /// Whether `end` is this host.
    pub(super) fn is_here(&self, end: End) -> bool {
        match self {
            CopyDirection::Local => true,
            CopyDirection::Push => end == End::Sender,
            CopyDirection::Pull => end == End::Receiver,
            CopyDirection::Between(_) => false,
        }
    }

    /// The end that a session for a test or a copy is opened with.
    pub(super) fn other(&self) -> End {
        match self {
            CopyDirection::Local | CopyDirection::Push | CopyDirection::Between(_) => End::Receiver,
            CopyDirection::Pull => End::Sender,
        }
    }
}

/// What is measured, and how long.
#[derive(Debug, Clone)]
pub struct DiagnosePlan {
    /// Who asks whom.
    pub way: CopyDirection,
    /// What is copied; `None` is memory.
    pub source: Option<PathBuf>,
    /// Where to; `None` drops the bytes.
    pub target: Option<PathBuf>,
    /// As the copy would have them.
    pub options: CopyOptions,
    /// For each step, in all its rounds together.
    pub time: Duration,
    /// Bytes that each step copies in a round; by default as many as the time allows.
    pub size: Option<Bytes>,
    /// Times that each step is measured.
    pub rounds: u32,
    /// Connections of the step with several.
    pub streams: u32,
}

impl DiagnosePlan {
    /// For each step unless asked for: with what lies around, less than a minute for all.
    pub const TIME: Duration = Duration::from_millis(3500);
    /// Two: all steps, and all again.
    pub const ROUNDS: u32 = 2;
    /// Connections of the step with several: what a copy has soon after its start.
    pub const STREAMS: u32 = 4;

    /// The steps that there are: without files at an end, those that would read or write them are
    /// others already.
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

    pub(super) fn role(&self, end: End) -> Role {
        match end {
            End::Sender => Role::Source(self.source.iter().cloned().collect()),
            End::Receiver => Role::Sink(self.target.clone()),
        }
    }
}

/// Opens sessions; one for each way of reaching the ends.
pub trait Openers {
    /// A session with the host of `end` for `service`.
    ///
    /// # Errors
    /// It is not reachable, or refuses.
    fn open(&mut self, end: End, service: Service) -> Result<Session>;

    /// The session opened before is over: waits for what was started for it.
    fn done(&mut self);
}
