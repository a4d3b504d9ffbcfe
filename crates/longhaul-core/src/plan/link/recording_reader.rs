//! Reads the recording of a path line by line, because a recording of a week has hundreds of MiB.

use std::io::{self, BufRead, Read as _};
use std::sync::Arc;
use std::time::Duration;

use super::error::{MAX_DELAY, MIN_RATE};
use super::moments::Moments;
use super::recording::{Fate, reordered};
use super::schedule::{RateSchedule, Steps};
use super::{
    PathRecording, RecordedDirection, RecordedProbes, RecordedWindow, RecordingHead, Trace,
    TraceError,
};
use crate::stats::median;
use crate::units::Rate;

/// The number of consecutive lost probes that are an outage.
const OUTAGE: usize = 3;
/// The time over which the share of losses is constant.
const LOSS_TIME: Duration = Duration::from_secs(10);
/// The minimum number of probes that must arrive in each direction.
const LEAST_PROBES: usize = 10;
/// The maximum number of slots. The rest is the time in which a recorder connects.
const MOST_SLOTS: usize = PathRecording::MOST_PROBES as usize + 360_000;
/// The maximum number of estimates of the capacity in each direction. The longest recording has an
/// interval of 1 s, and an estimate every 30 s makes 2,028,000 in its slots. They take 100 MB.
const MOST_ESTIMATES: usize = 2_100_000;
/// The longest line in bytes; a window of a second has at most 20 KiB.
const LONGEST_LINE: u64 = 16 << 20;
/// The longest file, to stop at a device without an end. A window of one probe has about 100 bytes.
const LONGEST_FILE: u64 = MOST_SLOTS as u64 * 128;

const HEAD: &str = "the properties of a recording (schema longhaul.recording/1) with an interval from 1 ms to 1 s \
     and 30 s to 240 s between estimates of the capacity";
const WINDOW: &str = "a window of a recording: seconds, up and down with delays of at most 30 s and capacities of \
                      at least 1 kb/s, in order of time, and at most 60840000 probes before its end";
const ESTIMATES: &str = "at most 2100000 estimates of the capacity in each direction";
const LINE: &str = "a line of at most 16 MiB";

impl Trace for PathRecording {
    fn parse(text: &str) -> Result<Self, TraceError> {
        Self::read(&mut text.as_bytes())
    }

    fn read(source: &mut dyn BufRead) -> Result<Self, TraceError> {
        let mut lines = Lines { source, text: Vec::new(), number: 0, left: LONGEST_FILE };
        let first = lines.next()?.ok_or(TraceError::Empty)?;
        let head: RecordingHead = serde_json::from_slice(first.text)
            .ok()
            .filter(is_valid)
            .ok_or(TraceError::Line { line: first.number, expected: HEAD })?;
        let mut directions = [Draft::default(), Draft::default()];
        while let Some(line) = lines.next()? {
            let window = match serde_json::from_slice::<RecordedWindow>(line.text) {
                // A recorder that was killed has not completed its last line.
                Err(error) if error.is_eof() && !line.is_complete => break,
                window => window.ok(),
            };
            let added = window.ok_or(WINDOW).and_then(|own| add(&mut directions, &head, &own));
            added.map_err(|expected| TraceError::Line { line: line.number, expected })?;
        }
        let interval = Duration::from_secs_f64(head.interval_seconds);
        let [up, down] = directions.map(|draft| draft.finish(interval));
        let few = TraceError::Stuck("has fewer than 10 probes that arrived in each direction");
        let (up, mut down) = up.zip(down).ok_or(few)?;
        if up.delays_us.len() == down.delays_us.len() {
            down.moments = Moments::of_answers(interval, &up.delays_us);
        }
        Ok(PathRecording { head, up, down })
    }

    fn entries(&self) -> u64 {
        self.up.fates.len() as u64
    }
}

/// Returns whether the properties are within the bounds of a recorder.
fn is_valid(head: &RecordingHead) -> bool {
    let [least, most] = [RecordingHead::LEAST_RATE_EVERY, RecordingHead::MOST_RATE_EVERY];
    head.schema == RecordingHead::SCHEMA
        && (0.001..=1.0).contains(&head.interval_seconds)
        && (least.as_secs_f64()..=most.as_secs_f64()).contains(&head.rate_every_seconds)
}

/// Adds a window to both directions, or returns what is expected instead of it.
fn add(
    drafts: &mut [Draft; 2],
    head: &RecordingHead,
    window: &RecordedWindow,
) -> Result<(), &'static str> {
    let slot = (window.seconds / head.interval_seconds).round();
    let slot = (0.0..MOST_SLOTS as f64).contains(&slot).then_some(slot as usize).ok_or(WINDOW)?;
    drafts[0].add(slot, &window.up)?;
    drafts[1].add(slot, &window.down)
}

/// The lines of a file.
struct Lines<'s> {
    source: &'s mut dyn BufRead,
    text: Vec<u8>,
    /// The number of the last line, from 1.
    number: usize,
    /// The bytes that the rest of the file may have.
    left: u64,
}

struct Line<'l> {
    number: usize,
    text: &'l [u8],
    /// True if the line ends with a line break.
    is_complete: bool,
}

impl Lines<'_> {
    /// Returns the next line that is neither empty nor a comment.
    fn next(&mut self) -> Result<Option<Line<'_>>, TraceError> {
        loop {
            self.text.clear();
            let mut rest = (&mut *self.source).take(LONGEST_LINE + 1);
            let length = rest.read_until(b'\n', &mut self.text).map_err(TraceError::Read)? as u64;
            if length == 0 {
                return Ok(None);
            }
            self.number += 1;
            if length > LONGEST_LINE {
                return Err(TraceError::Line { line: self.number, expected: LINE });
            }
            self.left = self.left.checked_sub(length).ok_or_else(|| {
                let error = io::Error::new(io::ErrorKind::FileTooLarge, "more than 7 GiB");
                TraceError::Read(error)
            })?;
            let start = self.text.trim_ascii_start().first().copied();
            if !matches!(start, None | Some(b'#')) {
                break;
            }
        }
        let is_complete = self.text.ends_with(b"\n");
        Ok(Some(Line { number: self.number, text: self.text.trim_ascii(), is_complete }))
    }
}

/// A direction while its windows are read.
#[derive(Debug, Default)]
struct Draft {
    /// The delay of each slot in us; that of the slot before if it is unknown.
    delays_us: Vec<u32>,
    fates: Vec<Fate>,
    /// The last delay.
    last_us: u32,
    arrived: usize,
    /// The estimates of the capacity, each with the slot from which on it holds.
    estimates: Vec<(usize, Rate)>,
}

impl Draft {
    fn add(&mut self, slot: usize, probes: &RecordedProbes) -> Result<(), &'static str> {
        let longest = MAX_DELAY.as_micros() as i64;
        let good = probes.delays_us.iter().flatten().all(|delay| (-1..=longest).contains(delay))
            && probes.capacity_bps.is_none_or(|rate| rate >= MIN_RATE);
        if !good || slot < self.fates.len() || slot + probes.delays_us.len() > MOST_SLOTS {
            return Err(WINDOW);
        }
        if let Some(rate) = probes.capacity_bps {
            self.estimate(rate);
            if self.estimates.len() > MOST_ESTIMATES {
                return Err(ESTIMATES);
            }
        }
        self.fates.resize(slot, Fate::Unknown);
        self.delays_us.resize(slot, self.last_us);
        for delay in &probes.delays_us {
            let fate = match delay {
                None => Fate::Unknown,
                Some(-1) => Fate::Lost,
                Some(delay) => {
                    self.arrive(*delay as u32);
                    Fate::Arrived
                }
            };
            self.fates.push(fate);
            self.delays_us.push(self.last_us);
        }
        Ok(())
    }

    fn arrive(&mut self, delay_us: u32) {
        self.last_us = delay_us;
        if self.arrived == 0 {
            // The slots before the first delay have this delay.
            self.delays_us.fill(delay_us);
        }
        self.arrived += 1;
    }

    /// Adds an estimate. It was made while no probes were sent, after those that were read so far.
    fn estimate(&mut self, rate: Rate) {
        let slot = if self.estimates.is_empty() { 0 } else { self.fates.len() };
        self.estimates.pop_if(|(last, _)| *last == slot);
        self.estimates.push((slot, rate));
    }

    fn finish(mut self, interval: Duration) -> Option<RecordedDirection> {
        if self.arrived < LEAST_PROBES {
            return None;
        }
        self.fates.shrink_to_fit();
        self.delays_us.shrink_to_fit();
        for run in self.fates.chunk_by_mut(|one, other| one == other) {
            if run.len() >= OUTAGE && run[0] == Fate::Lost {
                run.fill(Fate::Outage);
            }
        }
        let per_share = (LOSS_TIME.as_secs_f64() / interval.as_secs_f64()).ceil() as usize;
        let capacities: Vec<f64> =
            self.estimates.iter().map(|(_, rate)| rate.bps() as f64).collect();
        Some(RecordedDirection {
            losses: self.fates.chunks(per_share.max(1)).map(loss).collect(),
            reordered: reordered(&self.delays_us, &self.fates, interval),
            longest_us: self.delays_us.iter().copied().max().unwrap_or_default(),
            capacity: median(&capacities).map(|bps| Rate::from_bps(bps as u64)),
            rates: rates(&self.estimates, interval, self.fates.len()),
            moments: Moments::regular(interval, self.fates.len()),
            interval,
            delays_us: self.delays_us,
            fates: self.fates,
        })
    }
}

/// Returns the share of lost probes, without outages.
fn loss(fates: &[Fate]) -> f64 {
    let count = |fate| fates.iter().filter(|other| **other == fate).count() as f64;
    let (lost, arrived) = (count(Fate::Lost), count(Fate::Arrived));
    if lost > 0.0 { lost / (lost + arrived) } else { 0.0 }
}

/// Returns the capacity over time: each estimate holds until the next one, and the recording repeats.
fn rates(
    estimates: &[(usize, Rate)],
    interval: Duration,
    slots: usize,
) -> Option<Arc<RateSchedule>> {
    let at = |slot: usize| interval * slot as u32;
    let steps: Vec<_> = estimates.iter().map(|(slot, rate)| (at(*slot), *rate)).collect();
    let schedule = Steps::new(steps, Some(at(slots)));
    schedule.map(|steps| Arc::new(RateSchedule::Steps(steps)))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io::Read;

    use super::super::{Side, TraceFile};
    use super::*;

    const FIXTURE: &str = include_str!("../../../tests/fixtures/recording-1.jsonl");

    /// A recording of 10 ms intervals that is written while it is read: the answers take 45 ms, and
    /// each second has its first probe lost.
    struct Endless {
        text: VecDeque<u8>,
        windows: std::ops::Range<u64>,
        bytes: u64,
    }

    impl Endless {
        fn of(windows: u64) -> Endless {
            let head = FIXTURE.lines().next().unwrap();
            Endless { text: format!("{head}\n").into_bytes().into(), windows: 0..windows, bytes: 0 }
        }
    }

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.text.is_empty()
                && let Some(second) = self.windows.next()
            {
                let delays = vec!["45123"; 99].join(",");
                let line = format!(
                    "{{\"seconds\":{second}.0,\"up\":{{\"delays_us\":[-1,{delays}],\"capacity_bps\":{}}},\
                         \"down\":{{\"delays_us\":[null,{delays}]}}}}\n",
                    1_000_000 + second
                );
                self.text.extend(line.into_bytes());
            }
            let read = self.text.read(buffer)?;
            self.bytes += read as u64;
            Ok(read)
        }
    }

    #[test]
    fn a_recording_longer_than_the_limit_of_other_traces_is_read() {
        const WINDOWS: u64 = 60_000;
        let mut file = TraceFile::<PathRecording>::named("long.jsonl");
        file.load("replay", &|_| Ok(Box::new(Endless::of(WINDOWS)))).unwrap();
        let mut source = Endless::of(WINDOWS);
        io::copy(&mut source, &mut io::sink()).unwrap();
        assert!(source.bytes > 64 << 20, "{}", source.bytes);
        let recording = file.content().unwrap();
        assert_eq!(recording.time(), Duration::from_secs(WINDOWS));
        assert_eq!(file.entries, Some(WINDOWS * 100));
        let up = recording.direction(Side::Near);
        let last = Duration::from_secs(WINDOWS - 1);
        assert_eq!(up.delay_at(last), Duration::from_micros(45_123));
        assert!((up.loss_at(last) - 0.01).abs() < 1e-9);
        let Some(RateSchedule::Steps(rates)) = up.rates().map(|rates| &**rates) else { panic!() };
        assert_eq!(rates.at(last).0, Rate::from_bps(1_000_000 + WINDOWS - 1));
    }

    #[test]
    fn a_file_without_an_end_is_refused() {
        let endless = |byte: u8| {
            let mut source = io::BufReader::new(io::repeat(byte));
            PathRecording::read(&mut source).unwrap_err().to_string()
        };
        assert!(endless(b'1').contains("line 1: expected a line of at most 16 MiB"));
        assert!(endless(0).contains("line 1"));
    }

    #[test]
    fn an_incomplete_last_line_is_ignored() {
        let whole = PathRecording::parse(FIXTURE).unwrap();
        let last = FIXTURE.trim_end().rfind('\n').unwrap() + 1;
        for cut in [last, last + 1, last + 20, FIXTURE.trim_end().len() - 1] {
            let part = PathRecording::parse(&FIXTURE[..cut]).unwrap();
            assert_eq!(part.entries(), 20, "cut after {cut} bytes");
        }
        assert_eq!(PathRecording::parse(FIXTURE.trim_end()).unwrap(), whole);
        // A line that another one follows is complete.
        let broken = format!("{}\n{}", &FIXTURE[..last + 20], &FIXTURE[last..]);
        assert!(PathRecording::parse(&broken).unwrap_err().to_string().contains("line 3"));
    }

    #[test]
    fn too_many_estimates_are_refused() {
        let probes = RecordedProbes { delays_us: vec![Some(1000)], capacity_bps: Some(MIN_RATE) };
        let mut draft = Draft::default();
        for slot in 0..MOST_ESTIMATES {
            draft.add(slot, &probes).unwrap();
        }
        assert_eq!(draft.add(MOST_ESTIMATES, &probes), Err(ESTIMATES));
        assert!(ESTIMATES.contains(&MOST_ESTIMATES.to_string()));
    }

    #[test]
    fn a_time_between_estimates_that_no_recorder_has_is_refused() {
        let every = |seconds: &str| {
            let own = format!("{{\"rate_every_seconds\":{seconds},");
            PathRecording::parse(&FIXTURE.replacen('{', &own, 1))
        };
        for good in ["30", "240.0"] {
            assert!(every(good).is_ok(), "{good}");
        }
        for bad in ["-1", "0", "29.9", "240.1", "1e300"] {
            let error = every(bad).unwrap_err().to_string();
            assert!(error.contains("line 1") && error.contains("30 s to 240 s"), "{bad}: {error}");
        }
    }

    #[test]
    fn a_recording_that_is_too_long_is_refused() {
        let line = FIXTURE.lines().nth(1).unwrap();
        let at = |seconds: u64| {
            let late = line.replace("\"seconds\":0.0", &format!("\"seconds\":{seconds}"));
            PathRecording::parse(&format!("{FIXTURE}\n{late}"))
        };
        assert!(at(8 * 86_400).unwrap_err().to_string().contains("line 5"));
        assert_eq!(at(86_400).unwrap().time(), Duration::from_millis(86_400_200));
    }
}
