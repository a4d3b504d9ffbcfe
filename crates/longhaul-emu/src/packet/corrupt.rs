//! Damages one segment.
//!
//! The frame itself stays as it is, for a duplicate of the segment may yet be written from it: the
//! part writes one other byte in its midst.

use super::checksum;
use super::layout::{Layout, Transport};
use super::split::Part;
use super::vnet::{NEEDS_CSUM, VnetHeader};
use crate::link::Corruption;

/// Changes one bit of the payload of `part`, which is one segment whose checksum is, if
/// `partial`, yet to be completed.
///
/// A segment without payload has one bit of its checksum changed where the damage is to be
/// detected, and stays whole where it is not, having nothing that an application could miss. A
/// protocol whose checksum is not known here has a bit changed in either case.
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
        // The receiver does not look at a checksum that is yet to be completed.
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

/// Changes one bit of byte `at` of the payload, and returns what the byte was.
fn flip(part: &mut Part<'_>, at: usize, bit: u32) -> u8 {
    let payload = part.before;
    let old = payload[at];
    part.before = &payload[..at];
    part.changed = Some(old ^ 1 << bit);
    part.after = &payload[at + 1..];
    old
}

/// Completes the transport checksum, as `skb_checksum_help` does: the field holds the sum of the
/// pseudo-header, and is part of what is summed.
fn complete(part: &mut Part<'_>, layout: &Layout) {
    let payload = checksum::sum(part.before);
    let headers = part.packet_headers();
    // A transport header is of an even length, so that the payload begins with a word.
    let sum = checksum::add(checksum::sum(&headers[layout.transport_at..]), payload);
    if let Some(field) = layout.checksum_at().and_then(|at| headers.get_mut(at..at + 2)) {
        field.copy_from_slice(&stored(!sum, layout).to_be_bytes());
    }
}

/// Makes a complete checksum fit a payload whose byte `at` was `old` and has changed by `mask`. One
/// that was wrong stays wrong.
fn adjust(headers: &mut [u8], field: usize, layout: &Layout, (at, old): (usize, u8), mask: u8) {
    let Some(field) = headers.get_mut(field..field + 2) else { return };
    let stored_sum = u16::from_be_bytes([field[0], field[1]]);
    if layout.transport == Transport::Udp && stored_sum == 0 {
        return; // The sender computed none (RFC 768).
    }
    let shift = if at % 2 == 0 { 8 } else { 0 };
    let (old, new) = (u16::from(old) << shift, u16::from(old ^ mask) << shift);
    let sum = stored(!checksum::replace(!stored_sum, old, new), layout);
    field.copy_from_slice(&sum.to_be_bytes());
}

/// As it is stored: 0 means no checksum in UDP, which has all ones instead (RFC 768).
fn stored(sum: u16, layout: &Layout) -> u16 {
    match (layout.transport, sum) {
        (Transport::Udp, 0) => 0xffff,
        _ => sum,
    }
}
