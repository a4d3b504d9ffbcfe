//! The order of runs.

use longhaul_core::plan::{MatrixPlan, PlanCell};

use crate::data::split_mix;

/// One cell in one pass, which is one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedRun {
    /// The pass, from 1.
    pub repeat: u32,
    /// The index of the plan's row.
    pub row: usize,
    /// The index of the plan's condition.
    pub condition: usize,
}

/// Returns all cells in running order, up to the last pass that the plan allows: complete passes,
/// each shuffled with the plan's seed.
///
/// Each pass is a randomized complete block: slow changes of the host (another tenant, a warming
/// disk) affect all tools equally, and an interrupted matrix has complete passes.
pub fn cells(plan: &MatrixPlan) -> Vec<PlannedRun> {
    let cells = plan.cells();
    let mut all = Vec::new();
    for repeat in 1..=plan.passes() {
        let of = |cell: &PlanCell| PlannedRun { repeat, row: cell.row, condition: cell.condition };
        let mut pass: Vec<PlannedRun> = cells.iter().map(of).collect();
        shuffle(&mut pass, plan.seed ^ (u64::from(repeat) << 32));
        all.extend(pass);
    }
    all
}

/// Shuffles `items` with the algorithm of Fisher and Yates. The bias of the remainder is below
/// 2^-50.
fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed;
    for last in (1..items.len()).rev() {
        let pick = split_mix(&mut state) % (last as u64 + 1);
        items.swap(last, pick as usize);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::drivers;
    use crate::plan::Shipped;

    #[test]
    fn each_pass_is_complete_and_has_a_separate_order() {
        let plan = Shipped::named("default").unwrap();
        let plan = plan.plan(&drivers::all(Path::new("longhaul"))).unwrap();
        let all = cells(&plan);
        let size = plan.rows().len() * plan.conditions().len();
        assert_eq!(all.len(), 3 * size);
        let place = |cell: &PlannedRun| (cell.row, cell.condition);
        let passes: Vec<Vec<_>> =
            all.chunks(size).map(|pass| pass.iter().map(place).collect()).collect();
        assert_ne!(passes[0], passes[1]);
        let sorted = |mut pass: Vec<_>| {
            pass.sort();
            pass
        };
        assert_eq!(sorted(passes[0].clone()), sorted(passes[2].clone()));
        assert_eq!(cells(&plan), all);
    }
}
