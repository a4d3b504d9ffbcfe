use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::seconds;
use crate::units::{Bytes, Rate, format_span};

/// One end of an emulated link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The end at which a command line's own command runs.
    Near,
    /// The other end.
    Far,
}

impl Side {
    /// Both ends.
    pub const BOTH: [Side; 2] = [Side::Near, Side::Far];

    /// The name by which each end finds this one: `near` or `far`.
    pub const fn name(self) -> &'static str {
        match self {
            Side::Near => "near",
            Side::Far => "far",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What one direction of a link does to its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkDirection {
    /// Propagation delay, one way.
    #[serde(rename = "delay_seconds", with = "seconds")]
    pub delay: Duration,
    /// Capacity at the IP layer; `None` is as fast as the machine forwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<Rate>,
}

/// An emulated link between two sites.
///
/// A plan is worth running only if [`LinkPlan::validate`] accepts it; the emulator checks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPlan {
    /// From near to far.
    pub up: LinkDirection,
    /// From far to near.
    pub down: LinkDirection,
    /// The largest IP packet, in bytes.
    #[serde(default = "LinkPlan::default_mtu")]
    pub mtu: u32,
}

/// Why a link plan makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkPlanError {
    /// A delay beyond [`LinkPlan::MAX_DELAY`].
    #[error(
        "a one-way delay of {} is more than the {} that a link may have",
        format_span(*.delay), format_span(LinkPlan::MAX_DELAY)
    )]
    Delay {
        /// What was asked for.
        delay: Duration,
    },
    /// A rate below [`LinkPlan::MIN_RATE`], zero among them.
    #[error(
        "a rate of {rate} is below the {} that a link must have; leave it out for no limit",
        LinkPlan::MIN_RATE
    )]
    Rate {
        /// What was asked for.
        rate: Rate,
    },
    /// An MTU that no IP link may have.
    #[error("an MTU of {mtu} is outside {} to {} bytes", LinkPlan::MIN_MTU, LinkPlan::MAX_MTU)]
    Mtu {
        /// What was asked for.
        mtu: u32,
    },
}

impl LinkPlan {
    /// Jumbo frames, as data-transfer paths have them.
    pub const DEFAULT_MTU: u32 = 9000;
    /// What every IPv4 host must take (RFC 791).
    pub const MIN_MTU: u32 = 576;
    /// The largest MTU of a TUN device (`MAX_MTU` in drivers/net/tun.c).
    pub const MAX_MTU: u32 = 65_535;
    /// One way; beyond it TCP gives up before it has a sample of the round trip.
    pub const MAX_DELAY: Duration = Duration::from_secs(30);
    /// Below it a single packet would take minutes.
    pub const MIN_RATE: Rate = Rate::from_bps(1000);

    /// A link alike in both directions whose round trip takes `rtt`.
    pub fn symmetric(rtt: Duration) -> Self {
        let direction = LinkDirection { delay: rtt / 2, rate_bps: None };
        LinkPlan { up: direction, down: direction, mtu: Self::DEFAULT_MTU }
    }

    /// The round trip of a packet that waits nowhere.
    pub fn rtt(&self) -> Duration {
        self.up.delay + self.down.delay
    }

    /// The direction that leaves from `side`.
    pub fn from(&self, side: Side) -> &LinkDirection {
        match side {
            Side::Near => &self.up,
            Side::Far => &self.down,
        }
    }

    /// The bytes that the drop-tail queue before a limited rate holds: what the rate carries in
    /// one round trip, so that one flow can fill the link, and never less than 10 ms of it or
    /// 256 KiB, four super-packets. `None` without a rate, which has no queue.
    pub fn queue(&self, side: Side) -> Option<Bytes> {
        const SHORTEST: Duration = Duration::from_millis(10);
        const SMALLEST: u64 = 256 << 10;
        let rate = self.from(side).rate_bps?;
        Some(Bytes::new(rate.bdp(self.rtt().max(SHORTEST)).get().max(SMALLEST)))
    }

    /// Checks every number of the plan.
    ///
    /// # Errors
    /// The first number that is out of its range.
    pub fn validate(&self) -> Result<(), LinkPlanError> {
        for LinkDirection { delay, rate_bps } in [self.up, self.down] {
            if delay > Self::MAX_DELAY {
                return Err(LinkPlanError::Delay { delay });
            }
            if let Some(rate) = rate_bps.filter(|rate| *rate < Self::MIN_RATE) {
                return Err(LinkPlanError::Rate { rate });
            }
        }
        if !(Self::MIN_MTU..=Self::MAX_MTU).contains(&self.mtu) {
            return Err(LinkPlanError::Mtu { mtu: self.mtu });
        }
        Ok(())
    }

    const fn default_mtu() -> u32 {
        Self::DEFAULT_MTU
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_is_split_evenly() {
        let plan = LinkPlan::symmetric(Duration::from_millis(15));
        assert_eq!(plan.up.delay, Duration::from_micros(7500));
        assert_eq!(plan.rtt(), Duration::from_millis(15));
        assert_eq!(plan.validate(), Ok(()));
    }

    #[test]
    fn numbers_out_of_range_are_refused_by_name() {
        let good = LinkPlan::symmetric(Duration::from_millis(90));
        let slow = LinkDirection { rate_bps: Some(Rate::from_bps(0)), ..good.up };
        let long = LinkDirection { delay: Duration::from_secs(31), ..good.up };
        for (plan, says) in [
            (LinkPlan { up: slow, ..good }, "a rate of 0.00 b/s is below"),
            (LinkPlan { down: long, ..good }, "a one-way delay of 31s is more than the 30s"),
            (LinkPlan { mtu: 500, ..good }, "an MTU of 500 is outside 576 to 65535 bytes"),
            (LinkPlan { mtu: 65_536, ..good }, "an MTU of 65536 is outside"),
        ] {
            let error = plan.validate().unwrap_err().to_string();
            assert!(error.starts_with(says), "{error}");
        }
    }

    #[test]
    fn a_queue_holds_a_round_trip_of_the_rate() {
        let mut plan = LinkPlan::symmetric(Duration::from_millis(90));
        assert_eq!(plan.queue(Side::Near), None);
        plan.up.rate_bps = Some(Rate::from_bps(10_000_000_000));
        assert_eq!(plan.queue(Side::Near), Some(Bytes::new(112_500_000)));
        assert_eq!(plan.queue(Side::Far), None);
        plan.down.rate_bps = Some(Rate::from_bps(1_000_000));
        assert_eq!(plan.queue(Side::Far), Some(Bytes::new(256 << 10)));
    }

    #[test]
    fn a_document_reads_back_and_unknown_fields_are_refused() {
        let mut plan = LinkPlan::symmetric(Duration::from_millis(45));
        plan.up.rate_bps = Some(Rate::from_bps(1_000_000_000));
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<LinkPlan>(&text).unwrap(), plan);
        let unknown = r#"{"up":{"delay_seconds":0,"loss":0.1},"down":{"delay_seconds":0}}"#;
        assert!(serde_json::from_str::<LinkPlan>(unknown).is_err());
    }
}
