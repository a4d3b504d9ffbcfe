//! The virtio-net header: `struct virtio_net_hdr` in include/uapi/linux/virtio_net.h, in native
//! byte order.

use longhaul_sys::tun::VNET_HEADER;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the transport checksum holds the sum of the pseudo-header only.
pub(super) const NEEDS_CSUM: u8 = 1;

/// `VIRTIO_NET_HDR_GSO_*`.
pub(super) const GSO_NONE: u8 = 0;
pub(super) const GSO_TCPV4: u8 = 1;
pub(super) const GSO_TCPV6: u8 = 4;
pub(super) const GSO_UDP_L4: u8 = 5;
/// Set in addition to the type if a TCP super-packet carries CWR; not a type itself.
pub(super) const GSO_ECN: u8 = 0x80;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct VnetHeader {
    pub(super) flags: u8,
    pub(super) gso_type: u8,
    /// Not reliable when read: the kernel stores the length of its linear buffer.
    pub(super) hdr_len: u16,
    /// The payload bytes per segment.
    pub(super) gso_size: u16,
    /// The start of the checksummed range, from the start of the packet.
    pub(super) csum_start: u16,
    /// The offset of the checksum field from there.
    pub(super) csum_offset: u16,
}

impl VnetHeader {
    /// Returns the header of a frame and its packet, or `None` if the frame is too short.
    pub(super) fn split(frame: &[u8]) -> Option<(VnetHeader, &[u8])> {
        let (b, packet) = frame.split_at_checked(VNET_HEADER)?;
        let u16_at = |at: usize| u16::from_ne_bytes([b[at], b[at + 1]]);
        let header = VnetHeader {
            flags: b[0],
            gso_type: b[1],
            hdr_len: u16_at(2),
            gso_size: u16_at(4),
            csum_start: u16_at(6),
            csum_offset: u16_at(8),
        };
        Some((header, packet))
    }

    pub(super) fn bytes(&self) -> [u8; VNET_HEADER] {
        let [h0, h1] = self.hdr_len.to_ne_bytes();
        let [g0, g1] = self.gso_size.to_ne_bytes();
        let [s0, s1] = self.csum_start.to_ne_bytes();
        let [o0, o1] = self.csum_offset.to_ne_bytes();
        [self.flags, self.gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }

    pub(super) fn needs_checksum(&self) -> bool {
        self.flags & NEEDS_CSUM != 0
    }
}
