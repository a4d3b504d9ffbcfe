//! Copies through the page cache, whose connection threads read and write blocks in pieces.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use longhaul_core::plan::{CopyOptions, DirectIo, Protection, Verify};
use longhaul_core::result::DataPath;
use longhaul_core::units::{Bytes, Rate};
use longhaul_core::wire::copy::{EntryKind, SinkMessage};

use super::faults::wait_for_files;
use super::interruption::at_once;
use super::speaker::Speaker;
use super::{CopySetup, bytes, names, options};

const PIECE: usize = 128 << 10;
/// The block size of these tests: several pieces, of which the last is shorter.
const BLOCK: usize = 3 * PIECE + 4096;
const PROTECTIONS: [Protection; 3] = [Protection::Sealed, Protection::Hashed, Protection::Bare];

fn buffered() -> CopyOptions {
    let block_bytes = Bytes::new(BLOCK as u64);
    CopyOptions { direct: DirectIo::Never, block_bytes, ..options() }
}

#[test]
fn files_of_all_lengths_are_copied_under_every_protection() {
    at_once(PROTECTIONS, |protection| {
        let world = CopySetup::new();
        fs::create_dir(world.near("t")).unwrap();
        let blocks = [BLOCK - 1, BLOCK, BLOCK + 1, 4 * BLOCK - 4095];
        let pieces = [BLOCK + PIECE - 1, BLOCK + PIECE, BLOCK + PIECE + 1, BLOCK + 2 * PIECE];
        let lengths = blocks.into_iter().chain(pieces);
        for length in lengths.clone() {
            fs::write(world.near(&format!("t/{length}")), bytes(length)).unwrap();
        }
        for verify in [Verify::InFlight, Verify::Reread] {
            let mut options = CopyOptions { protection, verify, ..buffered() };
            options.tree.digests = true;
            let target = format!("{verify:?}");
            let result = world.push(&["t"], &target, &options).unwrap();
            assert_eq!((result.failures.len(), result.digests.len()), (0, 8), "{result:?}");
            assert_eq!(result.source.end.data_path, Some(DataPath::Buffered));
            assert_eq!(result.sink.end.data_path, Some(DataPath::Buffered));
            for length in lengths.clone() {
                let copied = fs::read(world.far(&format!("{target}/{length}"))).unwrap();
                assert!(copied == bytes(length), "{length} {protection:?}");
            }
        }
    });
}

/// Starts a relay before the server that changes byte `at` of the first data connection. Returns
/// the port of the relay.
fn corrupting_relay(server: u16, at: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let number = Arc::new(AtomicU32::new(0));
    // The thread ends with the process.
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
            // The first connection of the session is its control channel.
            let corrupts = number.fetch_add(1, Ordering::Relaxed) == 1;
            for (from, to, corrupts) in [(&client, &server, corrupts), (&server, &client, false)] {
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                std::thread::spawn(move || pass(from, to, corrupts.then_some(at)));
            }
        }
    });
    port
}

fn pass(mut from: TcpStream, mut to: TcpStream, corrupt_at: Option<usize>) {
    let (mut buffer, mut passed) = (vec![0; 64 << 10], 0);
    while let Ok(got @ 1..) = from.read(&mut buffer) {
        if let Some(at) = corrupt_at
            && (passed..passed + got).contains(&at)
        {
            buffer[at - passed] ^= 1;
        }
        passed += got;
        if to.write_all(&buffer[..got]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn a_block_with_a_changed_byte_is_sent_again() {
    let data = bytes(9 * BLOCK + 77);
    let cases = [Protection::Sealed, Protection::Hashed]
        .into_iter()
        .flat_map(|protection| [1000, PIECE + 5000, 3 * PIECE + 1000].map(|at| (protection, at)));
    at_once(cases, |(protection, at)| {
        let world = CopySetup::new();
        fs::write(world.near("data"), &data).unwrap();
        world.connect_through(corrupting_relay(world.port, at));
        // With a second connection, the first one might carry no block.
        let options = CopyOptions { protection, streams: Some(1), ..buffered() };
        let result = world.push(&["data"], "data", &options).unwrap();
        assert!(fs::read(world.far("data")).unwrap() == data, "{protection:?} {at}");
        assert_eq!(result.summary.resent_blocks, 1, "{protection:?} {at}");
        assert!(result.failures.is_empty(), "{:?}", result.failures);
    });
}

#[test]
fn a_part_of_a_block_is_not_recorded_in_the_journal() {
    let data = bytes(2 * BLOCK + 5);
    let kind = EntryKind::File { size_bytes: Bytes::new(data.len() as u64) };
    at_once(PROTECTIONS, |protection| {
        let world = CopySetup::new();
        let options = CopyOptions { protection, ..buffered() };
        let mut first = Speaker::with(&world, &options, ".");
        first.announce(kind.clone());
        first.send(&data, 0, BLOCK);
        first.wait_for_kept(BLOCK as u64);
        first.send_part(BLOCK as u64, BLOCK, 2);
        drop(first);
        let mut second = Speaker::with(&world, &options, ".");
        second.announce(kind.clone());
        assert_eq!(second.held(), [(0, 1)], "{protection:?}");
        second.send(&data, BLOCK, BLOCK);
        second.send(&data, 2 * BLOCK, BLOCK);
        let SinkMessage::Finished(report) = second.end() else { panic!("{protection:?}") };
        assert_eq!(report.resumed_bytes, Bytes::new(BLOCK as u64));
        assert!(fs::read(world.far("f")).unwrap() == data, "{protection:?}");
    });
}

#[test]
fn an_invalid_block_does_not_replace_a_valid_one() {
    let data = bytes(2 * BLOCK);
    let kind = EntryKind::File { size_bytes: Bytes::new(data.len() as u64) };
    at_once([Protection::Sealed, Protection::Hashed], |protection| {
        let world = CopySetup::new();
        let mut source = Speaker::with(&world, &CopyOptions { protection, ..buffered() }, ".");
        source.announce(kind.clone());
        source.send_unreadable(0, BLOCK, 2);
        source.wait_for_resend(0);
        source.send(&data, 0, BLOCK);
        source.wait_for(|written, _, _| written == BLOCK as u64);
        source.send_unreadable(0, BLOCK, 2);
        source.wait_for_resend(0);
        // A valid block with other bytes does not replace the first valid block either.
        source.send(&vec![7; BLOCK], 0, BLOCK);
        source.send(&data, BLOCK, BLOCK);
        let last = source.end();
        let SinkMessage::Finished(report) = last else { panic!("{last:?}") };
        assert_eq!((report.files, report.resent_blocks), (1, 2), "{protection:?}");
        assert!(fs::read(world.far("f")).unwrap() == data, "{protection:?}");
    });
}

/// Truncates the source file during a copy at `rate`. Returns whether the copy detected it.
fn detects_truncation(protection: Protection, rate: Rate) -> bool {
    let world = CopySetup::new();
    fs::write(world.near("data"), bytes(8 << 20)).unwrap();
    let options = CopyOptions {
        protection,
        rate_bps: Some(rate),
        streams: Some(1),
        block_bytes: Bytes::mib(4),
        ..buffered()
    };
    let over = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = || names(&world.far("")).iter().any(|name| name.ends_with(".part"));
            while !over.load(Ordering::Relaxed) && !begun() {
                std::thread::sleep(Duration::from_millis(2));
            }
            let file = fs::File::options().write(true).open(world.near("data")).unwrap();
            file.set_len(1 << 20).unwrap();
        });
        let result = world.push(&["data"], "data", &options).unwrap();
        over.store(true, Ordering::Relaxed);
        result
    });
    if result.failures.is_empty() {
        return false;
    }
    let reason = &result.failures[0].reason;
    assert!(reason.contains("shorter") || reason.contains("changed"), "{reason}");
    assert_eq!((result.failures.len(), result.summary.files), (1, 0), "{protection:?}");
    wait_for_files(&world, &[]);
    true
}

#[test]
fn a_file_that_shrinks_within_a_block_fails_and_leaves_nothing() {
    // With bare data connections a whole block is read before it is sent.
    at_once([Protection::Sealed, Protection::Hashed], |protection| {
        // At the last rate the copy would take 67 s, so that the truncation is in its middle.
        let rates = [100_000_000, 20_000_000, 1_000_000].map(Rate::from_bps);
        assert!(
            rates.into_iter().any(|rate| detects_truncation(protection, rate)),
            "{protection:?}"
        );
    });
}
