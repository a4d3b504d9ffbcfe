//! The active measurements of `longhaul doctor`: this host without a network.
//!
//! It measures memory, hashes and cipher on one core, a disk, and TCP over loopback, each for about
//! a second with the code of tests and copies. `longhaul_core::doctor` judges the results.

mod core;
mod disk;
mod loopback;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_core::result::Measurement;
use longhaul_core::text::chain;
use longhaul_core::units::{Bytes, Rate};

use crate::error::EngineError;

/// The duration of each measurement.
const TIME: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 800 });

/// Measures memory, hashes, cipher, the disks of `directories` and loopback. Reports each to `on`
/// before it begins. When `stop` is set, the rest is omitted.
pub fn measure(
    directories: &[PathBuf],
    stop: &AtomicBool,
    mut on: impl FnMut(&str),
) -> Vec<Measurement> {
    let mut all = Vec::new();
    let stopped = || stop.load(Ordering::Relaxed);
    for work in core::WORKS {
        if !stopped() {
            on(work.title);
            all.push(core::measure(work, TIME));
        }
    }
    for directory in directories {
        if !stopped() {
            on(&format!("disk at {}", directory.display()));
            all.extend(disk::measure(directory, TIME));
        }
    }
    if !stopped() {
        on("TCP over loopback");
        all.push(loopback::measure(TIME, stop));
    }
    all
}

/// Measures the speed of one core at copying memory and at sealing, each for `time`.
pub(crate) fn core_speeds(time: Duration) -> [Option<Rate>; 2] {
    ["memory_copy", "aes_256_gcm"].map(|name| {
        let work = core::WORKS.iter().find(|work| work.name == name)?;
        core::measure(work, time).throughput_bps
    })
}

/// Returns the measurement of `bytes` in `elapsed`.
fn measured(name: &str, title: &str, bytes: u64, elapsed: Duration, note: &str) -> Measurement {
    Measurement {
        name: name.to_owned(),
        title: title.to_owned(),
        throughput_bps: Some(Rate::mean(Bytes::new(bytes), elapsed)),
        seconds: elapsed.as_secs_f64(),
        note: note.to_owned(),
    }
}

/// Returns a measurement with the reason of its failure.
fn failed(name: &str, title: &str, error: &EngineError) -> Measurement {
    let (name, title, note) = (name.to_owned(), title.to_owned(), chain(error));
    Measurement { name, title, throughput_bps: None, seconds: 0.0, note }
}

fn file_failed<'a>(
    operation: &'static str,
    path: &'a Path,
) -> impl Fn(std::io::Error) -> EngineError + Copy + 'a {
    move |source| EngineError::File { operation, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_measured_and_no_file_remains() {
        let dir = tempfile::tempdir().unwrap();
        let mut reports = 0;
        let path = dir.path().to_owned();
        let all = measure(&[path], &AtomicBool::new(false), |_| reports += 1);
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        let expected = [
            "memory_copy",
            "blake3",
            "xxh3",
            "aes_256_gcm",
            "disk_write",
            "disk_read",
            "loopback_tcp",
        ];
        assert_eq!(names, expected);
        assert!(all.iter().all(|one| one.throughput_bps.is_some()), "{all:?}");
        assert!(all.iter().all(|one| one.throughput_bps.unwrap().bps() > 0), "{all:?}");
        assert_eq!(reports, 6);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_unwritable_disk_is_reported_and_the_rest_is_measured() {
        let one = disk::measure(Path::new("/no/such/directory"), TIME);
        assert!(one.iter().all(|one| one.throughput_bps.is_none()));
        assert!(one[0].note.contains("/no/such/directory"), "{}", one[0].note);
        assert!(measure(&[], &AtomicBool::new(true), |_| {}).is_empty());
    }
}
