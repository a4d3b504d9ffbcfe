//! A journal of arbitrary bytes.

use std::path::Path;
use std::time::Duration;

use longhaul_core::wire::copy::CopyKey;
use twox_hash::XxHash3_128;

use super::Script;
use crate::copy::blocks::BlockSet;
use crate::copy::journal::{Claim, Journal, Past, PastFile, Setting};

/// Reads `bytes` as a journal: as they are, or their lines as records that pass their checks.
pub(super) fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let framed = script.flag();
    let text = bytes.get(1..).unwrap_or_default();
    let file = if framed { records(text) } else { text.to_vec() };
    let past = Past::read(&mut &file[..]);
    let valid = past.valid_bytes;
    assert!(valid <= file.len() as u64);
    let again = Past::read(&mut &file[..valid as usize]);
    assert_eq!(again.valid_bytes, valid, "without the invalid part it is read differently");
    assert_eq!(again.files, past.files);
    for past in past.files.values() {
        if let PastFile::Partial { extents, .. } = past {
            check_claims(extents);
        }
    }
    reopen(&file);
}

/// Returns the lines of `text`, each as a record with its length and hash.
fn records(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        bytes.extend((line.len() as u32).to_be_bytes());
        bytes.extend(line);
        bytes.extend(XxHash3_128::oneshot(line).to_be_bytes());
    }
    bytes
}

/// Checks that the blocks of extents stay within the file.
fn check_claims(claims: &[Claim]) {
    for block in [4096, 1 << 20, 4 << 20] {
        for size in [0, 1, block - 1, block, 10 * block + 1, u64::MAX] {
            let fitting = claims.iter().filter(|claim| claim.fits(size));
            let extents: Vec<_> = fitting.map(|claim| (claim.offset, claim.length)).collect();
            let blocks = BlockSet::whole_in(&extents, block, size);
            assert!(blocks.count() <= size.div_ceil(block), "{extents:?} {block} {size}");
        }
    }
}

/// Opens the file as the journal of a copy, then of a second copy, and checks that both read the
/// same.
fn reopen(file: &[u8]) {
    let dir = memory_dir();
    let key = CopyKey::new(3);
    let name = format!(".longhaul-{}.journal", key.as_str());
    std::fs::write(dir.path().join(&name), file).expect("a file is written");
    let first = open(dir.path(), &key);
    let second = open(dir.path(), &key);
    assert!(second.is_usable(), "the first has begun it");
    if first.is_usable() {
        assert_eq!(first.files, second.files);
    }
}

/// Returns a new directory in memory, if the host has one: on a disk most of the time of an input is
/// the wait for syncs.
fn memory_dir() -> tempfile::TempDir {
    let made = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    made.expect("a directory is made")
}

fn open(dir: &Path, key: &CopyKey) -> Past {
    let dir = std::fs::File::open(dir).expect("the directory opens");
    let (_, past) = Journal::open(dir.into(), key, setting(), Duration::ZERO, &|| false)
        .unwrap_or_else(|error| panic!("the journal does not open: {error:?}"));
    past
}

fn setting() -> Setting {
    Setting { durable: true, ..Setting::default() }
}

/// Inputs to begin from.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let fixture = |bytes: &[u8]| [&[0], bytes].concat();
    let lines = |text: &str| [&[1], text.as_bytes()].concat();
    vec![
        fixture(include_bytes!("../../../tests/fixtures/journal-1.bin")),
        fixture(include_bytes!("../../../tests/fixtures/journal-2.bin")),
        fixture(include_bytes!("../../../tests/fixtures/journal-3.bin")),
        fixture(include_bytes!("../../../tests/fixtures/journal-4.bin")),
        lines(concat!(
            r#"{"begin":{"version":2,"boot":null}}"#,
            "\n",
            r#"{"partial":{"path":"a","stamp":7,"temporary":".a.longhaul-00000000-0.part","id":{"device":1,"inode":12,"size":3145728,"mtime_seconds":5,"mtime_ns":9}}}"#,
            "\n",
            r#"{"extents":{"path":"a","extents":[[0,1048576],[2097152,18446744073709551615]]}}"#,
            "\n",
            r#"{"done":{"path":"b","stamp":8,"id":{"device":1,"inode":12,"size":3145728,"mtime_seconds":5,"mtime_ns":9}}}"#
        )),
        lines(concat!(
            r#"{"begin":{"version":1,"block_bytes":1048576,"boot":null}}"#,
            "\n",
            r#"{"partial":{"path":"a","stamp":7,"temporary":"x","id":{"device":1,"inode":12,"size":3,"mtime_seconds":5,"mtime_ns":9}}}"#,
            "\n",
            r#"{"blocks":{"path":"a","spans":[[0,4],[17592186044415,9]]}}"#
        )),
    ]
}
