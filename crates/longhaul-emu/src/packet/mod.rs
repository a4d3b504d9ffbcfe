//! The packets that the driver moves: their division into segments, and the frames of some of their
//! segments.
//!
//! A frame is a virtio-net header and an IP packet, as a device with segmentation offload provides
//! it. On an Ethernet interface, an Ethernet header with VLAN tags precedes the packet. A *super-packet* stands for many TCP segments or UDP datagrams with one set of headers.
//! [`shape`] computes the segments of a packet for the link model. [`cut`] builds one part of a
//! packet: adjacent segments with equal treatment, as rebuilt headers and slices of the frame's
//! payload, which is never copied. The rules are those of the kernel's segmentation
//! (`tcp_gso_segment` in net/ipv4/tcp_offload.c, `__udp_gso_segment` in net/ipv4/udp_offload.c).
//!
//! No frame is trusted: a malformed frame, or a frame of an unknown protocol, counts as one segment
//! and is written as it was read, except for a changed bit if the link corrupts it.

mod checksum;
mod flow;
mod framing;
mod layout;
mod split;

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;

use crate::link::{Corruption, Treatment};

pub(crate) use flow::flow_hash;
pub(crate) use framing::Framing;
pub(crate) use layout::{headers, shape};
pub(crate) use split::cut;

/// Reads `frame` and writes segments of it with every treatment. It gives tests and the fuzz target
/// access to the parser.
///
/// # Panics
/// A panic on any frame is a defect.
#[doc(hidden)]
pub fn exercise(frame: &[u8]) {
    for framing in [Framing::Ip, Framing::Ethernet] {
        exercise_framing(frame, framing);
    }
}

fn exercise_framing(frame: &[u8], framing: Framing) {
    let last = shape(frame, framing).segments() - 1;
    headers(frame, framing);
    let bit = frame.iter().rev().fold(0, |bit: u64, byte| bit << 8 | u64::from(*byte));
    let corruptions = [None, Some(Corruption::Detected { bit }), Some(Corruption::Silent { bit })];
    for segments in [0..1, last..last + 1, 0..last + 1, last / 2..last + 1] {
        for corruption in corruptions {
            for mark_ce in [false, true] {
                let treatment = Treatment { mark_ce, corruption, ..Treatment::default() };
                let part = cut(frame, framing, &segments, &treatment);
                let written: usize = part.slices().iter().map(|slice| slice.len()).sum();
                assert!(written <= frame.len(), "no more than was read");
            }
        }
    }
}
