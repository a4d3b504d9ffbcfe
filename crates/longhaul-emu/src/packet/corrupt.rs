//! Damages one segment.
//!
//! The frame stays unchanged, because a duplicate of the segment may still be written from it. The
//! part is written with one replaced byte.

use super::checksum;
use super::layout::{Layout, Transport};
use super::split::Part;
use super::vnet::{NEEDS_CSUM, VnetHeader};
use crate::link::Corruption;

/// Changes one bit of the payload of `part`, which is one segment. `partial` means that its
/// checksum is still to be completed.
///
/// A segment without payload gets one bit of its checksum changed if the damage is to be detected,
/// and stays intact otherwise, because an application could not notice. A segment of an unknown
/// protocol gets a bit changed in either case.
pub(super) fn apply(
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
        // A receiver does not check a partial checksum.
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

/// Adjusts a complete checksum to a payload whose byte `at` was `old` and has changed by `mask`. A
/// wrong checksum stays wrong.
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

/// Returns the checksum as it is stored: in UDP 0 means no checksum, so all ones replace it (RFC
/// 768).
fn stored(sum: u16, layout: &Layout) -> u16 {
    match (layout.transport, sum) {
        (Transport::Udp, 0) => 0xffff,
        _ => sum,
    }
}
