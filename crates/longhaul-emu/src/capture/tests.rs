//! Tests of a capture: the blocks of the file, and errors of the file.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use longhaul_core::plan::{LinkPlan, Side, TopologyPlan};

use super::Capture;
use super::tap::{CapturedDirection, Cause, Event, PacketAtPoint, Tap};
use super::writer::{Layout, Writer};
use crate::link::{Corruption, DropReason, LinkTime, Piece, Treatment};
use crate::packet::{Framing, test_frames};

/// Returns a frame of TCP with `payload` bytes in segments of at most 1448.
fn frame(payload: usize) -> Vec<u8> {
    let segment = if payload > 1448 { 1448 } else { 0 };
    test_frames::TestFrame { payload, segment, ..test_frames::TestFrame::TCP }.frame()
}

fn pair() -> TopologyPlan {
    TopologyPlan::pair(LinkPlan::symmetric(Duration::ZERO))
}

/// A block of a file: its kind and its body.
fn blocks(mut file: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut found = Vec::new();
    while !file.is_empty() {
        let length = word(file, 4) as usize;
        assert_eq!(length % 4, 0);
        assert_eq!(word(file, length - 4) as usize, length, "both lengths agree");
        found.push((word(file, 0), file[8..length - 4].to_vec()));
        file = &file[length..];
    }
    found
}

fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}

#[test]
fn every_arrival_departure_and_fate_is_a_block() {
    let (sender, records) = sync_channel(16);
    let mut tap = Tap::new(CapturedDirection { link: 0, from: Side::Far }, sender, Arc::default())
        .beginning(LinkTime::default(), Framing::Ip);
    let frame = frame(4000);
    let at = LinkTime::from_nanos(5_000_000);
    let observed = PacketAtPoint { number: 7, at, frame: &frame };
    tap.arrived(&observed);
    tap.dropped(&observed, &(1..2), Cause::Link(DropReason::QueueFull));
    let treatment = Treatment {
        mark_ce: true,
        corruption: Some(Corruption::Silent { bit: 0 }),
        duplicate: true,
        ..Treatment::default()
    };
    tap.left(&observed, &Piece { segments: 0..1, at, treatment });
    drop(tap);
    let records: Vec<_> = records.iter().collect();
    let mut file = Vec::new();
    let mut writer = Writer::to(&mut file, Layout::of(&pair(), Framing::Ip)).unwrap();
    records.iter().for_each(|record| writer.write(record).unwrap());
    assert_eq!(writer.finish(3).unwrap(), 3);
    let blocks = blocks(&file);
    let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [0x0A0D_0D0A, 1, 1, 1, 1, 1, 1, 6, 6, 6, 5]);
    let interfaces: Vec<u8> = blocks[7..10].iter().map(|(_, body)| body[0]).collect();
    assert_eq!(interfaces, [3, 5, 4], "arrived, dropped and left, from far");
    assert!(text(&blocks[8].1).contains("dropped: the queue was full; segment 2 of"));
    for part in ["congestion", "damaged, with a matching", "duplicate", "segment 1"] {
        assert!(text(&blocks[9].1).contains(part), "{part}");
    }
    // The length of the whole packet precedes its bytes: the family of IPv4, and the IP header.
    let whole = u32::from_le_bytes(blocks[7].1[16..20].try_into().unwrap());
    assert_eq!((whole, blocks[7].1[20]), ((frame.len() - 10 + 4) as u32, 2));
    assert_eq!(blocks[7].1[24] >> 4, 4);
    assert!(matches!(records[1].event, Event::Dropped(_)));
}

#[test]
fn a_full_queue_is_counted_and_the_lane_continues() {
    let missed = Arc::new(AtomicU64::new(0));
    let (sender, records) = sync_channel(2);
    let mut tap = Tap::new(CapturedDirection { link: 0, from: Side::Near }, sender, missed.clone());
    let frame = frame(100);
    let observed = PacketAtPoint { number: 0, at: LinkTime::default(), frame: &frame };
    for number in 0..5 {
        tap.arrived(&PacketAtPoint { number, ..observed });
    }
    assert_eq!(missed.load(Ordering::Relaxed), 3);
    drop(records);
    tap.arrived(&observed);
    assert_eq!(missed.load(Ordering::Relaxed), 3, "an ended capture misses nothing");
}

#[test]
fn a_full_disk_ends_the_capture_with_an_error() {
    // The beginning is written at once.
    let full = File::create("/dev/full").unwrap();
    let error = Capture::start(full, &pair()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    // A pipe without a reader fails later, as a disk that fills up.
    let (reader, writer) = std::io::pipe().unwrap();
    let capture = Capture::start(File::from(OwnedFd::from(writer)), &pair()).unwrap();
    drop(reader);
    let (mut tap, frame) = (capture.tap(0, Side::Near), frame(100));
    let deadline = Instant::now() + Duration::from_secs(30);
    while capture.is_running() {
        tap.arrived(&PacketAtPoint { number: 0, at: LinkTime::default(), frame: &frame });
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    drop(tap);
    assert_eq!(capture.finish().unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
}

/// The records of several links have separate interfaces and packet ids; a bridge keeps Ethernet.
#[test]
fn links_and_frames_are_distinguished() {
    let mut plan = pair();
    let mut second = plan.links[0].clone();
    second.name = "spare".to_owned();
    plan.links.push(second);
    let (sender, records) = sync_channel(16);
    let ip = frame(100);
    let mut ethernet = ip[..10].to_vec();
    ethernet.extend([2; 12]);
    ethernet.extend([8, 0]);
    ethernet.extend(&ip[10..]);
    for (framing, frame) in [(Framing::Ip, &ip), (Framing::Ethernet, &ethernet)] {
        let direction = CapturedDirection { link: 1, from: Side::Near };
        let mut tap = Tap::new(direction, sender.clone(), Arc::default())
            .beginning(LinkTime::default(), framing);
        let at = LinkTime::from_nanos(7);
        tap.left(&PacketAtPoint { number: 5, at, frame }, &Piece::of(0..1, at));
        let record = records.try_recv().unwrap();
        let mut file = Vec::new();
        let mut writer = Writer::to(&mut file, Layout::of(&plan, framing)).unwrap();
        writer.write(&record).unwrap();
        writer.finish(0).unwrap();
        let blocks = blocks(&file);
        let kind = u16::from(framing == Framing::Ethernet);
        assert_eq!(u16::from_le_bytes(blocks[1].1[..2].try_into().unwrap()), kind);
        assert!(text(&blocks[1 + 7].1).contains("spare: near-to-far left"));
        let packet = &blocks[13].1;
        assert_eq!(packet[0], 7, "the second point of the third direction");
        let captured = u32::from_le_bytes(packet[12..16].try_into().unwrap()) as usize;
        let expected = if framing == Framing::Ip { 4 + ip.len() - 10 } else { ethernet.len() - 10 };
        assert_eq!(captured, expected);
        let id = packet.windows(12).any(|part| part == [5, 0, 8, 0, 22, 0, 0, 0, 0, 0, 0, 0]);
        assert!(id, "packet id 5 x 4 directions + 2");
    }
}
