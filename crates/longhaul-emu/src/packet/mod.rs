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
mod framing;
mod layout;
mod split;

#[cfg(test)]
pub(crate) mod test_frames;
#[cfg(test)]
mod tests;

use layout::{Layout, Network, Transport, VnetHeader};
use longhaul_core::plan::FlowHash;

use crate::link::{Corruption, Treatment};

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

/// Returns the hash of the flow of the packet in `frame`, which is the same in both directions of
/// the flow.
///
/// The hash is the XOR of the source and destination addresses, as words of 32 bits, and with
/// [`FlowHash::Ports`] of the source and destination ports; then h ^= h >> 16, h ^= h >> 8 and, as
/// kernels often use only even source ports, h >> 1. The policies are those of bonding
/// (Documentation/networking/bonding.rst, `xmit_hash_policy`). Fragments and protocols other than
/// TCP and UDP have no ports. A packet that is not IP has hash 0.
pub(crate) fn flow_hash(frame: &[u8], policy: FlowHash) -> u32 {
    let Some((vnet, packet)) = VnetHeader::split(frame) else { return 0 };
    let layout = Layout::of(&vnet, packet);
    let addresses = match layout.network {
        Network::V4 => 12..20,
        Network::V6 => 8..40,
        Network::Unknown => return 0,
    };
    let mut hash = xor(packet.get(addresses).unwrap_or_default());
    let has_ports = matches!(layout.transport, Transport::Tcp | Transport::Udp);
    if has_ports && policy == FlowHash::Ports {
        let ports =
            xor(packet.get(layout.transport_at..layout.transport_at + 4).unwrap_or_default());
        hash ^= (ports >> 16) ^ (ports & 0xffff);
    }
    hash ^= hash >> 16;
    hash ^= hash >> 8;
    hash >> 1
}

/// Returns the XOR of all words of 32 bits.
fn xor(bytes: &[u8]) -> u32 {
    let words = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word));
    words.fold(0, |sum, word| sum ^ word)
}

#[cfg(test)]
mod flow_hash_tests {
    use longhaul_sys::tun::VNET_HEADER;

    use super::test_frames::TestFrame;
    use super::*;

    #[test]
    fn both_directions_of_a_flow_have_the_same_hash() {
        for spec in [TestFrame::TCP, TestFrame { udp: true, ..TestFrame::TCP }] {
            let there = TestFrame { payload: 100, ..spec }.frame();
            let mut back = there.clone();
            for (from, to) in [(12..16, 16), (16..20, 12), (20..22, 22), (22..24, 20)] {
                let bytes = &there[VNET_HEADER..][from];
                back[VNET_HEADER + to..][..bytes.len()].copy_from_slice(bytes);
            }
            assert_ne!(there, back);
            for policy in [FlowHash::Ports, FlowHash::Addresses] {
                assert_eq!(flow_hash(&there, policy), flow_hash(&back, policy));
            }
        }
    }

    #[test]
    fn the_hash_is_the_stated_one() {
        let mut frame = TestFrame { payload: 100, ..TestFrame::TCP }.frame();
        let packet = &mut frame[VNET_HEADER..];
        packet[12..20].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 2]);
        packet[20..24].copy_from_slice(&[0x9c, 0x40, 0x14, 0x51]);
        // Addresses: 3. Ports: 0x9c40 ^ 0x1451 = 0x8811. 0x8812, then ^ 0x88 = 0x889a, then >> 1.
        assert_eq!(flow_hash(&frame, FlowHash::Ports), 0x889a >> 1);
        assert_eq!(flow_hash(&frame, FlowHash::Addresses), 3 >> 1);
        assert_eq!(flow_hash(&[0; 40], FlowHash::Ports), 0);
        assert_eq!(flow_hash(&[], FlowHash::Ports), 0);
    }
}
