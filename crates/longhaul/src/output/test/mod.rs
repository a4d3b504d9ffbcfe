//! A memory-to-memory test as text, for terminals of 80 columns: a head, a line for each interval,
//! and a block that ends with the answer and the reason for it.

mod block;
mod head;
mod lines;
#[cfg(test)]
mod sample;
pub(super) mod words;

use longhaul_core::plan::{Direction, Protocol, TestPlan};

/// Columns that a terminal has at least.
const COLUMNS: usize = 80;

/// The text of one test.
pub(crate) struct TestText {
    target: String,
    head: String,
    direction: Direction,
    protocol: Protocol,
}

impl TestText {
    /// Text for a test of `plan` against `target`.
    pub(crate) fn new(target: &str, plan: &TestPlan) -> Self {
        let target = words::short(target);
        let head = head::of(&target, plan);
        TestText { target, head, direction: plan.direction, protocol: plan.protocol }
    }
}
