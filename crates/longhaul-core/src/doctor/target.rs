//! The target of an examination.

use std::time::Duration;

use crate::result::{DoctorTarget, TargetSource};
use crate::units::{Bytes, Rate};

/// The rate and round-trip time that a host must support.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The rate that transfers must reach.
    pub rate: Rate,
    /// The origin of the rate.
    pub rate_from: TargetSource,
    /// The round-trip time of the path.
    pub rtt: Duration,
    /// The origin of the round-trip time.
    pub rtt_from: TargetSource,
    /// The host at the other end, if one was named.
    pub to: Option<String>,
    /// The port of `longhaul serve`.
    pub port: u16,
}

impl Target {
    /// The rate assumed if neither the user nor an interface provides one.
    pub const ASSUMED_RATE: Rate = Rate::from_bps(10_000_000_000);
    /// The round-trip time assumed by default: across a continent and back.
    pub const ASSUMED_RTT: Duration = Duration::from_millis(100);

    /// Returns the bandwidth-delay product.
    pub fn bdp(&self) -> Bytes {
        self.rate.bdp(self.rtt)
    }

    /// Returns the part of the rate that one of `sharers` devices must carry.
    pub fn share(&self, sharers: u32) -> Rate {
        Rate::from_bps(self.rate.bps() / u64::from(sharers.max(1)))
    }

    /// Returns whether the target rate is `gigabits` Gb/s or more.
    pub fn is_at_least(&self, gigabits: u64) -> bool {
        self.rate.bps() >= gigabits * 1_000_000_000
    }

    /// Returns the target as the report's type.
    pub fn to_report(&self) -> DoctorTarget {
        DoctorTarget {
            rate_bps: self.rate,
            rate_from: self.rate_from,
            rtt_ms: self.rtt.as_secs_f64() * 1e3,
            rtt_from: self.rtt_from,
            bdp_bytes: self.bdp(),
            to: self.to.clone(),
            port: self.port,
        }
    }
}
