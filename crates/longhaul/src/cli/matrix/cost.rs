//! What a matrix takes, shown before it is begun; what takes much is begun only when asked twice.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::anyhow;
use longhaul_core::plan::MatrixPlan;
use longhaul_core::units::Bytes;
use longhaul_lab::data::Room;
use longhaul_lab::drivers::{Detected, Driver};
use longhaul_lab::runner::{Cost, detect};

use crate::exit::{self, Coded};

/// Beyond it a user may have meant less.
const LONG: Duration = Duration::from_secs(3600);

/// `96 runs, about 42 min; 2.15 GB of disk, no memory`
pub(super) fn words(cost: &Cost) -> String {
    let Cost { runs, time, room } = cost;
    let amount = |bytes: Bytes, of: &str| match bytes.get() {
        0 => format!("no {of}"),
        _ => format!("{bytes} of {of}"),
    };
    let (disk, memory) = (amount(room.disk, "disk"), amount(room.memory, "memory"));
    let far = amount(room.far, "disk at the far end");
    let far = if room.far.get() > 0 { format!(", {far}") } else { String::new() };
    format!("{runs} runs, about {}; {disk}, {memory}{far}", minutes(*time))
}

/// Refuses what takes long or much unless `yes` was said.
pub(super) fn check(cost: &Cost, yes: bool) -> Result<(), Coded> {
    match too_much(cost, Room::available_memory()) {
        Some(what) if !yes => {
            let advice = "add --yes, or make it smaller with --scale, --only or --repeats";
            Err(Coded::new(exit::USAGE, anyhow!("this matrix takes {what}; {advice}")))
        }
        _ => Ok(()),
    }
}

fn too_much(cost: &Cost, available: Option<Bytes>) -> Option<String> {
    if cost.time > LONG {
        return Some(format!("about {}", minutes(cost.time)));
    }
    // The other half is for the tools and the packets under way.
    let available = available.filter(|there| cost.room.memory.get() > there.get() / 2)?;
    Some(format!("{} of the {available} of memory that are free", cost.room.memory))
}

fn minutes(time: Duration) -> String {
    match time.as_secs().div_ceil(60) {
        minutes @ 0..=99 => format!("{minutes} min"),
        minutes => format!("{:.1} h", minutes as f64 / 60.0),
    }
}

/// Whether a tool is on this host, as far as the plan needs it here, each looked for once.
pub(super) fn is_installed(
    drivers: &[Box<dyn Driver>],
    plan: &MatrixPlan,
) -> impl Fn(&str) -> bool + use<> {
    let installed =
        |driver: &&dyn Driver| matches!(detect(*driver, plan), Detected::Installed { .. });
    let drivers = drivers.iter().map(|driver| &**driver);
    let there: HashSet<&'static str> = drivers.filter(installed).map(Driver::name).collect();
    move |tool| there.contains(tool)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(minutes: u64, memory: Bytes) -> Cost {
        let room = Room { memory, ..Room::default() };
        Cost { runs: 96, time: Duration::from_secs(60 * minutes), room }
    }

    #[test]
    fn an_hour_and_half_of_the_memory_are_begun_at_once_and_more_is_not() {
        let there = Some(Bytes::gib(4));
        assert_eq!(too_much(&cost(60, Bytes::gib(2)), there), None);
        assert!(too_much(&cost(61, Bytes::new(0)), there).unwrap().contains("61 min"));
        assert!(too_much(&cost(1, Bytes::gib(3)), there).unwrap().contains("3.00 GiB of the 4.00"));
        assert!(check(&cost(120, Bytes::new(0)), false).is_err());
        assert!(check(&cost(120, Bytes::new(0)), true).is_ok());
        let said = words(&cost(300, Bytes::gib(1)));
        assert_eq!(said, "96 runs, about 5.0 h; no disk, 1.00 GiB of memory");
        let real =
            Cost { room: Room { far: Bytes::gib(2), ..Room::default() }, ..cost(1, Bytes::new(0)) };
        assert!(words(&real).ends_with("no memory, 2.00 GiB of disk at the far end"));
    }
}
