//! Complete copies of trees: links, attributes, and files that are kept, deleted or listed.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use longhaul_core::plan::filter::FilterList;
use longhaul_core::plan::{CopyOptions, DeleteOptions, OwnerMode, TreeOptions};
use longhaul_core::result::{ActionKind, CopyResult, Manifest, hex};
use longhaul_core::wire::FilePath;

use super::{CopySetup, bytes, names, options};

fn archive() -> CopyOptions {
    CopyOptions { preserve: true, tree: TreeOptions::archive(), ..options() }
}

fn with(change: impl FnOnce(&mut TreeOptions)) -> CopyOptions {
    let mut options = options();
    change(&mut options.tree);
    options
}

fn actions(result: &CopyResult) -> Vec<(ActionKind, String)> {
    let name = |path: &FilePath| {
        let text = path.to_string();
        let slash = if text.ends_with('/') { "/" } else { "" };
        format!("{}{slash}", Path::new(&text).file_name().unwrap().display())
    };
    result.actions.iter().map(|action| (action.what, name(&action.path))).collect()
}

fn age(path: PathBuf, seconds: u64) {
    let then = SystemTime::now() - Duration::from_secs(seconds);
    fs::File::open(path).unwrap().set_modified(then).unwrap();
}

#[test]
#[ignore = "needs root"]
fn an_archive_keeps_links_modes_owners_attributes_and_special_files() {
    let world = CopySetup::new();
    let at = |name: &str| world.near("t").join(name);
    fs::create_dir_all(at("sub")).unwrap();
    fs::write(at("file"), "x").unwrap();
    fs::hard_link(at("file"), at("sub/again")).unwrap();
    symlink("../nowhere", at("sub/link")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), 0o640.into()).unwrap();
    drop(std::os::unix::net::UnixListener::bind(at("socket")).unwrap());
    fs::write(at("owned"), bytes(2 << 20)).unwrap();
    // These tests run as root; see CONTRIBUTING.md.
    std::os::unix::fs::chown(at("owned"), Some(12_345), Some(23_456)).unwrap();
    std::os::unix::fs::lchown(at("sub/link"), Some(12_345), None).unwrap();
    fs::set_permissions(at("owned"), fs::Permissions::from_mode(0o4751)).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(at("owned"), "user.color", b"blue\0\xff", flags).unwrap();
    // POSIX ACL, version 2: user::rw-, user:12345:r--, group::r--, mask::r--, other::---.
    let acl: Vec<u8> = [
        (1_u16, 6_u16, u32::MAX),
        (2, 4, 12_345),
        (4, 4, u32::MAX),
        (16, 4, u32::MAX),
        (32, 0, u32::MAX),
    ]
    .into_iter()
    .fold(2_u32.to_le_bytes().to_vec(), |mut acl, (tag, rights, id)| {
        acl.extend(tag.to_le_bytes());
        acl.extend(rights.to_le_bytes());
        acl.extend(id.to_le_bytes());
        acl
    });
    rustix::fs::setxattr(at("file"), "system.posix_acl_access", &acl, flags).unwrap();
    rustix::fs::setxattr(at("sub"), "system.posix_acl_default", &acl, flags).unwrap();
    for name in ["sub", ""] {
        age(at(name), 1_000_000);
    }

    let result = world.push(&["t"], ".", &archive()).unwrap();
    assert!(result.failures.is_empty() && result.skipped.is_empty(), "{result:?}");
    assert!(result.not_kept.is_empty(), "{:?}", result.not_kept);
    let back = world.pull(&["t"], "back", &archive()).unwrap();
    assert!(back.failures.is_empty() && back.not_kept.is_empty(), "{back:?}");
    for copy in [world.far("t"), world.near("back")] {
        let meta = |name: &str| fs::symlink_metadata(copy.join(name)).unwrap();
        assert_eq!(meta("file").ino(), meta("sub/again").ino());
        assert_eq!(fs::read_link(copy.join("sub/link")).unwrap(), Path::new("../nowhere"));
        assert_eq!(meta("sub/link").uid(), 12_345);
        assert!(meta("pipe").file_type().is_fifo() && meta("socket").file_type().is_socket());
        assert_eq!(meta("pipe").mode() & 0o7777, 0o640);
        let owned = meta("owned");
        assert_eq!((owned.uid(), owned.gid(), owned.mode() & 0o7777), (12_345, 23_456, 0o4751));
        let mut value = [0; 100];
        let mut xattr = |name: &str, attribute: &str| {
            let length = rustix::fs::getxattr(copy.join(name), attribute, &mut value).unwrap();
            value[..length].to_vec()
        };
        assert_eq!(xattr("owned", "user.color"), b"blue\0\xff");
        assert_eq!(xattr("file", "system.posix_acl_access"), acl);
        assert_eq!(xattr("sub", "system.posix_acl_default"), acl);
        for name in ["sub", "", "sub/link", "pipe"] {
            let source = fs::symlink_metadata(at(name)).unwrap();
            assert_eq!(meta(name).modified().unwrap(), source.modified().unwrap(), "{name:?}");
        }
        assert_eq!(names(&copy), ["file", "owned", "pipe", "socket", "sub"]);
        assert_eq!(names(&copy.join("sub")), ["again", "link"]);
    }
    // A repeated copy keeps the hard links.
    let again = world.push(&["t"], ".", &archive()).unwrap();
    assert!(again.failures.is_empty(), "{again:?}");
    assert_eq!(names(&world.far("t/sub")), ["again", "link"]);
}

#[test]
#[ignore = "needs root"]
fn without_archive_owners_and_the_set_user_id_bit_are_not_copied() {
    let world = CopySetup::new();
    fs::write(world.near("f"), "x").unwrap();
    std::os::unix::fs::chown(world.near("f"), Some(12_345), None).unwrap();
    fs::set_permissions(world.near("f"), fs::Permissions::from_mode(0o4755)).unwrap();
    let keep = CopyOptions { preserve: true, ..options() };
    world.push(&["f"], ".", &keep).unwrap();
    let copy = fs::metadata(world.far("f")).unwrap();
    assert_eq!((copy.uid(), copy.mode() & 0o7777), (0, 0o755));
}

#[test]
fn hard_links_to_a_failed_file_fail() {
    let world = CopySetup::new();
    fs::create_dir(world.near("t")).unwrap();
    fs::write(world.near("t/a"), "new").unwrap();
    fs::hard_link(world.near("t/a"), world.near("t/b")).unwrap();
    fs::create_dir_all(world.far("t/a")).unwrap();
    let options = with(|tree| tree.hard_links = true);
    let result = world.push(&["t"], ".", &options).unwrap();
    assert_eq!(result.failures.len(), 2, "{:?}", result.failures);
    assert_eq!(names(&world.far("t")), ["a"]);
}

#[test]
#[ignore = "needs root"]
fn owners_are_set_by_name_unless_numbers_are_requested() {
    use crate::copy::metadata::{Attributes, Keeper};
    use longhaul_core::wire::copy::{Entry, EntryKind, Owner};
    let dir = tempfile::tempdir().unwrap();
    for (mode, expected) in [(OwnerMode::Names, 0), (OwnerMode::Numbers, 12_345)] {
        let file = fs::File::create(dir.path().join("f")).unwrap();
        let mut entry = Entry::new(FilePath::new("f").unwrap(), EntryKind::Fifo, 0o600);
        entry.owner =
            Some(Owner { uid: 12_345, gid: 23_456, user: Some("root".into()), group: None });
        let mut options = options();
        options.tree.owner = mode;
        let keeper = Keeper::new(&options, true);
        keeper.apply_attributes(&file, &Attributes::of(&mut entry), None, Path::new("f"));
        assert!(keeper.not_kept().is_empty());
        assert_eq!(file.metadata().unwrap().uid(), expected);
        assert_eq!(file.metadata().unwrap().gid(), 23_456);
    }
}

#[test]
fn an_update_skips_files_that_are_as_new() {
    let world = CopySetup::new();
    fs::create_dir_all(world.near("t")).unwrap();
    fs::create_dir_all(world.far("t")).unwrap();
    for name in ["older", "newer", "same", "longer", "large"] {
        fs::write(world.near(&format!("t/{name}")), "source").unwrap();
        fs::write(world.far(&format!("t/{name}")), "target").unwrap();
        let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5);
        for path in [world.near(&format!("t/{name}")), world.far(&format!("t/{name}"))] {
            fs::File::open(path).unwrap().set_modified(then).unwrap();
        }
    }
    fs::write(world.near("t/large"), bytes(3 << 20)).unwrap();
    fs::write(world.near("t/new"), "source").unwrap();
    age(world.near("t/newer"), 0);
    age(world.far("t/older"), 0);
    fs::write(world.far("t/longer"), "target, longer").unwrap();
    fs::File::open(world.far("t/longer"))
        .unwrap()
        .set_modified(SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5))
        .unwrap();
    let result = world.push(&["t"], ".", &with(|tree| tree.update = true)).unwrap();
    assert!(result.failures.is_empty());
    assert_eq!((result.summary.files, result.summary.unchanged_files), (4, 2), "{result:?}");
    let read = |name: &str| fs::read(world.far("t").join(name)).unwrap();
    for taken in ["newer", "longer", "new"] {
        assert_eq!(read(taken), b"source", "{taken}");
    }
    assert_eq!(read("large"), bytes(3 << 20));
    for left in ["older", "same"] {
        assert_eq!(read(left), b"target", "{left}");
    }
}

#[test]
fn levels_of_comparison_decide_which_files_are_copied() {
    use longhaul_core::plan::SyncLevel;
    let moment = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    for (level, copied) in [
        (SyncLevel::Exists, &["missing"][..]),
        (SyncLevel::Size, &["longer", "missing"]),
        (SyncLevel::Mtime, &["longer", "missing", "older"]),
        (SyncLevel::Checksum, &["longer", "missing", "other"]),
    ] {
        let world = CopySetup::new();
        for dir in [world.near("t"), world.far("t")] {
            fs::create_dir_all(dir).unwrap();
        }
        for (name, there, seconds) in [
            ("same", "data", 2000),
            ("older", "data", 500),
            ("other", "atad", 2000),
            ("longer", "datadata", 2000),
        ] {
            for (path, text, time) in [
                (world.near(&format!("t/{name}")), "data", 1000),
                (world.far(&format!("t/{name}")), there, seconds),
            ] {
                fs::write(&path, text).unwrap();
                fs::File::open(path).unwrap().set_modified(moment(time)).unwrap();
            }
        }
        fs::write(world.near("t/missing"), "data").unwrap();
        let options = with(|tree| (tree.sync_level, tree.list) = (Some(level), true));
        let result = world.push(&["t"], ".", &options).unwrap();
        assert!(result.failures.is_empty(), "{level:?}");
        let mut listed: Vec<String> = result
            .actions
            .iter()
            .filter_map(|action| Some(action.path.to_string().rsplit_once('/')?.1.to_owned()))
            .collect();
        listed.sort();
        assert_eq!(listed, copied, "{level:?}");
        assert_eq!(result.summary.files, copied.len() as u64, "{level:?}");
        assert_eq!(result.summary.unchanged_files, 5 - copied.len() as u64, "{level:?}");
    }
}

#[test]
fn files_that_the_source_lacks_are_deleted_only_after_a_complete_copy() {
    let world = CopySetup::new();
    fs::create_dir_all(world.near("t/sub")).unwrap();
    fs::write(world.near("t/sub/kept"), "x").unwrap();
    let fill = || {
        fs::create_dir_all(world.far("t/sub/gone/deep")).unwrap();
        fs::create_dir_all(world.far("t/guarded")).unwrap();
        fs::create_dir_all(world.far("outside")).unwrap();
        for name in ["t/sub/gone/deep/f", "t/extra", "t/guarded/safe.o", "outside/f"] {
            fs::write(world.far(name), "x").unwrap();
        }
        let _ = symlink("../outside", world.far("t/link"));
    };
    fill();
    let mut list = FilterList::default();
    list.add(b"*.o", false).unwrap();
    let filters = list.into_rules();
    let delete = |limit, dry_run| {
        with(|tree| {
            tree.delete = Some(DeleteOptions { limit });
            tree.filters = filters.clone();
            tree.dry_run = dry_run;
        })
    };
    let all = ["deep/", "extra", "f", "gone/", "link"];
    let deleted = |result: &CopyResult| {
        let mut names: Vec<_> = actions(result)
            .into_iter()
            .filter(|(action, _)| *action == ActionKind::Delete)
            .map(|(_, name)| name)
            .collect();
        names.sort();
        names
    };
    // A dry run lists the deletions and deletes nothing.
    let result = world.push(&["t"], ".", &delete(None, true)).unwrap();
    assert_eq!(deleted(&result), all);
    assert!(world.far("t/sub/gone/deep/f").exists() && !world.far("t/sub/kept").exists());
    // Nothing is deleted if the number exceeds the limit.
    let result = world.push(&["t"], ".", &delete(Some(4), false)).unwrap();
    assert!(result.failures[0].reason.contains("the limit is"), "{result:?}");
    assert!(world.far("t/extra").exists());
    // Nothing is deleted if a source fails.
    let result = world.push(&["t", "missing"], ".", &delete(None, false)).unwrap();
    assert_eq!(result.failures.len(), 2, "{result:?}");
    assert!(world.far("t/extra").exists());
    let result = world.push(&["t"], ".", &delete(Some(5), false)).unwrap();
    assert!(result.failures.is_empty(), "{result:?}");
    assert_eq!((deleted(&result), result.summary.deleted), (all.map(String::from).into(), 5));
    assert_eq!(names(&world.far("t")), ["guarded", "sub"]);
    assert_eq!(names(&world.far("t/guarded")), ["safe.o"]);
    assert_eq!(names(&world.far("t/sub")), ["kept"]);
    assert_eq!(names(&world.far("outside")), ["f"], "nothing is deleted through a link");
    // With a source "t/." the target itself corresponds to the source, also for a pull.
    fs::write(world.far("t/extra"), "x").unwrap();
    world.push(&["t/."], "t", &delete(None, false)).unwrap();
    assert_eq!(names(&world.far("t")), ["guarded", "sub"]);
    fs::create_dir(world.near("u")).unwrap();
    fs::write(world.near("u/extra"), "x").unwrap();
    world.pull(&["t/."], "u", &delete(None, false)).unwrap();
    assert_eq!(names(&world.near("u")), ["guarded", "sub"]);
}

#[test]
fn a_dry_run_changes_nothing_and_lists_everything() {
    let world = CopySetup::new();
    fs::create_dir_all(world.near("t/sub")).unwrap();
    fs::write(world.near("t/sub/new"), bytes(3 << 20)).unwrap();
    fs::write(world.near("t/old"), "x").unwrap();
    fs::create_dir(world.far("t")).unwrap();
    fs::write(world.far("t/old"), "y").unwrap();
    let dry = with(|tree| tree.dry_run = true);
    let expected = [
        (ActionKind::Replace, "old".to_owned()),
        (ActionKind::Create, "sub/".to_owned()),
        (ActionKind::Create, "new".to_owned()),
    ];
    let result = world.push(&["t"], ".", &dry).unwrap();
    assert_eq!(actions(&result), expected);
    assert_eq!(result.actions[2].bytes.get(), 3 << 20);
    assert!(result.summary.dry_run && result.summary.files == 0);
    assert_eq!(fs::read(world.far("t/old")).unwrap(), b"y");
    assert_eq!(names(&world.far("t")), ["old"]);
    // A dry run does not create a missing target.
    let result = world.push(&["t/."], "none", &dry).unwrap();
    assert_eq!(result.actions.len(), 3);
    assert!(!world.far("none").exists());
    let result = world.pull(&["t"], "back", &dry).unwrap();
    assert_eq!(actions(&result)[1], (ActionKind::Create, "old".to_owned()));
    assert!(!world.near("back").exists());
}

#[test]
fn digests_are_reported_and_written_to_a_manifest() {
    let world = CopySetup::new();
    fs::create_dir(world.near("t")).unwrap();
    let large = bytes((3 << 20) + 5);
    fs::write(world.near("t/large"), &large).unwrap();
    fs::write(world.near("t/small"), "abc").unwrap();
    fs::write(world.near("t/empty"), "").unwrap();
    let wanted = with(|tree| {
        tree.digests = true;
        tree.manifest = FilePath::new("");
    });
    let result = world.push(&["t"], ".", &wanted).unwrap();
    let pulled = world.pull(&["t"], ".", &wanted).unwrap();
    let expected: Vec<_> = [(&b""[..], "empty"), (&large, "large"), (b"abc", "small")]
        .iter()
        .map(|(bytes, name)| (format!("t/{name}"), hex(blake3::hash(bytes).as_bytes())))
        .collect();
    for result in [result, pulled] {
        let reported: Vec<_> = result
            .digests
            .iter()
            .map(|digest| (digest.path.to_string(), digest.blake3.clone()))
            .collect();
        assert_eq!(reported, expected);
        assert!(result.summary.manifest.unwrap().ends_with("t.b3"));
    }
    for manifest in [world.far("t.b3"), world.near("t.b3")] {
        let manifest = Manifest::from_bytes(&fs::read(manifest).unwrap()).unwrap();
        assert_eq!(manifest.covers, [b"t"]);
        let listed: Vec<_> = manifest
            .files
            .iter()
            .map(|file| (String::from_utf8(file.path.clone()).unwrap(), hex(&file.digest)))
            .collect();
        assert_eq!(listed, expected);
    }
    assert_eq!(names(&world.far("")), ["t", "t.b3"]);
    // The digests include files that were not copied.
    let update = CopyOptions {
        preserve: true,
        tree: TreeOptions { update: true, digests: true, ..TreeOptions::default() },
        ..options()
    };
    world.push(&["t"], ".", &update).unwrap();
    let result = world.push(&["t"], ".", &update).unwrap();
    assert_eq!((result.summary.unchanged_files, result.digests.len()), (3, 3));
}

#[test]
fn a_target_with_a_slash_becomes_the_directory() {
    let world = CopySetup::new();
    fs::create_dir(world.near("t")).unwrap();
    fs::write(world.near("t/f"), "x").unwrap();
    assert!(world.push(&["t"], "new/", &archive()).unwrap().failures.is_empty());
    assert_eq!(names(&world.far("new")), ["f"]);
    world.pull(&["new"], "back/", &archive()).unwrap();
    assert_eq!(names(&world.near("back")), ["f"]);
    let file = world.push(&["t/f"], "other/", &archive()).unwrap();
    assert_eq!((file.failures.len(), file.summary.files), (1, 0), "{file:?}");
    assert!(!file.summary.verified && !file.summary.durable, "no file has its final name");
    assert_eq!(names(&world.far("")), ["new"]);
}

#[test]
fn a_directory_is_not_copied_into_itself_through_a_server() {
    let world = CopySetup::new();
    fs::create_dir_all(world.far("t/deep/target")).unwrap();
    fs::write(world.far("t/f"), "x").unwrap();
    // The client reaches the server's files by a symbolic link.
    symlink(world.far("t"), world.near("alias")).unwrap();
    let result = world.push(&["alias/."], "t/deep/target", &options()).unwrap();
    assert_eq!(result.failures.len(), 1, "{result:?}");
    assert!(result.failures[0].reason.contains("target of this copy"), "{result:?}");
    assert_eq!(names(&world.far("t/deep/target")), ["deep", "f"]);
    assert!(names(&world.far("t/deep/target/deep")).is_empty());
    symlink(world.far("t"), world.near("there")).unwrap();
    let pulled = world.pull(&["t"], "there/deep", &options()).unwrap();
    assert_eq!(pulled.failures.len(), 1, "{pulled:?}");
}

#[test]
fn a_file_is_not_replaced_by_itself() {
    let world = CopySetup::new();
    fs::create_dir(world.near("d1")).unwrap();
    fs::create_dir(world.far("d2")).unwrap();
    for name in ["linked", "second", "other"] {
        fs::write(world.far("d2").join(name), name).unwrap();
    }
    let source = |name: &str| world.near("d1").join(name);
    symlink(world.far("d2/linked"), source("linked")).unwrap();
    fs::hard_link(world.far("d2/second"), source("second")).unwrap();
    fs::write(source("other"), "new").unwrap();
    let inode = |name: &str| fs::symlink_metadata(world.far("d2").join(name)).unwrap().ino();
    let before = [inode("linked"), inode("second")];
    for options in [archive(), options()] {
        let result = world.push(&["d1/."], "d2", &options).unwrap();
        let mut failed: Vec<_> = result.failures.iter().map(|failure| &failure.reason).collect();
        failed.retain(|reason| reason.contains("same file"));
        assert_eq!((failed.len(), result.failures.len()), (2, 2), "{:?}", result.failures);
        assert_eq!([inode("linked"), inode("second")], before);
        assert_eq!(fs::read(world.far("d2/linked")).unwrap(), b"linked");
        assert_eq!(fs::read(world.far("d2/other")).unwrap(), b"new");
    }
}
