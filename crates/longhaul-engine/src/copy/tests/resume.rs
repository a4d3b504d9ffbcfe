//! Copies that resume after an earlier attempt, with files that are damaged, planted by another
//! user, or written in blocks of another size.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use longhaul_core::plan::CopyOptions;
use longhaul_core::units::{Bytes, Rate};
use longhaul_core::wire::copy::{
    CopyKey, CopyReply, CopyRequest, EntryKind, SinkMessage, SourceMessage, Top,
};
use longhaul_core::wire::{FilePath, PackEntry};

use super::faults::wait_for_files;
use super::interruption::{
    INTERRUPTED_BYTES, at_once, interrupt_at, interrupt_copy, interrupt_when,
};
use super::speaker::Speaker;
use super::{CopySetup, bytes, names, options};
use crate::copy::CopyProgress;
use crate::copy::sink::slow_at;

/// The id of another user than that of these tests.
const OTHER: u32 = 4711;

/// Interrupts a copy of `data`. Returns the paths of the partial file and of the journal.
fn interrupted(world: &CopySetup, data: &[u8]) -> (PathBuf, PathBuf) {
    fs::write(world.far("data"), data).unwrap();
    interrupt_copy(world, "data", &options());
    let left = names(&world.near(""));
    let ending = |end: &str| {
        let name = left.iter().find(|name| name.ends_with(end));
        world.near(name.unwrap_or_else(|| panic!("no {end} in {left:?}")))
    };
    (ending(".part"), ending(".journal"))
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
#[ignore = "needs root"]
fn files_that_another_user_could_have_written_are_not_resumed() {
    let data = bytes(INTERRUPTED_BYTES + 77);
    type Plant = fn(&Path, &Path, &CopySetup);
    let cases: [(&str, Plant); 5] = [
        ("both are another user's", |part, journal, _| {
            chown(part, Some(OTHER), None).unwrap();
            chown(journal, Some(OTHER), None).unwrap();
        }),
        ("the journal is another user's", |_, journal, _| {
            chown(journal, Some(OTHER), None).unwrap();
        }),
        ("the file is another user's", |part, _, _| chown(part, Some(OTHER), None).unwrap()),
        ("others may write the file", |part, _, _| set_mode(part, 0o666)),
        ("the file has a second name", |part, _, world| {
            fs::hard_link(part, world.far("second")).unwrap();
        }),
    ];
    at_once(cases, |(case, plant)| {
        let world = CopySetup::new();
        let (part, journal) = interrupted(&world, &data);
        // The open file keeps its inode number in use.
        let held = fs::File::open(&part).unwrap();
        let inode = held.metadata().unwrap().ino();
        // Bytes that another user could have written.
        fs::File::options().write(true).open(&part).unwrap().write_all_at(b"theirs", 9).unwrap();
        plant(&part, &journal, &world);
        let result = world.pull(&["data"], "data", &options()).unwrap();
        assert_eq!(result.summary.resumed_bytes, Bytes::new(0), "{case}");
        assert!(fs::read(world.near("data")).unwrap() == data, "{case}");
        let placed = fs::metadata(world.near("data")).unwrap();
        assert!(placed.uid() != OTHER && placed.ino() != inode, "{case}");
    });
}

#[test]
#[ignore = "needs root"]
fn a_temporary_file_of_another_user_is_not_replaced() {
    let world = CopySetup::new();
    let data = bytes(INTERRUPTED_BYTES);
    let (part, journal) = interrupted(&world, &data);
    fs::remove_file(&journal).unwrap();
    fs::write(&part, "theirs").unwrap();
    chown(&part, Some(OTHER), None).unwrap();
    let result = world.pull(&["data"], "data", &options()).unwrap();
    assert_eq!((result.summary.files, result.failures.len()), (1, 0), "{:?}", result.failures);
    assert!(fs::read(world.near("data")).unwrap() == data);
    assert_eq!(fs::read(&part).unwrap(), b"theirs");
    assert_eq!(fs::metadata(&part).unwrap().uid(), OTHER);
}

#[test]
fn a_client_that_leaves_before_all_data_connections_are_open_leaves_no_files() {
    let world = CopySetup::new();
    let (sender, mut receiver, dialer) = world.session().split();
    let request = CopyRequest::Receive {
        key: CopyKey::new(3),
        target: FilePath::new(".").unwrap(),
        top: Top::Several,
        options: CopyOptions { streams: Some(2), ..options() },
    };
    sender.send(&request).unwrap();
    assert!(matches!(receiver.receive().unwrap(), CopyReply::Ready { .. }));
    assert_eq!(names(&world.far("")).len(), 1, "the journal of the copy");
    // The first of two data connections, and one with an invalid number, which ends the server's
    // wait for the second.
    drop(dialer.open(0, |_| Ok(())).unwrap());
    drop(dialer.open(7, |_| Ok(())).unwrap());
    drop((sender, receiver, dialer));
    wait_for_files(&world, &[]);
}

#[test]
fn a_copy_resumes_after_every_change_of_the_block_size() {
    // Files below the block size and below 1 MiB are sent in packs; these sizes are around both
    // limits.
    let cases = [
        (900 << 10, 64 << 10, 4 << 20),
        (900 << 10, 64 << 10, 64 << 10),
        (900 << 10, 512 << 10, 1 << 20),
        ((1 << 20) + 5, 4096, 2 << 20),
        ((3 << 20) + 77, 1 << 20, 4 << 20),
        ((3 << 20) + 77, 64 << 10, 768 << 10),
    ];
    at_once(cases, |(size, before, after)| change_block_size(size, before, after));
}

/// Interrupts a copy of `size` bytes in blocks of `before`, and resumes it with blocks of `after`.
fn change_block_size(size: usize, before: u64, after: u64) {
    let world = CopySetup::new();
    let of = |block| CopyOptions { block_bytes: Bytes::new(block), streams: Some(1), ..options() };
    let data = bytes(size);
    fs::write(world.far("data"), &data).unwrap();
    // The copy takes one second.
    let rate = Rate::from_bps(size as u64 * 8);
    interrupt_at(&world, "data", (&of(before), rate), |copy| copy.kept() > Bytes::new(0));
    let result = world.pull(&["data"], "data", &of(after)).unwrap();
    assert!(fs::read(world.near("data")).unwrap() == data, "{size} {before} {after}");
    assert!(result.failures.is_empty() && names(&world.near("")) == ["data"], "{size}");
}

#[test]
fn a_pack_replaces_the_blocks_of_an_earlier_attempt() {
    const SIZE: usize = 2 << 20;
    let world = CopySetup::new();
    let data = bytes(SIZE);
    let kind = EntryKind::File { size_bytes: Bytes::new(SIZE as u64) };
    let mut first = Speaker::new(&world, 64 << 10);
    first.announce(kind.clone());
    for block in 0..10 {
        let offset = block * (64 << 10);
        let mut wrong = vec![7; 64 << 10];
        first.blocks.send(0, offset as u64, &mut wrong).unwrap();
    }
    first.wait_for_kept(10 * (64 << 10));
    drop(first);
    // Another version may pack a file that this version sends in blocks.
    let mut second = Speaker::new(&world, 4 << 20);
    second.announce(kind);
    let pack = [PackEntry { file: 0, length: SIZE as u32 }];
    second.blocks.send_pack(&pack, &mut data.clone()).unwrap();
    let last = second.end();
    let SinkMessage::Finished(report) = last else { panic!("{last:?}") };
    assert_eq!((report.files, report.resumed_bytes), (1, Bytes::new(0)));
    wait_for_files(&world, &["f"]);
    assert!(fs::read(world.far("f")).unwrap() == data);
}

#[test]
fn blocks_that_belong_to_no_file_end_the_session() {
    let world = CopySetup::new();
    let hostile = |speaker: Speaker, case: &str| {
        let last = speaker.end();
        assert!(matches!(last, SinkMessage::Abort { again: false, .. }), "{case}: {last:?}");
    };

    let mut source = Speaker::new(&world, 8192);
    source.announce(EntryKind::File { size_bytes: Bytes::new(5000) });
    source.blocks.send(1, 0, &mut [1; 100]).unwrap();
    hostile(source, "a block of a file that is never announced");

    let mut source = Speaker::new(&world, 8192);
    source.announce(EntryKind::File { size_bytes: Bytes::new(5000) });
    source.blocks.send_pack(&[PackEntry { file: 9, length: 5 }], &mut [1; 5]).unwrap();
    hostile(source, "a pack of a file that is never announced");

    wait_for_files(&world, &[]);
    let mut source = Speaker::new(&world, 8192);
    source.announce(EntryKind::Stream);
    for block in [0, 1, 5] {
        source.blocks.send(0, block * 8192, &mut [1; 8192]).unwrap();
    }
    source.wait_for(|written, _, _| written == 3 * 8192);
    let length = SourceMessage::Length { id: 0, size_bytes: Bytes::new(3 * 8192) };
    source.sender.send(&length).unwrap();
    hostile(source, "a stream with a block beyond its end");
}

/// Waits until `done` returns true; `event` is its name in the panic after 30 s.
#[track_caller]
pub(super) fn wait_for(event: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "timeout: {event}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Changes the partial file.
type Damage = fn(&fs::File);

#[test]
fn changed_bytes_of_a_partial_file_are_sent_again() {
    let damages: [(&str, Damage); 5] = [
        ("four bytes changed", |part| part.write_all_at(b"\xffbad", 4096).unwrap()),
        ("cut off and extended again", |part| {
            let length = part.metadata().unwrap().len();
            part.set_len(100_000).unwrap();
            part.set_len(length).unwrap();
        }),
        ("cut off", |part| part.set_len(5000).unwrap()),
        ("longer than the file", |part| part.write_all_at(b"more", 40 << 20).unwrap()),
        ("overwritten to its end", |part| {
            part.write_all_at(&vec![7; INTERRUPTED_BYTES], 0).unwrap();
        }),
    ];
    let data = bytes(INTERRUPTED_BYTES + 77);
    let data = &data;
    let cases = damages.into_iter().flat_map(|damage| [(damage, 1 << 20), (damage, 256 << 10)]);
    at_once(cases, |(damage, block)| resume_after(data, block, damage));
}

/// Resumes a copy of `data` with blocks of `block` bytes after damage to the partial file.
fn resume_after(data: &[u8], block: u64, (case, damage): (&str, Damage)) {
    let world = CopySetup::new();
    let (part, _) = interrupted(&world, data);
    damage(&fs::File::options().write(true).open(&part).unwrap());
    let again = CopyOptions { block_bytes: Bytes::new(block), ..options() };
    let result = world.pull(&["data"], "data", &again).unwrap();
    assert!(fs::read(world.near("data")).unwrap() == data, "{case}");
    assert_eq!(result.summary.bytes, Bytes::new(data.len() as u64), "{case}");
    assert_eq!(result.summary.resent_blocks, 0, "{case}: no block was corrupted on its way");
    assert_eq!(names(&world.near("")), ["data"], "{case}");
}

#[test]
fn holes_of_a_resumed_file_stay_holes() {
    let world = CopySetup::new();
    let length = 40_u64 << 20;
    let source = fs::File::create(world.far("data")).unwrap();
    source.set_len(length).unwrap();
    // Data, blocks with holes in them, and holes of many blocks.
    source.write_all_at(&bytes(13 << 20), 0).unwrap();
    for offset in [15 << 20, (20 << 20) + 8192, 31 << 20] {
        source.write_all_at(&bytes(70_000), offset).unwrap();
    }
    source.sync_all().unwrap();
    interrupt_copy(&world, "data", &options());
    let left = names(&world.near(""));
    let part = left.iter().find(|name| name.ends_with(".part")).unwrap();
    let part = fs::File::options().write(true).open(world.near(part)).unwrap();
    for offset in [5 << 20, 17 << 20, (20 << 20) + 200_000, length - 9000] {
        part.write_all_at(b"not a hole", offset).unwrap();
    }
    let again = CopyOptions { block_bytes: Bytes::new(512 << 10), ..options() };
    let result = world.pull(&["data"], "data", &again).unwrap();
    assert!(result.failures.is_empty(), "{:?}", result.failures);
    assert!(fs::read(world.near("data")).unwrap() == fs::read(world.far("data")).unwrap());
    let occupied = fs::metadata(world.near("data")).unwrap().blocks() * 512;
    assert!(occupied < 20 << 20, "the file occupies {occupied} bytes for 13 MiB of data");
}

#[test]
fn a_partial_file_with_most_blocks_is_completed() {
    let world = CopySetup::new();
    let data = bytes(5 << 20);
    let kind = EntryKind::File { size_bytes: Bytes::new(5 << 20) };
    let block = 1 << 20;
    let mut first = Speaker::new(&world, block as u64);
    first.announce(kind.clone());
    for number in [0, 1, 3, 4] {
        let offset = number * block;
        first.blocks.send(0, offset as u64, &mut data[offset..offset + block].to_vec()).unwrap();
    }
    first.wait_for_kept(4 << 20);
    drop(first);
    let mut second = Speaker::new(&world, block as u64);
    second.announce(kind);
    let held = loop {
        if let SinkMessage::Wanted { held, .. } = second.receiver.receive().unwrap() {
            break held;
        }
    };
    assert_eq!(held[0].blocks.as_deref(), Some(&[(0, 2), (3, 2)][..]));
    let mut missing = data[2 * block..3 * block].to_vec();
    second.blocks.send(0, 2 * block as u64, &mut missing).unwrap();
    let last = second.end();
    let SinkMessage::Finished(report) = last else { panic!("{last:?}") };
    assert_eq!((report.files, report.resumed_bytes), (1, Bytes::mib(4)));
    assert!(fs::read(world.far("f")).unwrap() == data);
}

#[test]
fn a_complete_file_that_was_changed_is_copied_again() {
    let world = CopySetup::new();
    fs::create_dir(world.far("t")).unwrap();
    fs::create_dir(world.near("t")).unwrap();
    fs::write(world.far("t/a"), bytes(1_200_000)).unwrap();
    fs::write(world.far("t/z"), bytes(INTERRUPTED_BYTES)).unwrap();
    let target = world.near("t/a");
    interrupt_when(&world, "t/.", &options(), |_: &CopyProgress| target.exists());
    // Size and modification time are the same, but the change time (ctime) differs.
    let placed = fs::File::options().write(true).open(&target).unwrap();
    let modified = placed.metadata().unwrap().modified().unwrap();
    placed.write_all_at(b"changed", 10).unwrap();
    placed.set_modified(modified).unwrap();
    world.pull(&["t/."], "t", &options()).unwrap();
    assert!(fs::read(world.near("t/a")).unwrap() == bytes(1_200_000));
}

#[test]
fn bytes_that_the_sink_checks_are_reported_as_progress() {
    let world = CopySetup::new();
    let dir = "read-slowly";
    fs::create_dir(world.far(dir)).unwrap();
    let (data, block) = (bytes(5 << 20), 1 << 20);
    let kind = EntryKind::File { size_bytes: Bytes::new(5 << 20) };
    let mut first = Speaker::to(&world, block as u64, dir);
    first.announce(kind.clone());
    for offset in (0..4).map(|number| number * block) {
        first.blocks.send(0, offset as u64, &mut data[offset..offset + block].to_vec()).unwrap();
    }
    first.wait_for_kept(4 << 20);
    drop(first);
    slow_at(Path::new(dir), Duration::from_millis(150));
    let mut second = Speaker::to(&world, block as u64, dir);
    second.announce(kind);
    // The sink reports the checked bytes between two reads of the extent, before they count as
    // written.
    second.wait_for(|written, checked, _| written == 0 && (1..4 << 20).contains(&checked));
    second.wait_for(|written, checked, _| (written, checked) == (4 << 20, 4 << 20));
    let mut missing = data[4 * block..].to_vec();
    second.blocks.send(0, 4 * block as u64, &mut missing).unwrap();
    let last = second.end();
    assert!(matches!(last, SinkMessage::Finished(_)), "{last:?}");
    assert!(fs::read(world.far(dir).join("f")).unwrap() == data);
}
