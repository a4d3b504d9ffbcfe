//! Recordings of paths: delay, loss, reordering and capacity over time, which a link can replay.
//!
//! docs/design/recording.md describes the file: a line of JSON with the properties of the recording,
//! then a line per window of time.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::moments::{Moments, in_order};
use super::{RateSchedule, Side};
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
    /// The time between estimates of the capacity.
    #[serde(default = "RecordingHead::usual_rate_every")]
    pub rate_every_seconds: f64,
}

impl RecordingHead {
    /// The schema of this version of the format.
    pub const SCHEMA: &str = "longhaul.recording/1";
    /// The shortest time between estimates: the recording pauses for a third of it.
    pub const LEAST_RATE_EVERY: Duration = Duration::from_secs(30);
    /// The longest time between estimates, each of which begins a session: a server ends a session after
    /// at least five minutes.
    pub const MOST_RATE_EVERY: Duration = Duration::from_secs(240);

    /// The time between estimates in recordings that do not state it.
    fn usual_rate_every() -> f64 {
        Self::MOST_RATE_EVERY.as_secs_f64()
    }
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
    pub(super) head: RecordingHead,
    pub(super) up: RecordedDirection,
    pub(super) down: RecordedDirection,
}

/// One direction of a recorded path, in slots of the interval between probes. A slot takes 5 bytes, and
/// 8 more for the times of entry of answers.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedDirection {
    pub(super) interval: Duration,
    /// The times at which the probes entered this direction.
    pub(super) moments: Moments,
    /// The delay of each slot in us; that of the slot before if it is unknown.
    pub(super) delays_us: Vec<u32>,
    /// The fate of each slot.
    pub(super) fates: Vec<Fate>,
    /// The share of lost probes of each ten seconds, without outages.
    pub(super) losses: Vec<f64>,
    /// The number of probes that arrived after a later one.
    pub(super) reordered: u64,
    /// The longest delay in us.
    pub(super) longest_us: u32,
    pub(super) capacity: Option<Rate>,
    /// The capacity over time.
    pub(super) rates: Option<Arc<RateSchedule>>,
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

impl PathRecording {
    /// The maximum number of probes in each direction: a week at the default interval of 10 ms. In
    /// memory such a recording has 1.1 GB.
    pub const MOST_PROBES: u64 = 7 * 86_400 * 100;

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

/// Returns the number of probes that arrived after a later one (RFC 4737, section 3).
pub(super) fn reordered(delays_us: &[u32], fates: &[Fate], interval: Duration) -> u64 {
    let probes = delays_us.iter().copied().zip(fates).enumerate();
    let arrived = probes.filter(|(_, (_, fate))| **fate == Fate::Arrived);
    let (mut latest, mut late) = (0, 0);
    in_order(interval, arrived.map(|(slot, (delay, _))| (slot, delay)), |_, slot| {
        late += u64::from(slot < latest);
        latest = latest.max(slot);
    });
    late
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
        self.reordered > 0
    }

    /// Returns the longest delay.
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.longest_us.into())
    }

    /// Returns the median of the estimates of the capacity.
    pub fn capacity(&self) -> Option<Rate> {
        self.capacity
    }

    /// Returns the capacity over time, if it was estimated. The recording repeats.
    pub fn rates(&self) -> Option<&Arc<RateSchedule>> {
        self.rates.as_ref()
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
        self.reordered
    }
}

#[cfg(test)]
mod tests {
    use super::super::Trace;
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
        assert!(with(1, "}", "").contains("line 2"));
        assert!(with(1, "100000000", "0").contains("line 2"));
        assert!(PathRecording::parse("").is_err());
        assert!(PathRecording::parse(lines[0]).unwrap_err().to_string().contains("fewer than 10"));
    }
}
