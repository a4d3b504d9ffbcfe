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
    /// Independently with a correlation, as netem computes it: the random number of a segment is a
    /// mean of a new number and that of the segment before. The share of lost segments differs from
    /// `rate`, which is the reason why netem's manual advises against it.
    Correlated {
        /// The threshold of the random numbers.
        rate: Probability,
        /// The weight of the previous random number.
        correlation: Probability,
    },
    /// A Gilbert-Elliott channel with loss in both states. Probabilities apply per segment.
    GilbertElliott {
        /// The transition from the good to the bad state (p).
        to_bad: Probability,
        /// The transition from the bad to the good state (r).
        to_good: Probability,
        /// The loss in the bad state (1-h).
        bad_loss: Probability,
        /// The loss in the good state (1-k).
        good_loss: Probability,
    },
    /// The four-state chain of netem. It delivers in gaps and in parts of bursts; it loses in the
    /// other parts of bursts, and single segments in gaps. Probabilities apply per segment.
    FourState {
        /// From a gap to the losses of a burst (p13).
        gap_to_burst: Probability,
        /// From the losses of a burst to a gap (p31).
        burst_to_gap: Probability,
        /// From the losses of a burst to deliveries in the burst (p32).
        burst_to_delivery: Probability,
        /// From deliveries in a burst to losses (p23).
        delivery_to_burst: Probability,
        /// From a gap to the loss of a single segment (p14).
        gap_to_single: Probability,
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
            Loss::Independent { rate }
            | Loss::Bursty { rate, .. }
            | Loss::Correlated { rate, .. } => Some(*rate),
            Loss::GilbertElliott { .. }
            | Loss::FourState { .. }
            | Loss::Pattern { .. }
            | Loss::Trace(_) => None,
        }
    }

    /// Returns whether lost segments are drawn at random.
    pub fn is_random(&self) -> bool {
        !matches!(self, Loss::Pattern { .. } | Loss::Trace(_))
    }

    /// Parses `P[:R[:1-H[:1-K]]]`. The defaults are those of tc: without R losses are independent.
    pub(super) fn parse_gilbert_elliott(text: &str) -> Result<Loss, &'static str> {
        let given = probabilities(text, 4).ok_or(GILBERT_ELLIOTT)?;
        let value = |index: usize, default| given.get(index).copied().unwrap_or(default);
        let to_bad = given[0];
        Ok(Loss::GilbertElliott {
            to_bad,
            to_good: value(1, complement(to_bad)),
            bad_loss: value(2, Probability::ONE),
            good_loss: value(3, Probability::ZERO),
        })
    }

    /// Parses `P13[:P31[:P32[:P23[:P14]]]]`. The defaults are those of tc.
    pub(super) fn parse_four_state(text: &str) -> Result<Loss, &'static str> {
        let given = probabilities(text, 5).ok_or(FOUR_STATE)?;
        let value = |index: usize, default| given.get(index).copied().unwrap_or(default);
        let gap_to_burst = given[0];
        Ok(Loss::FourState {
            gap_to_burst,
            burst_to_gap: value(1, complement(gap_to_burst)),
            burst_to_delivery: value(2, Probability::ZERO),
            delivery_to_burst: value(3, Probability::ONE),
            gap_to_single: value(4, Probability::ZERO),
        })
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
            Loss::FourState {
                gap_to_burst,
                gap_to_single,
                burst_to_gap,
                burst_to_delivery,
                ..
            } => {
                let sums = [(gap_to_burst, gap_to_single), (burst_to_gap, burst_to_delivery)];
                match sums.iter().find(|(one, other)| one.get() + other.get() > 1.0 + ROUNDING) {
                    None => Ok(()),
                    Some((one, other)) => {
                        let value = format!("{one} and {other}");
                        Err(LinkPlanError::value("loss-state", value, FOUR_STATE))
                    }
                }
            }
            Loss::Independent { .. }
            | Loss::Correlated { .. }
            | Loss::GilbertElliott { .. }
            | Loss::Pattern { .. } => Ok(()),
        }
    }
}

const GILBERT_ELLIOTT: &str = "the channel is given by one to four probabilities, P:R:1-H:1-K: from good to bad, \
                               from bad to good, loss in the bad and loss in the good state, such as \
                               0.001:0.2:0.5:0";

const FOUR_STATE: &str = "the chain is given by one to five probabilities, P13:P31:P32:P23:P14, where P13 + P14 \
                          and P31 + P32 are at most 1, such as 0.01:0.3:0.1:0.5:0.001";

/// The error of a sum of two probabilities that were given in percent.
const ROUNDING: f64 = 1e-9;

/// Parses one to `most` probabilities.
fn probabilities(text: &str, most: usize) -> Option<Vec<Probability>> {
    let all: Vec<Probability> = text.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    (all.len() <= most).then_some(all)
}

fn complement(p: Probability) -> Probability {
    Probability::try_from(1.0 - p.get()).unwrap_or_default()
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
