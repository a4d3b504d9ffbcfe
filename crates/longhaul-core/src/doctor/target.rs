use std::time::Duration;

use crate::result::{DoctorTarget, TargetSource};
use crate::units::{Bytes, Rate};

/// What a host is to be good for.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The rate that transfers are to reach.
    pub rate: Rate,
    /// Where it comes from.
    pub rate_from: TargetSource,
    /// The round-trip time at which they are to reach it.
    pub rtt: Duration,
    /// Where it comes from.
    pub rtt_from: TargetSource,
    /// The host at the other end, if one was named.
    pub to: Option<String>,
    /// The port of `longhaul serve`.
    pub port: u16,
}

impl Target {
    /// The rate assumed where neither the user nor an interface says one.
    pub const ASSUMED_RATE: Rate = Rate::from_bps(10_000_000_000);
    /// The round-trip time assumed where nobody says one: across a continent and back.
    pub const ASSUMED_RTT: Duration = Duration::from_millis(100);

    /// What is under way when the rate fills the round trip.
    pub fn bdp(&self) -> Bytes {
        self.rate.bdp(self.rtt)
    }

    /// What each of `sharers` has to carry.
    pub fn share(&self, sharers: u32) -> Rate {
        Rate::from_bps(self.rate.bps() / u64::from(sharers.max(1)))
    }

    /// Whether the target is `gigabits` Gb/s or more.
    pub fn is_at_least(&self, gigabits: u64) -> bool {
        self.rate.bps() >= gigabits * 1_000_000_000
    }

    /// As a report carries it.
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
