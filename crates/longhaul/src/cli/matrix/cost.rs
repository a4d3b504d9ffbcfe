//! The estimated cost of a matrix: printed before the first run, and confirmed by `--yes` if high.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::anyhow;
use longhaul_core::plan::MatrixPlan;
use longhaul_core::units::Bytes;
use longhaul_lab::data::SpaceNeeds;
use longhaul_lab::drivers::{Detected, Driver};
use longhaul_lab::runner::{Cost, detect};

use crate::exit::{self, Coded};

/// A longer matrix needs `--yes`, because the user may have meant a smaller one.
const LONG: Duration = Duration::from_secs(3600);

/// Formats the cost like `96 runs, about 42 min; 2.15 GB of disk, no memory`.
pub(super) fn words(cost: &Cost) -> String {
    let Cost { runs, time, space } = cost;
    let amount = |bytes: Bytes, of: &str| match bytes.get() {
        0 => format!("no {of}"),
        _ => format!("{bytes} of {of}"),
    };
    let (disk, memory) = (amount(space.disk, "disk"), amount(space.memory, "memory"));
    let far = amount(space.far, "disk at the far end");
    let far = if space.far.get() > 0 { format!(", {far}") } else { String::new() };
    format!("{runs} runs, about {}; {disk}, {memory}{far}", minutes(*time))
}

/// Rejects a matrix that needs much time or memory, unless `yes` is set.
pub(super) fn check(cost: &Cost, yes: bool) -> Result<(), Coded> {
    match too_much(cost, SpaceNeeds::available_memory()) {
        Some(what) if !yes => {
            let advice = "add --yes, or reduce it with --scale, --only or --repeats";
            Err(Coded::new(exit::USAGE, anyhow!("the matrix needs {what}; {advice}")))
        }
        _ => Ok(()),
    }
}

fn too_much(cost: &Cost, available: Option<Bytes>) -> Option<String> {
    if cost.time > LONG {
        return Some(format!("about {}", minutes(cost.time)));
    }
    // The other half is for the tools and the packets in flight.
    let available = available.filter(|free| cost.space.memory.get() > free.get() / 2)?;
    Some(format!("{} of the {available} of free memory", cost.space.memory))
}

fn minutes(time: Duration) -> String {
    match time.as_secs().div_ceil(60) {
        minutes @ 0..=99 => format!("{minutes} min"),
        minutes => format!("{:.1} h", minutes as f64 / 60.0),
    }
}

/// Returns a predicate for the tools that are installed on this host. Each tool is detected once.
pub(super) fn is_installed(
    drivers: &[Box<dyn Driver>],
    plan: &MatrixPlan,
) -> impl Fn(&str) -> bool + use<> {
    let installed =
        |driver: &&dyn Driver| matches!(detect(*driver, plan), Detected::Installed { .. });
    let drivers = drivers.iter().map(|driver| &**driver);
    let names: HashSet<&'static str> = drivers.filter(installed).map(Driver::name).collect();
    move |tool| names.contains(tool)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(minutes: u64, memory: Bytes) -> Cost {
        let space = SpaceNeeds { memory, ..SpaceNeeds::default() };
        Cost { runs: 96, time: Duration::from_secs(60 * minutes), space }
    }

    #[test]
    fn more_than_an_hour_or_half_of_the_memory_needs_yes() {
        let free = Some(Bytes::gib(4));
        assert_eq!(too_much(&cost(60, Bytes::gib(2)), free), None);
        assert!(too_much(&cost(61, Bytes::new(0)), free).unwrap().contains("61 min"));
        assert!(too_much(&cost(1, Bytes::gib(3)), free).unwrap().contains("3.00 GiB of the 4.00"));
        assert!(check(&cost(120, Bytes::new(0)), false).is_err());
        assert!(check(&cost(120, Bytes::new(0)), true).is_ok());
        let text = words(&cost(300, Bytes::gib(1)));
        assert_eq!(text, "96 runs, about 5.0 h; no disk, 1.00 GiB of memory");
        let real = Cost {
            space: SpaceNeeds { far: Bytes::gib(2), ..SpaceNeeds::default() },
            ..cost(1, Bytes::new(0))
        };
        assert!(words(&real).ends_with("no memory, 2.00 GiB of disk at the far end"));
    }
}
