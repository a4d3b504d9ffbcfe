//! Interrupts copies in a defined state, independently of the speed of the host.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_core::plan::CopyOptions;
use longhaul_core::units::{Bytes, Rate};

use super::{CopySetup, names};
use crate::copy::CopyProgress;
use crate::error::EngineError;

/// The size of a file whose copy is to be interrupted.
pub(super) const INTERRUPTED_BYTES: usize = 20 << 20;

/// The initial rate of a copy that is to be interrupted. A copy of [`INTERRUPTED_BYTES`] takes 0.56
/// s, and its first checkpoint follows after 0.2 s.
const RATE: Rate = Rate::from_bps(300_000_000);

/// Runs `copy`, and sets its stop flag as soon as `reached` returns true for its progress.
pub(super) fn stop_when<T>(
    reached: impl Fn(&CopyProgress) -> bool + Sync,
    copy: impl FnOnce((&CopyProgress, &AtomicBool)) -> T,
) -> T {
    let (progress, stop) = (CopyProgress::default(), AtomicBool::new(false));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) && !reached(&progress) {
                std::thread::sleep(Duration::from_millis(2));
            }
            stop.store(true, Ordering::Relaxed);
        });
        let outcome = copy((&progress, &stop));
        over.store(true, Ordering::Relaxed);
        outcome
    })
}

/// Pulls `name` slowly, and interrupts the copy as soon as its journal has 1 MiB.
pub(super) fn interrupt_copy(world: &CopySetup, name: &str, options: &CopyOptions) {
    interrupt_when(world, name, options, |progress| progress.kept() >= Bytes::mib(1));
}

/// Pulls `name` slowly, and interrupts the copy as soon as `reached` returns true.
pub(super) fn interrupt_when(
    world: &CopySetup,
    name: &str,
    options: &CopyOptions,
    reached: impl Fn(&CopyProgress) -> bool + Sync,
) {
    interrupt_at(world, name, (options, RATE), reached);
}

/// Pulls `name` at a rate, and interrupts the copy as soon as `reached` returns true. If the copy
/// ends earlier because the host is busy, the target is deleted and the copy repeated at a lower
/// rate.
pub(super) fn interrupt_at(
    world: &CopySetup,
    name: &str,
    (options, rate): (&CopyOptions, Rate),
    reached: impl Fn(&CopyProgress) -> bool + Sync,
) {
    let target = world.near(name.trim_end_matches("/."));
    let existed = target.exists();
    for slower in [1, 3, 9] {
        let rate_bps = Some(Rate::from_bps(rate.bps() / slower));
        let slow = CopyOptions { rate_bps, ..options.clone() };
        let copy = |control: (&_, &_)| world.pull_with_progress(&[name], name, &slow, control);
        match stop_when(&reached, copy) {
            Err(EngineError::Interrupted) if has_journal(&target) => return,
            // The interruption came after the last file.
            Ok(_) | Err(EngineError::Interrupted) if target.is_dir() => {
                fs::remove_dir_all(&target).unwrap();
            }
            Ok(_) | Err(EngineError::Interrupted) => fs::remove_file(&target).unwrap(),
            Err(other) => panic!("{other:?}"),
        }
        if existed {
            fs::create_dir(&target).unwrap();
        }
    }
    panic!("each of three copies of {name} ended before it was interrupted");
}

/// Returns whether a copy into `target` or to it has a journal.
fn has_journal(target: &Path) -> bool {
    let is_journal = |name: &String| name.ends_with(".journal");
    let directories = [target.is_dir().then_some(target), target.parent()];
    directories.into_iter().flatten().any(|directory| names(directory).iter().any(is_journal))
}

/// Runs all cases at the same time, because they mostly wait.
pub(super) fn at_once<T: Send>(cases: impl IntoIterator<Item = T>, case: impl Fn(T) + Sync) {
    let case = &case;
    std::thread::scope(|scope| {
        for one in cases {
            scope.spawn(move || case(one));
        }
    });
}
