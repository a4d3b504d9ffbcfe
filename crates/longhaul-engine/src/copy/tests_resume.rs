//! Copies that go on with what an earlier attempt has left, where that is damaged, planted by
//! another user, or written in blocks of another size.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_core::plan::CopyOptions;
use longhaul_core::units::Bytes;
use longhaul_core::wire::WirePath;
use longhaul_core::wire::copy::{CopyKey, CopyReply, CopyRequest, Top};

use super::tests::{World, bytes, names, options};
use super::tests_faults::{broken_off, settles};

/// A user that these tests do not run as.
const OTHER: u32 = 4711;

fn slow(options: &CopyOptions) -> CopyOptions {
    CopyOptions { rate_bps: Some("100M".parse().unwrap()), ..options.clone() }
}

/// A copy of `data` that was broken off: its source, the `.part` file and the journal.
fn begun(world: &World, data: &[u8], options: &CopyOptions) -> (PathBuf, PathBuf) {
    fs::write(world.far("data"), data).unwrap();
    broken_off(world, "data", Duration::from_millis(1300), &slow(options));
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
fn what_another_user_could_have_written_is_not_gone_on_with() {
    let data = bytes((24 << 20) + 77);
    type Plant = fn(&Path, &Path, &World);
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
    for (what, plant) in cases {
        let world = World::new();
        let (part, journal) = begun(&world, &data, &options());
        // Held open, so that no other file gets its number.
        let held = fs::File::open(&part).unwrap();
        let inode = held.metadata().unwrap().ino();
        // Bytes of whoever could write it.
        fs::File::options().write(true).open(&part).unwrap().write_all_at(b"theirs", 9).unwrap();
        plant(&part, &journal, &world);
        let result = world.pull(&["data"], "data", &options()).unwrap();
        assert_eq!(result.summary.resumed_bytes, Bytes::new(0), "{what}");
        assert!(fs::read(world.near("data")).unwrap() == data, "{what}");
        let placed = fs::metadata(world.near("data")).unwrap();
        assert!(placed.uid() != OTHER && placed.ino() != inode, "{what}");
    }
}

#[test]
fn a_temporary_name_that_another_user_has_taken_is_left_alone() {
    let world = World::new();
    let data = bytes(24 << 20);
    let (part, journal) = begun(&world, &data, &options());
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
fn a_client_that_leaves_before_its_data_connections_leaves_nothing() {
    let world = World::new();
    let (sender, mut receiver, dialer) = world.session().split();
    let request = CopyRequest::Receive {
        key: CopyKey::new(3),
        target: WirePath::new(".").unwrap(),
        top: Top::Several,
        options: CopyOptions { streams: Some(2), ..options() },
    };
    sender.send(&request).unwrap();
    assert!(matches!(receiver.receive().unwrap(), CopyReply::Ready { .. }));
    assert_eq!(names(&world.far("")).len(), 1, "the journal of the copy that begins");
    // One of two, and one with a number that does not exist, which ends the wait for them at once.
    drop(dialer.open(0, |_| Ok(())).unwrap());
    drop(dialer.open(7, |_| Ok(())).unwrap());
    drop((sender, receiver, dialer));
    settles(&world, &[]);
}
