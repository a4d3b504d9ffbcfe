//! Counters of interfaces by `rtnetlink(7)`, and the state of TCP connections by `sock_diag(7)`, of a
//! network namespace.
//!
//! Handles stay in the namespace of the thread that opened them.

mod flows;
mod programs;

use std::io;

use crate::netlink::{Netlink, Request, attribute};

pub use flows::{FlowReader, TcpFlow};
pub use programs::programs_of;

/// A connection to the kernel for the counters of all interfaces of a network namespace.
#[derive(Debug)]
pub struct LinkReader {
    netlink: Netlink,
}

/// The name and state of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkState {
    /// The index in the network namespace. The kernel does not reuse it soon.
    pub index: u32,
    /// The name. It may contain any character except slashes, colons and white space.
    pub name: String,
    /// True if the interface is enabled and its link is up (`IFF_RUNNING`).
    pub running: bool,
    /// True for the loopback interface.
    pub loopback: bool,
}

/// The counters of an interface since its creation (`struct rtnl_link_stats64`). A driver may reset
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkCounters {
    /// The bytes received, with link-layer headers.
    pub in_bytes: u64,
    /// The bytes sent, with link-layer headers.
    pub out_bytes: u64,
    /// The packets received.
    pub in_packets: u64,
    /// The packets sent.
    pub out_packets: u64,
    /// The received packets that the host or the device dropped.
    pub in_drops: u64,
    /// The packets dropped on transmission.
    pub out_drops: u64,
    /// The packets received with errors.
    pub in_errors: u64,
    /// The packets with errors on transmission.
    pub out_errors: u64,
}

/// The state of the root queueing discipline of an interface (`struct gnet_stats_queue`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkQueue {
    /// The bytes that wait for transmission.
    pub bytes: u32,
    /// The packets that wait for transmission.
    pub packets: u32,
    /// The packets that the discipline dropped since its creation, modulo 2^32.
    pub drops: u32,
}

impl LinkReader {
    /// Opens a socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// No socket could be created.
    pub fn open() -> io::Result<Self> {
        Ok(LinkReader { netlink: Netlink::open(libc::NETLINK_ROUTE)? })
    }

    /// Returns the names and states of all interfaces.
    ///
    /// # Errors
    /// The kernel refuses the query.
    pub fn states(&self) -> io::Result<Vec<LinkState>> {
        const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3; // include/uapi/linux/rtnetlink.h
        // struct ifinfomsg.
        let request = Request::new(libc::RTM_GETLINK, libc::NLM_F_DUMP, &[0; 16])
            .with(libc::IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
        let mut found = Vec::new();
        self.netlink.visit(request, |message| found.extend(state(message)))?;
        Ok(found)
    }

    /// Passes the index and counters of every interface to `each`.
    ///
    /// # Errors
    /// The kernel refuses the query; Linux before 4.7 does not know it.
    pub fn counters(&self, mut each: impl FnMut(u32, LinkCounters)) -> io::Result<()> {
        const RTM_GETSTATS: u16 = 94; // include/uapi/linux/rtnetlink.h
        // struct if_stats_msg (include/uapi/linux/if_link.h): family and padding, index, and the mask of
        // attributes, here IFLA_STATS_LINK_64.
        let structure = [0u32, 0, 1].map(u32::to_ne_bytes).concat();
        let request = Request::new(RTM_GETSTATS, libc::NLM_F_DUMP, &structure);
        self.netlink.visit(request, |message| {
            if let Some((index, counters)) = counters(message) {
                each(index, counters);
            }
        })
    }

    /// Passes the index and the queue of every interface with a queueing discipline to `each`.
    ///
    /// # Errors
    /// The kernel refuses the query.
    pub fn queues(&self, mut each: impl FnMut(u32, LinkQueue)) -> io::Result<()> {
        // struct tcmsg (include/uapi/linux/rtnetlink.h).
        let request = Request::new(libc::RTM_GETQDISC, libc::NLM_F_DUMP, &[0; 20]);
        self.netlink.visit(request, |message| {
            if let Some((index, queue)) = queue(message) {
                each(index, queue);
            }
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn state(message: &[u8]) -> Option<LinkState> {
    let flags = word(message, 8)? as libc::c_int;
    let name = attribute(message.get(16..)?, libc::IFLA_IFNAME)?;
    let name = name.split(|byte| *byte == 0).next()?;
    Some(LinkState {
        index: word(message, 4)?,
        name: String::from_utf8_lossy(name).into_owned(),
        running: flags & libc::IFF_RUNNING != 0,
        loopback: flags & libc::IFF_LOOPBACK != 0,
    })
}

fn counters(message: &[u8]) -> Option<(u32, LinkCounters)> {
    const IFLA_STATS_LINK_64: u16 = 1; // include/uapi/linux/if_link.h
    let values = attribute(message.get(12..)?, IFLA_STATS_LINK_64)?;
    // The offsets are those of struct rtnl_link_stats64, in numbers of 64 bits.
    let value = |at: usize| Some(u64::from_ne_bytes(*values.get(at * 8..)?.first_chunk()?));
    // /proc/net/dev adds rx_missed_errors to the drops, too (net/core/net-procfs.c).
    let in_drops = value(6)?.wrapping_add(value(15)?);
    let counters = LinkCounters {
        in_packets: value(0)?,
        out_packets: value(1)?,
        in_bytes: value(2)?,
        out_bytes: value(3)?,
        in_errors: value(4)?,
        out_errors: value(5)?,
        in_drops,
        out_drops: value(7)?,
    };
    Some((word(message, 4)?, counters))
}

fn queue(message: &[u8]) -> Option<(u32, LinkQueue)> {
    const TC_H_ROOT: u32 = 0xffff_ffff; // include/uapi/linux/pkt_sched.h
    const TCA_STATS2: u16 = 7; // include/uapi/linux/rtnetlink.h
    const TCA_STATS_QUEUE: u16 = 3; // include/uapi/linux/gen_stats.h
    // struct tcmsg: family and padding, index, handle, parent, info. The statistics of a root discipline
    // include those of its children.
    if word(message, 12)? != TC_H_ROOT {
        return None;
    }
    let statistics = attribute(message.get(20..)?, TCA_STATS2)?;
    let queue = attribute(statistics, TCA_STATS_QUEUE)?;
    let found =
        LinkQueue { packets: word(queue, 0)?, bytes: word(queue, 4)?, drops: word(queue, 8)? };
    Some((word(message, 4)?, found))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::netlink::NestedAttributes;

    fn counters_of(reader: &LinkReader, wanted: u32) -> LinkCounters {
        let mut found = None;
        reader
            .counters(|index, counters| {
                if index == wanted {
                    found = Some(counters);
                }
            })
            .unwrap();
        found.unwrap()
    }

    #[test]
    fn loopback_counts_its_packets() {
        let reader = LinkReader::open().unwrap();
        let states = reader.states().unwrap();
        let loopback = states.iter().find(|state| state.loopback).unwrap();
        assert_eq!(loopback.name, "lo");
        let before = counters_of(&reader, loopback.index);
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .send_to(&[0; 1000], far.local_addr().unwrap())
            .unwrap();
        let after = counters_of(&reader, loopback.index);
        assert!(after.out_bytes >= before.out_bytes + 1028 && after.in_packets > before.in_packets);
        reader.queues(|_, _| {}).unwrap();
    }

    #[test]
    fn a_short_message_is_no_interface() {
        assert_eq!(state(&[0; 15]), None);
        assert_eq!(counters(&[0; 12]), None);
        assert_eq!(queue(&[0; 20]), None);
        let short = NestedAttributes::new(&[0; 12]).with(1, &[1; 100]);
        assert_eq!(counters(short.bytes()), None);
    }

    #[test]
    fn only_the_root_discipline_is_a_queue() {
        let numbers = [5u32, 7000, 3, 0, 0].map(u32::to_ne_bytes).concat();
        let statistics = NestedAttributes::new(&[]).with(3, &numbers);
        let message = |parent: u32| {
            let structure = [0, 4, 0x8001_0000, parent, 0].map(u32::to_ne_bytes).concat();
            NestedAttributes::new(&structure).with(7, statistics.bytes()).bytes().to_vec()
        };
        let expected = LinkQueue { bytes: 7000, packets: 5, drops: 3 };
        assert_eq!(queue(&message(u32::MAX)), Some((4, expected)));
        assert_eq!(queue(&message(0x8001_0001)), None);
    }
}
