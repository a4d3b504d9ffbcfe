//! The measurement of a path, as an archive keeps it.

use longhaul_core::result::{PathResult, ProbeFigures};
use serde::{Deserialize, Serialize};

/// The measurement of a path before its first run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathRecord {
    /// The name of the path in table headings.
    pub path: String,
    /// The time of measurement, RFC 3339 in UTC.
    pub measured_at: String,
    /// The result of `longhaul path`; `None` if it failed.
    pub found: Option<Box<PathResult>>,
    /// The reason for the failure, if the measurement failed.
    pub failure: Option<String>,
}

impl PathRecord {
    /// Returns the lowest round-trip times in ms of small and of full-size packets.
    pub fn rtt_ms(&self) -> [Option<f64>; 2] {
        let rtt = self.found.as_ref().and_then(|found| found.rtt.as_ref());
        let least = |trips: &Option<longhaul_core::result::RoundTrips>| {
            trips.as_ref().map(|trips| trips.times.min_ms)
        };
        [rtt.and_then(|rtt| least(&rtt.small)), rtt.and_then(|rtt| least(&rtt.full))]
    }

    /// Returns the path MTU in bytes from near to far and from far to near.
    pub fn mtu_bytes(&self) -> [Option<u32>; 2] {
        let found = self.found.as_ref();
        [
            found.and_then(|found| found.forward.mtu_bytes()),
            found.and_then(|found| found.reverse.mtu_bytes()),
        ]
    }

    /// Returns the number of probes that left a host and the number that were lost on the way,
    /// summed over both directions; `None` if loss was not measured.
    pub fn loss(&self) -> Option<(u64, u64)> {
        let found = self.found.as_ref()?;
        let ways = [found.forward.probes?, found.reverse.probes?];
        let sum = |of: fn(&ProbeFigures) -> u64| ways.iter().map(of).fold(0, u64::saturating_add);
        Some((sum(|way| way.lost.of), sum(|way| way.lost.count)))
    }
}
