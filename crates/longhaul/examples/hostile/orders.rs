//! The messages of a client, per service and in the order of the protocol.

use longhaul_core::plan::{CopyOptions, Protection, StreamSpec, TestPlan, TrainSpec};
use longhaul_core::units::{Bytes, Rate};
use longhaul_core::wire::copy::{
    CopyKey, CopyRequest, Entry, EntryKind, Introduction, KeptFile, Names, SinkMessage,
    SourceMessage, Top,
};
use longhaul_core::wire::{DiagnoseOrder, FilePath, PathOrder, Service, TestOrder, ThirdOrder};
use serde::Serialize;
use serde_json::Value;

use crate::dice::Dice;
use crate::mutate;

/// The sizes of uploaded files: small ones and files of several blocks.
pub(crate) const SIZES: [u64; 6] = [0, 5, 4096, 5000, 70_000, 300_000];

/// The messages of one session.
pub(crate) struct Orders {
    /// The request, which the server answers.
    pub(crate) request: Vec<Value>,
    /// The messages after the answer.
    pub(crate) then: Vec<Value>,
    /// The number of data connections.
    pub(crate) streams: u32,
    pub(crate) protection: Protection,
    pub(crate) block_bytes: u64,
    /// The sizes of the files that the client uploads, by entry.
    pub(crate) uploads: Vec<u64>,
}

fn value(message: &impl Serialize) -> Value {
    serde_json::to_value(message).expect("a message is written")
}

fn path(text: &str) -> FilePath {
    FilePath::new(text).expect("no NUL")
}

/// Returns the path `right`, or one that leads out of the root.
fn any_path(dice: &mut Dice, right: &str) -> FilePath {
    if dice.chance(70) {
        return path(right);
    }
    let text = mutate::text(dice);
    FilePath::new(text).unwrap_or_else(|| path(right))
}

/// Returns the messages of a session for `service`.
pub(crate) fn orders(dice: &mut Dice, service: Service) -> Orders {
    match service {
        Service::Copy => copy(dice),
        Service::Test => test(dice),
        Service::ThirdParty => third(dice),
        Service::Path => measure_path(dice),
        Service::Diagnose => diagnose(dice),
    }
}

fn simple(request: Vec<Value>, then: Vec<Value>, streams: u32) -> Orders {
    Orders {
        request,
        then,
        streams,
        protection: Protection::Sealed,
        block_bytes: 64 << 10,
        uploads: Vec::new(),
    }
}

fn options(dice: &mut Dice) -> CopyOptions {
    let mut options = CopyOptions {
        streams: Some(1 + dice.below(3) as u32),
        block_bytes: Bytes::new(*dice.choose(&[4 << 10, 64 << 10, 1 << 20])),
        protection: *dice.choose(&[Protection::Sealed, Protection::Hashed, Protection::Bare]),
        durable: false,
        preserve: dice.chance(50),
        recursive: dice.chance(80),
        ..CopyOptions::default()
    };
    options.tree.keep_links = dice.chance(50);
    options.tree.hard_links = dice.chance(50);
    options.tree.xattrs = dice.chance(20);
    options.tree.specials = dice.chance(20);
    options.tree.update = dice.chance(20);
    options.tree.digests = dice.chance(30);
    options.tree.dry_run = dice.chance(10);
    options
}

fn copy(dice: &mut Dice) -> Orders {
    let options = options(dice);
    let streams = options.streams.unwrap_or(1);
    let (protection, block_bytes) = (options.protection, options.block_bytes.get());
    let (mut request, mut then, mut uploads) = (Vec::new(), Vec::new(), Vec::new());
    match dice.below(8) {
        // Few keys, so that sessions resume the copies of others.
        0..4 => {
            let key = CopyKey::new(dice.below(6) as u128);
            let top = *dice.choose(&[Top::One, Top::Several, Top::Several, Top::Contents]);
            let target = *dice.choose(&[".", "up", "up/new"]);
            let target = any_path(dice, target);
            request.push(value(&CopyRequest::Receive { key, target, top, options }));
            (then, uploads) = source(dice);
        }
        4..6 => {
            let listed = dice.chance(30);
            let path = *dice.choose(&[".", "files", "files/f1", "out"]);
            let paths = vec![any_path(dice, path)];
            let asks = dice.chance(50);
            let key = Some(CopyKey::new(dice.below(6) as u128));
            request.push(value(&CopyRequest::Send { key, paths, asks, listed, options }));
            if listed {
                let names = vec![any_path(dice, "f1"), any_path(dice, "f2")];
                request.push(value(&Names { names, more: dice.chance(20) }));
            }
            then = sink(dice);
        }
        6 => {
            let here = "127.0.0.1:9".parse().expect("an address");
            let addresses = vec![here; dice.below(3)];
            let to = Introduction::new(&addresses, [7; 32]);
            let paths = vec![any_path(dice, "files")];
            request.push(value(&CopyRequest::Forward {
                key: Some(CopyKey::new(dice.below(6) as u128)),
                paths,
                asks: dice.chance(50),
                listed: false,
                options,
                to,
            }));
            then = sink(dice);
        }
        _ => {
            let manifest = any_path(dice, "files/f1");
            let dir = dice.chance(50).then(|| any_path(dice, "files"));
            let give_up_ms = dice.chance(50).then(|| dice.next());
            request.push(value(&CopyRequest::Check { manifest, dir, give_up_ms }));
        }
    }
    Orders { request, then, streams, protection, block_bytes, uploads }
}

/// Returns the messages of a source and the sizes of its files.
fn source(dice: &mut Dice) -> (Vec<Value>, Vec<u64>) {
    let (mut entries, mut uploads) = (Vec::new(), Vec::new());
    for id in 0..1 + dice.below(6) as u64 {
        let size = *dice.choose(&SIZES);
        let kind = match dice.below(10) {
            0 => EntryKind::Directory,
            1 => EntryKind::Symlink { target: any_path(dice, "f0") },
            2 => EntryKind::HardLink { first: dice.next() % 4, path: any_path(dice, "f0") },
            3 => dice.choose(&[EntryKind::Fifo, EntryKind::Socket, EntryKind::Stream]).clone(),
            _ => EntryKind::File { size_bytes: Bytes::new(size) },
        };
        uploads.push(if matches!(kind, EntryKind::File { .. }) { size } else { 0 });
        let right = format!("{}f{id}", dice.choose(&["", "", "d/", "out/"]));
        let mode = *dice.choose(&[0o644, 0o600, 0o4755, 0o777, u32::MAX]);
        let holes = dice.chance(10).then(|| vec![(dice.next() % 4, 1 + dice.next() % 4)]);
        entries.push(Entry { id, holes, ..Entry::new(any_path(dice, &right), kind, mode) });
    }
    let count = entries.len() as u64;
    let stages = Default::default();
    let (here, reason) = (path("here"), "printed so".to_owned());
    let mut then = vec![value(&SourceMessage::Entries(entries))];
    let more = [
        value(&SourceMessage::Alive { stages }),
        value(&SourceMessage::Failed {
            id: Some(dice.next() % 6),
            path: here.clone(),
            reason: reason.clone(),
        }),
        value(&SourceMessage::Skipped { path: here, reason }),
        value(&SourceMessage::Length { id: dice.next() % 6, size_bytes: Bytes::new(9) }),
        value(&SourceMessage::Streams { wanted: dice.next() as u32 }),
        value(&SourceMessage::Report(Box::default())),
        value(&SourceMessage::Abort { again: dice.chance(50) }),
    ];
    for _ in 0..dice.below(4) {
        then.push(dice.choose(&more).clone());
    }
    then.push(value(&SourceMessage::End { entries: count }));
    (then, uploads)
}

/// Returns the messages of a sink.
fn sink(dice: &mut Dice) -> Vec<Value> {
    let (here, reason) = (path("here"), "printed so".to_owned());
    let held = vec![
        KeptFile { id: dice.next() % 3, blocks: None },
        KeptFile { id: dice.next() % 3, blocks: Some(vec![(0, dice.next() >> dice.below(64))]) },
    ];
    let progress = SinkMessage::Progress {
        written_bytes: Bytes::new(dice.next()),
        resumed_bytes: Bytes::new(dice.next()),
        stages: Default::default(),
        done: vec![0, dice.next() % 3, u64::MAX],
        stream_blocks: dice.next(),
        checked_bytes: Bytes::new(dice.next()),
        kept_bytes: Bytes::new(dice.next()),
    };
    let all = [
        value(&progress),
        value(&SinkMessage::Wanted { before: dice.next() % 9, held }),
        value(&SinkMessage::Wanted { before: u64::MAX, held: Vec::new() }),
        value(&SinkMessage::Limit { rate_bps: Some(Rate::from_bps(dice.next())) }),
        value(&SinkMessage::Resend { id: dice.next() % 3, offset: dice.next() % 9 * 4096 }),
        value(&SinkMessage::Failed {
            id: Some(dice.next() % 3),
            path: here,
            reason: reason.clone(),
        }),
        value(&SinkMessage::Abort { reason, again: dice.chance(50), kind: None }),
    ];
    (0..1 + dice.below(6)).map(|_| dice.choose(&all).clone()).collect()
}

fn plan(dice: &mut Dice) -> TestPlan {
    TestPlan { streams: 1 + dice.below(3) as u32, ..TestPlan::new() }
}

fn test(dice: &mut Dice) -> Orders {
    let plan = plan(dice);
    let streams = plan.streams;
    let mut then =
        vec![value(&TestOrder::Start), value(&TestOrder::Stop), value(&TestOrder::Finished)];
    if dice.chance(20) {
        then.insert(0, value(&TestOrder::Listening { port: dice.next() as u16 }));
    }
    simple(vec![value(&TestOrder::Plan(Box::new(plan)))], then, streams)
}

fn third(dice: &mut Dice) -> Orders {
    let target = if dice.chance(50) { "127.0.0.1:9".to_owned() } else { mutate::text(dice) };
    let run = ThirdOrder::Run { target, plan: Box::new(plan(dice)) };
    simple(vec![value(&run)], vec![value(&ThirdOrder::Stop), value(&ThirdOrder::Finished)], 0)
}

fn measure_path(dice: &mut Dice) -> Orders {
    let stream =
        StreamSpec { datagrams: dice.next() % 50, interval_ns: 1_000_000, packet_bytes: 128 };
    let trains = TrainSpec { trains: 2, packets: 8, packet_bytes: 1500, gap_ns: 1_000_000 };
    let all = [
        value(&PathOrder::Start),
        value(&PathOrder::Stop),
        value(&PathOrder::Hops { most: dice.next() as u8 % 3 }),
        value(&PathOrder::Tcp),
        value(&PathOrder::Send(stream)),
        value(&PathOrder::SendTrains(trains)),
        value(&PathOrder::Count { datagrams: dice.next(), sender_dropped: dice.next() }),
        value(&PathOrder::Arrivals { trains: dice.next() as u8 }),
        value(&PathOrder::Finished),
    ];
    let then = (0..1 + dice.below(5)).map(|_| dice.choose(&all).clone()).collect();
    simple(vec![value(&PathOrder::Begin { seconds: 1.0 })], then, 1)
}

fn diagnose(dice: &mut Dice) -> Orders {
    let open = DiagnoseOrder::Open {
        sources: vec![any_path(dice, "files")],
        target: dice.chance(50).then(|| any_path(dice, "up")),
        options: options(dice),
    };
    let seconds = 0.05;
    let bytes = Bytes::new(1 << 16);
    let all = [
        value(&DiagnoseOrder::Read { options: options(dice), seconds }),
        value(&DiagnoseOrder::Write { bytes, files: dice.next() % 3, durable: false, seconds }),
        value(&DiagnoseOrder::Forget { options: options(dice) }),
        value(&DiagnoseOrder::Fresh),
        value(&DiagnoseOrder::HostUse),
        value(&DiagnoseOrder::Examine { rate_bps: Rate::from_bps(1 << 30), rtt_ms: 9.0 }),
    ];
    let then = (0..1 + dice.below(4)).map(|_| dice.choose(&all).clone()).collect();
    simple(vec![value(&open)], then, 0)
}
