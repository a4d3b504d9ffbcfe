//! The reports of links and topologies.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::{Impairments, Lateness, MainCause, Segments};
use crate::plan::{LinkPlan, Side};
use crate::units::{Bytes, format_span};

/// Traffic, counted in three ways: packets as the kernel delivers them (a super-packet is one),
/// segments, and the IP bytes of the segments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// The number of packets, in which a super-packet counts once.
    pub packets: u64,
    /// The number of segments, as they would cross a wire.
    pub segments: u64,
    /// The IP bytes, with one header per segment.
    pub bytes: u64,
}

impl Traffic {
    /// Returns whether all counts are zero.
    pub fn is_none(&self) -> bool {
        *self == Traffic::default()
    }
}

impl From<Traffic> for Segments {
    fn from(traffic: Traffic) -> Self {
        Segments { segments: traffic.segments, bytes: traffic.bytes }
    }
}

impl std::ops::AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        self.packets += other.packets;
        self.segments += other.segments;
        self.bytes += other.bytes;
    }
}

impl std::ops::Add for Traffic {
    type Output = Traffic;

    fn add(mut self, other: Traffic) -> Traffic {
        self += other;
        self
    }
}

/// Unplanned drops, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropCounts {
    /// The queue before the link's rate was full. Only old documents have this count;
    /// [`Impairments`] replaces it.
    #[serde(default, skip_serializing_if = "Traffic::is_none")]
    pub queue_full: Traffic,
    /// The memory limit of the emulator was reached, so it could not emulate the link.
    pub memory_full: Traffic,
    /// The receiving interface refused the packet.
    pub refused: Traffic,
}

impl DropCounts {
    /// Returns the sum of all drops.
    pub fn total(&self) -> Traffic {
        self.queue_full + self.memory_full + self.refused
    }
}

/// The processor time of the thread that moves a link's packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessorShare {
    /// The lifetime of the thread in seconds.
    pub seconds: f64,
    /// The seconds on a processor.
    pub busy_seconds: f64,
    /// The seconds in which the thread was ready but had no processor.
    pub waited_seconds: f64,
    /// The seconds that the hypervisor took, over all processors of the machine; zero without a
    /// hypervisor.
    pub stolen_seconds: f64,
}

/// The counters of one direction of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// The sending end.
    pub from: Side,
    /// The traffic taken from the sender.
    pub entered: Traffic,
    /// The traffic given to the receiver. Here a packet is one write, which may be a part of a
    /// packet that entered.
    pub delivered: Traffic,
    /// The planned impairments of segments.
    #[serde(default)]
    pub impairments: Impairments,
    /// The unplanned drops.
    pub dropped: DropCounts,
    /// The traffic still in flight when the report was made.
    pub queued: Traffic,
    /// The part of `queued` that waits for the link's rate, including cross traffic. The bytes are
    /// counted in the layer of the rate.
    #[serde(default)]
    pub waiting_bytes: Bytes,
    /// The packets that the sender's interface dropped before the emulator read them.
    pub interface_drops: u64,
    /// The lateness of departures.
    pub lateness: Lateness,
    /// The largest memory that packets in flight used.
    pub peak_memory_bytes: Bytes,
}

impl DirectionReport {
    /// Returns all segments that did not arrive, except drops of the sender's interface.
    pub fn not_delivered(&self) -> Segments {
        self.impairments.dropped() + self.dropped.total().into()
    }

    /// Returns whether every segment and byte that entered or was duplicated has been counted as
    /// delivered, dropped or queued.
    pub fn is_conserved(&self) -> bool {
        let seen = Segments::from(self.entered) + self.impairments.duplicated;
        seen == Segments::from(self.delivered + self.queued) + self.not_delivered()
    }
}

/// The reason why figures measured over a link may not represent the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "warning", rename_all = "snake_case")]
pub enum LinkWarning {
    /// Packets left too late.
    #[error(
        "the emulator ran behind schedule: of the packets from {from}, 1 in 1000 left {p999_ms:.2} \
         ms late or more (bound {} ms){}; {}",
        (bound_ms * 100.0).round() / 100.0,
        MainCause::because(cause.as_ref()),
        MainCause::advice(cause.as_ref())
    )]
    BehindSchedule {
        /// The sending end.
        from: Side,
        /// The 99.9th percentile of lateness in ms.
        p999_ms: f64,
        /// The accepted lateness in ms.
        bound_ms: f64,
        /// The main cause.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<MainCause>,
    },
    /// The sender's interface overflowed, which looks like loss to the sender.
    #[error(
        "the interface at {from} dropped {packets} packets that the emulator was too slow to \
         read; give it more CPU or lower the rate"
    )]
    InterfaceDrops {
        /// The sending end.
        from: Side,
        /// The number of packets.
        packets: u64,
    },
    /// The packets in flight exceeded the memory limit of the emulator.
    #[error(
        "the emulator dropped {packets} packets from {from} because its memory was full; lower \
         the rate or the delay"
    )]
    MemoryFull {
        /// The sending end.
        from: Side,
        /// The number of packets.
        packets: u64,
    },
    /// The receiving interface refused packets because it is down or a header is malformed.
    #[error("the interface facing {from} refused {packets} packets; was it taken down?")]
    Refused {
        /// The sending end.
        from: Side,
        /// The number of packets.
        packets: u64,
    },
    /// The counters contradict each other, which is a defect of the emulator.
    #[error("packets from {from} are unaccounted for; please report this as a defect")]
    NotConserved {
        /// The sending end.
        from: Side,
    },
    /// The emulator's thread did not get enough processor time.
    #[error(
        "the emulator was starved: in {seconds:.1} s it waited {waited_seconds:.2} s for a \
         processor, and the hypervisor took {stolen_seconds:.2} s of this machine's processors; give it more CPU"
    )]
    ProcessorStarved {
        /// The seconds in which the thread was ready but had no processor.
        waited_seconds: f64,
        /// The seconds that the hypervisor took, over all processors.
        stolen_seconds: f64,
        /// The seconds for which the link was up.
        seconds: f64,
    },
    /// The TCP windows are smaller than the plan's rate requires.
    #[error(
        "TCP windows are {granted}, below the {wanted} that this rate and round trip need, \
         because of the host's net.ipv4.tcp_mem; raise it or lower the rate"
    )]
    WindowsClipped {
        /// The window that a single flow needs.
        wanted: Bytes,
        /// The window of each site.
        granted: Bytes,
    },
    /// The TCP windows could not be set.
    #[error(
        "TCP windows at {site} keep the kernel's defaults because /proc/sys is read-only here; \
         long paths will be slow"
    )]
    WindowsUnset {
        /// The site.
        site: Side,
    },
}

/// The report of an emulated link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// [`LinkReport::SCHEMA`].
    pub schema: String,
    /// The plan of the link.
    pub plan: LinkPlan,
    /// The seconds for which the link was up.
    pub seconds: f64,
    /// The processor time of the emulator.
    #[serde(default)]
    pub processor: ProcessorShare,
    /// True if TCP super-packets were passed unsplit.
    pub tcp_offload: bool,
    /// True if UDP super-packets were passed unsplit.
    pub udp_offload: bool,
    /// From near to far.
    pub up: DirectionReport,
    /// From far to near.
    pub down: DirectionReport,
    /// The warnings; empty if figures measured over the link are valid.
    pub warnings: Vec<LinkWarning>,
}

impl LinkReport {
    /// The schema's name and version.
    pub const SCHEMA: &str = "longhaul.link/1";

    /// Returns a one-line summary of the link and its traffic.
    pub fn summary(&self) -> String {
        let way = |d: &DirectionReport| {
            let causes = d.lateness.causes.summary();
            format!(
                "{} {} ({} dropped, p99.9 {:.3} ms late{}{causes})",
                d.from,
                Bytes::new(d.delivered.bytes),
                d.not_delivered().segments + d.interface_drops,
                d.lateness.p999_ms,
                if causes.is_empty() { "" } else { ": " },
            )
        };
        format!(
            "link of {} RTT up for {:.1} s; from {}; from {}",
            format_span(self.plan.rtt()),
            self.seconds,
            way(&self.up),
            way(&self.down)
        )
    }
}

/// A site of a topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteReport {
    /// The host name of the site.
    pub name: String,
    /// The IPv4 address, on all of its interfaces.
    pub ipv4: Ipv4Addr,
    /// The IPv6 address; `None` if no link of the site can carry the smallest IPv6 packet.
    pub ipv6: Option<Ipv6Addr>,
    /// The maximum number of bytes that a TCP socket of the site may buffer in each direction.
    pub window_bytes: Bytes,
    /// The kind of processor of the virtual machine, if the site is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestProcessor>,
}

/// The kind of processor of a virtual machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestProcessor {
    /// A processor of this host, by KVM.
    Hardware,
    /// A program that interprets the instructions (TCG), tens of times slower.
    Emulated,
}

impl fmt::Display for GuestProcessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GuestProcessor::Hardware => "hardware",
            GuestProcessor::Emulated => "emulated",
        })
    }
}

/// A link of a topology with its report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopologyLinkReport {
    /// The link's name.
    pub name: String,
    /// The site at the near end in `link`.
    pub near: String,
    /// The site at the far end in `link`.
    pub far: String,
    /// True if the link was taken down by request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub down: bool,
    /// The report of the link.
    pub link: LinkReport,
}

/// The report of a topology: so far if it runs, otherwise until its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopologyReport {
    /// [`TopologyReport::SCHEMA`].
    pub schema: String,
    /// The topology's name.
    pub name: String,
    /// The seconds for which it was up.
    pub seconds: f64,
    /// The sites.
    pub sites: Vec<SiteReport>,
    /// The links.
    pub links: Vec<TopologyLinkReport>,
}

impl TopologyReport {
    /// The schema's name and version.
    pub const SCHEMA: &str = "longhaul.topology/1";
}

#[cfg(test)]
mod tests {
    use crate::result::{LatenessCause, LatenessCauses};

    use super::*;

    fn direction(from: Side) -> DirectionReport {
        let traffic = |n| Traffic { packets: n, segments: 2 * n, bytes: 100 * n };
        DirectionReport {
            from,
            entered: traffic(10),
            delivered: traffic(8),
            impairments: Impairments {
                lost: traffic(3).into(),
                duplicated: traffic(4).into(),
                marked_ce: traffic(5).into(),
                ..Impairments::default()
            },
            dropped: DropCounts { memory_full: traffic(2), ..DropCounts::default() },
            queued: traffic(1),
            waiting_bytes: Bytes::default(),
            interface_drops: 0,
            lateness: Lateness::default(),
            peak_memory_bytes: Bytes::new(4096),
        }
    }

    #[test]
    fn a_lost_packet_breaks_conservation() {
        let mut report = direction(Side::Near);
        assert!(report.is_conserved());
        report.queued.packets += 1;
        assert!(report.is_conserved(), "a packet may leave in parts");
        report.queued.segments -= 1;
        assert!(!report.is_conserved());
    }

    #[test]
    fn the_document_of_version_1_still_reads() {
        let text = r#"{"schema":"longhaul.link/1","plan":{"up":{"delay_seconds":0.045},
            "down":{"delay_seconds":0.045},"mtu":9000},"seconds":1.5,"tcp_offload":true,
            "udp_offload":false,"up":UP,"down":UP,
            "warnings":[{"warning":"memory_full","from":"far","packets":3}]}"#;
        let traffic = r#"{"packets":1,"segments":1,"bytes":84}"#;
        let way = r#"{"from":"near","entered":T,"delivered":T,"dropped":{"queue_full":T,
            "memory_full":T,"refused":T},"queued":T,"interface_drops":0,"lateness":{"p50_ms":0.1,
            "p99_ms":0.2,"p999_ms":0.3,"max_ms":0.4},"peak_memory_bytes":65600}"#;
        let text = text.replace("UP", way).replace(":T", &format!(":{traffic}"));
        let report: LinkReport = serde_json::from_str(&text).unwrap();
        assert_eq!(report.warnings, [LinkWarning::MemoryFull { from: Side::Far, packets: 3 }]);
        assert!(report.summary().starts_with("link of 90ms RTT up for 1.5 s"));
        assert_eq!(report.up.not_delivered().segments, 3, "the queue's drops among them");
        assert_eq!(report.up.lateness.causes, LatenessCauses::default(), "nothing was measured");
        let mut late = report;
        late.up.lateness.causes.add(LatenessCause::Timer, 3.0);
        let expected = "p99.9 0.300 ms late: 100 % being woken late)";
        assert!(late.summary().contains(expected), "{}", late.summary());
    }
}
