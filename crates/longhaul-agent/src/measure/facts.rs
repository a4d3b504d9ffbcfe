//! The facts about the host, as `longhaul doctor` reports them.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::run::{ChildOutcome, run_child};

/// The time between two examinations of the host.
pub(crate) const FACTS_INTERVAL: Duration = Duration::from_secs(6 * 3600);
/// The longest time of an examination.
const LIMIT: Duration = Duration::from_secs(120);

/// Returns the document of `longhaul doctor --json`; `None` if it fails.
pub(crate) fn read_facts(program: &Path, state: &Path, stop: &AtomicBool) -> Option<Value> {
    let mut command = std::process::Command::new(program);
    command.args(["doctor", "--json", "--disk"]).arg(state);
    let outcome = run_child(command, Instant::now() + LIMIT, &|| {
        stop.load(std::sync::atomic::Ordering::Relaxed)
    });
    match outcome {
        Ok(ChildOutcome::Ended { output, .. }) => serde_json::from_slice(&output).ok(),
        _ => None,
    }
}
