//! Recordings of paths: delay, loss, reordering and capacity over time, which a link can replay.
//!
//! docs/design/recording.md describes the file: a line of JSON with the properties of the recording,
//! then a line per window of time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::MAX_DELAY;
use super::moments::Moments;
use super::{Side, Trace, TraceError};
use crate::stats::median;
use crate::units::Rate;

/// The first line of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordingHead {
    /// [`RecordingHead::SCHEMA`].
    pub schema: String,
    /// The version of the program.
    pub version: String,
    /// The server as the user named it.
    pub target: String,
    /// The start in seconds since 1970.
    pub started_unix_seconds: u64,
    /// The interval between probes.
    pub interval_seconds: f64,
    /// The bytes of a probe with its IP header.
    pub packet_bytes: u32,
    /// True if both ends have the same clock. Otherwise the fastest round trip of every ten seconds
    /// is assumed to be symmetric.
    pub same_clock: bool,
}

impl RecordingHead {
    /// The schema of this version of the format.
    pub const SCHEMA: &str = "longhaul.recording/1";
}

/// A window of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedWindow {
    /// The time of the first probe since the start of the recording.
    pub seconds: f64,
    /// From the recorder to the server.
    pub up: RecordedProbes,
    /// From the server to the recorder.
    pub down: RecordedProbes,
}

/// The probes of a window in one direction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RecordedProbes {
    /// The one-way delay of each probe in us, in the order of sending; -1 for a lost probe, null if
    /// the fate in this direction is unknown.
    pub delays_us: Vec<Option<i64>>,
    /// The estimated capacity, if it was measured before this window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bps: Option<Rate>,
}

/// A recorded path.
#[derive(Debug, Clone, PartialEq)]
pub struct PathRecording {
    head: RecordingHead,
    up: RecordedDirection,
    down: RecordedDirection,
}

/// One direction of a recorded path, in slots of the interval between probes.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedDirection {
    interval: Duration,
    /// The times at which the probes entered this direction.
    moments: Moments,
    /// The delay of each slot in us; that of the slot before if it is unknown.
    delays_us: Vec<u32>,
    /// The fate of each slot.
    fates: Vec<Fate>,
    /// The share of lost probes of each ten seconds, without outages.
    losses: Vec<f64>,
    reorders: bool,
    capacity: Option<Rate>,
}

/// The fate of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The probe arrived.
    Arrived,
    /// The probe was lost, and not in an outage.
    Lost,
    /// The probe was lost with its neighbors.
    Outage,
    /// No probe was sent, or its fate is unknown.
    Unknown,
}

/// The number of consecutive lost probes that are an outage.
const OUTAGE: usize = 3;
/// The time over which the share of losses is constant.
const LOSS_TIME: Duration = Duration::from_secs(10);
/// The maximum number of slots: 55 hours at the default interval.
const MOST_SLOTS: usize = 20_000_000;
/// The minimum number of probes that must arrive in each direction.
const LEAST_PROBES: usize = 10;

const HEAD: &str =
    "the properties of a recording (schema longhaul.recording/1) with an interval from 1 ms to 1 s";
const WINDOW: &str =
    "a window of a recording: seconds, up and down with delays of at most 30 s, in order of time";

impl PathRecording {
    /// Returns the properties of the recording.
    pub fn head(&self) -> &RecordingHead {
        &self.head
    }

    /// Returns the direction from `side`; near is the recorder.
    pub fn direction(&self, side: Side) -> &RecordedDirection {
        match side {
            Side::Near => &self.up,
            Side::Far => &self.down,
        }
    }

    /// Returns the duration.
    pub fn time(&self) -> Duration {
        self.up.interval * self.up.fates.len() as u32
    }
}

impl Trace for PathRecording {
    fn parse(text: &str) -> Result<Self, TraceError> {
        let mut lines = super::trace::lines(text);
        let (line, first) = lines.next().ok_or(TraceError::Empty)?;
        let head: RecordingHead = serde_json::from_str(first)
            .ok()
            .filter(|head: &RecordingHead| {
                head.schema == RecordingHead::SCHEMA
                    && (0.001..=1.0).contains(&head.interval_seconds)
            })
            .ok_or(TraceError::Line { line, expected: HEAD })?;
        let mut directions = [Draft::default(), Draft::default()];
        for (line, content) in lines {
            let window: Option<RecordedWindow> = serde_json::from_str(content).ok();
            window
                .and_then(|window| {
                    let slot = (window.seconds / head.interval_seconds).round();
                    let slot = (0.0..MOST_SLOTS as f64).contains(&slot).then_some(slot as usize)?;
                    directions[0].add(slot, &window.up)?;
                    directions[1].add(slot, &window.down)
                })
                .ok_or(TraceError::Line { line, expected: WINDOW })?;
        }
        let interval = Duration::from_secs_f64(head.interval_seconds);
        let [up, down] = directions.map(|draft| draft.finish(interval));
        match (up, down) {
            (Some(up), Some(mut down)) => {
                if up.delays_us.len() == down.delays_us.len() {
                    down.moments = Moments::of_answers(interval, &up.delays_us);
                }
                Ok(PathRecording { head, up, down })
            }
            _ => Err(TraceError::Stuck("has fewer than 10 probes that arrived in each direction")),
        }
    }

    fn entries(&self) -> u64 {
        self.up.fates.len() as u64
    }
}

/// A direction while its windows are read.
#[derive(Debug, Default)]
struct Draft {
    /// The delay of each slot; `Some(-1)` for a lost probe.
    slots: Vec<Option<i64>>,
    capacities: Vec<f64>,
}

impl Draft {
    fn add(&mut self, slot: usize, probes: &RecordedProbes) -> Option<()> {
        let longest = MAX_DELAY.as_micros() as i64;
        let good = probes.delays_us.iter().flatten().all(|delay| (-1..=longest).contains(delay));
        if !good || slot < self.slots.len() || slot + probes.delays_us.len() > MOST_SLOTS {
            return None;
        }
        self.slots.resize(slot, None);
        self.slots.extend(&probes.delays_us);
        self.capacities.extend(probes.capacity_bps.map(|rate| rate.bps() as f64));
        Some(())
    }

    fn finish(self, interval: Duration) -> Option<RecordedDirection> {
        let delay = |slot: &Option<i64>| slot.filter(|delay| *delay >= 0);
        if self.slots.iter().filter_map(delay).count() < LEAST_PROBES {
            return None;
        }
        let mut last = self.slots.iter().find_map(delay)? as u32;
        let delays_us: Vec<u32> = self
            .slots
            .iter()
            .map(|slot| {
                last = delay(slot).map_or(last, |delay| delay as u32);
                last
            })
            .collect();
        let fates = fates(&self.slots);
        let per_share = (LOSS_TIME.as_secs_f64() / interval.as_secs_f64()).ceil() as usize;
        let share = |fates: &[Fate]| {
            let count = |fate| fates.iter().filter(|other| **other == fate).count() as f64;
            let (lost, arrived) = (count(Fate::Lost), count(Fate::Arrived));
            if lost > 0.0 { lost / (lost + arrived) } else { 0.0 }
        };
        Some(RecordedDirection {
            losses: fates.chunks(per_share.max(1)).map(share).collect(),
            reorders: reordered(&self.slots, interval) > 0,
            capacity: median(&self.capacities).map(|bps| Rate::from_bps(bps as u64)),
            moments: Moments::regular(interval, fates.len()),
            interval,
            delays_us,
            fates,
        })
    }
}

fn fates(slots: &[Option<i64>]) -> Vec<Fate> {
    let mut fates: Vec<Fate> = slots
        .iter()
        .map(|slot| match slot {
            None => Fate::Unknown,
            Some(-1) => Fate::Lost,
            Some(_) => Fate::Arrived,
        })
        .collect();
    for run in fates.chunk_by_mut(|one, other| one == other) {
        if run.len() >= OUTAGE && run[0] == Fate::Lost {
            run.fill(Fate::Outage);
        }
    }
    fates
}

/// Returns the number of probes that arrived after a later one (RFC 4737, section 3).
fn reordered(slots: &[Option<i64>], interval: Duration) -> usize {
    let interval = interval.as_micros() as i64;
    let arrival = |(index, slot): (usize, &Option<i64>)| {
        slot.filter(|delay| *delay >= 0).map(|delay| (index as i64 * interval + delay, index))
    };
    let mut arrivals: Vec<_> = slots.iter().enumerate().filter_map(arrival).collect();
    arrivals.sort_unstable();
    let mut latest = 0;
    let is_late = |(_, index): &&(i64, usize)| {
        latest = latest.max(*index);
        *index < latest
    };
    arrivals.iter().filter(is_late).count()
}

impl RecordedDirection {
    /// Returns the delay of a segment that is sent at `time` since the start: that of the nearest
    /// probe. The recording repeats.
    pub fn delay_at(&self, time: Duration) -> Duration {
        Duration::from_micros(self.delays_us[self.moments.slot(time)].into())
    }

    /// Returns the probability of the loss of a segment that is sent at `time` since the start.
    pub fn loss_at(&self, time: Duration) -> f64 {
        let slot = self.moments.slot(time);
        if self.fates[slot] == Fate::Outage {
            return 1.0;
        }
        let share = slot * self.losses.len() / self.fates.len();
        self.losses[share]
    }

    /// Returns whether segments are ever lost.
    pub fn has_losses(&self) -> bool {
        self.losses.iter().any(|share| *share > 0.0) || self.fates.contains(&Fate::Outage)
    }

    /// Returns whether probes overtook each other.
    pub fn reorders(&self) -> bool {
        self.reorders
    }

    /// Returns the longest delay.
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.delays_us.iter().copied().max().unwrap_or_default().into())
    }

    /// Returns the median of the estimates of the capacity.
    pub fn capacity(&self) -> Option<Rate> {
        self.capacity
    }

    /// Returns the fates of the probes, in the order of sending.
    pub fn fates(&self) -> &[Fate] {
        &self.fates
    }

    /// Returns the interval between probes.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns the delays of the probes that arrived in ms, in the order of sending.
    pub fn delays_ms(&self) -> Vec<f64> {
        let arrived = self.delays_us.iter().zip(&self.fates).filter(|(_, f)| **f == Fate::Arrived);
        arrived.map(|(delay, _)| f64::from(*delay) / 1e3).collect()
    }

    /// Returns the number of probes that arrived after a later one.
    pub fn reordered(&self) -> u64 {
        let known =
            |(delay, fate): (&u32, &Fate)| (*fate == Fate::Arrived).then_some(i64::from(*delay));
        let slots: Vec<_> = self.delays_us.iter().zip(&self.fates).map(known).collect();
        reordered(&slots, self.interval) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXTURE: &str = include_str!("../../../tests/fixtures/recording-1.jsonl");

    #[test]
    fn the_fixture_of_version_1_reads() {
        let recording = PathRecording::parse(FIXTURE).unwrap();
        assert_eq!(recording.head().target, "far");
        assert_eq!((recording.entries(), recording.time()), (30, Duration::from_millis(300)));
        let up = recording.direction(Side::Near);
        assert_eq!(up.delay_at(Duration::from_millis(14)), Duration::from_micros(45_100));
        assert_eq!(up.capacity(), Some(Rate::from_bps(100_000_000)));
        // Slot 5 is lost and has the delay of slot 4; the slots 20 to 22 are an outage.
        assert_eq!(up.fates()[5], Fate::Lost);
        assert_eq!(up.delay_at(Duration::from_millis(50)), up.delay_at(Duration::from_millis(40)));
        assert_eq!(up.loss_at(Duration::from_millis(210)), 1.0);
        assert!((up.loss_at(Duration::from_millis(100)) - 1.0 / 27.0).abs() < 1e-9);
        assert_eq!(up.loss_at(Duration::from_millis(510)), 1.0, "the recording repeats");
        let down = recording.direction(Side::Far);
        assert_eq!((down.fates()[5], down.has_losses()), (Fate::Unknown, false));
        assert!(!up.reorders() && down.reorders() && down.reordered() == 1);
        assert_eq!(up.delays_ms().len(), 26);
    }

    #[test]
    fn a_malformed_recording_is_refused_with_its_line() {
        let lines: Vec<&str> = FIXTURE.lines().collect();
        let with = |line: usize, from: &str, to: &str| {
            let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            assert!(lines[line].contains(from), "{from}");
            lines[line] = lines[line].replace(from, to);
            PathRecording::parse(&lines.join("\n")).unwrap_err().to_string()
        };
        assert!(with(0, "recording/1", "recording/2").contains("line 1"));
        assert!(with(0, "0.01", "0").contains("line 1"));
        assert!(with(1, "45100", "45000000000").contains("line 2"));
        assert!(with(1, "45100", "-2").contains("line 2"));
        assert!(with(2, "\"seconds\":0.2", "\"seconds\":0.1").contains("line 3"));
        assert!(with(2, "\"seconds\":0.2", "\"seconds\":1e300").contains("line 3"));
        assert!(with(2, "}", "").contains("line 3"));
        assert!(PathRecording::parse("").is_err());
        assert!(PathRecording::parse(lines[0]).unwrap_err().to_string().contains("fewer than 10"));
    }
}
