use std::collections::HashMap;
use std::time::{Duration, Instant};

use longhaul_core::plan::{MatrixPlan, Workload};
use longhaul_core::units::{Bytes, Rate};

use super::Cell;

/// Opening and closing a path, starting a server, comparing the copy.
const OVERHEAD: Duration = Duration::from_secs(1);
/// What a copy is guessed to reach before one was measured.
const FIRST_GUESS: Rate = Rate::from_bps(1_000_000_000);

/// Guesses how long runs take, from the plan and then from the runs so far.
pub(super) struct Estimate {
    memory: Duration,
    bytes: Vec<Bytes>,
    seen: HashMap<(usize, u128), Duration>,
    begun: Instant,
}

impl Estimate {
    /// `bytes` are what each entry copies.
    pub(super) fn new(plan: &MatrixPlan, bytes: Vec<Bytes>) -> Self {
        let seconds = plan.memory.seconds + plan.memory.omit_seconds;
        Estimate {
            memory: Duration::from_secs(u64::from(seconds)) + OVERHEAD,
            bytes,
            seen: HashMap::new(),
            begun: Instant::now(),
        }
    }

    pub(super) fn started(&mut self) {
        self.begun = Instant::now();
    }

    pub(super) fn ended(&mut self, cell: &Cell) {
        self.seen.insert((cell.entry, cell.condition.rtt.as_nanos()), self.begun.elapsed());
    }

    /// The time for all of `cells`.
    pub(super) fn of(&self, plan: &MatrixPlan, cells: &[Cell]) -> Duration {
        cells.iter().map(|cell| self.of_one(plan, cell)).sum()
    }

    fn of_one(&self, plan: &MatrixPlan, cell: &Cell) -> Duration {
        let rtt = cell.condition.rtt.as_nanos();
        if plan.entries[cell.entry].workload == Workload::Memory {
            return self.memory;
        }
        // The same tool at the nearest round-trip time that was measured.
        let same_tool = self.seen.iter().filter(|((entry, _), _)| *entry == cell.entry);
        same_tool
            .min_by_key(|((_, seen), _)| seen.abs_diff(rtt))
            .map_or(FIRST_GUESS.time_for(self.bytes[cell.entry].get()) + OVERHEAD, |(_, &took)| {
                took
            })
    }

    /// When a run is given up, unless the plan says: memory, twice what it should take and half
    /// a minute; disk, as long as 20 Mb/s would take and two minutes.
    pub(super) fn limit(&self, plan: &MatrixPlan, entry: usize) -> Duration {
        const SLOWEST: Rate = Rate::from_bps(20_000_000);
        match (plan.limit_seconds, plan.entries[entry].workload) {
            (Some(seconds), _) => Duration::from_secs(u64::from(seconds)),
            (None, Workload::Memory) => self.memory * 2 + Duration::from_secs(30),
            (None, Workload::Disk) => {
                SLOWEST.time_for(self.bytes[entry].get()) + Duration::from_secs(120)
            }
        }
    }
}
