//! What the driver knows of a packet: how it would be cut into segments, and how to write some of
//! them.
//!
//! A frame is a virtio-net header and an IP packet, as a device with segmentation offload hands it
//! over; a *super-packet* stands for many TCP segments or UDP datagrams with one set of headers.
//! [`shape`] tells the link model what it stands for. [`cut`] makes one part of it: some
//! adjacent segments, treated alike, as rebuilt headers and slices of the frame's payload, which is
//! never copied. The rules are those of the kernel's own segmentation (`tcp_gso_segment` in
//! net/ipv4/tcp_offload.c, `__udp_gso_segment` in net/ipv4/udp_offload.c).
//!
//! Nothing here trusts a frame: one that is malformed, or of a kind not known here, counts as one
//! segment and is written as it was read, but for a changed bit if the link is to corrupt it.

mod checksum;
mod corrupt;
mod layout;
mod split;
mod vnet;

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;

use crate::link::{Corruption, Treatment};

pub(crate) use layout::shape;
pub(crate) use split::cut;

/// Reads `frame` and writes segments of it in every way. It is for the fuzz target, to which
/// frames are closed, and for tests.
///
/// # Panics
/// A defect: no frame may do this.
#[doc(hidden)]
pub fn exercise(frame: &[u8]) {
    let last = shape(frame).segments() - 1;
    let bit = frame.iter().rev().fold(0, |bit: u64, byte| bit << 8 | u64::from(*byte));
    let corruptions = [None, Some(Corruption::Detected { bit }), Some(Corruption::Silent { bit })];
    for segments in [0..1, last..last + 1, 0..last + 1, last / 2..last + 1] {
        for corruption in corruptions {
            for mark_ce in [false, true] {
                let treatment = Treatment { mark_ce, corruption, ..Treatment::default() };
                let part = cut(frame, &segments, &treatment);
                let written: usize = part.slices().iter().map(|slice| slice.len()).sum();
                assert!(written <= frame.len(), "no more than was read");
            }
        }
    }
}
