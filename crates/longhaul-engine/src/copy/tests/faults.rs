//! Faults at the source or the sink: no file with a final name has wrong bytes, no acknowledged
//! file is lost, and a repeated copy is complete.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use longhaul_core::plan::{CopyOptions, DeleteOptions, DirectIo, Protection, Verify};
use longhaul_core::result::CopyFailure;
use longhaul_core::units::{Bytes, Rate};
use longhaul_core::wire::FilePath;
use longhaul_core::wire::copy::{
    CopyKey, CopyReply, CopyRequest, Entry, EntryKind, SinkMessage, SourceMessage, Top,
};

use super::interruption::{INTERRUPTED_BYTES, interrupt_at, interrupt_copy, interrupt_when};
use super::resume::wait_for;
use super::{CopySetup, bytes, names, options};
use crate::copy::CopyProgress;
use crate::copy::sink::{fail_at, spoil_at};
use crate::error::EngineError;

#[test]
fn a_disk_that_fails_at_any_moment_leaves_nothing_wrong() {
    let world = CopySetup::new();
    fs::create_dir(world.far("t")).unwrap();
    let contents: Vec<_> =
        (0..12).map(|i| bytes(if i < 9 { i * 700 } else { 1_200_000 })).collect();
    for (i, content) in contents.iter().enumerate() {
        fs::write(world.far(&format!("t/{i}")), content).unwrap();
    }
    // Counts the disk operations of a copy without faults.
    let first = world.near("counted");
    fs::create_dir(&first).unwrap();
    let left = fail_at(&first, i64::MAX);
    world.pull(&["t/."], "counted", &options()).unwrap();
    let operations = i64::MAX - left.load(Ordering::Relaxed);
    assert!(operations > 24, "a file needs at least a create and a rename: {operations}");
    let next = AtomicI64::new(1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let count = next.fetch_add(1, Ordering::Relaxed)
                    && count <= operations
                {
                    fails_at(&world, &contents, count);
                }
            });
        }
    });
}

/// Lets operation `count` of a copy of `contents` fail, and repeats the copy.
fn fails_at(world: &CopySetup, contents: &[Vec<u8>], count: i64) {
    let target = world.near(&format!("at-{count}"));
    fs::create_dir(&target).unwrap();
    fail_at(&target, count);
    let name = target.file_name().unwrap().to_str().unwrap();
    // With direct I/O a thread writes whole blocks, through the page cache it writes pieces.
    let direct = if count % 2 == 0 { DirectIo::Auto } else { DirectIo::Never };
    let options = CopyOptions { direct, ..options() };
    let outcome = world.pull(&["t/."], name, &options);
    let result = outcome.unwrap_or_else(|error| panic!("{count}: {error}"));
    // The fault can affect several files, because a pack and a sync have several files, or only the
    // names in the directory.
    let of_file = |failure: &&CopyFailure| Path::new(&failure.path) != target;
    let failed = result.failures.iter().filter(of_file).count() as u64;
    assert!(!result.failures.is_empty() || result.summary.durable, "{count}");
    assert_eq!(result.summary.files + failed, 12, "{count}: {:?}", result.failures);
    let mut there = 0;
    for (i, content) in contents.iter().enumerate() {
        if let Ok(copied) = fs::read(target.join(i.to_string())) {
            assert!(copied == *content, "{count}: {i} has wrong bytes");
            there += 1;
        }
    }
    assert_eq!(there, result.summary.files, "{count}: every acknowledged file exists");
    assert_eq!(names(&target).len() as u64, there, "{count}: no other file exists");
    // If this run had fewer operations than `count`, the fault is still to come.
    fail_at(&target, i64::MAX);
    let again = world.pull(&["t/."], name, &options).unwrap();
    assert_eq!((again.summary.files, again.failures.len()), (12, 0), "{count}");
    fs::remove_dir_all(&target).unwrap();
}

#[test]
fn nothing_is_deleted_if_the_new_names_are_not_durable() {
    let world = CopySetup::new();
    fs::create_dir(world.far("t")).unwrap();
    fs::write(world.far("t/new"), "new").unwrap();
    let mut delete = options();
    delete.tree.delete = Some(DeleteOptions::default());
    let target = |name: &str| {
        fs::create_dir(world.near(name)).unwrap();
        fs::write(world.near(name).join("old"), "old").unwrap();
        world.near(name)
    };
    let left = fail_at(&target("counted"), i64::MAX);
    let result = world.pull(&["t/."], "counted", &delete).unwrap();
    assert_eq!((result.summary.deleted, names(&world.near("counted"))), (1, vec!["new".into()]));
    // The last two operations are the sync of the new name and that of the deletion.
    let operations = i64::MAX - left.load(Ordering::Relaxed);
    fail_at(&target("failed"), operations - 1);
    let result = world.pull(&["t/."], "failed", &delete).unwrap();
    assert_eq!(result.failures.len(), 2, "{:?}", result.failures);
    assert!(!result.summary.durable && result.failures[0].reason.contains("sync"), "{result:?}");
    assert_eq!(names(&world.near("failed")), ["new", "old"]);
}

#[test]
fn a_copy_resumes_with_the_blocks_of_the_journal() {
    let world = CopySetup::new();
    let data = bytes(INTERRUPTED_BYTES + 77);
    fs::write(world.far("data"), &data).unwrap();
    interrupt_copy(&world, "data", &options());
    assert!(!world.near("data").exists());
    assert_eq!(names(&world.near("")).len(), 2, "the partial file and the journal");
    let result = world.pull(&["data"], "data", &options()).unwrap();
    let resumed = result.summary.resumed_bytes;
    assert!(resumed >= Bytes::mib(1) && resumed < result.summary.bytes, "{resumed}");
    assert!(fs::read(world.near("data")).unwrap() == data);
    assert_eq!(names(&world.near("")), ["data"]);
}

#[test]
fn a_copy_resumes_with_blocks_of_another_size() {
    let world = CopySetup::new();
    let data = bytes(INTERRUPTED_BYTES + 77);
    fs::write(world.far("data"), &data).unwrap();
    let of = |block| CopyOptions { block_bytes: Bytes::new(block), ..options() };
    for (block, kept) in [(256 << 10, 1), (1 << 20, 2)] {
        // Slow enough for two interruptions of the same file.
        let slow = (&of(block), Rate::from_bps(150_000_000));
        interrupt_at(&world, "data", slow, |copy| copy.kept() >= Bytes::mib(kept));
    }
    let result = world.pull(&["data"], "data", &of(192 << 10)).unwrap();
    let resumed = result.summary.resumed_bytes;
    assert!(resumed >= Bytes::mib(1) && resumed < result.summary.bytes, "{resumed}");
    assert!(fs::read(world.near("data")).unwrap() == data);
    assert_eq!(names(&world.near("")), ["data"]);
}

#[test]
fn the_digest_of_a_resumed_file_is_that_of_the_whole_file() {
    let world = CopySetup::new();
    let data = bytes(INTERRUPTED_BYTES + 77);
    fs::write(world.far("data"), &data).unwrap();
    let mut requested = options();
    requested.tree.digests = true;
    interrupt_copy(&world, "data", &requested);
    let result = world.pull(&["data"], "data", &requested).unwrap();
    assert!(result.summary.resumed_bytes >= Bytes::mib(1));
    assert_eq!(result.digests.len(), 1, "{:?}", result.failures);
    assert_eq!(result.digests[0].blake3, blake3::hash(&data).to_string());
}

#[test]
fn a_changed_source_is_copied_from_the_start() {
    let world = CopySetup::new();
    fs::write(world.far("data"), bytes(INTERRUPTED_BYTES)).unwrap();
    interrupt_copy(&world, "data", &options());
    // Size and modification time are the same, but the change time (ctime) differs.
    let before = fs::metadata(world.far("data")).unwrap();
    let file = fs::File::options().write(true).open(world.far("data")).unwrap();
    file.write_all_at(b"changed", 10).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
    assert_eq!(fs::metadata(world.far("data")).unwrap().mtime_nsec(), before.mtime_nsec());
    let result = world.pull(&["data"], "data", &options()).unwrap();
    assert_eq!(result.summary.resumed_bytes, Bytes::new(0));
    assert!(fs::read(world.near("data")).unwrap() == fs::read(world.far("data")).unwrap());
    assert_eq!(names(&world.near("")), ["data"], "the earlier partial file is deleted");
}

#[test]
fn a_changed_target_file_is_copied_again() {
    let world = CopySetup::new();
    fs::create_dir(world.far("t")).unwrap();
    for i in 0..200 {
        fs::write(world.far(&format!("t/{i:03}")), bytes(10_000 + i)).unwrap();
    }
    fs::write(world.far("t/zz"), bytes(INTERRUPTED_BYTES)).unwrap();
    fs::create_dir(world.near("t")).unwrap();
    // Interrupts when the first pack of small files has its final names and the journal has a part
    // of the large file.
    let kept = Bytes::new((1 << 20) + (0..200).map(|i| 10_000 + i).sum::<u64>());
    let placed = |copy: &CopyProgress| copy.files() >= 100 && copy.kept() >= kept;
    // Without syncs, which wait for the data of other programs too.
    let options = CopyOptions { durable: false, ..options() };
    interrupt_when(&world, "t/.", &options, placed);
    let there = |i: usize| world.near("t").join(format!("{i:03}"));
    assert!(there(0).exists() && there(1).exists() && there(2).exists());
    fs::write(there(0), "another").unwrap();
    fs::remove_file(there(1)).unwrap();
    let kept = fs::metadata(there(2)).unwrap().ino();
    let result = world.pull(&["t/."], "t", &options).unwrap();
    assert_eq!((result.summary.files, result.failures.len()), (201, 0));
    assert!(result.summary.resumed_bytes >= Bytes::mib(1), "{}", result.summary.resumed_bytes);
    assert_eq!(
        fs::metadata(there(2)).unwrap().ino(),
        kept,
        "an unchanged file is not copied again"
    );
    for i in 0..200 {
        assert!(fs::read(there(i)).unwrap() == bytes(10_000 + i), "{i}");
    }
    assert_eq!(names(&world.near("t")).len(), 201);
}

#[test]
fn the_same_copy_twice_at_once_is_refused() {
    let world = CopySetup::new();
    fs::write(world.far("data"), bytes(24 << 20)).unwrap();
    let refused = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // At this rate the copy takes 25 s.
            // After the interruption the data in flight arrive, at this rate and in small blocks.
            let small_blocks = CopyOptions { block_bytes: Bytes::kib(64), ..options() };
            let slow = (&small_blocks, Rate::from_bps(8_000_000));
            interrupt_at(&world, "data", slow, |_| refused.load(Ordering::Relaxed));
        });
        wait_for("the first copy", || names(&world.near("")).len() == 2);
        let stop = AtomicBool::new(true);
        let second = world.pull_until(&["data"], "data", &options(), &stop);
        refused.store(true, Ordering::Relaxed);
        let Err(EngineError::Refused { reason, .. }) = second else { panic!("{second:?}") };
        assert!(reason.contains("already running"), "{reason}");
    });
}

#[test]
fn sparse_files_stay_sparse() {
    let world = CopySetup::new();
    let file = fs::File::create(world.near("sparse")).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(&bytes(10_000), 5 << 20).unwrap();
    file.write_all_at(&bytes(4096), (40 << 20) + 8192).unwrap();
    let empty = fs::File::create(world.near("hole")).unwrap();
    empty.set_len((32 << 20) + 5).unwrap();
    let result = world.push(&["sparse", "hole"], ".", &options()).unwrap();
    assert_eq!((result.summary.files, result.failures.len()), (2, 0), "{:?}", result.failures);
    for name in ["sparse", "hole"] {
        assert!(fs::read(world.near(name)).unwrap() == fs::read(world.far(name)).unwrap());
        let occupied = fs::metadata(world.far(name)).unwrap().blocks() * 512;
        assert!(occupied < 100_000, "{name} occupies {occupied}");
    }
}

#[test]
fn a_directory_replaced_by_a_link_does_not_lead_out_of_the_target() {
    let world = CopySetup::new();
    fs::create_dir_all(world.near("t/d")).unwrap();
    for i in 0..50 {
        fs::write(world.near(&format!("t/d/{i}")), bytes(100)).unwrap();
    }
    let outside = world.near("outside");
    fs::create_dir(&outside).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (real, aside) = (world.far("t/d"), world.far("aside"));
            while !over.load(Ordering::Relaxed) {
                let _ = fs::rename(&real, &aside);
                let _ = symlink(&outside, &real);
                std::thread::yield_now();
                let _ = fs::remove_file(&real);
                let _ = fs::rename(&aside, &real);
            }
        });
        for _ in 0..20 {
            // The copy may fail or succeed, but must not write outside the target.
            let _ = world.push(&["t"], ".", &options());
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(names(&outside).is_empty(), "{:?}", names(&outside));
}

/// Starts a copy as a hostile source, which `sends` its messages. Returns the answers of the
/// server.
fn hostile(world: &CopySetup, sends: impl Fn(&crate::session::ControlSender)) -> Vec<SinkMessage> {
    let (sender, mut receiver, dialer) = world.session().split();
    let request = CopyRequest::Receive {
        key: CopyKey::new(1),
        target: FilePath::new(".").unwrap(),
        top: Top::Several,
        options: CopyOptions { streams: Some(1), ..options() },
    };
    sender.send(&request).unwrap();
    let socket = dialer.open(0, |_| Ok(())).unwrap();
    assert!(matches!(receiver.receive().unwrap(), CopyReply::Ready { .. }));
    receiver.set_timeout(Some(Duration::from_secs(30))).unwrap();
    sends(&sender);
    let mut messages = Vec::new();
    while let Ok(message) = receiver.receive() {
        messages.push(message);
    }
    drop(socket);
    messages
}

/// Waits until the directory of the server has exactly the files `expected`. A server deletes
/// temporary files after its last message.
#[track_caller]
pub(super) fn wait_for_files(world: &CopySetup, expected: &[&str]) {
    for _ in 0..1500 {
        if names(&world.far("")) == expected {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(names(&world.far("")), expected);
}

fn entry(id: u64, path: &str, size: u64) -> Entry {
    let kind = EntryKind::File { size_bytes: Bytes::new(size) };
    Entry { id, ..Entry::new(FilePath::new(path).unwrap(), kind, 0o644) }
}

#[test]
fn a_hostile_source_is_disconnected() {
    let world = CopySetup::new();
    let holes = |holes| Entry { holes: Some(holes), ..entry(0, "f", 5 << 20) };
    let top = Entry { kind: EntryKind::Directory, ..entry(0, ".", 0) };
    for (case, entries) in [
        ("a path that leads up", vec![entry(0, "../x", 1)]),
        ("a path that leads up inside", vec![entry(0, "a/../../x", 1)]),
        ("an absolute path", vec![entry(0, "/tmp/x", 1)]),
        ("an empty part", vec![entry(0, "a//b", 1)]),
        ("an empty path", vec![entry(0, "", 1)]),
        ("the target itself, with several sources", vec![top]),
        ("the target as a file", vec![entry(0, ".", 1)]),
        ("an id that is not the next", vec![entry(7, "f", 1)]),
        ("an id twice", vec![entry(0, "f", 1), entry(0, "g", 1)]),
        ("a hole beyond the end", vec![holes(vec![(3, 9)])]),
        ("a hole of many blocks", vec![holes(vec![(1, u64::MAX)])]),
        ("an empty hole", vec![holes(vec![(1, 0)])]),
    ] {
        let messages = hostile(&world, |sender| {
            sender.send(&SourceMessage::Entries(entries.clone())).unwrap();
        });
        let ended = matches!(messages.last(), Some(SinkMessage::Abort { again: false, .. }));
        assert!(ended, "{case}: {messages:?}");
        wait_for_files(&world, &[]);
    }
    let outside: Vec<_> = names(world.far("").parent().unwrap());
    assert_eq!(outside, ["config", "far", "near"]);
}

#[test]
fn a_file_of_any_size_costs_no_memory() {
    let world = CopySetup::new();
    let messages = hostile(&world, |sender| {
        let huge = Entry { holes: Some(vec![(0, 1)]), ..entry(0, "f", u64::MAX) };
        sender.send(&SourceMessage::Entries(vec![huge])).unwrap();
        sender.send(&SourceMessage::End { entries: 1 }).unwrap();
        sender.send(&SourceMessage::Abort { again: false }).unwrap();
    });
    assert!(matches!(messages.last(), Some(SinkMessage::Abort { .. })), "{messages:?}");
}

#[test]
fn noise_ends_only_the_session_of_its_connection() {
    let world = CopySetup::new();
    let mut state = 7_u64;
    let mut noise = |length: usize| -> Vec<u8> {
        (0..length)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect()
    };
    for round in 0..30 {
        let noise = noise(40 + round * 37);
        // Noise on a data connection after its valid data hello.
        let (sender, mut receiver, dialer) = world.session().split();
        let request = CopyRequest::Receive {
            key: CopyKey::new(2),
            target: FilePath::new(".").unwrap(),
            top: Top::Several,
            options: CopyOptions { streams: Some(1), ..options() },
        };
        sender.send(&request).unwrap();
        let mut socket = dialer.open(0, |_| Ok(())).unwrap();
        assert!(matches!(receiver.receive().unwrap(), CopyReply::Ready { .. }));
        std::io::Write::write_all(&mut socket, &noise).unwrap();
        receiver.set_timeout(Some(Duration::from_secs(30))).unwrap();
        let ended = std::iter::from_fn(|| receiver.receive::<SinkMessage>().ok())
            .any(|message| matches!(message, SinkMessage::Abort { again: true, .. }));
        assert!(ended, "the server permits another attempt");
        // Noise instead of a TLS handshake.
        let mut prober = std::net::TcpStream::connect(("127.0.0.1", world.port)).unwrap();
        let _ = std::io::Write::write_all(&mut prober, &noise);
    }
    fs::write(world.near("good"), "good").unwrap();
    assert_eq!(world.push(&["good"], ".", &options()).unwrap().summary.files, 1);
    wait_for_files(&world, &["good"]);
}

#[test]
fn rereading_finds_bytes_that_the_disk_has_changed() {
    let world = CopySetup::new();
    fs::create_dir(world.far("t")).unwrap();
    let holes = fs::File::create(world.far("t/sparse")).unwrap();
    holes.write_all_at(b"end", 9 << 20).unwrap();
    for (name, size) in [("small", 700), ("large", (5 << 20) + 77)] {
        fs::write(world.far(&format!("t/{name}")), bytes(size)).unwrap();
    }
    let read_back = CopyOptions { verify: Verify::Reread, ..options() };
    for protection in [Protection::Sealed, Protection::Bare] {
        let options = CopyOptions { protection, ..read_back.clone() };
        fs::create_dir_all(world.near("good")).unwrap();
        let good = world.pull(&["t/."], "good", &options).unwrap();
        assert_eq!((good.summary.files, good.failures.len()), (3, 0), "{good:?}");
        for name in ["small", "large", "sparse"] {
            let (there, here) = (world.far("t").join(name), world.near("good").join(name));
            assert!(fs::read(there).unwrap() == fs::read(here).unwrap(), "{name}");
        }
    }
    for target in ["in-flight", "reread"] {
        fs::create_dir(world.near(target)).unwrap();
        spoil_at(&world.near(target));
    }
    let missed = world.pull(&["t/."], "in-flight", &options()).unwrap();
    assert_eq!(
        (missed.summary.files, missed.failures.len()),
        (3, 0),
        "verification in flight does not detect the disk's error"
    );
    assert_eq!(missed.summary.verification, Some(Verify::InFlight));
    let caught = world.pull(&["t/."], "reread", &read_back).unwrap();
    assert_eq!((caught.summary.files, caught.failures.len()), (0, 3), "{caught:?}");
    assert!(
        caught.failures.iter().all(|failure| failure.reason.contains("other bytes")),
        "{caught:?}"
    );
    assert!(!caught.summary.verified && names(&world.near("reread")).is_empty());
    // The same with the server as the sink.
    fs::create_dir(world.far("spoilt-by-a-server")).unwrap();
    spoil_at(std::path::Path::new("spoilt-by-a-server"));
    let caught = world.push(&["good/."], "spoilt-by-a-server", &read_back).unwrap();
    assert_eq!((caught.summary.files, caught.failures.len()), (0, 3), "{caught:?}");
    let good = world.push(&["good/."], "fine", &read_back).unwrap();
    assert_eq!(good.summary.verification, Some(Verify::Reread), "{good:?}");
}

#[test]
fn a_resumed_file_is_reread_completely() {
    let world = CopySetup::new();
    let data = bytes(INTERRUPTED_BYTES + 77);
    fs::write(world.far("data"), &data).unwrap();
    let read_back = CopyOptions { verify: Verify::Reread, ..options() };
    interrupt_copy(&world, "data", &read_back);
    let result = world.pull(&["data"], "data", &read_back).unwrap();
    assert!(result.summary.resumed_bytes >= Bytes::mib(1) && result.failures.is_empty());
    assert!(fs::read(world.near("data")).unwrap() == data);
}
