//! `longhaul cp -a` compared with `rsync -aHAXS`: the copies of both equal the source, a tree with
//! all kinds of files and attributes.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, chown, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lgetxattr, llistxattr, makedev,
    mknodat, setxattr, utimensat,
};

use crate::host::{TestHost, assert_code, text};

/// Returns an ACL in the kernel's format (linux/posix_acl_xattr.h): version 2, then tag, rights and
/// id of each entry.
fn acl(named_user: u32) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries: [(u16, u16, u32); 5] = [
        (0x01, 6, NOBODY),     // the owner
        (0x02, 4, named_user), // a user by name
        (0x04, 4, NOBODY),     // the group
        (0x10, 4, NOBODY),     // the mask
        (0x20, 0, NOBODY),     // others
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Returns the file capability `cap_net_raw+ep` (linux/capability.h): revision 2, effective,
/// permitted.
fn capability() -> Vec<u8> {
    [0x0200_0001_u32, 1 << 13, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn set_time(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Creates a tree with all kinds of files and attributes.
fn make_tree(host: &TestHost) {
    let at = |name: &str| host.near("src").join(name);
    for dir in ["", "sub", "sub/deep", "void", "sticky", "closed"] {
        fs::create_dir(at(dir)).unwrap();
    }
    // Sizes around the limits for packs, blocks and direct I/O.
    for (name, size) in [
        ("empty", 0),
        ("one", 1),
        ("packed", 70_000),
        ("sub/direct", (1 << 20) + 4097),
        ("sub/deep/blocks", (9 << 20) + 1),
        ("sub/run-by-all", 5000),
        ("sub/capable", 5000),
        ("sub/for-one", 5000),
        ("closed/inside", 10),
    ] {
        host.file(&format!("src/{name}"), size);
    }
    for name in ["with\nnewline", " spaces ", "caf\u{e9}", "-n", "*?[x]", "100%"] {
        fs::write(at(name), name).unwrap();
    }
    fs::write(at("sub").join(OsStr::from_bytes(b"not\xff\xfeutf8")), "x").unwrap();

    let sparse = File::create(at("sparse")).unwrap();
    sparse.set_len(48 << 20).unwrap();
    sparse.write_all_at(&[7; 9000], 5 << 20).unwrap();
    sparse.write_all_at(&[8; 4096], 40 << 20).unwrap();
    File::create(at("hole")).unwrap().set_len((16 << 20) + 5).unwrap();

    symlink("sub/deep/blocks", at("link")).unwrap();
    symlink("/nowhere/at/all", at("dangling")).unwrap();
    symlink("..", at("sub/up")).unwrap();
    fs::hard_link(at("packed"), at("sub/packed-too")).unwrap();
    fs::hard_link(at("packed"), at("void-not")).unwrap();
    fs::hard_link(at("link"), at("link-too")).unwrap();

    for (name, kind, device) in [
        ("fifo", FileType::Fifo, 0),
        ("null", FileType::CharacterDevice, makedev(1, 3)),
        ("loop", FileType::BlockDevice, makedev(7, 200)),
    ] {
        mknodat(CWD, at(name), kind, Mode::from_raw_mode(0o640), device)
            .expect("this test makes devices: run it as root");
    }
    drop(UnixListener::bind(at("socket")).unwrap());

    chown(at("one"), Some(12_345), Some(54_321)).unwrap();
    chown(at("void"), Some(12_345), Some(0)).unwrap();
    lchown(at("dangling"), Some(23_456), Some(65_432)).unwrap();
    for (name, mode) in [
        ("one", 0o600),
        ("sub/run-by-all", 0o4755),
        ("packed", 0o2750),
        ("empty", 0o000),
        ("sticky", 0o1777),
        ("void", 0o2775),
        ("closed", 0o500),
    ] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(at(name), mode).unwrap();
    }
    let none = XattrFlags::empty();
    setxattr(at("one"), "user.color", b"blue\0\xff", none).unwrap();
    setxattr(at("sub"), "user.of-a-directory", b"", none).unwrap();
    setxattr(at("sub/direct"), "user.long", &[9; 2000], none).unwrap();
    setxattr(at("sub/capable"), "security.capability", &capability(), none).unwrap();
    setxattr(at("sub/for-one"), "system.posix_acl_access", &acl(1234), none).unwrap();
    setxattr(at("sub/deep"), "system.posix_acl_default", &acl(1234), none).unwrap();

    let mut seconds = 1_000_000_000;
    for path in paths(&at("")).into_iter().rev().chain([PathBuf::new()]) {
        seconds += 86_400;
        set_time(&at("").join(path), seconds, seconds % 1_000_000_000);
    }
    set_time(&at("fifo"), -86_400, 5);
}

/// Returns all paths in `dir`, parents first.
fn paths(dir: &Path) -> Vec<PathBuf> {
    fn walk(dir: &Path, above: &Path, found: &mut Vec<PathBuf>) {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        for name in names {
            found.push(above.join(&name));
            let path = dir.join(&name);
            if path.symlink_metadata().unwrap().is_dir() {
                walk(&path, &above.join(&name), found);
            }
        }
    }
    let mut found = Vec::new();
    walk(dir, Path::new(""), &mut found);
    found
}

/// Returns the extended attributes of `path`, including ACLs and capabilities.
fn attributes(path: &Path) -> Vec<String> {
    let mut names = vec![0; 4096];
    let length = llistxattr(path, &mut names).unwrap();
    let mut attributes: Vec<_> = names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let name = OsStr::from_bytes(name);
            let mut value = vec![0; 64 << 10];
            let length = lgetxattr(path, name, &mut value).unwrap();
            format!("{}={:02x?}", name.display(), &value[..length])
        })
        .collect();
    attributes.sort();
    attributes
}

/// Returns a line per path in `dir` with the output of `find -printf`, `stat`, `getfattr` and
/// `getfacl`, except for inodes, access and change times, and sizes of directories, which a copy
/// cannot preserve. Each hard link has the first name of its file.
fn listing(dir: &Path) -> Vec<String> {
    let mut first_names = HashMap::new();
    let all = [PathBuf::new()].into_iter().chain(paths(dir));
    all.map(|name| {
        let path = dir.join(&name);
        let metadata = path.symlink_metadata().unwrap();
        let kind = metadata.file_type();
        let first = first_names
            .entry((metadata.dev(), metadata.ino()))
            .or_insert_with(|| name.clone())
            .clone();
        let content = if kind.is_file() {
            let bytes = fs::read(&path).unwrap();
            let occupied = if metadata.blocks() * 512 < metadata.len() { "sparse" } else { "full" };
            format!("{} bytes {} {occupied}", metadata.len(), blake3::hash(&bytes))
        } else if kind.is_symlink() {
            format!("-> {:?}", fs::read_link(&path).unwrap())
        } else if kind.is_char_device() || kind.is_block_device() {
            format!("device {:x}", metadata.rdev())
        } else {
            String::new()
        };
        let names = if kind.is_dir() { 0 } else { metadata.nlink() };
        format!(
            "{name:?} {kind:?} {:o} {}:{} {}.{:09} {names} names, first {first:?} {content} {:?}",
            metadata.mode(),
            metadata.uid(),
            metadata.gid(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            attributes(&path)
        )
    })
    .collect()
}

#[track_caller]
fn assert_same(ours: &[String], theirs: &[String], what: &str) {
    let lacks = |of: &[String], in_: &[String]| {
        let lines = of.iter().filter(|line| !in_.contains(line)).cloned();
        lines.collect::<Vec<_>>().join("\n")
    };
    let (more, less) = (lacks(ours, theirs), lacks(theirs, ours));
    assert!(ours == theirs, "{what}\nours alone:\n{more}\ntheirs alone:\n{less}");
}

#[test]
fn an_archive_copy_equals_that_of_rsync() {
    let host = TestHost::new();
    make_tree(&host);
    let source = listing(&host.near("src"));
    let has = |what: &str| source.iter().filter(|line| line.contains(what)).count();
    assert_eq!((has(" sparse "), has("posix_acl"), has("security.capability")), (2, 2, 1));
    assert_eq!((has(" 3 names"), has(" 2 names"), has(" device ")), (3, 2, 2));

    let theirs = host.command("rsync", &["-aHAXS", "src/", "theirs"]).output().unwrap();
    assert_code(&theirs, 0);
    let theirs = listing(&host.near("theirs"));
    assert_same(&theirs, &source, "rsync itself keeps all of it");

    assert_code(&host.run(&["cp", "-a", "src", "ours"]), 0);
    assert_same(&listing(&host.near("ours")), &theirs, "within this host");
    // Owners, set-id bits and devices need this option of the key.
    let key = text(&host.run(&["key"]).stdout);
    let keys = host.home().join(".config/longhaul/authorized_keys");
    fs::write(keys, format!("owners {key}")).unwrap();
    let server = host.serve();
    assert_code(&host.run(&["cp", "-a", "src", &server.url("pushed")]), 0);
    assert_same(&listing(&host.far("pushed")), &theirs, "sent to a server");
    assert_code(&host.run(&["cp", "-a", &server.url("pushed"), "pulled"]), 0);
    assert_same(&listing(&host.near("pulled")), &theirs, "fetched from a server");

    // A copy of a directory's contents also sets the attributes of the target directory.
    fs::create_dir(host.near("into")).unwrap();
    fs::create_dir(host.far("into")).unwrap();
    assert_code(&host.run(&["cp", "-a", "src/.", "into"]), 0);
    assert_same(&listing(&host.near("into")), &theirs, "contents within this host");
    assert_code(&host.run(&["cp", "-a", "src/.", &server.url("into")]), 0);
    assert_same(&listing(&host.far("into")), &theirs, "contents sent to a server");
    assert_code(&host.run(&["cp", "-a", &server.url("into/."), "new"]), 0);
    assert_same(&listing(&host.near("new")), &theirs, "contents fetched from a server");
}

#[test]
fn a_second_copy_updates_as_rsync_does() {
    let host = TestHost::new();
    make_tree(&host);
    assert_code(&host.command("rsync", &["-aHAXS", "src/.", "theirs"]).output().unwrap(), 0);
    assert_code(&host.run(&["cp", "-a", "src/.", "ours"]), 0);
    let at = |name: &str| host.near("src").join(name);
    host.file("src/packed", 80_000);
    fs::remove_file(at("one")).unwrap();
    fs::create_dir(at("one")).unwrap();
    fs::remove_file(at("link")).unwrap();
    symlink("elsewhere", at("link")).unwrap();
    fs::remove_dir_all(at("sub/deep")).unwrap();
    fs::write(at("new"), "new").unwrap();
    chown(at("empty"), Some(77), Some(78)).unwrap();
    // rsync treats times within a second as equal.
    for (seconds, name) in (1_700_000_000..).zip(["packed", "link", "new", "one", "sub", ""]) {
        set_time(&at(name), seconds, 123_456_789);
    }
    for name in ["theirs/one", "ours/one"] {
        // By default neither tool replaces a file by a directory.
        fs::remove_file(host.near(name)).unwrap();
    }
    assert_code(
        &host.command("rsync", &["-aHAXS", "--delete", "src/.", "theirs"]).output().unwrap(),
        0,
    );
    assert_code(&host.run(&["cp", "-a", "--delete", "src/.", "ours"]), 0);
    let source = listing(&host.near("src"));
    assert_same(&listing(&host.near("theirs")), &source, "rsync itself keeps all of it");
    assert_same(&listing(&host.near("ours")), &source, "again");
}
