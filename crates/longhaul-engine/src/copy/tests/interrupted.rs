//! Interrupted copies: how much the next attempt reuses, under which terms, and where it goes.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_core::plan::{CopyOptions, Protection, Verify};
use longhaul_core::result::CopyResult;
use longhaul_core::units::Bytes;

use super::resume::{journal_has, stopped_at, wait_for};
use super::{World, bytes, names, options};
use crate::copy::CopyProgress;
use crate::copy::sink::{slow_at, spoil_at};
use crate::error::{EngineError, Result};
use crate::lock::lock;

const MIB: u64 = 1 << 20;

/// Makes a file of `mib` MiB that differ.
fn large(path: &Path, mib: u64) {
    let mut block = bytes(MIB as usize);
    let mut file = fs::File::create(path).unwrap();
    for number in 0..mib {
        block[..8].copy_from_slice(&number.to_be_bytes());
        file.write_all(&block).unwrap();
    }
}

fn same(world: &World, name: &str) -> bool {
    fs::read(world.far(name)).unwrap() == fs::read(world.near(name)).unwrap()
}

/// Fetches `data` and stops once half of its `mib` MiB have been written.
fn stopped_at_half(world: &World, mib: u64, progress: &CopyProgress) -> Result<CopyResult> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while progress.moved() < Bytes::mib(mib / 2) {
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
        });
        world.pull_with_progress(&["data"], "data", &options(), (progress, &stop))
    })
}

#[test]
fn a_fast_copy_that_is_interrupted_resumes_with_what_it_has_written() {
    let world = World::new();
    large(&world.far("data"), 256);
    let progress = CopyProgress::default();
    let outcome = stopped_at_half(&world, 256, &progress);
    assert!(matches!(outcome, Err(EngineError::Interrupted)), "{outcome:?}");
    let (written, kept) = (progress.moved(), progress.kept());
    let result = world.pull(&["data"], "data", &options()).unwrap();
    let resumed = result.summary.resumed_bytes;
    assert!(resumed >= written && resumed >= kept, "{resumed} of {written}, {kept} reported");
    assert!(same(&world, "data"));
}

/// Interrupts a copy of 256 MiB after a quarter and repeats it; asserts that little passed the
/// connection twice. `copy` runs one attempt.
fn loses_little(
    prepare: impl FnOnce(&World),
    copy: impl Fn(&World, &CopyOptions, (&CopyProgress, &AtomicBool)) -> Result<()>,
) {
    let world = World::new();
    let relay = Relay::new(world.port, u64::MAX);
    world.enter_by(relay.port);
    prepare(&world);
    let (progress, stop) = (CopyProgress::default(), AtomicBool::new(false));
    let options = CopyOptions { streams: Some(2), ..options() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while progress.moved() < Bytes::mib(64) {
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
        });
        let outcome = copy(&world, &options, (&progress, &stop));
        assert!(matches!(outcome, Err(EngineError::Interrupted)), "{outcome:?}");
    });
    copy(&world, &options, (&CopyProgress::default(), &AtomicBool::new(false))).unwrap();
    assert!(same(&world, "data"));
    let share = relay.state.passed.load(Ordering::Relaxed) as f64 / (256 * MIB) as f64;
    // 1.04 and more if the data in flight are lost.
    assert!(share <= 1.03, "{share:.3} times the file passed");
}

#[test]
fn a_source_that_is_interrupted_loses_little_of_what_it_has_sent() {
    loses_little(
        |world| large(&world.near("data"), 256),
        |world, options, control| {
            world.push_with_progress(&["data"], "data", options, control).map(drop)
        },
    );
}

#[test]
fn a_sink_that_is_interrupted_keeps_what_is_in_flight() {
    loses_little(
        |world| large(&world.far("data"), 256),
        |world, options, control| {
            world.pull_with_progress(&["data"], "data", options, control).map(drop)
        },
    );
}

#[test]
fn a_copy_that_is_interrupted_while_the_disk_syncs_has_nothing_to_send() {
    let world = World::new();
    let dir = "synced-slowly";
    fs::create_dir(world.far(dir)).unwrap();
    slow_at(Path::new(dir), Duration::from_millis(1500));
    large(&world.near("data"), 64);
    let progress = CopyProgress::default();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while progress.moved() < Bytes::mib(64) {
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
        });
        let target = format!("{dir}/data");
        let outcome = world.push_with_progress(&["data"], &target, &options(), (&progress, &stop));
        assert!(matches!(outcome, Err(EngineError::Interrupted)), "{outcome:?}");
    });
    let result = world.push(&["data"], &format!("{dir}/data"), &options()).unwrap();
    assert_eq!(result.summary.resumed_bytes, Bytes::mib(64));
    assert_eq!(names(&world.far(dir)), ["data"]);
}

/// A relay before the server that counts bytes, and cuts the data connections of the first session
/// after a number of them.
struct Relay {
    port: u16,
    state: Arc<State>,
}

struct State {
    passed: AtomicU64,
    cut_after: AtomicU64,
    data: Mutex<Vec<TcpStream>>,
}

impl Relay {
    fn new(server: u16, cut_after: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (passed, cut_after) = (AtomicU64::new(0), AtomicU64::new(cut_after));
        let state = Arc::new(State { passed, cut_after, data: Mutex::default() });
        let relay = Relay { port, state: state.clone() };
        // It ends with the process.
        std::thread::spawn(move || {
            let mut control = true;
            for client in listener.incoming() {
                let client = client.unwrap();
                let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
                // The first connection of a session is its control channel.
                if !std::mem::take(&mut control) {
                    lock(&state.data).push(server.try_clone().unwrap());
                }
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let state = state.clone();
                    std::thread::spawn(move || state.pass(from, to));
                }
            }
        });
        relay
    }
}

impl State {
    fn pass(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(got @ 1..) = from.read(&mut buffer) {
            if to.write_all(&buffer[..got]).is_err() {
                break;
            }
            let passed = self.passed.fetch_add(got as u64, Ordering::Relaxed) + got as u64;
            if passed >= self.cut_after.load(Ordering::Relaxed) {
                for data in lock(&self.data).drain(..) {
                    let _ = data.shutdown(Shutdown::Both);
                }
            }
        }
        let _ = to.shutdown(Shutdown::Write);
        let _ = from.shutdown(Shutdown::Read);
    }
}

#[test]
fn a_copy_with_a_lost_connection_sends_every_byte_about_once() {
    let world = World::new();
    large(&world.far("data"), 256);
    let options = CopyOptions { streams: Some(2), ..options() };
    let relay = Relay::new(world.port, 128 * MIB);
    world.enter_by(relay.port);
    let outcome = world.pull(&["data"], "data", &options);
    assert!(outcome.is_err(), "{outcome:?}");
    relay.state.cut_after.store(u64::MAX, Ordering::Relaxed);
    world.pull(&["data"], "data", &options).unwrap();
    assert!(same(&world, "data"));
    let passed = relay.state.passed.load(Ordering::Relaxed);
    let share = passed as f64 / (256 * MIB) as f64;
    assert!(share <= 1.03, "{share:.3} times the file passed");
}

/// Fetches `name` slowly and stops once the journal of the copy has an extent.
fn interrupt_copy(world: &World, name: &str, options: &CopyOptions) {
    let dir = match name.strip_suffix("/.") {
        Some(dir) => world.near(dir),
        None => world.near(""),
    };
    stopped_at(world, name, &dir, "written", options);
}

#[test]
fn bytes_that_were_not_verified_are_not_reused_by_a_verified_copy() {
    let with = |protection| CopyOptions { protection, ..options() };
    for (first, second, reuses) in [
        (Protection::Bare, Protection::Sealed, false),
        (Protection::Bare, Protection::Bare, true),
        (Protection::Sealed, Protection::Bare, true),
        (Protection::Hashed, Protection::Sealed, true),
    ] {
        let world = World::new();
        large(&world.far("data"), 24);
        interrupt_copy(&world, "data", &with(first));
        let result = world.pull(&["data"], "data", &with(second)).unwrap();
        let reused = result.summary.resumed_bytes > Bytes::new(0);
        assert_eq!(reused, reuses, "{first:?} {second:?}");
        assert!(same(&world, "data") && names(&world.near("")) == ["data"]);
    }
}

#[test]
fn a_file_in_place_under_other_terms_is_copied_again() {
    type Change = fn(&mut CopyOptions);
    let cases: [(Change, bool); 4] = [
        (|_| (), true),
        (|options| options.preserve = true, false),
        (|options| options.verify = Verify::Reread, false),
        (|options| options.tree.xattrs = true, false),
    ];
    for (number, (change, stays)) in cases.into_iter().enumerate() {
        let world = World::new();
        fs::create_dir(world.far("t")).unwrap();
        fs::create_dir(world.near("t")).unwrap();
        fs::write(world.far("t/a"), bytes(1_200_000)).unwrap();
        large(&world.far("t/z"), 24);
        stopped_at(&world, "t/.", &world.near("t"), "done", &options());
        let before = fs::metadata(world.near("t/a")).unwrap().ino();
        let mut second = options();
        change(&mut second);
        let result = world.pull(&["t/."], "t", &second).unwrap();
        assert!(result.failures.is_empty(), "{:?}", result.failures);
        // The bytes of the other file are reused in any case.
        assert!(result.summary.resumed_bytes >= Bytes::mib(1), "{number}");
        let after = fs::metadata(world.near("t/a")).unwrap();
        assert_eq!(after.ino() == before, stays, "{number}");
        if second.preserve {
            let source = fs::metadata(world.far("t/a")).unwrap();
            assert_eq!(after.modified().unwrap(), source.modified().unwrap());
        }
    }
}

#[test]
fn a_directory_with_a_new_name_is_resumed_under_that_name() {
    let world = World::new();
    fs::create_dir(world.far("t")).unwrap();
    large(&world.far("t/z"), 24);
    let again = || world.pull(&["t"], "t", &options());
    interrupt_copy(&world, "t", &options());
    assert!(world.near("t").is_dir());
    let result = again().unwrap();
    assert!(result.summary.resumed_bytes >= Bytes::mib(1), "{:?}", result.summary);
    assert_eq!(names(&world.near("")), ["t"]);
    assert_eq!(names(&world.near("t")), ["z"]);
    // As in cp(1), a copy that was complete goes into the directory that it has made.
    again().unwrap();
    assert_eq!(names(&world.near("t")), ["t", "z"]);
}

#[test]
fn a_new_temporary_file_replaces_none_that_is_resumed() {
    let world = World::new();
    fs::create_dir(world.far("t")).unwrap();
    fs::create_dir(world.near("t")).unwrap();
    // The names of temporary files have the same 200 bytes of these names.
    let name = |end: &str| format!("t/{}{end}", "x".repeat(210));
    fs::write(world.far(&name("1")), bytes(1_200_000)).unwrap();
    large(&world.far(&name("2")), 24);
    interrupt_copy(&world, "t/.", &options());
    // The entries get other numbers, and the first file is copied again.
    fs::write(world.far(&name("0")), "new").unwrap();
    fs::write(world.far(&name("1")), bytes(1_300_000)).unwrap();
    let result = world.pull(&["t/."], "t", &options()).unwrap();
    assert_eq!((result.summary.files, result.failures.len()), (3, 0), "{:?}", result.failures);
    assert!(result.summary.resumed_bytes >= Bytes::mib(1), "{:?}", result.summary);
    assert!(["0", "1", "2"].iter().all(|end| same(&world, &name(end))));
    assert_eq!(names(&world.near("t")).len(), 3);
}

#[test]
fn the_space_of_a_resumed_file_is_claimed_before_it_is_taken() {
    let world = World::new();
    large(&world.near("data"), 24);
    let slow = CopyOptions { rate_bps: Some("50M".parse().unwrap()), ..options() };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for("an extent", || journal_has(&world.far(""), "written"));
            stop.store(true, Ordering::Relaxed);
        });
        let outcome = world.push_until(&["data"], "data", &slow, &stop);
        assert!(matches!(outcome, Err(EngineError::Interrupted)), "{outcome:?}");
    });
    let part = names(&world.far("")).into_iter().find(|name| name.ends_with(".part")).unwrap();
    let part = world.far(&part);
    let file = fs::File::options().write(true).open(&part).unwrap();
    // The server's session ends later than the client's, and can still write.
    while file.metadata().unwrap().blocks() > 0 {
        file.set_len(0).unwrap();
        std::thread::sleep(Duration::from_millis(400));
    }
    world.set_min_free("99.99%");
    let refused = world.push(&["data"], "data", &options());
    assert!(matches!(refused, Err(EngineError::Refused { .. })), "{refused:?}");
    assert_eq!(fs::metadata(&part).unwrap().blocks(), 0, "no space was taken");
}

#[test]
fn reused_bytes_are_read_back_from_the_disk() {
    let world = World::new();
    large(&world.far("data"), 24);
    let read_back = CopyOptions { verify: Verify::Reread, ..options() };
    interrupt_copy(&world, "data", &read_back);
    // The first byte, which is reused, changes after it was compared with the journal.
    spoil_at(&world.near(""));
    let result = world.pull(&["data"], "data", &read_back).unwrap();
    assert!(result.summary.resumed_bytes == Bytes::new(0) && result.summary.files == 0);
    assert!(result.failures[0].reason.contains("other bytes"), "{:?}", result.failures);
    assert!(!world.near("data").exists());
}

#[test]
fn reading_reused_bytes_again_is_progress() {
    let world = World::new();
    large(&world.far("data"), 24);
    let patient = CopyOptions { give_up_ms: Some(1000), ..options() };
    interrupt_copy(&world, "data", &patient);
    slow_at(&world.near(""), Duration::from_millis(700));
    let result = world.pull(&["data"], "data", &patient).unwrap();
    assert!(result.summary.resumed_bytes >= Bytes::mib(3), "{:?}", result.summary);
    assert!(result.summary.seconds > 1.3, "it took longer than the limit: {:?}", result.summary);
    assert!(same(&world, "data"));
}
