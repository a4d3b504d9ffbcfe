//! No peer creates, links or deletes a file with a name that longhaul reserves for its own files,
//! and a hard link refers only to an entry of its session.

use std::fs;
use std::time::Duration;

use longhaul_core::plan::{CopyOptions, DeleteOptions, TreeOptions};
use longhaul_core::units::Bytes;
use longhaul_core::wire::FilePath;
use longhaul_core::wire::copy::{
    CopyKey, CopyReply, CopyRequest, Entry, EntryKind, SinkMessage, SourceMessage, Top,
};

use super::{CopySetup, names, options};
use crate::error::EngineError;
use crate::session::Rights;

const JOURNAL: &str = ".longhaul-0123456789abcdef0123456789abcdef.journal";
const TEMPORARY: &str = ".victim.longhaul-0123abcd-0.part";

fn path(text: &str) -> FilePath {
    FilePath::new(text).unwrap()
}

/// Announces `entries` to the server as a source that follows the protocol. Every stream among the
/// entries is empty. Returns the messages of the server up to its last one.
fn announce(world: &CopySetup, entries: &[(&str, EntryKind)]) -> Vec<SinkMessage> {
    let (sender, mut receiver, dialer) = world.session().split();
    let tree = TreeOptions { hard_links: true, keep_links: true, ..TreeOptions::default() };
    let request = CopyRequest::Receive {
        key: CopyKey::new(1),
        target: path("."),
        top: Top::Several,
        options: CopyOptions { streams: Some(1), tree, ..options() },
    };
    sender.send(&request).unwrap();
    let socket = dialer.open(0, |_| Ok(())).unwrap();
    assert!(matches!(receiver.receive().unwrap(), CopyReply::Ready { .. }));
    receiver.set_timeout(Some(Duration::from_secs(30))).unwrap();
    let numbered = entries.iter().zip(0..).map(|((name, kind), id)| {
        let entry = Entry::new(path(name), kind.clone(), 0o755);
        Entry { id, ..entry }
    });
    sender.send(&SourceMessage::Entries(numbered.collect())).unwrap();
    for ((_, kind), id) in entries.iter().zip(0..) {
        if *kind == EntryKind::Stream {
            let length = SourceMessage::Length { id, size_bytes: Bytes::new(0) };
            sender.send(&length).unwrap();
        }
    }
    sender.send(&SourceMessage::End { entries: entries.len() as u64 }).unwrap();
    let mut messages = Vec::new();
    while let Ok(message) = receiver.receive() {
        let last = matches!(message, SinkMessage::Finished(_) | SinkMessage::Abort { .. });
        messages.push(message);
        if last {
            break;
        }
    }
    drop(socket);
    messages
}

fn failures(messages: &[SinkMessage]) -> Vec<(Option<u64>, String)> {
    let failed = |message: &SinkMessage| match message {
        SinkMessage::Failed { id, reason, .. } => Some((*id, reason.clone())),
        _ => None,
    };
    messages.iter().filter_map(failed).collect()
}

#[test]
fn reserved_names_are_refused_with_all_rights() {
    let world = CopySetup::new();
    fs::create_dir(world.far("sub")).unwrap();
    fs::write(world.far(TEMPORARY), "begun").unwrap();
    let file = EntryKind::File { size_bytes: Bytes::new(0) };
    let symlink = |target| EntryKind::Symlink { target: path(target) };
    for rights in [Rights::Full, Rights::WriteOnly] {
        world.set_rights(rights);
        for name in [JOURNAL, TEMPORARY, ".longhaul-diagnose-00", "sub/.longhaul-x"] {
            let below = format!("{name}/x");
            let entries = [
                (name, file.clone()),
                (name, EntryKind::Stream),
                (name, EntryKind::Directory),
                (&below, EntryKind::Directory),
                (name, symlink("harmless")),
                ("link", symlink(name)),
                (name, EntryKind::Fifo),
            ];
            let messages = announce(&world, &entries);
            let reasons = failures(&messages);
            assert_eq!(reasons.len(), entries.len(), "{rights:?} {name}: {messages:?}");
            assert!(
                reasons.iter().all(|(_, reason)| reason.contains("keeps such names")),
                "{reasons:?}"
            );
            assert!(matches!(messages.last(), Some(SinkMessage::Finished(_))), "{messages:?}");
        }
        let messages = announce(
            &world,
            &[("f", EntryKind::Fifo), ("g", EntryKind::HardLink { first: 0, path: path(JOURNAL) })],
        );
        assert!(failures(&messages).iter().any(|(id, _)| *id == Some(1)), "{messages:?}");
        let _ = fs::remove_file(world.far("f"));
    }
    assert_eq!(names(&world.far("")), [TEMPORARY, "sub"]);
    assert_eq!(fs::read(world.far(TEMPORARY)).unwrap(), b"begun");
    assert!(names(&world.far("sub")).is_empty());
}

#[test]
fn a_target_with_a_reserved_name_is_refused_by_client_and_server() {
    let world = CopySetup::new();
    fs::write(world.near("f"), "x").unwrap();
    fs::write(world.far("f"), "x").unwrap();
    fs::create_dir(world.far(".longhaul-dir")).unwrap();
    // The directory of a killed diagnosis: no process holds its lock.
    fs::create_dir_all(world.far(".longhaul-diagnose-0123456789ab/1")).unwrap();
    for target in [
        JOURNAL,
        TEMPORARY,
        ".longhaul-dir",
        ".longhaul-dir/f",
        ".longhaul-diagnose-x",
        ".longhaul-diagnose-ba9876543210",
        ".longhaul-diagnose-0123456789ab",
        ".longhaul-diagnose-0123456789ab/1",
        ".longhaul-diagnose-0123456789ab/1/f",
    ] {
        let outcome = world.push(&["f"], target, &options());
        assert!(matches!(outcome, Err(EngineError::Refused { .. })), "{target}: {outcome:?}");
    }
    for target in [JOURNAL, TEMPORARY] {
        let outcome = world.pull(&["f"], target, &options());
        assert!(matches!(outcome, Err(EngineError::Refused { .. })), "{target}: {outcome:?}");
    }
    let mut manifest = options();
    manifest.tree.manifest = Some(path(JOURNAL));
    assert!(world.push(&["f"], ".", &manifest).is_err());
    let kept = [".longhaul-diagnose-0123456789ab", ".longhaul-dir", "f"];
    assert_eq!(names(&world.far("")), kept);
    assert_eq!(names(&world.near("")), ["f"]);
}

#[test]
fn reserved_names_are_not_deleted() {
    let world = CopySetup::new();
    fs::create_dir(world.near("t")).unwrap();
    fs::create_dir_all(world.far("t/sub")).unwrap();
    for name in [JOURNAL, TEMPORARY, "old", "sub/.longhaul-x"] {
        fs::write(world.far("t").join(name), "x").unwrap();
    }
    let mut delete = options();
    delete.tree.delete = Some(DeleteOptions::default());
    assert_eq!(world.push(&["t"], ".", &delete).unwrap().summary.deleted, 1);
    assert_eq!(names(&world.far("t")), [JOURNAL, TEMPORARY, "sub"]);
    assert_eq!(names(&world.far("t/sub")), [".longhaul-x"]);
}

#[test]
fn a_hard_link_refers_to_an_entry_of_its_session() {
    let world = CopySetup::new();
    fs::write(world.far("victim"), "secret").unwrap();
    let link = |first, to| ("link", EntryKind::HardLink { first, path: path(to) });
    for (first, to) in [(0, "victim"), (0, "./f"), (1, "link"), (7, "f"), (0, "d/../f")] {
        let messages = announce(&world, &[("f", EntryKind::Fifo), link(first, to)]);
        assert!(
            matches!(messages.last(), Some(SinkMessage::Abort { .. })),
            "{first} {to}: {messages:?}"
        );
    }
    let messages = announce(&world, &[("d", EntryKind::Directory), link(0, "d")]);
    assert!(matches!(messages.last(), Some(SinkMessage::Abort { .. })), "{messages:?}");
    let messages = announce(&world, &[("f", EntryKind::Fifo), link(0, "f")]);
    assert!(failures(&messages).is_empty(), "{messages:?}");
    assert_eq!(names(&world.far("")), ["d", "f", "link", "victim"]);
}

#[test]
fn a_drop_box_refuses_hard_links() {
    let world = CopySetup::new();
    fs::write(world.far("victim"), "secret").unwrap();
    world.set_rights(Rights::WriteOnly);
    let link = |to| ("link", EntryKind::HardLink { first: 0, path: path(to) });
    let messages = announce(&world, &[("f", EntryKind::Stream), link("f")]);
    let reasons = failures(&messages);
    assert!(
        matches!(&reasons[..], [(Some(1), reason)] if reason.contains("only files")),
        "{messages:?}"
    );
    let messages = announce(&world, &[("g", EntryKind::Stream), link("victim")]);
    assert!(matches!(messages.last(), Some(SinkMessage::Abort { .. })), "{messages:?}");
    assert!(!names(&world.far("")).contains(&"link".to_owned()));
}
