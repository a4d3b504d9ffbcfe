//! Jitter, with files of measured delays, and reordering of a link.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::MAX_DELAY;
use super::{LinkPlanError, Probability, Trace, TraceError, TraceFile};
use crate::units::seconds;
use crate::units::{format_span, parse_span};

/// The variation of the delay between segments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Jitter {
    /// The distribution of the variation.
    pub spread: DelayDistribution,
    /// True if a segment may overtake earlier ones; otherwise it waits until they have left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reorder: bool,
}

/// The distribution of the addition to the delay. The resulting delay is never negative.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DelayDistribution {
    /// Uniform between minus and plus `spread`.
    Uniform {
        /// Half the width.
        #[serde(rename = "spread_seconds", with = "seconds")]
        spread: Duration,
    },
    /// Normal, with mean zero.
    Normal {
        /// The standard deviation.
        #[serde(rename = "spread_seconds", with = "seconds")]
        spread: Duration,
    },
    /// Pareto with shape 3, shifted to mean zero: a long tail of late segments. The earliest
    /// segments are 0.58 of `spread` early.
    Pareto {
        /// The standard deviation.
        #[serde(rename = "spread_seconds", with = "seconds")]
        spread: Duration,
    },
    /// Drawn from the values of a file with equal probability and added to the delay.
    File(TraceFile<DelaySamples>),
}

impl Jitter {
    /// The form of a valid text, for error messages.
    pub const FORM: &str = "jitter is a spread of at most 10s with a distribution: 1ms:uniform, \
                            1ms:normal (the default), 1ms:pareto or file:PATH; ':reorder' after \
                            it lets segments overtake each other";
    /// The largest spread.
    pub const MAX_SPREAD: Duration = Duration::from_secs(10);

    /// Returns the longest addition to the delay, except for the rarest segments; it determines
    /// memory budgets.
    pub fn longest(&self) -> Duration {
        match &self.spread {
            DelayDistribution::Uniform { spread } => *spread,
            // Less than 1 in 10^4 segments is later with either distribution.
            DelayDistribution::Normal { spread } => *spread * 4,
            DelayDistribution::Pareto { spread } => *spread * 25,
            DelayDistribution::File(file) => {
                file.content().map_or(Duration::ZERO, |file| file.longest())
            }
        }
    }

    pub(super) fn validate(&self) -> Result<(), LinkPlanError> {
        match &self.spread {
            DelayDistribution::Uniform { spread }
            | DelayDistribution::Normal { spread }
            | DelayDistribution::Pareto { spread } => {
                if *spread > Self::MAX_SPREAD {
                    return Err(LinkPlanError::value("jitter", format_span(*spread), Self::FORM));
                }
                Ok(())
            }
            DelayDistribution::File(file) => file.check("jitter"),
        }
    }
}

impl FromStr for Jitter {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (text, reorder) = match text.strip_suffix(":reorder") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let spread = match text.split_once(':') {
            Some(("file", "")) => return Err(Self::FORM),
            Some(("file", path)) => DelayDistribution::File(TraceFile::named(path)),
            other => {
                let (span, kind) = other.unwrap_or((text, "normal"));
                let spread = parse_span(span).map_err(|_| Self::FORM)?;
                match kind {
                    "uniform" => DelayDistribution::Uniform { spread },
                    "normal" => DelayDistribution::Normal { spread },
                    "pareto" => DelayDistribution::Pareto { spread },
                    _ => return Err(Self::FORM),
                }
            }
        };
        Ok(Jitter { spread, reorder })
    }
}

/// Reordering: some segments arrive later than segments sent after them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reorder {
    /// The share of segments that are delayed.
    pub rate: Probability,
    /// The length of their delay.
    pub extent: Extent,
}

/// The length of a reordered segment's delay, in later segments or as a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// The segment waits until this many later segments have left: the reordering extent of RFC
    /// 4737, section 4.2.
    Segments(u32),
    /// The segment waits for this time, which bounds the late time offset of RFC 4737, section 4.3.
    #[serde(rename = "seconds", with = "seconds")]
    Time(Duration),
}

impl Reorder {
    /// The form of a valid text, for error messages.
    pub const FORM: &str = "reordering is a probability from 0 to 1 and how far segments are held \
                            back, 1 to 1000 segments or at most 10s: 0.01:3 or 0.01:5ms";
    /// The largest extent in segments.
    pub const MAX_SEGMENTS: u32 = 1000;
    /// The default extent, at which TCP considers a segment lost (RFC 5681).
    pub const DEFAULT_EXTENT: Extent = Extent::Segments(3);

    pub(super) fn validate(&self) -> Result<(), LinkPlanError> {
        let good = match self.extent {
            Extent::Segments(count) => (1..=Self::MAX_SEGMENTS).contains(&count),
            Extent::Time(time) => !time.is_zero() && time <= Jitter::MAX_SPREAD,
        };
        if good { Ok(()) } else { Err(LinkPlanError::value("reorder", self, Self::FORM)) }
    }
}

impl FromStr for Reorder {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (rate, extent) = match text.split_once(':') {
            None => (text, Self::DEFAULT_EXTENT),
            Some((rate, extent)) => match extent.parse() {
                Ok(count) => (rate, Extent::Segments(count)),
                Err(_) => (rate, Extent::Time(parse_span(extent).map_err(|_| Self::FORM)?)),
            },
        };
        Ok(Reorder { rate: rate.parse().map_err(|_| Self::FORM)?, extent })
    }
}

impl std::fmt::Display for Reorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.extent {
            Extent::Segments(count) => write!(f, "{}:{count}", self.rate),
            Extent::Time(time) => write!(f, "{}:{}", self.rate, format_span(time)),
        }
    }
}

/// Measured delays, one per line, such as `1.5ms`; a number without unit is seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct DelaySamples(Vec<Duration>);

impl DelaySamples {
    /// Returns the delays in the order of the file; at least one.
    pub fn values(&self) -> &[Duration] {
        &self.0
    }

    /// Returns the largest delay.
    pub fn longest(&self) -> Duration {
        self.0.iter().copied().max().unwrap_or_default()
    }
}

impl Trace for DelaySamples {
    fn parse(text: &str) -> Result<Self, TraceError> {
        let span = |(line, content)| {
            parse_span(content)
                .ok()
                .filter(|span| *span <= MAX_DELAY)
                .ok_or(TraceError::Line { line, expected: "a delay of at most 30s, such as 1.5ms" })
        };
        let samples = super::trace::lines(text).map(span).collect::<Result<Vec<_>, _>>()?;
        if samples.is_empty() { Err(TraceError::Empty) } else { Ok(DelaySamples(samples)) }
    }

    fn entries(&self) -> u64 {
        self.0.len() as u64
    }
}
