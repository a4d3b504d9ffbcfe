//! Estimates the duration of a matrix.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use longhaul_core::plan::{Condition, Content, FlowTimes, MatrixPlan, MatrixRow};
use longhaul_core::units::Rate;

use super::side_flows::FILL;
use super::{PlannedRun, cells};
use crate::data::{CopyData, SpaceNeeds};
use crate::drivers::{Driver, Pace};

/// The time to open and close a path, start a server, drop caches and compare the copy, as measured
/// with bench/matrix.sh.
const OVERHEAD: Duration = Duration::from_millis(1000);
/// The assumed rate of a copy before the first measurement.
const FIRST_GUESS: Rate = Rate::from_bps(2_000_000_000);
/// The assumed time per small file in addition to its bytes: half of the time of the slowest tool
/// measured on a path without delay.
const PER_FILE: Duration = Duration::from_micros(200);

/// The estimated cost of a matrix before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// The runs of all passes of the plan, without tools that are not installed.
    pub runs: usize,
    /// The time for these runs.
    pub time: Duration,
    /// The disk space and memory.
    pub space: SpaceNeeds,
}

impl Cost {
    /// Estimates the cost of a plan whose rows copy `sources`, with the tools that `drivers` find.
    pub fn of(
        plan: &MatrixPlan,
        drivers: &[Box<dyn Driver>],
        sources: &[Option<CopyData>],
        installed: &dyn Fn(&str) -> bool,
    ) -> Self {
        let estimate = Estimate::new(plan, drivers, sources);
        let rows = &estimate.rows;
        let tool = |cell: &PlannedRun| plan.entries[rows[cell.row].entry].tool.as_str();
        let own = cells(plan).into_iter().filter(|cell| cell.repeat <= plan.repeats);
        let all: Vec<PlannedRun> = own.filter(|cell| installed(tool(cell))).collect();
        let copied = rows.iter().zip(sources);
        let copied = copied.filter_map(|(row, source)| Some((source.as_ref()?, row.clients)));
        let space = SpaceNeeds::of(copied, plan.real.is_some());
        Cost { runs: all.len(), time: estimate.of(&all), space }
    }
}

/// Estimates the duration of runs from the plan, and corrects the estimate with completed runs.
pub(super) struct Estimate {
    limit: Option<Duration>,
    cool_down: Duration,
    recovery: Option<FlowTimes>,
    /// For each entry, whether flows run beside its tool.
    beside: Vec<bool>,
    rows: Vec<MatrixRow>,
    conditions: Vec<Condition>,
    sizes: Vec<Size>,
    measured: HashMap<(usize, usize), Duration>,
    begun: Instant,
}

/// The properties of a row's source that determine its duration.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    bytes: u64,
    files: u64,
    pace: Pace,
}

impl Estimate {
    pub(super) fn new(
        plan: &MatrixPlan,
        drivers: &[Box<dyn Driver>],
        sources: &[Option<CopyData>],
    ) -> Self {
        let rows = plan.rows();
        let size = |(row, source): (&MatrixRow, &Option<CopyData>)| {
            let tool = &plan.entries[row.entry].tool;
            let driver = drivers.iter().find(|driver| driver.name() == tool);
            let pace = driver.map_or(Pace::default(), |driver| driver.pace());
            let Some(source) = source else { return Size { pace, ..Size::default() } };
            let clients = u64::from(row.clients);
            let bytes = source.bytes.get().saturating_mul(clients);
            Size { bytes, files: source.files.saturating_mul(clients), pace }
        };
        Estimate {
            limit: plan.limit_seconds.map(|seconds| Duration::from_secs(seconds.into())),
            cool_down: plan.cool_down(),
            recovery: plan.recovery,
            beside: plan.entries.iter().map(|entry| entry.beside > 0).collect(),
            sizes: rows.iter().zip(sources).map(size).collect(),
            conditions: plan.conditions(),
            rows,
            measured: HashMap::new(),
            begun: Instant::now(),
        }
    }

    pub(super) fn started(&mut self) {
        self.begun = Instant::now();
    }

    pub(super) fn ended(&mut self, cell: &PlannedRun) {
        self.measured.insert((cell.row, cell.condition), self.begun.elapsed());
    }

    /// Returns the estimated time for all of `cells`.
    pub(super) fn of(&self, cells: &[PlannedRun]) -> Duration {
        cells.iter().map(|cell| self.of_one(cell)).sum()
    }

    fn of_one(&self, cell: &PlannedRun) -> Duration {
        match self.measured.get(&(cell.row, cell.condition)) {
            Some(took) => *took,
            None => self.guess(cell),
        }
    }

    /// Returns the estimated duration of a run. If the row was measured over another path, the
    /// estimate is scaled by the error there.
    fn guess(&self, cell: &PlannedRun) -> Duration {
        let plain = self.by_plan(cell.row, cell.condition);
        if self.timed(cell.row).is_some() {
            return plain;
        }
        let rtt = |condition: usize| self.conditions[condition].rtt.as_nanos();
        let same = self.measured.iter().filter(|((row, _), _)| *row == cell.row);
        let nearest = same.min_by_key(|((_, c), _)| rtt(*c).abs_diff(rtt(cell.condition)));
        nearest.map_or(plain, |((row, condition), took)| {
            let guessed = self.by_plan(*row, *condition).as_secs_f64();
            plain.mul_f64((took.as_secs_f64() / guessed).clamp(0.2, 20.0))
        })
    }

    fn by_plan(&self, row: usize, condition: usize) -> Duration {
        let path = &self.conditions[condition];
        let time = self.timed(row).unwrap_or_else(|| {
            let Size { bytes, files, pace } = self.sizes[row];
            let rate = path.rate.map_or(FIRST_GUESS, |rate| rate.min(FIRST_GUESS));
            // Two round trips to connect, and eight for slow start.
            let begin = path.rtt * 10;
            let streams = u64::from(self.rows[row].streams.unwrap_or(1) * self.rows[row].clients);
            let bytes_at_once = pace.window.filter(|_| !path.rtt.is_zero());
            let rate = bytes_at_once.map_or(rate, |window| {
                Rate::mean(window, path.rtt).min(Rate::from_bps(rate.bps() / streams.max(1)))
            });
            let trips = files.saturating_mul(u64::from(pace.trips_per_file));
            let trips = path.rtt.mul_f64(trips as f64);
            let limit = self.limit.unwrap_or(Duration::from_secs(86_400));
            let shared = bytes / streams.max(1);
            let bytes = if bytes_at_once.is_some() { shared } else { bytes };
            (rate.time_for(bytes) + PER_FILE.mul_f64(files as f64) + trips + begin).min(limit)
        });
        time + self.around(row, path) + OVERHEAD + self.cool_down
    }

    /// Returns the maximum time in which flows run alone before and after the tool of a row.
    fn around(&self, row: usize, path: &Condition) -> Duration {
        let beside = self.beside[self.rows[row].entry];
        let fill = path.rate.map_or(Duration::ZERO, |_| FILL);
        self.recovery
            .filter(|_| beside)
            .map_or(Duration::ZERO, |times| times.before() + fill + times.after())
    }

    /// Returns the duration of a timed test; `None` for a copy.
    fn timed(&self, row: usize) -> Option<Duration> {
        match self.rows[row].work.content {
            Content::Timed { seconds, omit_seconds } => {
                Some(Duration::from_secs(u64::from(seconds + omit_seconds)))
            }
            _ => None,
        }
    }

    /// Returns the time limit of a run unless the plan sets one. A timed test gets twice its
    /// expected duration plus 30 s; a copy gets the time for 20 Mb/s and 20 files per second plus 2
    /// minutes.
    pub(super) fn limit(&self, row: usize) -> Duration {
        const SLOWEST: Rate = Rate::from_bps(20_000_000);
        const SLOWEST_FILE: Duration = Duration::from_millis(50);
        self.limit.unwrap_or_else(|| match self.timed(row) {
            Some(time) => time * 2 + Duration::from_secs(30),
            None => {
                let Size { bytes, files, .. } = self.sizes[row];
                let files = SLOWEST_FILE.mul_f64(files as f64);
                SLOWEST.time_for(bytes) + files + Duration::from_secs(120)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::drivers;
    use crate::plan::parse;

    #[test]
    fn a_guess_follows_the_plan_and_then_what_was_measured() {
        let text = "name = \"x\"\nrepeats = 2\n[conditions]\nrtt = [\"0ms\", \"180ms\"]\n\
                    [disk]\nsize = \"100MB\"\n\
                    [[entries]]\ntool = \"iperf3\"\nworkload = \"memory\"\n\
                    [[entries]]\ntool = \"scp\"\nworkload = \"disk\"\n";
        let drivers = drivers::all(Path::new("longhaul"));
        let plan = parse("x", text, &drivers).unwrap();
        let sources = crate::data::sources(&plan, None).unwrap();
        let mut estimate = Estimate::new(&plan, &drivers, &sources);
        let of = |estimate: &Estimate, row, condition| {
            estimate.of(&[PlannedRun { repeat: 1, row, condition }]).as_secs_f64()
        };
        assert_eq!(of(&estimate, 0, 1), 15.0, "ten seconds, four omitted, and the overhead");
        assert!(of(&estimate, 1, 0) < 3.0);
        // 2 MiB per 180 ms are 93 Mb/s.
        assert!((9.0..14.0).contains(&of(&estimate, 1, 1)), "{}", of(&estimate, 1, 1));
        assert!(estimate.limit(1) > Duration::from_secs(150));

        estimate.measured.insert((1, 0), Duration::from_secs(5));
        assert_eq!(of(&estimate, 1, 0), 5.0);
        assert!(of(&estimate, 1, 1) > 20.0, "slower than guessed here, and so there");

        let mut beside = plan.clone();
        beside.recovery = Some(FlowTimes { before_seconds: 5, after_seconds: 7 });
        beside.entries[0].beside = 1;
        let with_flows = Estimate::new(&beside, &drivers, &sources);
        assert_eq!(of(&with_flows, 0, 1), 27.0);

        let cost = Cost::of(&plan, &drivers, &sources, &|tool| tool == "scp");
        assert_eq!(cost.runs, 4);
        assert!(cost.time > Duration::from_secs(20) && cost.time < Duration::from_secs(40));
        assert_eq!(cost.space.memory.get(), 0);
        assert!(cost.space.disk.get() >= 105_000_000);
    }
}
