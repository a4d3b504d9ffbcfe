//! Reads a TCP transfer that tcpdump captured, and checks each packet as the kernel does.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The lengths of the file header and of a packet header (pcap-savefile(5)).
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;

/// The header of LINKTYPE_LINUX_SLL, whose last two bytes are the protocol.
const COOKED_HEADER: usize = 16;

/// The connection of a capture that carried the most data.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    /// The number of packets with an incorrect TCP checksum. A checksum of only the pseudo-header
    /// counts as correct: the kernel writes it if a device completes it (CHECKSUM_PARTIAL of
    /// linux/skbuff.h).
    pub(crate) bad_checksums: u64,
    /// The sizes in bytes of gaps in the sequence numbers of new data.
    pub(crate) gaps: Vec<u64>,
    /// The bytes that arrived, without retransmissions.
    pub(crate) covered: u64,
    /// The largest TCP payload in bytes.
    pub(crate) largest_payload: usize,
}

struct Segment {
    port: u16,
    sequence: u32,
    payload: usize,
    starts: bool,
    checksum_fits: bool,
}

impl Capture {
    pub(crate) fn read(file: &Path) -> Capture {
        let bytes = fs::read(file).unwrap();
        assert_eq!(bytes[..4], 0xa1b2_c3d4_u32.to_ne_bytes(), "a capture of this machine");
        let mut connections: BTreeMap<u16, Vec<Segment>> = BTreeMap::new();
        let mut rest = &bytes[FILE_HEADER..];
        while rest.len() >= PACKET_HEADER {
            let length = |at: usize| u32::from_ne_bytes(rest[at..at + 4].try_into().unwrap());
            let (kept, whole) = (length(8) as usize, length(12) as usize);
            assert_eq!(kept, whole, "nothing of a packet is cut off");
            let packet = &rest[PACKET_HEADER + COOKED_HEADER..PACKET_HEADER + kept];
            let segment = Segment::read(packet);
            connections.entry(segment.port).or_default().push(segment);
            rest = &rest[PACKET_HEADER + kept..];
        }
        let carried = |segments: &Vec<Segment>| segments.iter().map(|s| s.payload).sum::<usize>();
        let data = connections.into_values().max_by_key(carried).expect("a connection");
        Capture::of(&data)
    }

    fn of(segments: &[Segment]) -> Capture {
        assert!(segments[0].starts, "the capture began with the connection");
        let mut capture = Capture::default();
        let mut ranges = Vec::new();
        // Sequence numbers are relative to the first byte; transfers in these tests are below 2
        // GiB.
        let origin = segments[0].sequence.wrapping_add(1);
        let mut reached = 0;
        for segment in segments {
            capture.bad_checksums += u64::from(!segment.checksum_fits);
            capture.largest_payload = capture.largest_payload.max(segment.payload);
            if segment.payload == 0 {
                continue;
            }
            let first = u64::from(segment.sequence.wrapping_sub(origin));
            if first > reached {
                capture.gaps.push(first - reached);
            }
            reached = reached.max(first + segment.payload as u64);
            ranges.push((first, reached.min(first + segment.payload as u64)));
        }
        ranges.sort_unstable();
        let mut end = 0;
        for (first, last) in ranges {
            capture.covered += last.saturating_sub(first.max(end));
            end = end.max(last);
        }
        capture
    }
}

impl Segment {
    /// Parses an IP packet without extension headers.
    fn read(packet: &[u8]) -> Segment {
        let (addresses, tcp) = match packet[0] >> 4 {
            4 => {
                let header = usize::from(packet[0] & 15) * 4;
                let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
                assert_eq!(folded(sum(&packet[..header])), 0xffff, "the IP header's checksum");
                (&packet[12..20], &packet[header..total])
            }
            _ => {
                let length = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
                (&packet[8..40], &packet[40..40 + length])
            }
        };
        let pseudo = sum(addresses) + 6 + tcp.len() as u64;
        let field = u16::from_be_bytes([tcp[16], tcp[17]]);
        let fits = folded(pseudo + sum(tcp)) == 0xffff || field == folded(pseudo);
        Segment {
            port: u16::from_be_bytes([tcp[0], tcp[1]]),
            sequence: u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]),
            payload: tcp.len() - usize::from(tcp[12] >> 4) * 4,
            starts: tcp[13] & 2 != 0,
            checksum_fits: fits,
        }
    }
}

/// Returns the unfolded sum of RFC 1071.
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(2).map(|pair| match *pair {
        [high, low] => u64::from(u16::from_be_bytes([high, low])),
        [high] => u64::from(high) << 8,
        _ => 0,
    });
    words.sum()
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
