use serde::{Deserialize, Serialize};

use super::{Impairments, Lateness, MainCause, Segments};
use crate::plan::{LinkPlan, Side};
use crate::units::{Bytes, format_span};

/// Traffic counted three ways: packets as the kernel hands them over (a super-packet is one), the
/// segments that they stand for, and the bytes of those segments at the IP layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Packets and super-packets.
    pub packets: u64,
    /// Packets as they would cross a wire.
    pub segments: u64,
    /// IP bytes, with one header for each segment.
    pub bytes: u64,
}

impl Traffic {
    /// Whether nothing passed.
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

/// What did not arrive although the plan does not say so, by the reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropCounts {
    /// The queue before the link's rate was full. Only in documents from before
    /// [`Impairments`] were counted, which has this since.
    #[serde(default, skip_serializing_if = "Traffic::is_none")]
    pub queue_full: Traffic,
    /// The emulator's memory was full: the link could not be emulated.
    pub memory_full: Traffic,
    /// The receiving interface refused the packet.
    pub refused: Traffic,
}

impl DropCounts {
    /// All of them together.
    pub fn total(&self) -> Traffic {
        self.queue_full + self.memory_full + self.refused
    }
}

/// What the machine gave the thread that moves a link's packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessorShare {
    /// How long it has lived.
    pub seconds: f64,
    /// Its time on a processor.
    pub busy_seconds: f64,
    /// Time for which it could have run, but had no processor.
    pub waited_seconds: f64,
    /// Time that the host withheld from this machine, over all its processors; zero on hardware.
    pub stolen_seconds: f64,
}

/// What passed in one direction of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// The end that sent.
    pub from: Side,
    /// Taken from the sender.
    pub entered: Traffic,
    /// Given to the receiver; a packet is one write, which may be a part of one that entered.
    pub delivered: Traffic,
    /// What the plan did to segments on their way.
    #[serde(default)]
    pub impairments: Impairments,
    /// Dropped although the plan did not say so.
    pub dropped: DropCounts,
    /// Still under way when the link was taken down.
    pub queued: Traffic,
    /// Of these, what waited for the link's rate, cross traffic with it, as the rate counts bytes.
    #[serde(default)]
    pub waiting_bytes: Bytes,
    /// Packets the sender's interface dropped before the emulator saw them.
    pub interface_drops: u64,
    /// Departures against the plan.
    pub lateness: Lateness,
    /// The most memory that packets under way took.
    pub peak_memory_bytes: Bytes,
}

impl DirectionReport {
    /// Everything that did not arrive, but for what the sender's interface dropped.
    pub fn not_delivered(&self) -> Segments {
        self.impairments.dropped() + self.dropped.total().into()
    }

    /// Whether every segment that entered or was made on the way, and every byte of them, is
    /// accounted for.
    pub fn is_conserved(&self) -> bool {
        let seen = Segments::from(self.entered) + self.impairments.duplicated;
        seen == Segments::from(self.delivered + self.queued) + self.not_delivered()
    }
}

/// Why figures taken over a link may not be what the plan describes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "warning", rename_all = "snake_case")]
pub enum LinkWarning {
    /// Packets left too late.
    #[error(
        "the emulator ran behind schedule: of the packets from {from}, 1 in 1000 left {p999_ms:.2} \
         ms late or more (bound {bound_ms} ms){}; {}",
        MainCause::because(cause.as_ref()),
        MainCause::advice(cause.as_ref())
    )]
    BehindSchedule {
        /// The end that sent.
        from: Side,
        /// 99.9th percentile of lateness.
        p999_ms: f64,
        /// What would have been accepted.
        bound_ms: f64,
        /// What made most of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<MainCause>,
    },
    /// The sender's interface overflowed, which looks like loss to the sender.
    #[error(
        "the interface at {from} dropped {packets} packets that the emulator was too slow to \
         take; leave it more CPU or lower the rate"
    )]
    InterfaceDrops {
        /// The end that sent.
        from: Side,
        /// How many.
        packets: u64,
    },
    /// More bytes were under way than the emulator may hold.
    #[error(
        "the emulator dropped {packets} packets from {from} because its memory was full; lower \
         the rate or the delay"
    )]
    MemoryFull {
        /// The end that sent.
        from: Side,
        /// How many.
        packets: u64,
    },
    /// The receiving interface refused packets: it is down, or a header is malformed.
    #[error("the interface facing {from} refused {packets} packets; was it taken down?")]
    Refused {
        /// The end that sent.
        from: Side,
        /// How many.
        packets: u64,
    },
    /// Packets are missing from the count: a defect of the emulator.
    #[error("packets from {from} are unaccounted for; please report this as a defect")]
    NotConserved {
        /// The end that sent.
        from: Side,
    },
    /// The emulator's thread did not get the processor that it needed.
    #[error(
        "the emulator was starved: in {seconds:.1} s it waited {waited_seconds:.2} s for a \
         processor, and the host withheld {stolen_seconds:.2} s of this machine's; leave it more CPU"
    )]
    ProcessorStarved {
        /// Time for which the thread could have run, but had no processor.
        waited_seconds: f64,
        /// Time that a virtual machine's host withheld, over all processors.
        stolen_seconds: f64,
        /// How long the link was up.
        seconds: f64,
    },
    /// TCP's windows could not be made large enough for the plan's rate.
    #[error(
        "TCP windows are {granted}, below the {wanted} that this rate and round trip need, \
         because of the host's net.ipv4.tcp_mem; raise it or lower the rate"
    )]
    WindowsClipped {
        /// What a single flow needs.
        wanted: Bytes,
        /// What each site was given.
        granted: Bytes,
    },
    /// TCP's windows could not be set at all.
    #[error(
        "TCP windows at {site} keep the kernel's defaults because /proc/sys is read-only here; \
         long paths will be slow"
    )]
    WindowsUnset {
        /// The site.
        site: Side,
    },
}

/// What an emulated link did while it was up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// [`LinkReport::SCHEMA`].
    pub schema: String,
    /// What was asked for.
    pub plan: LinkPlan,
    /// How long the link was up.
    pub seconds: f64,
    /// What the machine gave the emulator.
    #[serde(default)]
    pub processor: ProcessorShare,
    /// Whether TCP and UDP super-packets were passed whole.
    pub tcp_offload: bool,
    /// As `tcp_offload`, for UDP.
    pub udp_offload: bool,
    /// From near to far.
    pub up: DirectionReport,
    /// From far to near.
    pub down: DirectionReport,
    /// Empty when figures taken over the link can be trusted.
    pub warnings: Vec<LinkWarning>,
}

impl LinkReport {
    /// The schema's name and version.
    pub const SCHEMA: &str = "longhaul.link/1";

    /// One line: what the link was and what passed.
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

#[cfg(test)]
mod tests {
    use super::super::{LatenessCause, LatenessCauses};
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
        assert_eq!(report.up.lateness.causes, LatenessCauses::default(), "nobody looked");
        let mut late = report;
        late.up.lateness.causes.add(LatenessCause::Timer, 3.0);
        let told = "p99.9 0.300 ms late: 100 % being woken late by the machine)";
        assert!(late.summary().contains(told), "{}", late.summary());
    }
}
