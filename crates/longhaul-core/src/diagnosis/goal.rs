use crate::result::{Rung, RungReport};
use crate::units::Rate;

/// What is aimed at where no disk says less.
const MOST: Rate = Rate::from_bps(100_000_000_000);
/// And at least.
const LEAST: Rate = Rate::from_bps(10_000_000_000);

/// The rate that the path's settings should allow: what the slower of the disks would carry, from
/// 10 to 100 Gb/s.
pub fn goal(rungs: &[RungReport]) -> Rate {
    let alone = rungs.iter().filter(|one| matches!(one.rung, Rung::Read | Rung::Write));
    let slower = alone.filter_map(|one| one.throughput_bps).min();
    slower.unwrap_or(LEAST).clamp(LEAST, MOST)
}
