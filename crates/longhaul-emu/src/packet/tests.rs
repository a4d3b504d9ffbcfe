//! Tests that cut frames and reassemble them.

use std::ops::Range;

use longhaul_sys::tun::VNET_HEADER;
use proptest::prelude::*;

use super::framing::Framing;
use super::layout::{GSO_ECN, GSO_NONE, NEEDS_CSUM, VnetHeader};
use super::samples::{CWR, FIN_PSH_ACK, Sample, pseudo_sum};
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
fn verify(packet: &[u8], sample: &Sample) -> u16 {
    let transport = &packet[sample.transport_at()..];
    let pseudo = pseudo_sum(packet, sample.protocol(), transport.len());
    !checksum::add(pseudo, checksum::sum(transport))
}

fn kinds() -> Vec<Sample> {
    let mut kinds = Vec::new();
    for (v6, udp) in [(false, false), (false, true), (true, false), (true, true)] {
        for network_options in [0, 8, 40] {
            kinds.push(Sample { v6, udp, network_options, ..Sample::TCP });
        }
    }
    kinds
}

/// Checks that `part` is the packet that the kernel would build from the segments `run` of
/// `sample`.
fn assert_is_run(part: &[u8], sample: &Sample, run: &Range<u32>, what: &str) {
    let (vnet, packet) = split(part);
    let whole = sample.frame();
    let (_, original) = split(&whole);
    let (at, payload_at) = (sample.transport_at(), sample.payload_at());
    let (start, end) = (
        run.start as usize * sample.segment,
        (run.end as usize * sample.segment).min(sample.payload),
    );
    let last = end == sample.payload;
    assert_eq!(packet[payload_at..], original[payload_at..][start..end], "{what}: payload");
    let length = packet.len();
    if sample.v6 {
        assert_eq!(word(packet, 4) as usize, length - 40, "{what}: payload length");
        assert_eq!(packet[6..at], original[6..at], "{what}");
    } else {
        assert_eq!(word(packet, 2) as usize, length, "{what}: total length");
        let id = word(original, 4).wrapping_add(run.start as u16);
        assert_eq!(word(packet, 4), id, "{what}: identification");
        assert_eq!(checksum::sum(&packet[..at]), 0xffff, "{what}: header checksum");
    }
    let field = if sample.udp {
        assert_eq!(word(packet, at + 4) as usize, length - at, "{what}: datagram length");
        at + 6
    } else {
        let sequence = |packet: &[u8]| u32::from_be_bytes(*packet[at + 4..].first_chunk().unwrap());
        assert_eq!(
            sequence(packet),
            sequence(original).wrapping_add(start as u32),
            "{what}: sequence"
        );
        let mut flags = sample.flags;
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
    let pseudo = pseudo_sum(packet, sample.protocol(), length - at);
    assert_eq!(word(packet, field) % 0xffff, pseudo % 0xffff, "{what}: partial checksum");
    assert_eq!(vnet.flags, NEEDS_CSUM, "{what}");
    assert_eq!((vnet.csum_start as usize, vnet.csum_offset as usize), (at, field - at), "{what}");
    assert_eq!(vnet.hdr_len as usize, payload_at, "{what}");
    if end - start <= sample.segment {
        assert_eq!((vnet.gso_type, vnet.gso_size), (GSO_NONE, 0), "{what}: one segment");
    } else {
        let (before, _) = split(&whole);
        let ecn = if run.start == 0 { GSO_ECN } else { 0 };
        assert_eq!(vnet.gso_type, before.gso_type & (!GSO_ECN | ecn), "{what}: kind");
        assert_eq!(vnet.gso_size as usize, sample.segment, "{what}: segment size");
    }
}

#[test]
fn a_super_packet_of_every_kind_is_cut_anywhere() {
    for kind in kinds() {
        let sample = Sample { payload: 4 * 1000 + 333, segment: 1000, ..kind };
        let frame = sample.frame();
        let shape = shape(&frame, Framing::Ip);
        assert_eq!(shape.segments(), 5, "{sample:?}");
        assert_eq!(shape.header_bytes as usize, sample.payload_at(), "{sample:?}");
        for start in 0..5 {
            for end in start + 1..=5 {
                if (start, end) == (0, 5) {
                    continue;
                }
                let part = written(&frame, start..end, Treatment::default());
                assert_is_run(&part, &sample, &(start..end), &format!("{start}..{end} {sample:?}"));
            }
        }
    }
}

#[test]
fn counts_segments_and_their_headers() {
    let tcp = Sample::TCP;
    for (what, sample, bytes, segments) in [
        ("plain", Sample { payload: 100, ..tcp }, 152, 1),
        ("no payload", tcp, 52, 1),
        (
            "three full and a rest",
            Sample { payload: 3 * 1448 + 1, segment: 1448, ..tcp },
            4345 + 4 * 52,
            4,
        ),
        ("two full", Sample { payload: 2 * 1448, segment: 1448, ..tcp }, 2 * 1500, 2),
        ("UDP", Sample { udp: true, payload: 2500, segment: 1000, ..tcp }, 2500 + 3 * 28, 3),
        ("IPv6", Sample { v6: true, payload: 2500, segment: 1000, ..tcp }, 2500 + 3 * 72, 3),
        ("no more than one segment", Sample { payload: 1448, segment: 1448, ..tcp }, 1500, 1),
    ] {
        let shape = shape(&sample.frame(), Framing::Ip);
        assert_eq!((shape.bytes(), shape.segments()), (bytes, segments), "{what}");
    }
}

#[test]
fn an_ecn_capable_sender_is_recognized() {
    for v6 in [false, true] {
        for (ecn, capable) in [(0, false), (1, true), (2, true), (3, true)] {
            let sample = Sample { v6, ecn, payload: 10, ..Sample::TCP };
            assert_eq!(shape(&sample.frame(), Framing::Ip).ecn_capable, capable, "{sample:?}");
            let segments = Sample { segment: 4, ..sample };
            assert_eq!(shape(&segments.frame(), Framing::Ip).ecn_capable, capable, "{segments:?}");
        }
    }
}

#[test]
fn a_mark_changes_its_two_bits_and_the_header_checksum() {
    let marked = Treatment { mark_ce: true, ..Treatment::default() };
    for kind in kinds() {
        for segment in [0, 300] {
            let sample = Sample { payload: 1000, segment, ..kind };
            let frame = sample.frame();
            let whole = 0..shape(&frame, Framing::Ip).segments();
            let part = written(&frame, whole, marked);
            let as_if = Sample { ecn: 3, ..sample }.frame();
            assert_eq!(part[VNET_HEADER..], as_if[VNET_HEADER..], "{sample:?}");
        }
    }
}

#[test]
fn damage_is_one_bit_and_the_checksum_tells_only_if_it_is_to() {
    for kind in kinds() {
        for segment in [0, 999] {
            let sample = Sample { payload: 2 * 999 + 7, segment, ..kind };
            let frame = sample.frame();
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
                    let at = VNET_HEADER + sample.payload_at();

                    let silent = damaged(Corruption::Silent { bit });
                    assert_eq!(silent[..at], clean[..at], "the partial checksum stays");
                    assert_eq!(flipped_bits(&silent[at..], &clean[at..]), 1, "{sample:?}");

                    let detected = damaged(Corruption::Detected { bit });
                    let (vnet, packet) = split(&detected);
                    assert_eq!((vnet.flags, vnet.gso_type), (0, GSO_NONE), "{sample:?}");
                    assert_ne!(verify(packet, &sample), 0, "{sample:?}");
                    assert_eq!(detected[at..], silent[at..], "the same bit");
                    let mut mended = packet.to_vec();
                    mended[sample.payload_at()..].copy_from_slice(&clean[at..]);
                    assert_eq!(verify(&mended, &sample), 0, "completed first: {sample:?}");
                }
            }
            assert_eq!(split(&frame).1, original, "the frame itself is never changed");
        }
    }
}

#[test]
fn silent_damage_keeps_a_complete_checksum_right_and_a_wrong_one_wrong() {
    for kind in kinds() {
        let sample = Sample { payload: 501, ..kind };
        let detected = Corruption::Detected { bit: 0 };
        let treatment = Treatment { corruption: Some(detected), ..Treatment::default() };
        // A frame with a complete checksum, and the same frame with a changed bit.
        let wrong = written(&sample.frame(), 0..1, treatment);
        let mut right = wrong.clone();
        right[VNET_HEADER + sample.payload_at()] ^= 1;
        for (frame, what) in [(right, 0), (wrong, 1)] {
            for bit in 0..501 * 8 {
                let corruption = Some(Corruption::Silent { bit });
                let damaged =
                    written(&frame, 0..1, Treatment { corruption, ..Treatment::default() });
                let sum = verify(split(&damaged).1, &sample);
                assert_eq!(sum != 0, what != 0, "bit {bit} of {sample:?}");
            }
        }
    }
}

#[test]
fn a_segment_without_payload_is_damaged_in_its_checksum_or_not_at_all() {
    let sample = Sample::TCP;
    let frame = sample.frame();
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
        assert_ne!(verify(split(&detected).1, &sample), 0, "bit {bit}");
    }
}

#[test]
fn what_is_not_understood_is_one_segment_and_written_as_it_was() {
    let tcp = Sample { payload: 5000, segment: 1448, ..Sample::TCP };
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
        Sample { v6: true, network_options: 216, payload: 100, segment: 40, ..Sample::TCP };
    assert_eq!(shape(&longest.frame(), Framing::Ip).segments(), 3);
    let too_long = Sample { network_options: 224, ..longest };
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
        let sample = Sample { payload, segment, ..kinds()[kind] };
        let frame = sample.frame();
        let segments = shape(&frame, Framing::Ip).segments();
        let mut ends: Vec<u32> = cuts.iter().map(|at| at.index(segments as usize) as u32).collect();
        ends.extend([0, segments]);
        ends.sort_unstable();
        ends.dedup();
        if ends.len() > 2 {
            for pair in ends.windows(2) {
                let run = pair[0]..pair[1];
                let part = written(&frame, run.clone(), Treatment::default());
                assert_is_run(&part, &sample, &run, &format!("{run:?} of {sample:?}"));
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
        let sample = Sample { payload, segment, ..kinds()[kind] };
        let mut frame = sample.frame();
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
    let super_packet = Sample { payload: 5 * 1448 + 7, segment: 1448, ..Sample::TCP };
    let samples = [
        super_packet,
        Sample { v6: true, ..super_packet },
        Sample { udp: true, ..super_packet },
        Sample { payload: 100, ..Sample::TCP },
    ];
    let damaged = |bit| Treatment {
        mark_ce: true,
        corruption: Some(Corruption::Detected { bit }),
        ..Treatment::default()
    };
    for (sample, tagged) in samples.into_iter().flat_map(|sample| [(sample, false), (sample, true)])
    {
        let plain = sample.frame();
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
            assert_eq!(cut_as(&ethernet, Framing::Ethernet), expected, "{sample:?}");
        }
    }
}

#[test]
fn a_frame_that_is_not_ip_is_one_opaque_segment() {
    let mut frame = on_ethernet(&Sample { payload: 100, ..Sample::TCP }.frame(), false);
    frame[VNET_HEADER + 12..VNET_HEADER + 14].copy_from_slice(&[0x88, 0x47]);
    let shape = shape(&frame, Framing::Ethernet);
    assert_eq!((shape.segments(), shape.ecn_capable), (1, false));
    let part = cut(&frame, Framing::Ethernet, &(0..1), &Treatment::default());
    let written: Vec<u8> = part.slices().iter().flat_map(|slice| slice.to_vec()).collect();
    assert_eq!(written, frame);
}
