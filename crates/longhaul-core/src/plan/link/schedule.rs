//! Rate and delay over time.
//!
//! A line of a step file has a time since the link's start and the value from then on. The value of
//! the first line also holds before it. A last line `TIME repeat` restarts the file at that time;
//! without it the last value stays.
//!
//! ```text
//! # a link that halves every ten seconds
//! 0    100M
//! 5s   50M
//! 10s  repeat
//! ```
//!
//! A file of integers is Mahimahi's format: each line is a millisecond at which 1500 bytes may
//! pass, and the last one is also the period of the file (Netravali et al., USENIX ATC 2015;
//! mm-link(1)).

use std::time::Duration;

use super::error::{MAX_DELAY, MIN_RATE};
use super::{Trace, TraceError};
use crate::units::{Rate, parse_span};

/// A value that changes at given times.
#[derive(Debug, Clone, PartialEq)]
pub struct Steps<T> {
    /// The values by time, at least one; the first at 0.
    steps: Vec<(Duration, T)>,
    /// The period, if the values repeat; it ends after the last step.
    period: Option<Duration>,
}

impl<T: Copy> Steps<T> {
    /// Creates values from their start times, which increase from 0, and the time after which they
    /// repeat; `None` without a value.
    pub(super) fn new(steps: Vec<(Duration, T)>, period: Option<Duration>) -> Option<Self> {
        (!steps.is_empty()).then_some(Steps { steps, period })
    }

    /// Returns the value at `time` since the start, and the time of the next change, if there is
    /// one.
    pub fn at(&self, time: Duration) -> (T, Option<Duration>) {
        let cycle = match self.period {
            Some(period) => {
                let nanos = period.as_nanos();
                Duration::from_nanos((time.as_nanos() / nanos * nanos) as u64)
            }
            None => Duration::ZERO,
        };
        let inside = time - cycle;
        let next = self.steps.partition_point(|(start, _)| *start <= inside);
        let end = self.steps.get(next).map(|(start, _)| *start).or(self.period);
        (self.steps[next.max(1) - 1].1, end.map(|end| cycle + end))
    }

    /// Returns the start time of each value, in order of time.
    pub fn steps(&self) -> impl Iterator<Item = (Duration, T)> {
        self.steps.iter().copied()
    }

    /// Returns the period, if the values repeat.
    pub fn period(&self) -> Option<Duration> {
        self.period
    }

    /// Returns the values in order of time.
    pub fn values(&self) -> impl Iterator<Item = T> {
        self.steps.iter().map(|(_, value)| *value)
    }

    fn parse(
        text: &str,
        expected: &'static str,
        value: impl Fn(&str) -> Option<T>,
    ) -> Result<Self, TraceError> {
        let mut steps: Vec<(Duration, T)> = Vec::new();
        let mut period = None;
        let mut last: Option<Duration> = None;
        for (line, content) in super::trace::lines(text) {
            let wrong = || TraceError::Line { line, expected };
            let (time, what) = content.split_once(char::is_whitespace).ok_or_else(wrong)?;
            let time = parse_span(time).map_err(|_| wrong())?;
            if period.is_some() || last.is_some_and(|last| time <= last) {
                return Err(TraceError::Line { line, expected: "a time after that before it" });
            }
            match what.trim() {
                "repeat" if last.is_some() => period = Some(time),
                what => {
                    let start = if last.is_none() { Duration::ZERO } else { time };
                    steps.push((start, value(what).ok_or_else(wrong)?));
                }
            }
            last = Some(time);
        }
        Steps::new(steps, period).ok_or(TraceError::Empty)
    }
}

/// The rate over time.
#[derive(Debug, Clone, PartialEq)]
pub enum RateSchedule {
    /// Rates that start at given times; at a rate of zero no packet passes.
    Steps(Steps<Rate>),
    /// Mahimahi's opportunities: milliseconds at which 1500 bytes may pass, in ascending order. The
    /// last one is the period and above 0.
    Opportunities(Vec<u64>),
}

impl RateSchedule {
    /// The bytes that may pass at one of Mahimahi's opportunities.
    pub const OPPORTUNITY_BYTES: u64 = 1500;
    /// The largest time in ms.
    const MAX_MS: u64 = 10 * 365 * 86_400_000;

    /// Returns the highest rate; for opportunities, over the busiest 100 ms.
    pub fn peak(&self) -> Rate {
        match self {
            RateSchedule::Steps(steps) => steps.values().max().unwrap_or_default(),
            RateSchedule::Opportunities(times) => {
                let mut first = 0;
                let mut most = 1;
                for (i, ms) in times.iter().enumerate() {
                    while times[first] + 100 <= *ms {
                        first += 1;
                    }
                    most = most.max(i - first + 1);
                }
                Rate::from_bps(most as u64 * Self::OPPORTUNITY_BYTES * 8 * 10)
            }
        }
    }

    fn opportunities(text: &str) -> Result<Self, TraceError> {
        const EXPECTED: &str = "a whole number of milliseconds, not below the one before it";
        let mut times: Vec<u64> = Vec::new();
        for (line, content) in super::trace::lines(text) {
            let wrong = TraceError::Line { line, expected: EXPECTED };
            match content.parse() {
                Ok(ms) if ms <= Self::MAX_MS && times.last().is_none_or(|last| *last <= ms) => {
                    times.push(ms);
                }
                _ => return Err(wrong),
            }
        }
        match times.last() {
            None => Err(TraceError::Empty),
            Some(0) => {
                Err(TraceError::Stuck("the last opportunity is at 0 ms, so the file never ends"))
            }
            Some(_) => Ok(RateSchedule::Opportunities(times)),
        }
    }
}

impl Trace for RateSchedule {
    fn parse(text: &str) -> Result<Self, TraceError> {
        let first = super::trace::lines(text).next().ok_or(TraceError::Empty)?;
        if !first.1.contains(char::is_whitespace) {
            return Self::opportunities(text);
        }
        let expected = "a time and a rate of 0 or from 1 kb/s, such as '5s 10M', or 'TIME repeat'";
        let steps = Steps::parse(text, expected, |what| {
            what.parse().ok().filter(|rate: &Rate| rate.bps() == 0 || *rate >= MIN_RATE)
        })?;
        let last = steps.values().last().unwrap_or_default();
        let passes = match steps.period {
            Some(_) => steps.values().any(|rate| rate.bps() > 0),
            None => last.bps() > 0,
        };
        if passes {
            Ok(RateSchedule::Steps(steps))
        } else {
            Err(TraceError::Stuck("the rate stays 0 forever, so nothing would pass"))
        }
    }

    fn entries(&self) -> u64 {
        match self {
            RateSchedule::Steps(steps) => steps.steps.len() as u64,
            RateSchedule::Opportunities(times) => times.len() as u64,
        }
    }
}

/// The one-way delay over time.
#[derive(Debug, Clone, PartialEq)]
pub struct DelaySchedule(Steps<Duration>);

impl DelaySchedule {
    /// Returns the delay at `time` since the start, and the time of its next change, if there is
    /// one.
    pub fn at(&self, time: Duration) -> (Duration, Option<Duration>) {
        self.0.at(time)
    }

    /// Returns the longest delay.
    pub fn longest(&self) -> Duration {
        self.0.values().max().unwrap_or_default()
    }
}

impl Trace for DelaySchedule {
    fn parse(text: &str) -> Result<Self, TraceError> {
        let expected = "a time and a delay of at most 30s, such as '5s 45ms', or 'TIME repeat'";
        let delay = |what: &str| parse_span(what).ok().filter(|delay| *delay <= MAX_DELAY);
        Steps::parse(text, expected, delay).map(DelaySchedule)
    }

    fn entries(&self) -> u64 {
        self.0.steps.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn steps_last_until_the_next_one_and_repeat_on_request() {
        let once = DelaySchedule::parse("0 10ms\n5s 20ms\n").unwrap();
        assert_eq!(once.at(S(4)), (Duration::from_millis(10), Some(S(5))));
        assert_eq!(once.at(S(500)), (Duration::from_millis(20), None));
        let again = DelaySchedule::parse("0 10ms\n5 20ms\n10 repeat").unwrap();
        assert_eq!(again.at(S(10)), (Duration::from_millis(10), Some(S(15))));
        assert_eq!(again.at(S(17)), (Duration::from_millis(20), Some(S(20))));
    }

    #[test]
    fn an_invalid_trace_is_refused_with_its_line() {
        for (text, says) in [
            ("", "has no entries"),
            ("0 10M\n5 fast", "line 2"),
            ("0 10M\n0 20M", "line 2"),
            ("5s 10M\n1s 20M", "line 2"),
            ("5s 10M\n5s repeat", "line 2"),
            ("0 10M\n5 0", "stays 0 forever"),
            ("0 0\n5 repeat", "stays 0 forever"),
            ("5\n4", "line 2"),
            ("0\n0", "never ends"),
            ("1\n2.5", "line 2"),
            ("0 10M\n10 repeat\n20 5M", "line 3"),
            ("0 10", "line 1"),
        ] {
            let error = RateSchedule::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_first_line_determines_the_format() {
        let mahimahi = RateSchedule::parse("1\n2\n2\n200\n").unwrap();
        assert_eq!(mahimahi, RateSchedule::Opportunities(vec![1, 2, 2, 200]));
        assert_eq!(mahimahi.peak(), Rate::from_bps(3 * 12_000 * 10));
        let steps = RateSchedule::parse("0 10M\n1s 0\n2s repeat").unwrap();
        assert_eq!((steps.peak(), steps.entries()), (Rate::from_bps(10_000_000), 2));
    }
}
