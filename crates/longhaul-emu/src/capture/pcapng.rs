//! The blocks of a pcapng file (draft-ietf-opsawg-pcapng).

use crate::packet::Framing;

/// Link type of packets that begin with a protocol family in four bytes (`LINKTYPE_NULL`). libpcap
/// refuses files with several interfaces of `LINKTYPE_RAW`, because it compares the type with its
/// own number for it.
const LINKTYPE_NULL: u16 = 0;

/// Link type of Ethernet frames.
const LINKTYPE_ETHERNET: u16 = 1;

/// The families of IPv4 and IPv6 in this link type.
const FAMILY_IPV4: u32 = 2;
const FAMILY_IPV6: u32 = 24;

const SECTION: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

/// The codes of options, by block.
const COMMENT: u16 = 1;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_RESOLUTION: u16 = 9;
const PACKET_ID: u16 = 5;
const STATISTICS_MISSED: u16 = 5;

/// Returns the section header block, in little-endian order.
pub(super) fn section(application: &str) -> Vec<u8> {
    let mut body = Vec::new();
    // The byte-order magic, version 1.0, and an unknown section length.
    body.extend(0x1A2B_3C4D_u32.to_le_bytes());
    body.extend([1, 0, 0, 0]);
    body.extend(u64::MAX.to_le_bytes());
    option(&mut body, SECTION_APPLICATION, application.as_bytes());
    block(SECTION, body)
}

/// Returns the description block of an interface whose times are in nanoseconds.
pub(super) fn interface(name: &str, framing: Framing, snaplen: u32) -> Vec<u8> {
    let mut body = Vec::new();
    let kind = match framing {
        Framing::Ip => LINKTYPE_NULL,
        Framing::Ethernet => LINKTYPE_ETHERNET,
    };
    body.extend(kind.to_le_bytes());
    body.extend([0, 0]);
    body.extend(snaplen.to_le_bytes());
    option(&mut body, INTERFACE_NAME, name.as_bytes());
    option(&mut body, INTERFACE_RESOLUTION, &[9]);
    block(INTERFACE, body)
}

/// A packet for [`packet`].
#[derive(Debug)]
pub(super) struct Packet<'a> {
    pub(super) interface: u32,
    pub(super) framing: Framing,
    /// The time since 1970 in nanoseconds.
    pub(super) nanos: u64,
    pub(super) bytes: &'a [u8],
    /// The length of the whole packet.
    pub(super) length: u32,
    /// The number that all records of a packet share.
    pub(super) id: u64,
    /// The comment; may be empty.
    pub(super) comment: &'a str,
}

/// Returns the enhanced packet block of a packet.
pub(super) fn packet(packet: &Packet<'_>) -> Vec<u8> {
    let mut body = Vec::with_capacity(packet.bytes.len() + 96);
    body.extend(packet.interface.to_le_bytes());
    time(&mut body, packet.nanos);
    let family = match (packet.framing, packet.bytes.first().map(|byte| byte >> 4)) {
        (Framing::Ethernet, _) => None,
        (Framing::Ip, Some(6)) => Some(FAMILY_IPV6),
        (Framing::Ip, _) => Some(FAMILY_IPV4),
    };
    let prefix = family.map_or(0, |_| 4);
    let captured = packet.bytes.len() as u32 + prefix;
    body.extend(captured.to_le_bytes());
    body.extend(captured.max(packet.length + prefix).to_le_bytes());
    body.extend(family.into_iter().flat_map(u32::to_le_bytes));
    body.extend(packet.bytes);
    pad(&mut body);
    if !packet.comment.is_empty() {
        option(&mut body, COMMENT, packet.comment.as_bytes());
    }
    option(&mut body, PACKET_ID, &packet.id.to_le_bytes());
    block(PACKET, body)
}

/// Returns the statistics block of an interface with the number of missing packets.
pub(super) fn statistics(interface: u32, nanos: u64, missed: u64) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(interface.to_le_bytes());
    time(&mut body, nanos);
    option(&mut body, STATISTICS_MISSED, &missed.to_le_bytes());
    block(STATISTICS, body)
}

fn time(body: &mut Vec<u8>, nanos: u64) {
    body.extend(((nanos >> 32) as u32).to_le_bytes());
    body.extend((nanos as u32).to_le_bytes());
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Returns a block whose body ends with options.
fn block(kind: u32, mut body: Vec<u8>) -> Vec<u8> {
    // The end of the options.
    body.extend([0; 4]);
    let length = (body.len() as u32 + 12).to_le_bytes();
    let mut block = Vec::with_capacity(body.len() + 12);
    block.extend(kind.to_le_bytes());
    block.extend(length);
    block.extend(body);
    block.extend(length);
    block
}
