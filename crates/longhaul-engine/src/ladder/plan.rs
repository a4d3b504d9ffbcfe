use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::plan::CopyOptions;
use longhaul_core::result::{End, Rung};
use longhaul_core::units::Bytes;
use longhaul_core::wire::Service;

use super::workshop::Role;
use crate::error::Result;
use crate::session::{HostPort, Session};

/// Who asks whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Both ends are this host.
    Local,
    /// From here to there.
    Push,
    /// From there to here.
    Pull,
    /// From one far end to another, whose server is this one, if there is one.
    Between(Option<HostPort>),
}

impl Way {
    /// Whether `end` is this host.
    pub(super) fn is_here(&self, end: End) -> bool {
        match self {
            Way::Local => true,
            Way::Push => end == End::Sender,
            Way::Pull => end == End::Receiver,
            Way::Between(_) => false,
        }
    }

    /// The end that a session for a test or a copy is opened with.
    pub(super) fn other(&self) -> End {
        match self {
            Way::Local | Way::Push | Way::Between(_) => End::Receiver,
            Way::Pull => End::Sender,
        }
    }
}

/// What is measured, and how long.
#[derive(Debug, Clone)]
pub struct LadderPlan {
    /// Who asks whom.
    pub way: Way,
    /// What is copied; `None` is memory.
    pub source: Option<PathBuf>,
    /// Where to; `None` drops the bytes.
    pub target: Option<PathBuf>,
    /// As the copy would have them.
    pub options: CopyOptions,
    /// For each rung, in all its rounds together.
    pub time: Duration,
    /// Bytes that each rung copies in a round; by default as many as the time allows.
    pub size: Option<Bytes>,
    /// Times that each rung is measured.
    pub rounds: u32,
    /// Connections of the rung with several.
    pub streams: u32,
}

impl LadderPlan {
    /// For each rung unless asked for: with what lies around, less than a minute for all.
    pub const TIME: Duration = Duration::from_millis(3500);
    /// Two: all rungs, and all again.
    pub const ROUNDS: u32 = 2;
    /// Connections of the rung with several: what a copy has soon after its start.
    pub const STREAMS: u32 = 4;

    /// The rungs that there are: without files at an end, those that would read or write them are
    /// others already.
    pub fn rungs(&self) -> impl Iterator<Item = Rung> + '_ {
        Rung::ALL.into_iter().filter(|rung| match rung {
            Rung::Read => self.source.is_some(),
            Rung::Write => self.target.is_some(),
            Rung::ReadSend | Rung::SendWrite => self.source.is_some() && self.target.is_some(),
            Rung::Whole => self.source.is_some() || self.target.is_some(),
            Rung::MemoryOne | Rung::Memory | Rung::Protected => true,
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
