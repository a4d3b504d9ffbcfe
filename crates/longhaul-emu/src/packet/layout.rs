//! The headers of a frame: the virtio-net header, and the layout of the IP packet behind it.

use std::net::IpAddr;

use longhaul_core::plan::link::Headers;
use longhaul_sys::tun::VNET_HEADER;

use super::framing::Framing;
use crate::link::PacketShape;

/// The longest IP header with extensions that is parsed. An IPv4 header has at most 60 bytes. An
/// IPv6 header has no limit, but stacks send only few and short extensions.
const MAX_NETWORK: usize = 256;

/// The longest TCP header: 15 words.
const MAX_TRANSPORT: usize = 60;

/// The longest headers that a [`Layout`] finds.
pub(super) const MAX_HEADERS: usize = MAX_NETWORK + MAX_TRANSPORT;

/// The Internet protocol of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    /// Neither IPv4 nor IPv6, or malformed.
    Unknown,
    V4,
    V6,
}

/// The transport protocol of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    /// A fragment, or an unknown protocol.
    Opaque,
    Tcp,
    Udp,
    /// ICMP for IPv4 or IPv6.
    Icmp,
}

/// The offsets of a packet's parts in bytes from the start of the IP header. The parts lie within
/// the packet, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) network: Network,
    pub(super) transport: Transport,
    /// The start of the transport header.
    pub(super) transport_at: usize,
    /// The end of the transport header; at most [`MAX_HEADERS`].
    pub(super) payload_at: usize,
    /// The end of the payload.
    pub(super) end: usize,
    /// The number of the transport protocol; 0 if it is unknown.
    pub(super) protocol: u8,
    /// The payload bytes per segment of a super-packet; `None` for every other packet.
    pub(super) segment: Option<usize>,
}

/// Returns the shape of the packet in `frame`.
///
/// A frame that is too short, or inconsistent with a super-packet, counts as one segment.
pub(crate) fn shape(frame: &[u8], framing: Framing) -> PacketShape {
    let Some(Parsed { packet, layout, .. }) = Parsed::of(frame, framing) else {
        return PacketShape::single(0);
    };
    let ecn_capable = layout.ecn(packet) != 0;
    match layout.segment {
        None => PacketShape { ecn_capable, ..PacketShape::single(packet.len() as u32) },
        Some(segment) => PacketShape {
            header_bytes: layout.payload_at as u32,
            payload_bytes: (layout.end - layout.payload_at) as u32,
            segment_bytes: segment as u32,
            ecn_capable,
        },
    }
}

/// A frame and the layout of its packet.
pub(super) struct Parsed<'a> {
    /// The virtio-net header with offsets from the start of the packet.
    pub(super) vnet: VnetHeader,
    /// The link-layer header before the packet; empty for [`Framing::Ip`].
    pub(super) link: &'a [u8],
    pub(super) packet: &'a [u8],
    pub(super) layout: Layout,
}

impl<'a> Parsed<'a> {
    /// Parses a frame, or returns `None` if it is too short.
    pub(super) fn of(frame: &'a [u8], framing: Framing) -> Option<Self> {
        let (vnet, rest) = VnetHeader::split(frame)?;
        let (link, packet, is_ip) = framing.split(rest);
        let vnet = vnet.shifted(-(link.len() as i16));
        let layout = if is_ip { Layout::of(&vnet, packet) } else { Layout::unknown(packet) };
        Some(Parsed { vnet, link, packet, layout })
    }
}

/// Returns the header fields by which the packet in `frame` is classified; `None` if it is not an
/// IP packet.
pub(crate) fn headers(frame: &[u8], framing: Framing) -> Option<Headers> {
    let Parsed { packet, layout, .. } = Parsed::of(frame, framing)?;
    let (dscp, protocol, source, destination) = match layout.network {
        Network::Unknown => return None,
        Network::V4 => {
            let address = |at: usize| {
                let bytes: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
                Some(IpAddr::from(bytes))
            };
            (packet[1] >> 2, packet[9], address(12)?, address(16)?)
        }
        Network::V6 => {
            let address = |at: usize| {
                let bytes: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
                Some(IpAddr::from(bytes))
            };
            let class = packet[0] << 4 | packet[1] >> 4;
            (class >> 2, layout.protocol, address(8)?, address(24)?)
        }
    };
    let ports = match layout.transport {
        Transport::Tcp | Transport::Udp => {
            u16_at(packet, layout.transport_at).zip(u16_at(packet, layout.transport_at + 2))
        }
        Transport::Opaque | Transport::Icmp => None,
    };
    Some(Headers { dscp, ecn: layout.ecn(packet), protocol, source, destination, ports })
}

impl Layout {
    fn unknown(packet: &[u8]) -> Layout {
        Layout {
            network: Network::Unknown,
            transport: Transport::Opaque,
            transport_at: 0,
            payload_at: 0,
            end: packet.len(),
            protocol: 0,
            segment: None,
        }
    }

    /// Returns the layout of `packet`; `vnet` states whether it is a super-packet.
    pub(super) fn of(vnet: &VnetHeader, packet: &[u8]) -> Layout {
        let unknown = Layout::unknown(packet);
        let network = match packet.first().map(|byte| byte >> 4) {
            Some(4) => ipv4(packet),
            Some(6) => ipv6(packet),
            _ => None,
        };
        let Some(found) = network else { return unknown };
        let opaque = Layout {
            network: found.network,
            transport_at: found.transport_at,
            payload_at: found.transport_at,
            end: found.end,
            protocol: found.protocol.unwrap_or_default(),
            ..unknown
        };
        let Some(protocol) = found.protocol else { return opaque };
        let rest = &packet[found.transport_at..found.end];
        let Some((transport, header)) = transport(found.network, protocol, rest) else {
            return opaque;
        };
        let mut layout = Layout { transport, payload_at: found.transport_at + header, ..opaque };
        layout.segment = layout.segment_size(vnet, packet);
        layout
    }

    /// Returns the offset of the transport checksum.
    pub(super) fn checksum_at(&self) -> Option<usize> {
        match self.transport {
            Transport::Opaque => None,
            Transport::Tcp => Some(self.transport_at + 16),
            Transport::Udp => Some(self.transport_at + 6),
            Transport::Icmp => Some(self.transport_at + 2),
        }
    }

    /// Returns whether `vnet` marks the transport checksum of this packet as partial.
    pub(super) fn is_partial(&self, vnet: &VnetHeader) -> bool {
        let start = usize::from(vnet.csum_start);
        vnet.needs_checksum()
            && start == self.transport_at
            && Some(start + usize::from(vnet.csum_offset)) == self.checksum_at()
    }

    /// Returns the two bits of Explicit Congestion Notification (RFC 3168); 0 if the sender does
    /// not support it.
    fn ecn(&self, packet: &[u8]) -> u8 {
        match self.network {
            Network::Unknown => 0,
            Network::V4 => packet[1] & 3,
            // The traffic class spans the first two bytes.
            Network::V6 => packet[1] >> 4 & 3,
        }
    }

    /// Returns the payload bytes per segment if the packet is a super-packet that the kernel would
    /// segment. All its headers must agree, because the kernel checks them when the packet is
    /// written again.
    fn segment_size(&self, vnet: &VnetHeader, packet: &[u8]) -> Option<usize> {
        let fits = match (vnet.gso_type & !GSO_ECN, self.network, self.transport) {
            (GSO_TCPV4, Network::V4, Transport::Tcp) | (GSO_TCPV6, Network::V6, Transport::Tcp) => {
                true
            }
            (GSO_UDP_L4, _, Transport::Udp) => true,
            (GSO_NONE, ..) => return None,
            _ => false,
        };
        let segment = usize::from(vnet.gso_size);
        let payload = self.end - self.payload_at;
        let whole = self.end == packet.len();
        (fits && whole && self.is_partial(vnet) && segment > 0 && payload > segment)
            .then_some(segment)
    }
}

/// The fields of an IP header.
struct IpHeader {
    network: Network,
    transport_at: usize,
    end: usize,
    /// The protocol of the payload; `None` for a fragment, which may lack the transport header or a
    /// part of its data.
    protocol: Option<u8>,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]))
}

/// Parses an IPv4 header (RFC 791).
fn ipv4(packet: &[u8]) -> Option<IpHeader> {
    const MORE_FRAGMENTS_OR_OFFSET: u16 = 0x3fff;
    let transport_at = usize::from(packet.first()? & 0x0f) * 4;
    let end = usize::from(u16_at(packet, 2)?);
    if transport_at < 20 || end < transport_at || packet.len() < end {
        return None;
    }
    let whole = u16_at(packet, 6)? & MORE_FRAGMENTS_OR_OFFSET == 0;
    Some(IpHeader { network: Network::V4, transport_at, end, protocol: whole.then_some(packet[9]) })
}

/// Parses an IPv6 header (RFC 8200) with extension headers up to [`MAX_NETWORK`]. A packet with
/// longer extensions counts as an unknown protocol.
fn ipv6(packet: &[u8]) -> Option<IpHeader> {
    const HEADER: usize = 40;
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const AUTHENTICATION: u8 = 51;
    const DESTINATION: u8 = 60;
    let end = HEADER + usize::from(u16_at(packet, 4)?);
    if packet.len() < end {
        return None;
    }
    let opaque =
        |at| Some(IpHeader { network: Network::V6, transport_at: at, end, protocol: None });
    let (mut protocol, mut at) = (packet[6], HEADER);
    loop {
        let extension = packet.get(at..at + 8).filter(|_| at + 8 <= end);
        let length = match (protocol, extension) {
            (HOP_BY_HOP | ROUTING | DESTINATION, Some(bytes)) => (usize::from(bytes[1]) + 1) * 8,
            (AUTHENTICATION, Some(bytes)) => (usize::from(bytes[1]) + 2) * 4,
            // A fragment header with offset 0 and without the more-fragments flag belongs to a
            // whole packet.
            (FRAGMENT, Some(bytes)) if bytes[2] == 0 && bytes[3] & 0xf9 == 0 => 8,
            (HOP_BY_HOP | ROUTING | DESTINATION | AUTHENTICATION | FRAGMENT, _) => {
                return opaque(at);
            }
            _ => {
                return Some(IpHeader {
                    network: Network::V6,
                    transport_at: at,
                    end,
                    protocol: Some(protocol),
                });
            }
        };
        if at + length > MAX_NETWORK.min(end) {
            return opaque(at);
        }
        protocol = packet[at];
        at += length;
    }
}

/// Returns the transport protocol and the length of its header, if the header is complete.
fn transport(network: Network, protocol: u8, rest: &[u8]) -> Option<(Transport, usize)> {
    const ICMP: u8 = 1;
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    const ICMPV6: u8 = 58;
    let (kind, header) = match (protocol, network) {
        // The upper half of byte 12 is the header's length in words (RFC 9293).
        (TCP, _) => (Transport::Tcp, usize::from(rest.get(12)? >> 4) * 4),
        (UDP, _) => (Transport::Udp, 8),
        (ICMP, Network::V4) | (ICMPV6, Network::V6) => (Transport::Icmp, 8),
        _ => return None,
    };
    let shortest = if kind == Transport::Tcp { 20 } else { 8 };
    (header >= shortest && header <= rest.len()).then_some((kind, header))
}

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the transport checksum holds the sum of the pseudo-header only.
pub(super) const NEEDS_CSUM: u8 = 1;

/// `VIRTIO_NET_HDR_GSO_*`.
pub(super) const GSO_NONE: u8 = 0;
pub(super) const GSO_TCPV4: u8 = 1;
pub(super) const GSO_TCPV6: u8 = 4;
pub(super) const GSO_UDP_L4: u8 = 5;
/// A flag in addition to the type: the TCP super-packet carries CWR.
pub(super) const GSO_ECN: u8 = 0x80;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct VnetHeader {
    pub(super) flags: u8,
    pub(super) gso_type: u8,
    /// The header length. It is unreliable when read: the kernel stores the length of its linear
    /// buffer.
    pub(super) hdr_len: u16,
    /// The payload bytes per segment.
    pub(super) gso_size: u16,
    /// The start of the checksummed range, from the start of the packet.
    pub(super) csum_start: u16,
    /// The offset of the checksum field from `csum_start`.
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

    /// Returns the header for a packet that starts `by` bytes later in the frame.
    pub(super) fn shifted(mut self, by: i16) -> VnetHeader {
        // Each offset is moved only if it is set.
        if self.hdr_len != 0 {
            self.hdr_len = self.hdr_len.wrapping_add_signed(by);
        }
        if self.needs_checksum() {
            self.csum_start = self.csum_start.wrapping_add_signed(by);
        }
        self
    }

    pub(super) fn needs_checksum(&self) -> bool {
        self.flags & NEEDS_CSUM != 0
    }
}
