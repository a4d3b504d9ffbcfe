//! The loss of segments.

use serde::{Deserialize, Serialize};

use super::{LinkPlanError, Probability, SegmentSet, Trace, TraceError, TraceFile};

/// The model that determines lost segments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Loss {
    /// Each segment independently.
    Independent {
        /// The probability of loss.
        rate: Probability,
    },
    /// In bursts: a Gilbert-Elliott channel that loses nothing in its good state and everything in
    /// its bad state.
    Bursty {
        /// The share of segments that is lost in the long run.
        rate: Probability,
        /// The mean number of adjacent segments that one burst loses.
        mean_burst_segments: f64,
    },
    /// Segments given by their numbers.
    Pattern {
        /// The numbers of the lost segments.
        segments: SegmentSet,
    },
    /// Segments determined by a file.
    Trace(TraceFile<LossTrace>),
}

impl Loss {
    /// The largest mean burst length.
    pub const MAX_BURST: f64 = 1e9;

    /// Returns the share of lost segments, if the plan states it.
    pub fn rate(&self) -> Option<Probability> {
        match self {
            Loss::Independent { rate } | Loss::Bursty { rate, .. } => Some(*rate),
            Loss::Pattern { .. } | Loss::Trace(_) => None,
        }
    }

    pub(super) fn validate(&self) -> Result<(), LinkPlanError> {
        match self {
            Loss::Bursty { rate, mean_burst_segments: mean } => {
                if !(1.0..=Self::MAX_BURST).contains(mean) {
                    return Err(LinkPlanError::value(
                        "loss-burst",
                        mean,
                        "the mean length of a burst is from 1 to 1e9 segments",
                    ));
                }
                // At least one segment passes between two bursts, which limits the rate.
                if rate.get() > mean / (1.0 + mean) {
                    return Err(LinkPlanError::value(
                        "loss",
                        rate,
                        "with loss-burst B at most B/(1+B) can be lost, as at least one \
                         segment passes between two bursts",
                    ));
                }
                Ok(())
            }
            Loss::Trace(file) => file.check("loss-trace"),
            Loss::Independent { .. } | Loss::Pattern { .. } => Ok(()),
        }
    }
}

/// A file of `0` (delivered) and `1` (lost), one per segment, repeated from its start. White space
/// and lines that begin with `#` are skipped.
#[derive(Debug, Clone, PartialEq)]
pub struct LossTrace {
    segments: u64,
    lost: SegmentSet,
}

impl LossTrace {
    /// Returns the lost segments.
    pub fn lost(&self) -> &SegmentSet {
        &self.lost
    }
}

impl Trace for LossTrace {
    fn parse(text: &str) -> Result<Self, TraceError> {
        let mut segments = 0;
        let mut lost = Vec::new();
        for (line, content) in super::trace::lines(text) {
            for mark in content.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
                segments += 1;
                match mark {
                    b'0' => {}
                    b'1' => lost.push(segments..=segments),
                    _ => return Err(TraceError::Line { line, expected: "only 0 and 1" }),
                }
            }
        }
        let lost = SegmentSet::new(lost, Some(segments)).ok_or(TraceError::Empty)?;
        Ok(LossTrace { segments, lost })
    }

    fn entries(&self) -> u64 {
        self.segments
    }
}
