//! The target rate for the doctor's examination of both hosts.

use crate::result::{DiagnosisStep, StepReport};
use crate::units::Rate;

/// The highest target rate.
const MOST: Rate = Rate::from_bps(100_000_000_000);
/// The lowest target rate.
const LEAST: Rate = Rate::from_bps(10_000_000_000);

/// Returns the rate that the path's settings should allow: the rate of the slower disk, limited to
/// 10 to 100 Gb/s.
pub fn goal(steps: &[StepReport]) -> Rate {
    let alone =
        steps.iter().filter(|one| matches!(one.step, DiagnosisStep::Read | DiagnosisStep::Write));
    let slower = alone.filter_map(|one| one.throughput_bps).min();
    slower.unwrap_or(LEAST).clamp(LEAST, MOST)
}
