//! Tests that cut frames and reassemble them.

use std::ops::Range;

use longhaul_sys::tun::VNET_HEADER;
use proptest::prelude::*;

use super::framing::Framing;
use super::layout::{GSO_ECN, GSO_NONE, NEEDS_CSUM, VnetHeader};
use super::test_frames::{CWR, FIN_PSH_ACK, TestFrame, pseudo_sum};
use super::{checksum, cut, exercise, shape};
use crate::link::{Corruption, Treatment};

fn written(frame: &[u8], segments: Range<u32>, treatment: Treatment) -> Vec<u8> {
    let part = cut(frame, Framing::Ip, &segments, &treatment);
    part.slices().iter().flat_map(|slice| slice.to_vec()).collect()
}

fn split(frame: &[u8]) -> (VnetHeader, &[u8]) {
    VnetHeader::split(frame).unwrap()
}

fn word(packet: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([packet[at], packet[at + 1]])
}

/// Returns the transport checksum of a packet as a receiver in software computes it: 0 is correct.
fn verify(packet: &[u8], spec: &TestFrame) -> u16 {
    let transport = &packet[spec.transport_at()..];
    let pseudo = pseudo_sum(packet, spec.protocol(), transport.len());
    !checksum::add(pseudo, checksum::sum(transport))
}

fn kinds() -> Vec<TestFrame> {
    let mut kinds = Vec::new();
    for (v6, udp) in [(false, false), (false, true), (true, false), (true, true)] {
        for network_options in [0, 8, 40] {
            kinds.push(TestFrame { v6, udp, network_options, ..TestFrame::TCP });
        }
    }
    kinds
}

/// Checks that `part` is the packet that the kernel would build from the segments `run` of
/// `spec`.
fn assert_is_run(part: &[u8], spec: &TestFrame, run: &Range<u32>, what: &str) {
    let (vnet, packet) = split(part);
    let whole = spec.frame();
    let (_, original) = split(&whole);
    let (at, payload_at) = (spec.transport_at(), spec.payload_at());
    let (start, end) =
        (run.start as usize * spec.segment, (run.end as usize * spec.segment).min(spec.payload));
    let last = end == spec.payload;
    assert_eq!(packet[payload_at..], original[payload_at..][start..end], "{what}: payload");
    let length = packet.len();
    if spec.v6 {
        assert_eq!(word(packet, 4) as usize, length - 40, "{what}: payload length");
        assert_eq!(packet[6..at], original[6..at], "{what}");
    } else {
        assert_eq!(word(packet, 2) as usize, length, "{what}: total length");
        let id = word(original, 4).wrapping_add(run.start as u16);
        assert_eq!(word(packet, 4), id, "{what}: identification");
        assert_eq!(checksum::sum(&packet[..at]), 0xffff, "{what}: header checksum");
    }
    let field = if spec.udp {
        assert_eq!(word(packet, at + 4) as usize, length - at, "{what}: datagram length");
        at + 6
    } else {
        let sequence = |packet: &[u8]| u32::from_be_bytes(*packet[at + 4..].first_chunk().unwrap());
        assert_eq!(
            sequence(packet),
            sequence(original).wrapping_add(start as u32),
            "{what}: sequence"
        );
        let mut flags = spec.flags;
        if run.start > 0 {
            flags &= !CWR;
        }
        if !last {
            flags &= !(FIN_PSH_ACK & !0x10);
        }
        assert_eq!(packet[at + 13], flags, "{what}: flags");
        assert_eq!(packet[at + 14..at + 16], original[at + 14..at + 16], "{what}: window");
        assert_eq!(packet[at + 18..payload_at], original[at + 18..payload_at], "{what}: options");
        at + 16
    };
    let pseudo = pseudo_sum(packet, spec.protocol(), length - at);
    assert_eq!(word(packet, field) % 0xffff, pseudo % 0xffff, "{what}: partial checksum");
    assert_eq!(vnet.flags, NEEDS_CSUM, "{what}");
    assert_eq!((vnet.csum_start as usize, vnet.csum_offset as usize), (at, field - at), "{what}");
    assert_eq!(vnet.hdr_len as usize, payload_at, "{what}");
    if end - start <= spec.segment {
        assert_eq!((vnet.gso_type, vnet.gso_size), (GSO_NONE, 0), "{what}: one segment");
    } else {
        let (before, _) = split(&whole);
        let ecn = if run.start == 0 { GSO_ECN } else { 0 };
        assert_eq!(vnet.gso_type, before.gso_type & (!GSO_ECN | ecn), "{what}: kind");
        assert_eq!(vnet.gso_size as usize, spec.segment, "{what}: segment size");
    }
}

#[test]
fn a_super_packet_of_every_kind_is_cut_anywhere() {
    for kind in kinds() {
        let spec = TestFrame { payload: 4 * 1000 + 333, segment: 1000, ..kind };
        let frame = spec.frame();
        let shape = shape(&frame, Framing::Ip);
        assert_eq!(shape.segments(), 5, "{spec:?}");
        assert_eq!(shape.header_bytes as usize, spec.payload_at(), "{spec:?}");
        for start in 0..5 {
            for end in start + 1..=5 {
                if (start, end) == (0, 5) {
                    continue;
                }
                let part = written(&frame, start..end, Treatment::default());
                assert_is_run(&part, &spec, &(start..end), &format!("{start}..{end} {spec:?}"));
            }
        }
    }
}

#[test]
fn counts_segments_and_their_headers() {
    let tcp = TestFrame::TCP;
    for (what, spec, bytes, segments) in [
        ("plain", TestFrame { payload: 100, ..tcp }, 152, 1),
        ("no payload", tcp, 52, 1),
        (
            "three full and a rest",
            TestFrame { payload: 3 * 1448 + 1, segment: 1448, ..tcp },
            4345 + 4 * 52,
            4,
        ),
        ("two full", TestFrame { payload: 2 * 1448, segment: 1448, ..tcp }, 2 * 1500, 2),
        ("UDP", TestFrame { udp: true, payload: 2500, segment: 1000, ..tcp }, 2500 + 3 * 28, 3),
        ("IPv6", TestFrame { v6: true, payload: 2500, segment: 1000, ..tcp }, 2500 + 3 * 72, 3),
        ("no more than one segment", TestFrame { payload: 1448, segment: 1448, ..tcp }, 1500, 1),
    ] {
        let shape = shape(&spec.frame(), Framing::Ip);
        assert_eq!((shape.bytes(), shape.segments()), (bytes, segments), "{what}");
    }
}

#[test]
fn an_ecn_capable_sender_is_recognized() {
    for v6 in [false, true] {
        for (ecn, capable) in [(0, false), (1, true), (2, true), (3, true)] {
            let spec = TestFrame { v6, ecn, payload: 10, ..TestFrame::TCP };
            assert_eq!(shape(&spec.frame(), Framing::Ip).ecn_capable, capable, "{spec:?}");
            let segments = TestFrame { segment: 4, ..spec };
            assert_eq!(shape(&segments.frame(), Framing::Ip).ecn_capable, capable, "{segments:?}");
        }
    }
}

#[test]
fn a_mark_changes_its_two_bits_and_the_header_checksum() {
    let marked = Treatment { mark_ce: true, ..Treatment::default() };
    for kind in kinds() {
        for segment in [0, 300] {
            let spec = TestFrame { payload: 1000, segment, ..kind };
            let frame = spec.frame();
            let whole = 0..shape(&frame, Framing::Ip).segments();
            let part = written(&frame, whole, marked);
            let as_if = TestFrame { ecn: 3, ..spec }.frame();
            assert_eq!(part[VNET_HEADER..], as_if[VNET_HEADER..], "{spec:?}");
        }
    }
}

#[test]
fn damage_is_one_bit_and_the_checksum_tells_only_if_it_is_to() {
    for kind in kinds() {
        for segment in [0, 999] {
            let spec = TestFrame { payload: 2 * 999 + 7, segment, ..kind };
            let frame = spec.frame();
            let (_, original) = split(&frame);
            for bit in [0, 9, 8 * 6 + 3, 12_345, u64::MAX] {
                for run in 0..shape(&frame, Framing::Ip).segments() {
                    let segments = run..run + 1;
                    let damaged = |corruption| {
                        let treatment =
                            Treatment { corruption: Some(corruption), ..Treatment::default() };
                        written(&frame, segments.clone(), treatment)
                    };
                    let clean = written(&frame, segments.clone(), Treatment::default());
                    let at = VNET_HEADER + spec.payload_at();

                    let silent = damaged(Corruption::Silent { bit });
                    assert_eq!(silent[..at], clean[..at], "the partial checksum stays");
                    assert_eq!(flipped_bits(&silent[at..], &clean[at..]), 1, "{spec:?}");

                    let detected = damaged(Corruption::Detected { bit });
                    let (vnet, packet) = split(&detected);
                    assert_eq!((vnet.flags, vnet.gso_type), (0, GSO_NONE), "{spec:?}");
                    assert_ne!(verify(packet, &spec), 0, "{spec:?}");
                    assert_eq!(detected[at..], silent[at..], "the same bit");
                    let mut mended = packet.to_vec();
                    mended[spec.payload_at()..].copy_from_slice(&clean[at..]);
                    assert_eq!(verify(&mended, &spec), 0, "completed first: {spec:?}");
                }
            }
            assert_eq!(split(&frame).1, original, "the frame itself is never changed");
        }
    }
}

#[test]
fn silent_damage_keeps_a_complete_checksum_right_and_a_wrong_one_wrong() {
    for kind in kinds() {
        let spec = TestFrame { payload: 501, ..kind };
        let detected = Corruption::Detected { bit: 0 };
        let treatment = Treatment { corruption: Some(detected), ..Treatment::default() };
        // A frame with a complete checksum, and the same frame with a changed bit.
        let wrong = written(&spec.frame(), 0..1, treatment);
        let mut right = wrong.clone();
        right[VNET_HEADER + spec.payload_at()] ^= 1;
        for (frame, what) in [(right, 0), (wrong, 1)] {
            for bit in 0..501 * 8 {
                let corruption = Some(Corruption::Silent { bit });
                let damaged =
                    written(&frame, 0..1, Treatment { corruption, ..Treatment::default() });
                let sum = verify(split(&damaged).1, &spec);
                assert_eq!(sum != 0, what != 0, "bit {bit} of {spec:?}");
            }
        }
    }
}

#[test]
fn a_segment_without_payload_is_damaged_in_its_checksum_or_not_at_all() {
    let spec = TestFrame::TCP;
    let frame = spec.frame();
    for bit in [0, 7, 8, 15, 77] {
        let damaged = |corruption| {
            written(
                &frame,
                0..1,
                Treatment { corruption: Some(corruption), ..Treatment::default() },
            )
        };
        assert_eq!(damaged(Corruption::Silent { bit }), frame);
        let detected = damaged(Corruption::Detected { bit });
        assert_ne!(verify(split(&detected).1, &spec), 0, "bit {bit}");
    }
}

#[test]
fn an_unknown_packet_is_one_segment_and_is_written_unchanged() {
    let tcp = TestFrame { payload: 5000, segment: 1448, ..TestFrame::TCP };
    let mut unequal = tcp.frame();
    unequal.push(0);
    let mut beyond = tcp.frame();
    beyond[6..8].copy_from_slice(&60_000u16.to_ne_bytes());
    let mut no_size = tcp.frame();
    no_size[4..6].fill(0);
    let mut fragment = tcp.frame();
    fragment[VNET_HEADER + 6] = 0x20;
    let mut unsigned = tcp.frame();
    unsigned[0] = 0;
    for (what, frame) in [
        ("empty", vec![]),
        ("half a header", vec![0; 9]),
        ("no packet", vec![0; VNET_HEADER]),
        ("neither IP", vec![0xa5; 300]),
        ("longer than it says", unequal),
        ("a transport elsewhere than it is", beyond),
        ("segments of no size", no_size),
        ("a fragment", fragment),
        ("a checksum that is not partial", unsigned),
    ] {
        let packet = frame.len().saturating_sub(VNET_HEADER) as u32;
        let shape = shape(&frame, Framing::Ip);
        assert_eq!(shape.segments(), 1, "{what}");
        assert_eq!(shape.bytes(), u64::from(packet), "{what}");
        assert_eq!(written(&frame, 0..1, Treatment::default()), frame, "{what}");
    }
}

#[test]
fn extension_headers_have_a_bound() {
    let longest =
        TestFrame { v6: true, network_options: 216, payload: 100, segment: 40, ..TestFrame::TCP };
    assert_eq!(shape(&longest.frame(), Framing::Ip).segments(), 3);
    let too_long = TestFrame { network_options: 224, ..longest };
    assert_eq!(shape(&too_long.frame(), Framing::Ip).segments(), 1);
    assert_eq!(written(&too_long.frame(), 0..1, Treatment::default()), too_long.frame());
}

fn flipped_bits(a: &[u8], b: &[u8]) -> u32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
}

proptest! {
    #[test]
    fn any_cuts_cover_the_whole(
        kind in 0..12usize,
        segment in 1..9000usize,
        payload in 1..60_000usize,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let payload = payload.min(segment * 60).max(segment + 1);
        let spec = TestFrame { payload, segment, ..kinds()[kind] };
        let frame = spec.frame();
        let segments = shape(&frame, Framing::Ip).segments();
        let mut ends: Vec<u32> = cuts.iter().map(|at| at.index(segments as usize) as u32).collect();
        ends.extend([0, segments]);
        ends.sort_unstable();
        ends.dedup();
        if ends.len() > 2 {
            for pair in ends.windows(2) {
                let run = pair[0]..pair[1];
                let part = written(&frame, run.clone(), Treatment::default());
                assert_is_run(&part, &spec, &run, &format!("{run:?} of {spec:?}"));
            }
        }
    }

    #[test]
    fn random_bytes_never_panic(
        frame in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        exercise(&frame);
    }

    #[test]
    fn damaged_headers_never_panic(
        kind in 0..12usize,
        payload in 0..5000usize,
        segment in 0..2000usize,
        changes in prop::collection::vec((0..120usize, any::<u8>()), 1..8),
        length in 0..5200usize,
    ) {
        let spec = TestFrame { payload, segment, ..kinds()[kind] };
        let mut frame = spec.frame();
        for (at, byte) in changes {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        exercise(&frame);
        frame.truncate(length);
        exercise(&frame);
    }
}

/// Returns `frame` with an Ethernet header, and a VLAN tag if `tagged`, before its packet.
fn on_ethernet(frame: &[u8], tagged: bool) -> Vec<u8> {
    let (vnet, packet) = VnetHeader::split(frame).unwrap();
    let mut link = vec![9; 12];
    if tagged {
        link.extend([0x81, 0, 0x20, 7]);
    }
    link.extend(if packet[0] >> 4 == 4 { [0x08, 0] } else { [0x86, 0xdd] });
    let vnet = vnet.shifted(link.len() as i16);
    [&vnet.bytes()[..], &link, packet].concat()
}

#[test]
fn an_ethernet_header_changes_nothing_but_the_offsets() {
    let super_packet = TestFrame { payload: 5 * 1448 + 7, segment: 1448, ..TestFrame::TCP };
    let samples = [
        super_packet,
        TestFrame { v6: true, ..super_packet },
        TestFrame { udp: true, ..super_packet },
        TestFrame { payload: 100, ..TestFrame::TCP },
    ];
    let damaged = |bit| Treatment {
        mark_ce: true,
        corruption: Some(Corruption::Detected { bit }),
        ..Treatment::default()
    };
    for (spec, tagged) in samples.into_iter().flat_map(|spec| [(spec, false), (spec, true)]) {
        let plain = spec.frame();
        let ethernet = on_ethernet(&plain, tagged);
        let shape_on = |frame: &[u8], framing| shape(frame, framing);
        let expected = shape_on(&plain, Framing::Ip);
        assert_eq!(shape_on(&ethernet, Framing::Ethernet), expected);
        for (segments, treatment) in
            [(0..expected.segments(), Treatment::default()), (0..1, damaged(77))]
        {
            let cut_as = |frame: &[u8], framing| {
                cut(frame, framing, &segments, &treatment)
                    .slices()
                    .iter()
                    .flat_map(|slice| slice.to_vec())
                    .collect::<Vec<u8>>()
            };
            let expected = on_ethernet(&cut_as(&plain, Framing::Ip), tagged);
            assert_eq!(cut_as(&ethernet, Framing::Ethernet), expected, "{spec:?}");
        }
    }
}

#[test]
fn a_frame_that_is_not_ip_is_one_opaque_segment() {
    let mut frame = on_ethernet(&TestFrame { payload: 100, ..TestFrame::TCP }.frame(), false);
    frame[VNET_HEADER + 12..VNET_HEADER + 14].copy_from_slice(&[0x88, 0x47]);
    let shape = shape(&frame, Framing::Ethernet);
    assert_eq!((shape.segments(), shape.ecn_capable), (1, false));
    let part = cut(&frame, Framing::Ethernet, &(0..1), &Treatment::default());
    let written: Vec<u8> = part.slices().iter().flat_map(|slice| slice.to_vec()).collect();
    assert_eq!(written, frame);
}
