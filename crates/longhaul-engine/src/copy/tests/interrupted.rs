//! Interrupted copies: the bytes that the next attempt reuses, the terms of their reuse, and the
//! names of resumed files.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_core::plan::{CopyOptions, Protection, Verify};
use longhaul_core::units::{Bytes, Rate};
use rustix::fs::{FlockOperation, flock};

use super::interruption::{INTERRUPTED_BYTES, at_once, interrupt_copy, interrupt_when, stop_when};
use super::resume::wait_for;
use super::{CopySetup, bytes, names, options};
use crate::copy::CopyProgress;
use crate::copy::sink::{slow_at, spoil_at};
use crate::error::{EngineError, Result};
use crate::lock;

const MIB: u64 = 1 << 20;
const INTERRUPTED_MIB: u64 = INTERRUPTED_BYTES as u64 / MIB;
/// The rate of a fast copy, whose interruption after 24 MiB is possible in time.
const FAST: Rate = Rate::from_bps(1_000_000_000);
/// The maximum number of repetitions of a test that a busy host can invalidate.
const ROUNDS: u32 = 5;
/// The maximum number of bytes that pass the connection twice because of an interruption: two
/// blocks in transmission and the contents of socket buffers. The data in flight exceed 10 MiB.
const LITTLE: u64 = 7 * MIB;

/// Creates a file of `mib` MiB, each with other bytes.
fn large(path: &Path, mib: u64) {
    let mut block = bytes(MIB as usize);
    let mut file = fs::File::create(path).unwrap();
    for number in 0..mib {
        block[..8].copy_from_slice(&number.to_be_bytes());
        file.write_all(&block).unwrap();
    }
}

fn same(world: &CopySetup, name: &str) -> bool {
    fs::read(world.far(name)).unwrap() == fs::read(world.near(name)).unwrap()
}

#[test]
fn a_fast_copy_that_is_interrupted_resumes_with_the_written_bytes() {
    for _ in 0..ROUNDS {
        let world = CopySetup::new();
        large(&world.far("data"), 48);
        let half = |progress: &CopyProgress| progress.moved() >= Bytes::mib(24);
        let fast = CopyOptions { rate_bps: Some(FAST), ..options() };
        let (outcome, reported) = stop_when(half, |control| {
            let outcome = world.pull_with_progress(&["data"], "data", &fast, control);
            (outcome, (control.0.moved(), control.0.kept()))
        });
        if outcome.is_ok() {
            continue;
        }
        assert!(matches!(outcome, Err(EngineError::Interrupted)), "{outcome:?}");
        let (written, kept) = reported;
        let result = world.pull(&["data"], "data", &options()).unwrap();
        let resumed = result.summary.resumed_bytes;
        assert!(resumed >= written && resumed >= kept, "{resumed} of {written}, {kept} reported");
        return assert!(same(&world, "data"));
    }
    panic!("each copy ended before it was interrupted");
}

/// Interrupts a copy of 64 MiB after half of it and repeats it. Asserts that at most [`LITTLE`]
/// bytes passed the connection twice. `copy` runs one attempt.
fn loses_little(
    prepare: impl Fn(&CopySetup),
    copy: impl Fn(&CopySetup, &CopyOptions, (&CopyProgress, &AtomicBool)) -> Result<()>,
) {
    let mut passed = Vec::new();
    for _ in 0..ROUNDS {
        let world = CopySetup::new();
        let relay = Relay::new(world.port, u64::MAX);
        world.connect_through(relay.port);
        prepare(&world);
        let options = CopyOptions { streams: Some(2), rate_bps: Some(FAST), ..options() };
        let half = |progress: &CopyProgress| progress.moved() >= Bytes::mib(32);
        let outcome = stop_when(half, |control| copy(&world, &options, control));
        if outcome.is_ok() {
            continue;
        }
        assert!(matches!(outcome, Err(EngineError::Interrupted)), "{outcome:?}");
        copy(&world, &options, (&CopyProgress::default(), &AtomicBool::new(false))).unwrap();
        assert!(same(&world, "data"));
        passed.push(relay.state.passed.load(Ordering::Relaxed));
        if passed.iter().any(|passed| *passed <= 64 * MIB + LITTLE) {
            return;
        }
    }
    panic!("{passed:?} bytes passed for {} bytes", 64 * MIB);
}

#[test]
fn little_is_sent_again_after_an_interruption_of_the_source() {
    loses_little(
        |world| large(&world.near("data"), 64),
        |world, options, control| {
            world.push_with_progress(&["data"], "data", options, control).map(drop)
        },
    );
}

#[test]
fn little_is_sent_again_after_an_interruption_of_the_sink() {
    loses_little(
        |world| large(&world.far("data"), 64),
        |world, options, control| {
            world.pull_with_progress(&["data"], "data", options, control).map(drop)
        },
    );
}

#[test]
fn nothing_is_sent_again_after_an_interruption_during_the_sync() {
    for round in 0..ROUNDS {
        let world = CopySetup::new();
        let dir = format!("synced-slowly-{round}");
        fs::create_dir(world.far(&dir)).unwrap();
        slow_at(Path::new(&dir), Duration::from_millis(600));
        large(&world.near("data"), 16);
        let target = format!("{dir}/data");
        let all = |progress: &CopyProgress| progress.moved() >= Bytes::mib(16);
        let copy =
            |control: (&_, &_)| world.push_with_progress(&["data"], &target, &options(), control);
        let outcome = stop_when(all, copy);
        if outcome.is_ok() {
            continue;
        }
        assert!(matches!(outcome, Err(EngineError::Interrupted)), "{outcome:?}");
        let result = world.push(&["data"], &target, &options()).unwrap();
        assert_eq!(result.summary.resumed_bytes, Bytes::mib(16));
        return assert_eq!(names(&world.far(&dir)), ["data"]);
    }
    panic!("each copy ended before it was interrupted");
}

/// A relay before the server that counts the bytes of all connections. After `cut_after` bytes it
/// closes the data connections of the first session.
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
        // The thread ends with the process.
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
fn little_is_sent_again_after_a_lost_connection() {
    let mut passed = Vec::new();
    for _ in 0..ROUNDS {
        let world = CopySetup::new();
        large(&world.far("data"), 64);
        let options = CopyOptions { streams: Some(2), ..options() };
        let relay = Relay::new(world.port, 32 * MIB);
        world.connect_through(relay.port);
        let outcome = world.pull(&["data"], "data", &options);
        assert!(outcome.is_err(), "{outcome:?}");
        relay.state.cut_after.store(u64::MAX, Ordering::Relaxed);
        world.pull(&["data"], "data", &options).unwrap();
        assert!(same(&world, "data"));
        passed.push(relay.state.passed.load(Ordering::Relaxed));
        if passed.iter().any(|passed| *passed <= 64 * MIB + LITTLE) {
            return;
        }
    }
    panic!("{passed:?} bytes passed for {} bytes", 64 * MIB);
}

#[test]
fn bytes_that_were_not_verified_are_not_reused_by_a_verified_copy() {
    let with = |protection| CopyOptions { protection, ..options() };
    let case = |(first, second, reuses)| {
        let world = CopySetup::new();
        large(&world.far("data"), INTERRUPTED_MIB);
        interrupt_copy(&world, "data", &with(first));
        let result = world.pull(&["data"], "data", &with(second)).unwrap();
        let reused = result.summary.resumed_bytes > Bytes::new(0);
        assert_eq!(reused, reuses, "{first:?} {second:?}");
        assert!(same(&world, "data") && names(&world.near("")) == ["data"]);
    };
    at_once(
        [
            (Protection::Bare, Protection::Sealed, false),
            (Protection::Bare, Protection::Bare, true),
            (Protection::Sealed, Protection::Bare, true),
            (Protection::Hashed, Protection::Sealed, true),
        ],
        case,
    );
}

#[test]
fn a_complete_file_is_copied_again_under_other_terms() {
    type Change = fn(&mut CopyOptions);
    let cases: [(Change, bool); 4] = [
        (|_| (), true),
        (|options| options.preserve = true, false),
        (|options| options.verify = Verify::Reread, false),
        (|options| options.tree.xattrs = true, false),
    ];
    at_once(cases, |(change, stays)| {
        let world = CopySetup::new();
        fs::create_dir(world.far("t")).unwrap();
        fs::create_dir(world.near("t")).unwrap();
        fs::write(world.far("t/a"), bytes(1_200_000)).unwrap();
        large(&world.far("t/z"), INTERRUPTED_MIB);
        let placed = |copy: &CopyProgress| copy.kept() >= Bytes::new(1_200_000 + MIB);
        interrupt_when(&world, "t/.", &options(), placed);
        let before = fs::metadata(world.near("t/a")).unwrap().ino();
        let mut second = options();
        change(&mut second);
        let result = world.pull(&["t/."], "t", &second).unwrap();
        assert!(result.failures.is_empty(), "{:?}", result.failures);
        // The journal has bytes of the other file, which are reused under all of these terms.
        assert!(result.summary.resumed_bytes >= Bytes::mib(1), "{second:?}");
        let after = fs::metadata(world.near("t/a")).unwrap();
        assert_eq!(after.ino() == before, stays, "{second:?}");
        if second.preserve {
            let source = fs::metadata(world.far("t/a")).unwrap();
            assert_eq!(after.modified().unwrap(), source.modified().unwrap());
        }
    });
}

#[test]
fn a_copy_of_a_directory_to_a_new_name_resumes_with_that_name() {
    let world = CopySetup::new();
    fs::create_dir(world.far("t")).unwrap();
    large(&world.far("t/z"), INTERRUPTED_MIB);
    let again = || world.pull(&["t"], "t", &options());
    interrupt_copy(&world, "t", &options());
    assert!(world.near("t").is_dir());
    let result = again().unwrap();
    assert!(result.summary.resumed_bytes >= Bytes::mib(1), "{:?}", result.summary);
    assert_eq!(names(&world.near("")), ["t"]);
    assert_eq!(names(&world.near("t")), ["z"]);
    // As with cp(1), a copy to an existing directory creates an entry in it.
    again().unwrap();
    assert_eq!(names(&world.near("t")), ["t", "z"]);
}

#[test]
fn a_new_temporary_file_does_not_replace_a_partial_file() {
    let world = CopySetup::new();
    fs::create_dir(world.far("t")).unwrap();
    fs::create_dir(world.near("t")).unwrap();
    // The name of a temporary file has the first 200 bytes of the file's name, which are the same
    // here.
    let name = |end: &str| format!("t/{}{end}", "x".repeat(210));
    fs::write(world.far(&name("1")), bytes(1_200_000)).unwrap();
    large(&world.far(&name("2")), INTERRUPTED_MIB);
    interrupt_copy(&world, "t/.", &options());
    // The entries get other ids, and the first file is copied again.
    fs::write(world.far(&name("0")), "new").unwrap();
    fs::write(world.far(&name("1")), bytes(1_300_000)).unwrap();
    let result = world.pull(&["t/."], "t", &options()).unwrap();
    assert_eq!((result.summary.files, result.failures.len()), (3, 0), "{:?}", result.failures);
    assert!(result.summary.resumed_bytes >= Bytes::mib(1), "{:?}", result.summary);
    assert!(["0", "1", "2"].iter().all(|end| same(&world, &name(end))));
    assert_eq!(names(&world.near("t")).len(), 3);
}

#[test]
fn the_space_of_a_resumed_file_is_checked_before_it_is_allocated() {
    let world = CopySetup::new();
    large(&world.near("data"), 16);
    let slow = CopyOptions { rate_bps: Some("60M".parse().unwrap()), ..options() };
    let keeps = |progress: &CopyProgress| progress.kept() >= Bytes::mib(1);
    let copy = |control: (&_, &_)| world.push_with_progress(&["data"], "data", &slow, control);
    let outcome = stop_when(keeps, copy);
    assert!(matches!(outcome, Err(EngineError::Interrupted)), "{outcome:?}");
    let far = |end: &str| {
        let name = names(&world.far("")).into_iter().find(|name| name.ends_with(end));
        fs::File::options().write(true).open(world.far(&name.unwrap())).unwrap()
    };
    // The server's session ends later than the client's and writes until its end.
    let journal = far(".journal");
    wait_for("the end of the session", || {
        flock(&journal, FlockOperation::NonBlockingLockExclusive).is_ok()
    });
    drop(journal);
    let part = far(".part");
    part.set_len(0).unwrap();
    world.set_min_free("99.99%");
    let refused = world.push(&["data"], "data", &options());
    assert!(matches!(refused, Err(EngineError::Refused { .. })), "{refused:?}");
    assert_eq!(part.metadata().unwrap().blocks(), 0, "no space was allocated");
}

#[test]
fn reused_bytes_are_read_back_from_the_disk() {
    let world = CopySetup::new();
    large(&world.far("data"), INTERRUPTED_MIB);
    let read_back = CopyOptions { verify: Verify::Reread, ..options() };
    interrupt_copy(&world, "data", &read_back);
    // The first byte of the reused data changes after the comparison with the journal.
    spoil_at(&world.near(""));
    let result = world.pull(&["data"], "data", &read_back).unwrap();
    assert!(result.summary.resumed_bytes == Bytes::new(0) && result.summary.files == 0);
    assert!(result.failures[0].reason.contains("other bytes"), "{:?}", result.failures);
    assert!(!world.near("data").exists());
}
