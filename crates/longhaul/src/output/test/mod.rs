//! A memory-to-memory test as text for terminals of 80 columns: a heading, a line per interval, and
//! a block that ends with the goodput and the reason for it.

mod block;
mod lines;
#[cfg(test)]
mod sample;
pub(super) mod words;

use longhaul_core::plan::{Direction, Protocol, TestPlan};

/// The assumed width of a terminal.
const COLUMNS: usize = 80;

/// The text of one test.
pub(crate) struct TestText {
    target: String,
    head: String,
    direction: Direction,
    protocol: Protocol,
}

impl TestText {
    /// Returns the text of a test of `plan` against `target`.
    pub(crate) fn new(target: &str, plan: &TestPlan) -> Self {
        let target = words::short(target);
        let head = lines::parameters(&target, plan);
        TestText { target, head, direction: plan.direction, protocol: plan.protocol }
    }
}
