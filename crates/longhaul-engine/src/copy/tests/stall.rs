//! The sessions of peers that make no progress end, in every state of a copy, and the error names
//! the missing message or data.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::plan::{CopyOptions, SyncLevel};
use longhaul_core::result::StageTimes;
use longhaul_core::units::Bytes;
use longhaul_core::wire::FilePath;
use longhaul_core::wire::copy::{
    CopyKey, CopyReply, CopyRequest, Entry, EntryKind, SinkMessage, SourceMessage, Top,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::interruption::at_once;
use super::{CopySetup, bytes, options};

/// The limit on the time without progress in these tests.
const STALL_LIMIT: Duration = Duration::from_millis(500);
/// The additional time of a busy host.
const LOADED: Duration = Duration::from_secs(20);
/// The time within which the server must end the session.
const LIMIT: Duration = Duration::from_secs(180);

fn patient() -> CopyOptions {
    let give_up_ms = Some(STALL_LIMIT.as_millis() as u64);
    CopyOptions { streams: Some(1), give_up_ms, ..options() }
}

/// Sends `request` and `first`, and after that only `keepalive`, repeatedly. Returns the messages
/// of the server until it ends the session.
fn hold<S: Serialize + Sync, H: DeserializeOwned>(
    world: &CopySetup,
    request: &CopyRequest,
    first: &[S],
    keepalive: Option<S>,
) -> Vec<H> {
    let (sender, mut receiver, dialer) = world.session().split();
    sender.send(request).unwrap();
    let socket = dialer.open(0, |_| Ok(())).unwrap();
    assert!(matches!(receiver.receive().unwrap(), CopyReply::Ready { .. }));
    receiver.set_timeout(Some(LIMIT)).unwrap();
    let (over, start) = (AtomicBool::new(false), Instant::now());
    let messages = std::thread::scope(|scope| {
        for message in first {
            sender.send(message).unwrap();
        }
        scope.spawn(|| {
            let Some(keepalive) = &keepalive else { return };
            while !over.load(Ordering::Relaxed) && sender.send(keepalive).is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let mut messages = Vec::new();
        while start.elapsed() < LIMIT
            && let Ok(message) = receiver.receive::<H>()
        {
            messages.push(message);
        }
        over.store(true, Ordering::Relaxed);
        messages
    });
    assert!(start.elapsed() < LIMIT, "the session was not ended");
    drop(socket);
    messages
}

fn receive(key: u128) -> CopyRequest {
    let (key, target) = (CopyKey::new(key), FilePath::new(".").unwrap());
    CopyRequest::Receive { key, target, top: Top::Several, options: patient() }
}

fn alive() -> SourceMessage {
    SourceMessage::Alive { stages: StageTimes::default() }
}

fn abort_reason(messages: &[SinkMessage]) -> &str {
    match messages.last() {
        Some(SinkMessage::Abort { reason, again: false, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_session_of_a_source_that_sends_only_keepalives_ends() {
    let kind = EntryKind::File { size_bytes: Bytes::mib(5) };
    let entry = Entry::new(FilePath::new("f").unwrap(), kind, 0o644);
    let announced = SourceMessage::Entries(vec![entry]);
    let cases = [
        (vec![], "announce more files or the end"),
        (vec![announced.clone()], "send the data of 1 file"),
        (vec![announced, SourceMessage::End { entries: 1 }], "send the data of 1 file"),
    ];
    at_once(cases, |(first, missing)| {
        let messages = hold(&CopySetup::new(), &receive(1), &first, Some(alive()));
        let reason = abort_reason(&messages);
        assert!(reason.contains("no progress for") && reason.contains(missing), "{reason}");
    });
}

#[test]
fn the_session_of_a_source_that_sends_nothing_ends() {
    let world = CopySetup::new();
    let messages = hold::<SourceMessage, _>(&world, &receive(2), &[], None);
    assert!(abort_reason(&messages).contains("announce more files or the end"));
}

#[test]
fn the_session_of_a_sink_that_reports_no_progress_ends() {
    let large = bytes(40 << 20);
    let still = || SinkMessage::Progress {
        written_bytes: Bytes::new(0),
        resumed_bytes: Bytes::new(0),
        stages: StageTimes::default(),
        done: Vec::new(),
        stream_blocks: 0,
        checked_bytes: Bytes::new(0),
        kept_bytes: Bytes::new(0),
    };
    let cases = [(&b"x"[..], false), (b"x", true), (&large, false)];
    at_once(cases, |(content, wanted_first)| {
        let world = CopySetup::new();
        fs::write(world.far("f"), content).unwrap();
        let request = CopyRequest::Send {
            paths: vec![FilePath::new("f").unwrap()],
            asks: wanted_first,
            listed: false,
            key: None,
            options: patient(),
        };
        let messages: Vec<SourceMessage> = hold(&world, &request, &[], Some(still()));
        let ended = messages.contains(&SourceMessage::Abort { again: false });
        assert!(ended, "{} bytes, {wanted_first}: {messages:?}", content.len());
    });
}

#[test]
fn the_session_of_a_source_that_stays_after_the_end_ends() {
    let world = CopySetup::new();
    let end = [SourceMessage::End { entries: 0 }];
    let messages = hold(&world, &receive(3), &end, Some(alive()));
    assert!(matches!(messages.last(), Some(SinkMessage::Finished(_))), "{messages:?}");
}

#[test]
fn the_session_of_a_sink_that_finishes_without_reading_ends() {
    let world = CopySetup::new();
    fs::write(world.far("large"), bytes(40 << 20)).unwrap();
    let request = CopyRequest::Send {
        paths: vec![FilePath::new("large").unwrap()],
        asks: false,
        listed: false,
        key: None,
        options: patient(),
    };
    let finished = SinkMessage::Finished(super::empty_report());
    let start = Instant::now();
    let _: Vec<SourceMessage> = hold(&world, &request, &[finished], None);
    // Without the limit the session would last until the peer disconnects.
    assert!(start.elapsed() < STALL_LIMIT + LOADED, "{:?}", start.elapsed());
}

#[test]
fn a_late_request_for_a_block_is_ignored_and_an_invalid_one_ends_the_session() {
    let world = CopySetup::new();
    fs::write(world.far("f"), "x").unwrap();
    for (id, is_ignored) in [(0, true), (1, false)] {
        let (sender, mut receiver, dialer) = world.session().split();
        let request = CopyRequest::Send {
            paths: vec![FilePath::new("f").unwrap()],
            asks: false,
            listed: false,
            key: None,
            options: patient(),
        };
        sender.send(&request).unwrap();
        let _socket = dialer.open(0, |_| Ok(())).unwrap();
        assert!(matches!(receiver.receive().unwrap(), CopyReply::Ready { .. }));
        receiver.set_timeout(Some(LIMIT)).unwrap();
        while !matches!(receiver.receive().unwrap(), SourceMessage::Entries(_)) {}
        let placed = SinkMessage::Progress {
            written_bytes: Bytes::new(1),
            resumed_bytes: Bytes::new(0),
            stages: StageTimes::default(),
            done: vec![0],
            stream_blocks: 0,
            checked_bytes: Bytes::new(0),
            kept_bytes: Bytes::new(0),
        };
        sender.send(&placed).unwrap();
        sender.send(&SinkMessage::Resend { id, offset: 0 }).unwrap();
        let _ = sender.send(&SinkMessage::Finished(super::empty_report()));
        let reported = std::iter::from_fn(|| receiver.receive().ok())
            .any(|message| matches!(message, SourceMessage::Report(_)));
        assert_eq!(reported, is_ignored, "entry {id}");
    }
}

#[test]
fn a_comparison_ends_when_the_source_leaves() {
    let world = CopySetup::new();
    let (size, limit) = (Bytes::gib(1024), Duration::from_secs(120));
    // Its digest takes minutes.
    fs::File::create(world.far("f")).unwrap().set_len(size.get()).unwrap();
    let mut compared = CopyOptions { streams: Some(1), ..options() };
    compared.tree.sync_level = Some(SyncLevel::Checksum);
    let request = CopyRequest::Receive {
        key: CopyKey::new(6),
        target: FilePath::new(".").unwrap(),
        top: Top::Several,
        options: compared,
    };
    let begin = || {
        let (sender, mut receiver, dialer) = world.session().split();
        sender.send(&request).unwrap();
        let socket = dialer.open(0, |_| Ok(())).unwrap();
        receiver.set_timeout(Some(limit)).unwrap();
        let reply: CopyReply = receiver.receive().unwrap();
        (sender, receiver, socket, reply)
    };
    let (sender, mut receiver, socket, reply) = begin();
    assert!(matches!(reply, CopyReply::Ready { .. }), "{reply:?}");
    let kind = EntryKind::File { size_bytes: size };
    let entry = Entry::new(FilePath::new("f").unwrap(), kind, 0o644);
    let entry = Entry { digest: Some([0; 32]), ..entry };
    sender.send(&SourceMessage::Entries(vec![entry])).unwrap();
    let compares = |message: &SinkMessage| match message {
        SinkMessage::Progress { checked_bytes, .. } => checked_bytes.get() > 0,
        message => panic!("{message:?}"),
    };
    while !compares(&receiver.receive().unwrap()) {}
    drop((sender, receiver, socket));
    // The journal is locked until the first session has ended.
    let (.., reply) = begin();
    assert!(matches!(reply, CopyReply::Ready { .. }), "{reply:?}");
}
