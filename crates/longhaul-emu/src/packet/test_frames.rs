//! Frames for tests, built from their header fields.

use super::checksum;
use super::layout::{GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, NEEDS_CSUM, VnetHeader};

/// The description of a test frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TestFrame {
    pub(crate) v6: bool,
    pub(crate) udp: bool,
    /// The bytes of options: in IPv4 a multiple of 4, in IPv6 a hop-by-hop header with a multiple
    /// of 8.
    pub(crate) network_options: usize,
    /// The bytes of TCP options, a multiple of 4.
    pub(crate) transport_options: usize,
    pub(crate) payload: usize,
    /// The segment size; 0 for a packet that is not a super-packet.
    pub(crate) segment: usize,
    /// The TCP flags.
    pub(crate) flags: u8,
    pub(crate) ecn: u8,
}

pub(crate) const FIN_PSH_ACK: u8 = 0x19;
pub(crate) const CWR: u8 = 0x80;

impl TestFrame {
    pub(crate) const TCP: TestFrame = TestFrame {
        v6: false,
        udp: false,
        network_options: 0,
        transport_options: 12,
        payload: 0,
        segment: 0,
        flags: FIN_PSH_ACK | CWR,
        ecn: 2,
    };

    pub(crate) fn transport_at(&self) -> usize {
        if self.v6 { 40 + self.network_options } else { 20 + self.network_options }
    }

    pub(crate) fn payload_at(&self) -> usize {
        self.transport_at() + if self.udp { 8 } else { 20 + self.transport_options }
    }

    pub(crate) fn protocol(&self) -> u8 {
        if self.udp { 17 } else { 6 }
    }

    /// Returns the frame, with a partial checksum.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let payload: Vec<u8> = (0..self.payload).map(|i| (i * 7 + i / 256) as u8).collect();
        let transport = self.transport(payload.len());
        let mut packet = self.network(transport.len() + payload.len());
        packet.extend(transport);
        packet.extend(payload);
        let at = self.transport_at();
        let field = at + if self.udp { 6 } else { 16 };
        let pseudo = pseudo_sum(&packet, self.protocol(), packet.len() - at);
        packet[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        let gso_type = match (self.segment, self.udp, self.v6) {
            (0, ..) => GSO_NONE,
            (_, true, _) => GSO_UDP_L4,
            (_, _, false) => GSO_TCPV4 | if self.flags & CWR != 0 { GSO_ECN } else { 0 },
            (_, _, true) => GSO_TCPV6 | if self.flags & CWR != 0 { GSO_ECN } else { 0 },
        };
        let vnet = VnetHeader {
            flags: NEEDS_CSUM,
            gso_type,
            hdr_len: 3,
            gso_size: self.segment as u16,
            csum_start: at as u16,
            csum_offset: (field - at) as u16,
        };
        [&vnet.bytes()[..], &packet].concat()
    }

    fn network(&self, rest: usize) -> Vec<u8> {
        if self.v6 {
            let mut header = vec![0x60, self.ecn << 4, 0x12, 0x34];
            header.extend(((self.network_options + rest) as u16).to_be_bytes());
            header.extend([if self.network_options > 0 { 0 } else { self.protocol() }, 64]);
            header.extend((0..32).map(|i| i * 5 + 1));
            if self.network_options > 0 {
                let mut options = vec![0; self.network_options];
                options[..2]
                    .copy_from_slice(&[self.protocol(), (self.network_options / 8 - 1) as u8]);
                header.extend(options);
            }
            return header;
        }
        let length = 20 + self.network_options;
        let mut header = vec![0x40 | (length / 4) as u8, self.ecn];
        header.extend(((length + rest) as u16).to_be_bytes());
        header.extend([0xff, 0xfe, 0x40, 0, 64, self.protocol(), 0, 0]);
        header.extend([198, 18, 0, 1, 198, 18, 0, 2]);
        header.resize(length, 1);
        let sum = !checksum::sum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }

    fn transport(&self, payload: usize) -> Vec<u8> {
        let mut header = vec![0x14, 0x51, 0x80, 0x01];
        if self.udp {
            header.extend(((8 + payload) as u16).to_be_bytes());
            header.extend([0, 0]);
        } else {
            // The sequence number wraps within the packet.
            header.extend([0xff, 0xff, 0xff, 0xf0, 1, 2, 3, 4]);
            header.extend([(((20 + self.transport_options) / 4) << 4) as u8, self.flags, 9, 9]);
            header.extend([0, 0, 0, 0]);
            header.resize(20 + self.transport_options, 1);
        }
        header
    }
}

/// Returns the sum of the pseudo-header (RFC 9293, RFC 8200) from the packet's addresses.
pub(crate) fn pseudo_sum(packet: &[u8], protocol: u8, length: usize) -> u16 {
    let addresses = if packet[0] >> 4 == 4 { &packet[12..20] } else { &packet[8..40] };
    let mut pseudo = addresses.to_vec();
    pseudo.extend([0, protocol]);
    pseudo.extend((length as u16).to_be_bytes());
    checksum::sum(&pseudo)
}
