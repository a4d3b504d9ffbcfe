//! The rights of the server process: its user, its files and its memory.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use crate::host::{PROGRAM, Server, TestHost, assert_code, text};

/// The id of the user `nobody`.
const NOBODY: u32 = 65534;

/// Creates a host with keys and files that users other than root can read.
fn shared_host() -> TestHost {
    let host = TestHost::new();
    assert_code(&host.run(&["key"]), 0);
    let config = host.home().join(".config");
    let base = host.home().parent().unwrap().to_owned();
    for dir in [base, host.home(), config.clone(), config.join("longhaul")] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    chown(host.far(""), Some(NOBODY), Some(NOBODY)).unwrap();
    host
}

fn serve_as(host: &TestHost, user: &str) -> Command {
    let root = host.far("");
    let root = root.to_str().unwrap();
    host.longhaul(&["serve", "--bind", "127.0.0.1", "-p", "0", "--root", root, "--user", user])
}

/// Returns the lines that begin with `name` of every thread's `/proc/PID/task/TID/status`.
fn of_all_threads(server: &Server, name: &str) -> Vec<String> {
    let tasks = format!("/proc/{}/task", server.process.id());
    let line = |task: fs::DirEntry| {
        // The thread may have ended.
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned())
    };
    fs::read_dir(tasks).unwrap().filter_map(|task| line(task.unwrap())).collect()
}

#[test]
fn a_server_of_root_becomes_its_user_for_good() {
    let host = shared_host();
    let server = Server::start(serve_as(&host, "nobody:nogroup"));
    host.file("data", 3 << 20);
    assert_code(&host.run(&["cp", "data", &server.url("x")]), 0);
    let copied = fs::metadata(host.far("x")).unwrap();
    assert_eq!((copied.uid(), copied.len()), (NOBODY, 3 << 20));
    let ids = format!("{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}");
    for (name, expected) in [
        ("Uid:", ids.as_str()),
        ("Gid:", ids.as_str()),
        ("CapPrm:", "0000000000000000"),
        ("CapEff:", "0000000000000000"),
        ("NoNewPrivs:", "1"),
    ] {
        let found = of_all_threads(&server, name);
        assert!(found.len() >= 2, "{found:?}");
        assert!(found.iter().all(|found| found == expected), "{name} {found:?}");
    }
    let groups = of_all_threads(&server, "Groups:");
    assert!(groups.iter().all(|list| !list.split(' ').any(|group| group == "0")), "{groups:?}");
    // The key belongs to root, and core files are disabled.
    let identity = host.home().join(".config/longhaul/identity");
    assert_eq!(fs::metadata(identity).unwrap().uid(), 0);
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.process.id())).unwrap();
    let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().collect::<Vec<_>>(), ["0", "0", "bytes"]);
}

#[test]
fn files_that_their_owner_may_not_read_are_copied_to_a_user() {
    let host = shared_host();
    let server = Server::start(serve_as(&host, "nobody:nogroup"));
    for (name, mode) in [("none", 0o000), ("write", 0o200)] {
        let source = host.file(name, 700);
        fs::set_permissions(&source, fs::Permissions::from_mode(mode)).unwrap();
        assert_code(&host.run(&["cp", name, &server.url(name)]), 0);
        let copied = fs::metadata(host.far(name)).unwrap();
        assert_eq!((copied.uid(), copied.mode() & 0o7777), (NOBODY, mode));
        // Tests run as root, which may read everything.
        assert_eq!(fs::read(host.far(name)).unwrap(), fs::read(source).unwrap());
    }
}

#[test]
fn a_server_that_stays_root_keeps_few_capabilities() {
    let host = TestHost::new();
    for (landlock, owners) in [("auto", false), ("off", false), ("auto", true)] {
        let alice = text(&TestHost::new().run(&["key"]).stdout);
        let line = format!("{}{alice}", if owners { "owners " } else { "" });
        assert_code(&host.run(&["key"]), 0);
        fs::write(host.home().join(".config/longhaul/authorized_keys"), line).unwrap();
        let arguments = ["serve", "--bind", "127.0.0.1", "-p", "0", "--landlock", landlock];
        let server = Server::start(host.longhaul(&arguments));
        let sets = of_all_threads(&server, "CapEff:");
        // The capabilities are CAP_CHOWN, SETUID, SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN and
        // MKNOD (capability.h).
        let lost = [7, 16, 17, 19, 21].iter().fold(0, |set, bit| set | 1_u64 << bit);
        let of_owners = 1_u64 | 1 << 27;
        for set in sets {
            let set = u64::from_str_radix(&set, 16).unwrap();
            assert_eq!(set & lost, 0, "{set:x}");
            assert_eq!(set & of_owners, if owners { of_owners } else { 0 }, "{set:x}");
        }
        let no_new: Vec<String> = of_all_threads(&server, "NoNewPrivs:");
        assert!(!no_new.is_empty() && no_new.iter().all(|set| set == "1"), "{no_new:?}");
    }
}

#[test]
fn a_path_that_the_user_cannot_read_is_named_at_the_start() {
    let refused = |host: &TestHost, words: &[&str]| {
        let output = serve_as(host, "nobody").output().unwrap();
        assert_code(&output, 6);
        let printed = text(&output.stderr);
        assert!(words.iter().all(|word| printed.contains(word)), "{printed}");
    };
    let host = shared_host();
    let keys = host.home().join(".config/longhaul/authorized_keys");
    fs::write(&keys, "# nobody yet\n").unwrap();
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o600)).unwrap();
    refused(&host, &["authorized_keys", "'nobody' (--user)", "XDG_CONFIG_HOME"]);
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(host.home(), fs::Permissions::from_mode(0o700)).unwrap();
    refused(&host, &["authorized_keys", "'nobody' (--user)"]);
    fs::set_permissions(host.home(), fs::Permissions::from_mode(0o755)).unwrap();
    drop(Server::start(serve_as(&host, "nobody")));
}

#[test]
fn an_invalid_user_option_is_refused() {
    let host = shared_host();
    for (user, words) in [
        ("no-such-user", "there is no user 'no-such-user'"),
        ("nobody:no-such-group", "there is no group 'no-such-group'"),
        ("root", "'root' is root, which keeps all rights"),
    ] {
        let output = serve_as(&host, user).output().unwrap();
        assert_code(&output, 2);
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups", PROGRAM, "serve"];
    let arguments = [&user[..], &["-p", "0", "--user", "daemon"]].concat();
    let output = host.command("setpriv", &arguments).output().unwrap();
    assert_code(&output, 6);
    assert!(text(&output.stderr).contains("only root can change the user"));
}

/// Replaces the directory `dir` by a new one, as a restored backup or a new mount does.
fn replace(dir: &Path) {
    fs::rename(dir, dir.with_extension("before")).unwrap();
    fs::create_dir(dir).unwrap();
}

#[test]
fn a_root_created_after_the_start_needs_a_restart() {
    for landlock in ["auto", "require", "off"] {
        let (host, alice) = (TestHost::new(), TestHost::new());
        let key = alice.run(&["key"]);
        assert_code(&host.run(&["key"]), 0);
        let keys = host.home().join(".config/longhaul/authorized_keys");
        let line = format!("root={} {}", host.far("alice").display(), text(&key.stdout));
        fs::write(&keys, line).unwrap();
        fs::create_dir(host.far("alice")).unwrap();
        let arguments = ["serve", "--bind", "127.0.0.1", "-p", "0", "--landlock", landlock];
        let server = Server::start(host.longhaul(&arguments));
        alice.file("data", 100_000);
        let copy = |name: &str| alice.run(&["cp", "--accept-new", "data", &server.url(name)]);
        assert_code(&copy("x"), 0);
        replace(&host.far("alice"));
        let output = copy("y");
        if landlock == "off" {
            assert_code(&output, 0);
            continue;
        }
        assert_code(&output, 4);
        let printed = text(&output.stderr);
        assert!(
            printed.contains("Landlock") && printed.contains("restart the server"),
            "{printed}"
        );
        assert_eq!(fs::read_dir(host.far("alice")).unwrap().count(), 0);
    }
}

/// Creates a tree with an owner, set-id bits, a file capability and a device.
fn foreign_tree(host: &TestHost) {
    use rustix::fs::{CWD, FileType, Mode, XattrFlags, makedev, mknodat, setxattr};
    fs::create_dir(host.near("t")).unwrap();
    for name in ["t/plain", "t/suid", "t/capable"] {
        host.file(name, 1000);
        chown(host.near(name), Some(4242), Some(4343)).unwrap();
    }
    // Version 2, effective, CAP_NET_RAW permitted (linux/capability.h).
    let mut capability = [0; 20];
    capability[..4].copy_from_slice(&0x0200_0001_u32.to_le_bytes());
    capability[4..8].copy_from_slice(&(1_u32 << 13).to_le_bytes());
    let capable = host.near("t/capable");
    setxattr(&capable, "security.capability", &capability, XattrFlags::empty()).unwrap();
    for (name, mode) in [("t/plain", 0o640), ("t/suid", 0o6755), ("t/capable", 0o755)] {
        fs::set_permissions(host.near(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let null = makedev(1, 3);
    let device = host.near("t/device");
    mknodat(CWD, &device, FileType::CharacterDevice, Mode::from_raw_mode(0o666), null).unwrap();
    fs::File::open(host.near("t/plain"))
        .unwrap()
        .set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000))
        .unwrap();
}

#[test]
fn only_keys_with_owners_set_owners_devices_and_set_id_bits() {
    let capabilities = |path: &Path| {
        let mut value = [0; 64];
        rustix::fs::getxattr(path, "security.capability", &mut value[..]).is_ok()
    };
    for (option, given) in [("", false), ("owners ", true)] {
        let (host, alice) = (TestHost::new(), TestHost::new());
        let key = alice.run(&["key"]);
        assert_code(&host.run(&["key"]), 0);
        let keys = host.home().join(".config/longhaul/authorized_keys");
        fs::write(keys, format!("{option}{}", text(&key.stdout))).unwrap();
        let server = host.serve();
        foreign_tree(&alice);
        let output = alice.run(&["cp", "-a", "--accept-new", "t", &server.url("")]);
        let printed = text(&output.stderr);
        assert_code(&output, if given { 0 } else { 7 });
        let at = |name: &str| fs::symlink_metadata(host.far("t").join(name));
        let plain = at("plain").unwrap();
        // Modes and times are preserved with every key.
        assert_eq!((plain.mode() & 0o7777, plain.mtime()), (0o640, 1_000_000_000));
        let suid = at("suid").unwrap();
        assert_eq!(at("device").is_ok(), given, "{printed}");
        assert_eq!(capabilities(&host.far("t/capable")), given);
        if given {
            assert_eq!((plain.uid(), plain.gid(), suid.mode() & 0o7777), (4242, 4343, 0o6755));
            continue;
        }
        assert_eq!((plain.uid(), plain.gid(), suid.mode() & 0o7777), (0, 0, 0o755));
        // The output has one line per kind of attribute, and one for the device.
        let lines: Vec<&str> =
            printed.lines().filter(|line| line.contains("the option 'owners'")).collect();
        assert_eq!(lines.len(), 4, "{printed}");
        for words in [
            "owner not preserved for 3 paths",
            "mode not preserved for 1 path, such as",
            "extended attributes not preserved for 1 path",
            "device: cannot create it: it is a device",
        ] {
            assert!(lines.iter().any(|line| line.contains(words)), "{words}: {printed}");
        }
    }
}
