//! Records of earlier versions stay readable, and continue; files of other programs are refused.

use std::path::Path;

use longhaul_sys::traffic::LinkCounters;
use longhaul_watch::WatchError;
use longhaul_watch::record::{FILE_NAME, Record, Recorder};
use longhaul_watch::series::{Quantity, TrafficInterval};

/// Creates the record of a fixture in `dir`.
fn create(dir: &Path, sql: &str) {
    let connection = rusqlite::Connection::open(dir.join(FILE_NAME)).unwrap();
    connection.execute_batch(sql).unwrap();
}

#[test]
fn a_record_of_version_1_is_read_and_continued() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), include_str!("fixtures/record-1.sql"));
    let all = (0, i64::MAX);
    let record = Record::open(dir.path()).unwrap();
    let interface = record.interfaces().unwrap().remove(0);
    assert_eq!(interface.name, "lo");
    let intervals = record.intervals(&interface, all).unwrap();
    let bins = record.bins(&interface, 300, all).unwrap();
    assert_eq!(bins.iter().map(|bin| bin.intervals).sum::<u64>(), intervals.len() as u64);
    let highest = intervals.iter().map(|one| one.rate(Quantity::InBits)).fold(0.0, f64::max);
    let peak = bins.iter().map(|bin| bin.bin(Quantity::InBits).maximum).fold(0.0, f64::max);
    assert!(highest > 1e6 && (peak - highest).abs() < 1.0, "{peak} {highest}");

    let mut recorder = Recorder::open(dir.path()).unwrap();
    let last = *intervals.last().unwrap();
    let next = TrafficInterval {
        end_ms: last.end_ms + 1000,
        span_ms: 1000,
        counts: LinkCounters::default(),
    };
    recorder.push_interval("lo", None, next);
    recorder.finish().unwrap();
    assert_eq!(record.intervals(&interface, all).unwrap().len(), intervals.len() + 1);
    let days = record.bins(&interface, 86_400, all).unwrap();
    assert_eq!(days.iter().map(|bin| bin.intervals).sum::<u64>(), intervals.len() as u64 + 1);
}

#[test]
fn files_of_others_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Record::open(dir.path()), Err(WatchError::NoRecord(_))));
    let path = dir.path().join(FILE_NAME);
    std::fs::write(&path, "not a database, but long enough to have a header of a database")
        .unwrap();
    assert!(matches!(Record::open(dir.path()), Err(WatchError::NotARecord(_))));
    assert!(matches!(Recorder::open(dir.path()), Err(WatchError::NotARecord(_))));
    std::fs::remove_file(&path).unwrap();
    drop(Recorder::open(dir.path()).unwrap());
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let later = Recorder::open(dir.path()).unwrap_err();
    assert!(matches!(later, WatchError::RecordVersion { found: 99, known: 1, .. }), "{later}");
}
