//! Damaged and foreign files in place of an archive: each gets an error that names it, and stays
//! unchanged.

mod synthetic;

use std::fs;
use std::path::Path;

use longhaul_core::result::{Certificate, Check, CheckUnit, CheckVerdict};
use longhaul_lab::archive::{Archive, Contents, FILE_NAME, PathRecord};
use longhaul_lab::{LabError, drivers, plan};

fn contents() -> Contents {
    let text = "name = \"kept\"\nrepeats = 3\n[conditions]\nrtt = [\"0ms\", \"90ms\"]\n\
                [[entries]]\ntool = \"iperf3\"\nworkload = \"memory\"\n";
    synthetic::contents(plan::parse("test", text, &drivers::all(Path::new("longhaul"))).unwrap())
}

/// Writes an archive into `dir`, and reads its file back.
fn written(dir: &Path) -> Vec<u8> {
    let contents = contents();
    let mut archive = Archive::create(dir, &contents.header).unwrap();
    contents.tools.iter().for_each(|tool| archive.keep_tool(tool).unwrap());
    contents.runs.iter().for_each(|run| archive.keep(run).unwrap());
    drop(archive);
    fs::read(dir.join(FILE_NAME)).unwrap()
}

/// Returns the error for an archive whose file is `bytes`, which both ways to open it return; the
/// file must stay.
fn said_of(bytes: &[u8]) -> LabError {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(FILE_NAME);
    fs::write(&file, bytes).unwrap();
    let error = Archive::open(dir.path()).and_then(|archive| archive.contents()).unwrap_err();
    let other =
        Archive::open_to_continue(dir.path()).and_then(|archive| archive.contents()).unwrap_err();
    assert_eq!(error.to_string(), other.to_string());
    assert_eq!(fs::read(&file).unwrap(), bytes, "the file was changed");
    let files: Vec<_> = fs::read_dir(dir.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    error
}

#[test]
fn a_discarded_archive_takes_no_foreign_file_with_it() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("out");
    let discard = || {
        let archive = Archive::create(&dir, &contents().header).unwrap();
        fs::create_dir_all(dir.join("scratch")).unwrap();
        for foreign in ["notes", "scratch/data", "runs/data"] {
            if dir.join("keep").exists() {
                fs::write(dir.join(foreign), "mine").unwrap();
            }
        }
        archive.discard(true).unwrap();
    };
    discard();
    assert!(!dir.exists());

    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("keep"), "mine").unwrap();
    discard();
    for foreign in ["keep", "notes", "scratch/data", "runs/data"] {
        assert_eq!(fs::read(dir.join(foreign)).unwrap(), b"mine", "{foreign}");
    }
    assert!(!dir.join(FILE_NAME).exists());
}

#[test]
fn an_archive_is_read_as_written() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path());
    let mut expected = contents();
    let mut archive = Archive::open_to_continue(dir.path()).unwrap();
    assert_eq!(archive.contents().unwrap(), expected);
    assert!(expected.runs.iter().all(|run| run.samples.len() == 100));

    let check = Check {
        name: "delay 45 ms".into(),
        family: "ipv4".into(),
        options: "--delay 45ms".into(),
        unit: CheckUnit::Ms,
        configured: Some(45.0),
        measured: Some(45.1),
        interval_95: None,
        emulator: None,
        samples: 100,
        criterion: "within 0.3 ms".into(),
        verdict: CheckVerdict::Pass,
        reason: String::new(),
        spoiled_by_host: false,
        machine: None,
    };
    let certificate = Certificate {
        schema: Certificate::SCHEMA.into(),
        version: "0.1.0".into(),
        started: "2026-11-21T08:00:00Z".into(),
        kernel: "6.18".into(),
        processors: 2,
        quick: true,
        bridge: false,
        seed: 1,
        seconds: 30.0,
        false_alarm: 0.004,
        checks: vec![check],
    };
    archive.keep_certificate(&certificate).unwrap();
    expected.certificate = Some(certificate);
    let document = include_str!("../../longhaul-core/tests/fixtures/path-1.json");
    let found = PathRecord {
        path: "20ms".into(),
        measured_at: "2026-11-21T09:00:00Z".into(),
        found: Some(serde_json::from_str(document).unwrap()),
        failure: None,
    };
    assert_eq!(found.mtu_bytes(), [Some(1500); 2]);
    assert!(found.rtt_ms()[0].is_some() && found.loss().is_some_and(|(of, _)| of > 3900));
    let failure = Some("no path".into());
    let missing = PathRecord { path: "0ms".into(), found: None, failure, ..found.clone() };
    expected.path_records = vec![found, missing];
    expected.path_records.iter().for_each(|record| archive.keep_path_record(record).unwrap());
    assert_eq!(Archive::open(dir.path()).unwrap().contents().unwrap(), expected);
}

#[test]
fn a_file_that_was_cut_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let whole = written(dir.path());
    for keep in [whole.len() / 2, whole.len() - 4096, 5000] {
        let error = said_of(&whole[..keep]);
        assert!(matches!(error, LabError::ArchiveDamaged { .. }), "{keep}: {error}");
        assert!(error.to_string().contains("was not changed"), "{error}");
    }
    // Less than a header does not show that it was an archive.
    let error = said_of(&whole[..50]);
    assert!(matches!(error, LabError::NotAnArchive { .. }), "{error}");
}

#[test]
fn one_changed_digit_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let whole = written(dir.path());
    for text in ["\"throughput_bps\":2", "\"repeats\":3"] {
        let mut changed = whole.clone();
        // Everywhere: SQLite leaves old copies in the free parts of its pages.
        let last = text.len() - 1;
        let places = whole.windows(text.len()).enumerate();
        for (place, _) in places.filter(|(_, bytes)| *bytes == text.as_bytes()) {
            changed[place + last] = b'1';
        }
        assert_ne!(changed, whole, "{text}");
        let error = said_of(&changed);
        assert!(matches!(error, LabError::ArchiveDamaged { .. }), "{text}: {error}");
        assert!(error.to_string().contains("does not match"), "{error}");
    }
}

#[test]
fn zeroed_pages_are_damage() {
    let dir = tempfile::tempdir().unwrap();
    let whole = written(dir.path());
    for page in 1..whole.len() / 4096 {
        let mut changed = whole.clone();
        changed[page * 4096..(page + 1) * 4096].fill(0);
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE_NAME), &changed).unwrap();
        match Archive::open(dir.path()).and_then(|archive| archive.contents()) {
            Err(LabError::ArchiveDamaged { .. }) => {}
            // A page of an index, which no report reads.
            Ok(read) => assert_eq!(read, contents(), "page {page} was read as if it were whole"),
            Err(other) => panic!("page {page}: {other}"),
        }
    }
}

#[test]
fn other_files_of_that_name_are_no_archives() {
    let error = said_of(b"the dog ate it, and this is all that is left of the figures, alas\n");
    assert!(matches!(error, LabError::ArchiveDamaged { .. }), "{error}");
    let error = said_of(b"");
    assert!(matches!(error, LabError::NotAnArchive { .. }), "{error}");

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("other");
    let other = rusqlite::Connection::open(&file).unwrap();
    other.execute_batch("CREATE TABLE birds (name TEXT)").unwrap();
    drop(other);
    let error = said_of(&fs::read(&file).unwrap());
    assert!(matches!(error, LabError::NotAnArchive { .. }), "{error}");
}

#[test]
fn a_new_archive_is_not_written_over_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(FILE_NAME);
    fs::write(&file, "precious").unwrap();
    Archive::create(dir.path(), &contents().header).unwrap_err();
    assert_eq!(fs::read(&file).unwrap(), b"precious");
}
