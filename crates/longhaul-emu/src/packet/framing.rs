//! The link-layer header of frames: none, or that of Ethernet with VLAN tags.

/// The bytes between the virtio-net header of a frame and its packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// None: the packet is an IP packet.
    Ip,
    /// An Ethernet header with any number of VLAN tags up to [`MAX_TAGS`].
    Ethernet,
}

/// The most VLAN tags that are parsed. A packet behind more tags counts as an unknown protocol.
const MAX_TAGS: usize = 4;

/// The size of the two addresses in an Ethernet header.
const ADDRESSES: usize = 12;

/// The size of a VLAN tag.
const TAG: usize = 4;

/// The longest link-layer header in bytes.
pub(super) const MAX_LINK: usize = ADDRESSES + MAX_TAGS * TAG + 2;

impl Framing {
    /// Splits a frame without its virtio-net header into link-layer header and packet. Returns also
    /// whether the packet is an IP packet by its type.
    pub(super) fn split(self, frame: &[u8]) -> (&[u8], &[u8], bool) {
        match self {
            Framing::Ip => (&[], frame, true),
            Framing::Ethernet => ethernet(frame),
        }
    }
}

fn ethernet(frame: &[u8]) -> (&[u8], &[u8], bool) {
    // include/uapi/linux/if_ether.h
    const IPV4: u16 = 0x0800;
    const IPV6: u16 = 0x86dd;
    const VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
    let kind = |at: usize| frame.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let mut at = ADDRESSES;
    for _ in 0..=MAX_TAGS {
        match kind(at) {
            Some(tag) if VLAN.contains(&tag) && at + TAG + 2 <= MAX_LINK => at += TAG,
            Some(kind) => {
                let (link, packet) = frame.split_at(at + 2);
                return (link, packet, kind == IPV4 || kind == IPV6);
            }
            None => break,
        }
    }
    // Too short for a header.
    (&[], frame, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kinds: &[u16]) -> Vec<u8> {
        let mut frame = vec![7; ADDRESSES];
        for kind in kinds {
            frame.extend(kind.to_be_bytes());
            frame.extend([0, 5]);
        }
        frame
    }

    #[test]
    fn the_packet_begins_behind_the_tags() {
        let split = |kinds: &[u16]| {
            let frame = frame(kinds);
            let (link, packet, is_ip) = Framing::Ethernet.split(&frame);
            assert_eq!([link, packet].concat(), frame);
            (link.len(), is_ip)
        };
        assert_eq!(split(&[0x0800]), (14, true));
        assert_eq!(split(&[0x8100, 0x86dd]), (18, true));
        assert_eq!(split(&[0x88a8, 0x8100, 0x0800]), (22, true));
        assert_eq!(split(&[0x0806]), (14, false));
        assert_eq!(split(&[0x8100; 9]), (MAX_LINK, false), "too many tags");
        assert_eq!(split(&[]), (0, false));
        assert_eq!(Framing::Ip.split(&[1, 2]), (&[][..], &[1, 2][..], true));
    }
}
