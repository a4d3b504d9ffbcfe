//! The result of a path measurement; `docs/design/results.md` describes every field.

mod figures;
mod hops;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::plan::{PathPart, PathPlan};
use crate::result::{LatencyQuantiles, Warning};
use crate::stats::quantile;

pub use figures::{
    CapacityFigures, Certainty, DelayVariation, ProbeFigures, Proportion, SentProbes,
};
pub use hops::{Hop, Hops, MtuLimit, MtuProof, Prober, TcpSegments};

/// The schema of [`PathResult`].
pub const PATH_SCHEMA: &str = "longhaul.path/1";

/// The result of a path measurement; `docs/design/results.md` describes every field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathResult {
    /// [`PATH_SCHEMA`].
    pub schema: String,
    /// The version of longhaul.
    pub version: String,
    /// The host as the user named it.
    pub target: String,
    /// The address of the host.
    pub address: IpAddr,
    /// The local address used for it.
    pub local: Option<IpAddr>,
    /// True if `longhaul serve` took part; without it only one direction is measured.
    pub served: bool,
    /// The reason why no server took part; `None` if a server did.
    pub alone_because: Option<String>,
    /// The plan of the measurement.
    pub plan: PathPlan,
    /// The reason for the end of the measurement.
    pub end: PathEnd,
    /// The duration in seconds.
    pub seconds: f64,
    /// The round-trip times; `None` if nothing answered.
    pub rtt: Option<RttFigures>,
    /// The direction from this host to the other.
    pub forward: PathDirection,
    /// The direction from the other host to this one.
    pub reverse: PathDirection,
    /// The difference of the two directions' delays; `None` if it was not measured.
    pub asymmetry: Option<Asymmetry>,
    /// The requested measurements that failed, with reasons.
    pub unmeasured: Vec<Unmeasured>,
    /// The reasons why the result may be misleading.
    pub warnings: Vec<Warning>,
    /// The main results as sentences. The program fills them in.
    #[serde(default)]
    pub summary: Vec<String>,
}

impl PathResult {
    /// Returns whether everything requested was measured in both directions.
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

    /// Returns whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.rtt.is_none() && self.forward.is_empty() && self.reverse.is_empty()
    }
}

/// The reason for the end of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathEnd {
    /// The measurement completed its plan.
    Completed,
    /// The user stopped it.
    Interrupted,
}

/// The round-trip times of small and full-size packets, measured alternately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RttFigures {
    /// The kind of the probes.
    pub by: Prober,
    /// The times of small packets.
    pub small: Option<RoundTrips>,
    /// The times of the largest packets that pass in both directions.
    pub full: Option<RoundTrips>,
}

/// The round-trip times of one packet size, without the response time of the far host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// The bytes of each packet in both directions, with its IP header; 0 for a TCP handshake.
    pub packet_bytes: u32,
    /// The number of requests.
    pub asked: u64,
    /// The times of the answered requests.
    #[serde(flatten)]
    pub times: LatencyQuantiles,
    /// The distance between the quartiles in ms.
    pub spread_ms: f64,
}

impl RoundTrips {
    /// Computes the figures from times in ms; `None` if there are none.
    pub fn of(packet_bytes: u32, asked: u64, times_ms: Vec<f64>) -> Option<Self> {
        let spread_ms = quantile(&times_ms, 0.75)? - quantile(&times_ms, 0.25)?;
        let times = LatencyQuantiles::of(times_ms)?;
        Some(RoundTrips { packet_bytes, asked, times, spread_ms })
    }
}

/// The measurements of one direction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PathDirection {
    /// The routers on the path.
    pub hops: Option<Hops>,
    /// The path MTU by each kind of packet that could be measured.
    pub mtu: Vec<MtuProof>,
    /// The segment size that TCP chose.
    pub tcp: Option<TcpSegments>,
    /// Loss, duplication, reordering and jitter.
    pub probes: Option<ProbeFigures>,
    /// The rate of the slowest link.
    pub capacity: Option<CapacityFigures>,
}

impl PathDirection {
    /// Returns the path MTU: the largest packet that arrived.
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

/// The difference of the two directions' lowest delays.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Asymmetry {
    /// The forward delay in ms, by the clocks of the two ends.
    pub forward_ms: f64,
    /// The reverse delay in ms.
    pub reverse_ms: f64,
    /// The forward delay minus the reverse delay in ms.
    pub difference_ms: f64,
    /// The possible error in ms of both clocks together; `None` if it is unknown.
    pub uncertainty_ms: Option<f64>,
    /// True if both ends use one clock.
    pub same_clock: bool,
    /// The significance of the difference.
    pub verdict: AsymmetryVerdict,
}

/// The significance of a difference of two one-way delays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AsymmetryVerdict {
    /// The difference exceeds the possible error of the clocks.
    Known,
    /// The difference is within the possible error of the clocks.
    Within,
    /// A clock is not synchronized.
    ClocksUnknown,
    /// A delay is negative, so a clock is less accurate than it states.
    ClocksWrong,
}

/// A measurement that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmeasured {
    /// The part of the measurement.
    pub part: PathPart,
    /// The name of the measurement, as text.
    pub what: String,
    /// The reason.
    pub why: String,
}
