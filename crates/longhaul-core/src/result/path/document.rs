use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{CapacityFigures, Hops, MtuProof, ProbeFigures, TcpSegments, words};
use crate::plan::{PathPart, PathPlan};
use crate::result::{LatencyQuantiles, Warning};
use crate::stats::quantile;

/// The schema of [`PathResult`].
pub const PATH_SCHEMA: &str = "longhaul.path/1";

/// What a survey of a path found; `docs/design/results.md` has every field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathResult {
    /// [`PATH_SCHEMA`].
    pub schema: String,
    /// Of longhaul.
    pub version: String,
    /// The host as it was named.
    pub target: String,
    /// Its address.
    pub address: IpAddr,
    /// Ours on the way there.
    pub local: Option<IpAddr>,
    /// Whether `longhaul serve` took part, without which one direction alone is measured.
    pub served: bool,
    /// Why it did not; `None` when it did.
    pub alone_because: Option<String>,
    /// What was to be found.
    pub plan: PathPlan,
    /// How it ended.
    pub end: PathEnd,
    /// How long it took.
    pub seconds: f64,
    /// Round trips; `None` when nothing answered.
    pub rtt: Option<RttFigures>,
    /// From here to there.
    pub forward: Way,
    /// From there to here.
    pub reverse: Way,
    /// The one direction's delay against the other's; `None` when it was not measured.
    pub asymmetry: Option<Asymmetry>,
    /// What was asked for and could not be had, and why.
    pub unmeasured: Vec<Unmeasured>,
    /// What makes the result less than it seems.
    pub warnings: Vec<Warning>,
    /// What it comes to, in sentences.
    pub summary: Vec<String>,
}

impl PathResult {
    /// The same with its sentences.
    #[must_use]
    pub fn with_summary(self) -> Self {
        PathResult { summary: words::summary(&self), ..self }
    }

    /// Whether all that was asked for was measured, in both directions.
    pub fn is_complete(&self) -> bool {
        let ways = [&self.forward, &self.reverse];
        self.plan.parts().all(|part| match part {
            PathPart::Rtt => {
                self.rtt.as_ref().is_some_and(|rtt| rtt.small.is_some() && rtt.full.is_some())
            }
            PathPart::Hops => {
                ways.iter().all(|way| way.hops.as_ref().is_some_and(|hops| hops.reached))
            }
            PathPart::Mtu => ways.iter().all(|way| way.mtu_bytes().is_some() && way.tcp.is_some()),
            PathPart::Loss => ways.iter().all(|way| way.probes.is_some()),
            PathPart::Capacity => ways.iter().all(|way| way.capacity.is_some()),
        })
    }

    /// Whether nothing at all was measured.
    pub fn is_empty(&self) -> bool {
        self.rtt.is_none() && self.forward.is_empty() && self.reverse.is_empty()
    }
}

/// How a survey ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathEnd {
    /// All that was asked for was tried.
    Completed,
    /// The user stopped it.
    Interrupted,
}

/// What a probe was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prober {
    /// Datagrams that `longhaul serve` answers.
    Udp,
    /// Datagrams to a port at which nobody listens, which the host says.
    ClosedPort,
    /// ICMP echo.
    Icmp,
    /// A TCP connection, opened or refused.
    Tcp,
}

impl fmt::Display for Prober {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Prober::Udp => "UDP",
            Prober::ClosedPort => "UDP to a closed port",
            Prober::Icmp => "ICMP",
            Prober::Tcp => "TCP",
        })
    }
}

/// Round trips of small packets and of the largest, in turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RttFigures {
    /// What was sent.
    pub by: Prober,
    /// Of small packets.
    pub small: Option<RoundTrips>,
    /// Of the largest that pass, both ways.
    pub full: Option<RoundTrips>,
}

/// Round trips of one size, without the time that the far end took to answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// Of each packet, with its IP header, there and back; 0 for a TCP handshake.
    pub packet_bytes: u32,
    /// How many were asked for.
    pub asked: u64,
    /// Their times.
    #[serde(flatten)]
    pub times: LatencyQuantiles,
    /// The middle half of the times lies within this.
    pub spread_ms: f64,
}

impl RoundTrips {
    /// Of these times in milliseconds; `None` for none.
    pub fn of(packet_bytes: u32, asked: u64, times_ms: Vec<f64>) -> Option<Self> {
        let spread_ms = quantile(&times_ms, 0.75)? - quantile(&times_ms, 0.25)?;
        let times = LatencyQuantiles::of(times_ms)?;
        Some(RoundTrips { packet_bytes, asked, times, spread_ms })
    }
}

/// What is known of one direction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Way {
    /// The routers on the way.
    pub hops: Option<Hops>,
    /// The path MTU, by each kind of packet that could be had.
    pub mtu: Vec<MtuProof>,
    /// What TCP made of it.
    pub tcp: Option<TcpSegments>,
    /// Loss and its kin.
    pub probes: Option<ProbeFigures>,
    /// The rate of the slowest link.
    pub capacity: Option<CapacityFigures>,
}

impl Way {
    /// The path MTU: the largest packet that arrived.
    pub fn mtu_bytes(&self) -> Option<u32> {
        self.mtu.iter().filter_map(|proof| proof.bytes).max()
    }

    fn is_empty(&self) -> bool {
        let hops = self.hops.as_ref().is_some_and(|hops| !hops.list.is_empty());
        !hops
            && self.mtu_bytes().is_none()
            && self.tcp.is_none()
            && self.probes.is_none()
            && self.capacity.is_none()
    }
}

/// The one direction's least delay against the other's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Asymmetry {
    /// From here to there, by the two ends' clocks.
    pub forward_ms: f64,
    /// From there to here.
    pub reverse_ms: f64,
    /// How much longer it takes there than back.
    pub difference_ms: f64,
    /// How far that may be off, by what both ends' clocks may; `None` when nobody knows.
    pub uncertainty_ms: Option<f64>,
    /// Both ends run on one clock.
    pub same_clock: bool,
    /// What it is worth.
    pub verdict: AsymmetryVerdict,
}

/// What a difference of two one-way delays is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AsymmetryVerdict {
    /// It is beyond what the clocks may be off.
    Known,
    /// The clocks may be off by as much.
    Within,
    /// A clock is not kept by anything.
    ClocksUnknown,
    /// A delay is negative: a clock is worse than it says.
    ClocksWrong,
}

/// Something that could not be had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmeasured {
    /// Of what it is a part.
    pub part: PathPart,
    /// What, in words.
    pub what: String,
    /// Why.
    pub why: String,
}
