use longhaul_core::result::{PathResult, ProbeFigures};
use serde::{Deserialize, Serialize};

/// What a path was like before its first run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Survey {
    /// The path, by its heading in tables.
    pub path: String,
    /// When, RFC 3339 in UTC.
    pub measured_at: String,
    /// What `longhaul path` found; `None` when it could not be run.
    pub found: Option<Box<PathResult>>,
    /// Why it could not.
    pub failure: Option<String>,
}

impl Survey {
    /// The least round trips of small packets and of the largest.
    pub fn rtt_ms(&self) -> [Option<f64>; 2] {
        let rtt = self.found.as_ref().and_then(|found| found.rtt.as_ref());
        let least = |trips: &Option<longhaul_core::result::RoundTrips>| {
            trips.as_ref().map(|trips| trips.times.min_ms)
        };
        [rtt.and_then(|rtt| least(&rtt.small)), rtt.and_then(|rtt| least(&rtt.full))]
    }

    /// The path MTU there and back.
    pub fn mtu_bytes(&self) -> [Option<u32>; 2] {
        let found = self.found.as_ref();
        [
            found.and_then(|found| found.forward.mtu_bytes()),
            found.and_then(|found| found.reverse.mtu_bytes()),
        ]
    }

    /// Probes that left a host, and those of them that were lost on the way, both directions
    /// together; `None` where loss was not looked for.
    pub fn loss(&self) -> Option<(u64, u64)> {
        let found = self.found.as_ref()?;
        let ways = [found.forward.probes?, found.reverse.probes?];
        let sum = |of: fn(&ProbeFigures) -> u64| ways.iter().map(of).fold(0, u64::saturating_add);
        Some((sum(|way| way.lost.of), sum(|way| way.lost.count)))
    }
}
