//! The plan of a STAMP measurement.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::PlanError;
use crate::units::seconds;

/// The parameters of a STAMP measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StampPlan {
    /// The number of packets; `None` sends until the user stops it.
    pub packets: Option<u64>,
    /// The interval between packets.
    #[serde(rename = "interval_seconds", with = "seconds")]
    pub interval: Duration,
    /// The size of a packet in bytes, including its IP header; `None` is the smallest.
    pub packet_bytes: Option<u32>,
    /// The differentiated services code point of packets and replies; 0 to 63.
    pub dscp: u8,
    /// True to send packets with ECT(0) (RFC 3168).
    pub ecn: bool,
    /// True to request the information of RFC 8972. Without it the packets are those of RFC 8762.
    pub extensions: bool,
    /// True for authenticated packets.
    pub authenticated: bool,
    /// True if the user states that both ends use one clock.
    pub same_clock: bool,
    /// The time of one record of a measurement without an end.
    #[serde(rename = "record_seconds", with = "seconds")]
    pub record: Duration,
}

impl StampPlan {
    /// The maximum number of packets of a measurement with an end, and of one record.
    pub const MOST_PACKETS: u64 = 1_000_000;

    /// Returns the default plan: 500 packets in 5 s.
    #[must_use]
    pub fn new() -> Self {
        StampPlan {
            packets: Some(500),
            interval: Duration::from_millis(10),
            packet_bytes: None,
            dscp: 0,
            ecn: false,
            extensions: true,
            authenticated: false,
            same_clock: false,
            record: Duration::from_secs(60),
        }
    }

    /// Checks everything that does not depend on a host.
    ///
    /// # Errors
    /// A number is out of range.
    pub fn validate(&self) -> Result<(), PlanError> {
        let check = |good: bool, field, value: String, accepted| {
            if good { Ok(()) } else { Err(PlanError::OutOfRange { field, value, accepted }) }
        };
        if let Some(packets) = self.packets {
            let accepted = "1 to 1000000";
            let good = (1..=Self::MOST_PACKETS).contains(&packets);
            check(good, "the number of packets", packets.to_string(), accepted)?;
        }
        let span = |field, value: Duration, least: Duration, most: Duration, accepted| {
            check((least..=most).contains(&value), field, format!("{value:?}"), accepted)
        };
        let hour = Duration::from_secs(3600);
        span("the interval", self.interval, Duration::from_micros(100), hour, "100us to 1 h")?;
        span("the time of a record", self.record, Duration::from_secs(1), hour, "1 s to 1 h")?;
        let of_record = self.record.as_nanos() / self.interval.as_nanos();
        let few = of_record <= u128::from(Self::MOST_PACKETS);
        check(few, "the number of packets of a record", of_record.to_string(), "up to 1000000")?;
        check(self.dscp < 64, "DSCP", self.dscp.to_string(), "0 to 63")
    }
}

impl Default for StampPlan {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_its_document_and_invalid_values_are_named() {
        let plan = StampPlan::new();
        assert!(plan.validate().is_ok());
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<StampPlan>(&text).unwrap(), plan);
        let wrong = [
            StampPlan { packets: Some(0), ..plan.clone() },
            StampPlan { packets: Some(1_000_001), ..plan.clone() },
            StampPlan { interval: Duration::from_micros(99), ..plan.clone() },
            StampPlan { interval: Duration::from_secs(4000), ..plan.clone() },
            StampPlan { record: Duration::ZERO, ..plan.clone() },
            StampPlan { dscp: 64, ..plan.clone() },
            StampPlan {
                record: Duration::from_secs(3600),
                interval: Duration::from_millis(1),
                ..plan
            },
        ];
        wrong.iter().for_each(|plan| assert!(plan.validate().is_err(), "{plan:?}"));
    }
}
