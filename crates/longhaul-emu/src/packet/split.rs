//! Builds one part of a frame to write, and damages it if required.
//!
//! The frame itself is not changed, because a duplicate of the segment may be written from it
//! later. A damaged part is written with one replaced byte.

use std::io::IoSlice;
use std::ops::Range;

use longhaul_sys::tun::VNET_HEADER;

use super::checksum;
use super::framing::{Framing, MAX_LINK};
use super::layout::{GSO_ECN, GSO_NONE, NEEDS_CSUM, VnetHeader};
use super::layout::{Layout, MAX_HEADERS, Network, Parsed, Transport};
use crate::link::{Corruption, Treatment};

/// Some segments of a packet, as one frame to write.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    /// The virtio-net header, the link-layer header and the packet's headers.
    headers: [u8; VNET_HEADER + MAX_LINK + MAX_HEADERS],
    /// The start of the packet's headers.
    packet_at: usize,
    header_length: usize,
    /// The payload, except for at most one changed byte inside it.
    before: &'a [u8],
    changed: Option<u8>,
    after: &'a [u8],
}

/// Returns the segments `segments` of the packet in `frame` with the given treatment. A packet that
/// is not a super-packet has exactly one segment.
pub(crate) fn cut<'a>(
    frame: &'a [u8],
    framing: Framing,
    segments: &Range<u32>,
    treatment: &Treatment,
) -> Part<'a> {
    let Some(Parsed { mut vnet, link, packet, layout }) = Parsed::of(frame, framing) else {
        return Part::new(None, &[], frame);
    };
    let (headers, payload) = packet.split_at(layout.payload_at);
    let partial = layout.is_partial(&vnet);
    let mut part = match layout.segment {
        None => Part::new(Some(link), headers, payload),
        Some(segment) => {
            let span = |index: u32| (index as usize * segment).min(payload.len());
            let (start, end) = (span(segments.start), span(segments.end));
            let mut part = Part::new(Some(link), headers, &payload[start..end]);
            let run = Run {
                first: segments.start,
                offset: start as u32,
                is_last: end == payload.len(),
                removed: payload.len() - (end - start),
            };
            renumber(part.packet_headers(), &layout, &run);
            if end - start <= segment {
                // Older kernels reject a super-packet of one segment.
                (vnet.gso_type, vnet.gso_size) = (GSO_NONE, 0);
            } else if segments.start > 0 {
                // The flag states that CWR is set, which holds only for the first segment.
                vnet.gso_type &= !GSO_ECN;
            }
            vnet.hdr_len = layout.payload_at as u16;
            part
        }
    };
    if treatment.mark_ce {
        mark(part.packet_headers(), &layout);
    }
    if let Some(corruption) = treatment.corruption {
        damage(&mut part, &mut vnet, &layout, partial, corruption);
    }
    let vnet = vnet.shifted(link.len() as i16);
    part.headers[..VNET_HEADER].copy_from_slice(&vnet.bytes());
    part
}

impl<'a> Part<'a> {
    /// Creates a part with space for a virtio-net header before `link`, or with only a payload if
    /// `link` is `None`.
    fn new(link: Option<&[u8]>, headers: &[u8], payload: &'a [u8]) -> Self {
        let packet_at = link.map_or(0, |link| VNET_HEADER + link.len());
        let mut part = Part {
            headers: [0; VNET_HEADER + MAX_LINK + MAX_HEADERS],
            packet_at,
            header_length: packet_at + headers.len(),
            before: payload,
            changed: None,
            after: &[],
        };
        if let Some(link) = link {
            part.headers[VNET_HEADER..packet_at].copy_from_slice(link);
        }
        part.headers[packet_at..][..headers.len()].copy_from_slice(headers);
        part
    }

    /// Returns the packet's headers.
    fn packet_headers(&mut self) -> &mut [u8] {
        &mut self.headers[self.packet_at..self.header_length]
    }

    /// Returns the slices to write, whose concatenation is the frame.
    pub(crate) fn slices(&self) -> [IoSlice<'_>; 4] {
        [
            IoSlice::new(&self.headers[..self.header_length]),
            IoSlice::new(self.before),
            IoSlice::new(self.changed.as_slice()),
            IoSlice::new(self.after),
        ]
    }
}

/// A run of segments of a super-packet.
struct Run {
    /// The number of the first segment.
    first: u32,
    /// The offset of the run's payload in the payload of the packet.
    offset: u32,
    is_last: bool,
    /// The payload bytes of the packet that are not in the run.
    removed: usize,
}

/// Turns the headers of a super-packet into those of a run of its segments.
fn renumber(headers: &mut [u8], layout: &Layout, run: &Run) {
    let at = layout.transport_at;
    let shorten = |field: &mut [u8]| {
        let length = read(field).wrapping_sub(run.removed as u16);
        field.copy_from_slice(&length.to_be_bytes());
    };
    match layout.network {
        Network::V4 => {
            shorten(&mut headers[2..4]);
            // Each segment has its own identification, counted up (inet_gso_segment).
            let id = read(&headers[4..6]).wrapping_add(run.first as u16);
            headers[4..6].copy_from_slice(&id.to_be_bytes());
            sign(headers, layout);
        }
        Network::V6 => shorten(&mut headers[4..6]),
        Network::Unknown => {}
    }
    match layout.transport {
        Transport::Tcp => {
            const CWR: u8 = 0x80;
            const PSH_FIN: u8 = 0x08 | 0x01;
            let sequence = headers[at + 4..at + 8].first_chunk().copied().unwrap_or_default();
            let sequence = u32::from_be_bytes(sequence).wrapping_add(run.offset);
            headers[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
            if run.first > 0 {
                headers[at + 13] &= !CWR;
            }
            if !run.is_last {
                headers[at + 13] &= !PSH_FIN;
            }
        }
        Transport::Udp => shorten(&mut headers[at + 4..at + 6]),
        Transport::Icmp | Transport::Opaque => {}
    }
    // The field holds the sum of the pseudo-header, which includes the transport length.
    if let Some(field) = layout.checksum_at().and_then(|at| headers.get_mut(at..at + 2)) {
        let length = layout.end - layout.transport_at;
        let sum = checksum::replace(read(field), length as u16, (length - run.removed) as u16);
        field.copy_from_slice(&sum.to_be_bytes());
    }
}

/// Sets both ECN bits, which means Congestion Experienced (RFC 3168).
fn mark(headers: &mut [u8], layout: &Layout) {
    match layout.network {
        Network::V4 => {
            headers[1] |= 3;
            sign(headers, layout);
        }
        Network::V6 => headers[1] |= 3 << 4,
        Network::Unknown => {}
    }
}

/// Computes the checksum of an IPv4 header.
fn sign(headers: &mut [u8], layout: &Layout) {
    headers[10..12].fill(0);
    let sum = !checksum::sum(&headers[..layout.transport_at]);
    headers[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn read(field: &[u8]) -> u16 {
    field.first_chunk().copied().map_or(0, u16::from_be_bytes)
}

/// Changes one bit of the payload of `part`, which is one segment. `partial` means that its
/// checksum must still be completed.
///
/// In a segment without payload, one bit of the checksum is changed if the damage must be
/// detectable. Otherwise the segment is not changed, because an application could not notice. In a
/// segment of an unknown protocol one bit is changed in either case.
fn damage(
    part: &mut Part<'_>,
    vnet: &mut VnetHeader,
    layout: &Layout,
    partial: bool,
    corruption: Corruption,
) {
    let (bit, silent) = match corruption {
        Corruption::Detected { bit } => (bit, false),
        Corruption::Silent { bit } => (bit, true),
    };
    if !silent {
        // A receiver does not verify a partial checksum.
        if partial {
            complete(part, layout);
        }
        vnet.flags &= !NEEDS_CSUM;
        (vnet.csum_start, vnet.csum_offset) = (0, 0);
    }
    let covered = part.before.len().min(layout.end - layout.payload_at);
    match (covered as u64 * 8, layout.checksum_at()) {
        (0, Some(at)) if !silent => {
            part.packet_headers()[at + (bit % 16 / 8) as usize] ^= 1 << (bit % 8);
        }
        (0, _) => {}
        (bits, field) => {
            let at = (bit % bits / 8) as usize;
            let old = flip(part, at, (bit % 8) as u32);
            if let (true, false, Some(field)) = (silent, partial, field) {
                adjust(part.packet_headers(), field, layout, (at, old), 1 << (bit % 8));
            }
        }
    }
}

/// Changes one bit of byte `at` of the payload and returns the old value of the byte.
fn flip(part: &mut Part<'_>, at: usize, bit: u32) -> u8 {
    let payload = part.before;
    let old = payload[at];
    part.before = &payload[..at];
    part.changed = Some(old ^ 1 << bit);
    part.after = &payload[at + 1..];
    old
}

/// Completes the transport checksum as `skb_checksum_help` does: the field holds the sum of the
/// pseudo-header and is part of the sum.
fn complete(part: &mut Part<'_>, layout: &Layout) {
    let payload = checksum::sum(part.before);
    let headers = part.packet_headers();
    // The length of a transport header is even, so the payload begins at a word boundary.
    let sum = checksum::add(checksum::sum(&headers[layout.transport_at..]), payload);
    if let Some(field) = layout.checksum_at().and_then(|at| headers.get_mut(at..at + 2)) {
        field.copy_from_slice(&stored(!sum, layout).to_be_bytes());
    }
}

/// Adjusts a complete checksum to a payload whose byte `at` was `old` and has changed by `mask`. An
/// incorrect checksum stays incorrect.
fn adjust(headers: &mut [u8], field: usize, layout: &Layout, (at, old): (usize, u8), mask: u8) {
    let Some(field) = headers.get_mut(field..field + 2) else { return };
    let stored_sum = u16::from_be_bytes([field[0], field[1]]);
    if layout.transport == Transport::Udp && stored_sum == 0 {
        return; // The sender computed no checksum (RFC 768).
    }
    let shift = if at % 2 == 0 { 8 } else { 0 };
    let (old, new) = (u16::from(old) << shift, u16::from(old ^ mask) << shift);
    let sum = stored(!checksum::replace(!stored_sum, old, new), layout);
    field.copy_from_slice(&sum.to_be_bytes());
}

/// Returns the stored form of a checksum: in UDP 0 means no checksum, so all ones replace it (RFC
/// 768).
fn stored(sum: u16, layout: &Layout) -> u16 {
    match (layout.transport, sum) {
        (Transport::Udp, 0) => 0xffff,
        _ => sum,
    }
}
