//! The edge of a topology: a site that is a real host or virtual machine behind an Ethernet
//! interface of this host.
//!
//! The host has the address of its site. All other sites are on its network (198.18.0.0/15 and
//! 2001:2::/48), so it sends to them without a gateway. The edge answers its requests for their
//! link-layer addresses (ARP, RFC 826; neighbor discovery, RFC 4861) with one address, and passes
//! IP packets without their Ethernet headers.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_sys::ethernet_socket::EthernetSocket;
use longhaul_sys::tun::VNET_HEADER;

use crate::device::PacketDevice;
use crate::site::Host;

/// The Ethernet address of all other sites. The second bit marks it as locally administered.
const OTHERS: Mac = [2, 0, 0, 0, 0, 2];

const BROADCAST: Mac = [0xff; 6];

/// The size of an Ethernet header in bytes.
const ETHERNET: usize = 14;

/// The time between two requests for the address of the host.
const ASK: Duration = Duration::from_secs(1);

type Mac = [u8; 6];

/// A host behind an Ethernet interface.
#[derive(Debug)]
pub(crate) struct Edge {
    socket: EthernetSocket,
    own: Host,
    /// The Ethernet address of the host in the low 48 bits; 0 until it is known.
    host: AtomicU64,
    asked: Mutex<Option<Instant>>,
}

/// The use of a received frame.
enum Use {
    /// It is an IP packet for another site.
    Pass,
    /// Nothing or an answer.
    Consumed(Option<Vec<u8>>),
}

impl Edge {
    /// Opens the edge of the site `own` on the interface with this index.
    pub(crate) fn open(interface: u32, own: Host) -> io::Result<Self> {
        let socket = EthernetSocket::open(interface)?;
        Ok(Edge { socket, own, host: AtomicU64::new(0), asked: Mutex::new(None) })
    }

    fn host(&self) -> Option<Mac> {
        let known = self.host.load(Ordering::Relaxed);
        let [_, _, mac @ ..] = known.to_be_bytes();
        (known != 0).then_some(mac)
    }

    fn learn(&self, mac: Mac) {
        let [a, b, c, d, e, f] = mac;
        self.host.store(u64::from_be_bytes([0, 0, a, b, c, d, e, f]), Ordering::Relaxed);
    }

    /// Decides about a frame without its virtio-net header.
    fn examine(&self, frame: &[u8]) -> Use {
        const ARP: [u8; 2] = [0x08, 0x06];
        const IPV4: [u8; 2] = [0x08, 0x00];
        const IPV6: [u8; 2] = [0x86, 0xdd];
        let (Some((header, packet)), nothing) =
            (frame.split_at_checked(ETHERNET), Use::Consumed(None))
        else {
            return Use::Consumed(None);
        };
        let (to, from) = (&header[..6], mac(&header[6..12]));
        let is_ours = to == OTHERS;
        match [header[12], header[13]] {
            ARP => Use::Consumed(self.arp(packet)),
            IPV4 if is_ours => {
                if packet.get(12..16) == Some(&self.own.ipv4.octets()[..]) {
                    self.learn(from);
                }
                Use::Pass
            }
            IPV6 => match (self.solicitation(packet, from), is_ours) {
                (Some(answer), _) => Use::Consumed(Some(answer)),
                (None, true) => Use::Pass,
                (None, false) => nothing,
            },
            _ => nothing,
        }
    }

    /// Learns from an ARP packet, and returns the answer to a request for another site.
    fn arp(&self, packet: &[u8]) -> Option<Vec<u8>> {
        // Ethernet and IPv4 with their sizes, then the operation.
        let rest = packet.strip_prefix(&[0, 1, 8, 0, 6, 4, 0])?.get(..21)?;
        let (operation, sender, asked) = (rest[0], &rest[1..11], address_v4(&rest[17..21]));
        let (mac, ip) = (mac(&sender[..6]), address_v4(&sender[6..10]));
        if ip == self.own.ipv4 {
            self.learn(mac);
        }
        if operation != 1 || asked == self.own.ipv4 || !is_site_v4(asked) {
            return None;
        }
        Some(arp_frame(2, (OTHERS, asked), (mac, ip)))
    }

    /// Returns the answer to a neighbor solicitation for another site.
    fn solicitation(&self, packet: &[u8], from: Mac) -> Option<Vec<u8>> {
        const ICMPV6: u8 = 58;
        const SOLICITATION: u8 = 135;
        let (ip, message) = packet.split_at_checked(40)?;
        let target: [u8; 16] = *message.get(8..24)?.first_chunk()?;
        if ip[6] != ICMPV6 || message[0] != SOLICITATION {
            return None;
        }
        let source = Ipv6Addr::from(*ip[8..24].first_chunk::<16>()?);
        let target = Ipv6Addr::from(target);
        if Some(source) == self.own.ipv6 {
            self.learn(from);
        }
        if Some(target) == self.own.ipv6 || !is_site_v6(target) || source.is_unspecified() {
            return None;
        }
        Some(advertisement(target, source, from))
    }

    /// Requests the Ethernet address of the host, unless it was requested recently.
    fn ask(&self) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.is_none_or(|at| at.elapsed() > ASK) {
            *asked = Some(Instant::now());
            // A probe without a sender, which every host answers (RFC 5227).
            let sender = (OTHERS, Ipv4Addr::UNSPECIFIED);
            self.send(&arp_frame(1, sender, ([0; 6], self.own.ipv4)));
        }
    }

    /// Sends a frame without its virtio-net header. A lost request is repeated.
    fn send(&self, frame: &[u8]) {
        let _ = self.socket.write(&[IoSlice::new(&[0; VNET_HEADER]), IoSlice::new(frame)]);
    }
}

impl PacketDevice for Edge {
    fn readiness(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.socket.read(buffer)?;
        match self.examine(buffer.get(VNET_HEADER..length).unwrap_or_default()) {
            Use::Pass => Ok(EthernetSocket::strip(&mut buffer[..length])),
            Use::Consumed(answer) => {
                if let Some(answer) = answer {
                    self.send(&answer);
                }
                Err(io::ErrorKind::Interrupted.into())
            }
        }
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let host = self.host();
        if host.is_none() {
            self.ask();
        }
        self.socket.write_packet(slices, host.unwrap_or(BROADCAST), OTHERS)
    }

    fn dropped(&self) -> u64 {
        self.socket.dropped()
    }
}

/// Returns an ARP packet on Ethernet.
fn arp_frame(operation: u8, sender: (Mac, Ipv4Addr), target: (Mac, Ipv4Addr)) -> Vec<u8> {
    let to = if operation == 1 { BROADCAST } else { target.0 };
    let mut frame = [&to[..], &sender.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation]].concat();
    for (mac, ip) in [sender, target] {
        frame.extend(mac);
        frame.extend(ip.octets());
    }
    frame
}

/// Returns a neighbor advertisement on Ethernet: `target` has the address of the other sites.
fn advertisement(target: Ipv6Addr, to: Ipv6Addr, to_mac: Mac) -> Vec<u8> {
    const LENGTH: u8 = 32;
    // Type, code and checksum; the flags "solicited" and "override"; then the target and its
    // Ethernet address as an option.
    let mut message = vec![136, 0, 0, 0, 0x60, 0, 0, 0];
    message.extend(target.octets());
    message.extend([2, 1]);
    message.extend(OTHERS);
    let pseudo = [&target.octets()[..], &to.octets(), &[0, 0, 0, LENGTH, 0, 0, 0, 58]].concat();
    let words = pseudo.chunks(2).chain(message.chunks(2));
    let sum: u32 = words.map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let header = [0x60, 0, 0, 0, 0, LENGTH, 58, 255];
    let link = [&to_mac[..], &OTHERS, &[0x86, 0xdd]].concat();
    [&link[..], &header, &target.octets(), &to.octets(), &message].concat()
}

fn mac(bytes: &[u8]) -> Mac {
    bytes.first_chunk().copied().unwrap_or_default()
}

fn address_v4(bytes: &[u8]) -> Ipv4Addr {
    bytes.first_chunk::<4>().copied().unwrap_or_default().into()
}

/// Returns whether the address is in the network of the sites.
fn is_site_v4(address: Ipv4Addr) -> bool {
    matches!(address.octets(), [198, 18 | 19, ..])
}

/// Returns whether the address is in the network of the sites.
fn is_site_v6(address: Ipv6Addr) -> bool {
    address.segments()[..3] == [0x2001, 2, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_the_other_site() {
        let asked = Ipv4Addr::new(198, 18, 0, 2);
        let frame = arp_frame(2, (OTHERS, asked), ([7; 6], Ipv4Addr::new(198, 18, 0, 1)));
        assert_eq!(frame.len(), ETHERNET + 28);
        assert_eq!((&frame[..6], &frame[20..22]), (&[7; 6][..], &[0, 2][..]));
        assert_eq!((&frame[22..28], &frame[28..32]), (&OTHERS[..], &asked.octets()[..]));
    }

    #[test]
    fn an_advertisement_has_a_valid_checksum() {
        let (target, to) = (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 2), Ipv6Addr::LOCALHOST);
        let frame = advertisement(target, to, [7; 6]);
        let message = &frame[ETHERNET + 40..];
        let pseudo = [&target.octets()[..], &to.octets(), &[0, 0, 0, 32, 0, 0, 0, 58]].concat();
        let words = pseudo.chunks(2).chain(message.chunks(2));
        let sum: u32 = words.map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        assert_eq!(message.len(), 32);
    }

    #[test]
    fn only_the_networks_of_sites_are_answered() {
        assert!(is_site_v4(Ipv4Addr::new(198, 19, 255, 1)));
        assert!(!is_site_v4(Ipv4Addr::new(198, 20, 0, 1)) && !is_site_v4(Ipv4Addr::LOCALHOST));
        assert!(is_site_v6(Ipv6Addr::new(0x2001, 2, 0, 9, 0, 0, 0, 1)));
        assert!(!is_site_v6(Ipv6Addr::new(0x2001, 2, 1, 0, 0, 0, 0, 1)));
    }
}
