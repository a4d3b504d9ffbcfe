//! The plan of a path measurement.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::PlanError;
use crate::units::seconds;

/// The parameters of a path measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathPlan {
    /// The number of round trips per packet size.
    pub echoes: u32,
    /// The interval between round trips.
    #[serde(rename = "echo_interval_seconds", with = "seconds")]
    pub echo_interval: Duration,
    /// The duration of the loss measurement, which measures both directions at the same time.
    #[serde(rename = "probe_seconds", with = "seconds")]
    pub probe_time: Duration,
    /// The interval between loss probes; `None` means 1 ms, or an interval that leaves 90 % of the
    /// capacity free.
    #[serde(rename = "probe_interval_seconds", with = "maybe_seconds")]
    pub probe_interval: Option<Duration>,
    /// The size of a loss probe in bytes, including its IP header.
    pub probe_bytes: u32,
    /// The largest number of hops to probe.
    pub most_hops: u8,
    /// The parts to skip.
    pub skip: Vec<PathPart>,
}

/// A part of a path measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathPart {
    /// Round trips of small and full-size packets.
    Rtt,
    /// The routers on the path.
    Hops,
    /// The largest packet that passes.
    Mtu,
    /// Loss, duplication, reordering and jitter.
    Loss,
    /// The rate of the slowest link.
    Capacity,
}

impl PathPart {
    /// All parts in order of measurement. A part may use the results of earlier parts.
    pub const ALL: [PathPart; 5] =
        [PathPart::Mtu, PathPart::Rtt, PathPart::Hops, PathPart::Capacity, PathPart::Loss];
}

impl fmt::Display for PathPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PathPart::Rtt => "round trip",
            PathPart::Hops => "hops",
            PathPart::Mtu => "path MTU",
            PathPart::Loss => "loss",
            PathPart::Capacity => "capacity",
        })
    }
}

impl PathPlan {
    /// The smallest probe packet: IPv6 and UDP headers and the probe header.
    pub const LEAST_BYTES: u32 = 48 + crate::wire::PROBE_BYTES as u32;
    /// The largest IP packet.
    pub const MOST_BYTES: u32 = 65_535;

    /// Returns the default plan: 100 round trips per size in a second, and 5 s of 1000 probes per
    /// second in each direction.
    pub fn new() -> Self {
        PathPlan {
            echoes: 100,
            echo_interval: Duration::from_millis(10),
            probe_time: Duration::from_secs(5),
            probe_interval: None,
            probe_bytes: 128,
            most_hops: 30,
            skip: Vec::new(),
        }
    }

    /// Returns whether `part` is measured.
    pub fn wants(&self, part: PathPart) -> bool {
        !self.skip.contains(&part)
    }

    /// Returns the parts to measure, in order.
    pub fn parts(&self) -> impl Iterator<Item = PathPart> {
        PathPart::ALL.into_iter().filter(|part| self.wants(*part))
    }

    /// Returns the stream of loss probes with the given interval.
    pub fn stream(&self, interval: Duration) -> StreamSpec {
        let interval = self.probe_interval.unwrap_or(interval).max(Duration::from_nanos(1));
        let datagrams = self.probe_time.as_nanos().div_ceil(interval.as_nanos());
        StreamSpec {
            datagrams: u64::try_from(datagrams).unwrap_or(u64::MAX),
            interval_ns: u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX),
            packet_bytes: self.probe_bytes,
        }
    }

    /// Checks everything that does not depend on a host.
    ///
    /// # Errors
    /// The field that is out of range.
    pub fn validate(&self) -> Result<(), PlanError> {
        let bad =
            |field, value: String, accepted| Err(PlanError::OutOfRange { field, value, accepted });
        if !(1..=10_000).contains(&self.echoes) {
            return bad("the number of round trips", self.echoes.to_string(), "1 to 10000");
        }
        if self.echo_interval < Duration::from_micros(100)
            || self.echo_interval > Duration::from_secs(10)
        {
            let value = format!("{:?}", self.echo_interval);
            return bad("the time between round trips", value, "100us to 10s");
        }
        if self.most_hops == 0 {
            return bad("the number of hops", "0".to_owned(), "1 to 255");
        }
        self.stream(Duration::from_millis(1)).validate()
    }
}

impl Default for PathPlan {
    fn default() -> Self {
        Self::new()
    }
}

/// A stream of numbered datagrams at a constant rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSpec {
    /// The number of datagrams.
    pub datagrams: u64,
    /// The interval between datagrams in ns.
    pub interval_ns: u64,
    /// The bytes of each datagram, including its IP header.
    pub packet_bytes: u32,
}

impl StreamSpec {
    /// Returns the duration of the stream.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.datagrams.saturating_mul(self.interval_ns))
    }

    /// Returns the rate in bit/s.
    pub fn rate_bps(&self) -> f64 {
        f64::from(self.packet_bytes) * 8e9 / self.interval_ns.max(1) as f64
    }

    /// Checks the values that a peer may request.
    ///
    /// # Errors
    /// The field that is out of range.
    pub fn validate(&self) -> Result<(), PlanError> {
        let bad =
            |field, value: String, accepted| Err(PlanError::OutOfRange { field, value, accepted });
        if self.interval_ns < 1000 || self.interval_ns > 60_000_000_000 {
            let value = format!("{:?}", Duration::from_nanos(self.interval_ns));
            return bad("the time between probes", value, "1us to 60s");
        }
        if self.datagrams == 0 || self.time() > Duration::from_secs(86_400) {
            return bad("the number of probes", self.datagrams.to_string(), "1 to a day's worth");
        }
        if !(PathPlan::LEAST_BYTES..=PathPlan::MOST_BYTES).contains(&self.packet_bytes) {
            return bad("the size of a probe", self.packet_bytes.to_string(), "88 to 65535 bytes");
        }
        Ok(())
    }
}

/// Trains of packets that are sent back to back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainSpec {
    /// The number of trains.
    pub trains: u8,
    /// The packets per train.
    pub packets: u32,
    /// The bytes of each packet, including its IP header.
    pub packet_bytes: u32,
    /// The pause between trains in ns.
    pub gap_ns: u64,
}

impl TrainSpec {
    /// The maximum number of packets of a train.
    pub const MOST_PACKETS: u32 = 256;
    /// The maximum number of trains per request.
    pub const MOST_TRAINS: u8 = 32;

    /// Checks the values that a peer may request.
    ///
    /// # Errors
    /// The field that is out of range.
    pub fn validate(&self) -> Result<(), PlanError> {
        let bad =
            |field, value: String, accepted| Err(PlanError::OutOfRange { field, value, accepted });
        if !(1..=Self::MOST_TRAINS).contains(&self.trains) {
            return bad("the number of trains", self.trains.to_string(), "1 to 32");
        }
        if !(2..=Self::MOST_PACKETS).contains(&self.packets) {
            return bad("the length of a train", self.packets.to_string(), "2 to 256 packets");
        }
        if !(PathPlan::LEAST_BYTES..=PathPlan::MOST_BYTES).contains(&self.packet_bytes) {
            return bad("the size of a probe", self.packet_bytes.to_string(), "88 to 65535 bytes");
        }
        if self.gap_ns > 10_000_000_000 {
            let value = format!("{:?}", Duration::from_nanos(self.gap_ns));
            return bad("the time between trains", value, "10s at most");
        }
        Ok(())
    }
}

mod maybe_seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(d: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
        d.map(|d| d.as_secs_f64()).serialize(s)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Option<Duration>, D::Error> {
        Option::<f64>::deserialize(d)?
            .map(|seconds| Duration::try_from_secs_f64(seconds).map_err(serde::de::Error::custom))
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_its_document_and_invalid_values_are_named() {
        let plan = PathPlan { skip: vec![PathPart::Hops], ..PathPlan::new() };
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<PathPlan>(&text).unwrap(), plan);
        assert!(plan.validate().is_ok() && !plan.wants(PathPart::Hops));
        let stream = plan.stream(Duration::from_millis(1));
        assert_eq!((stream.datagrams, stream.time()), (5000, Duration::from_secs(5)));
        assert!((stream.rate_bps() - 1_024_000.0).abs() < 1e-6);
        let wrong = [
            PathPlan { echoes: 0, ..plan.clone() },
            PathPlan { most_hops: 0, ..plan.clone() },
            PathPlan { probe_bytes: 60, ..plan.clone() },
            PathPlan { probe_time: Duration::ZERO, ..plan.clone() },
            PathPlan { probe_interval: Some(Duration::from_nanos(10)), ..plan.clone() },
            PathPlan { echo_interval: Duration::ZERO, ..plan },
        ];
        wrong.iter().for_each(|plan| assert!(plan.validate().is_err(), "{plan:?}"));
    }

    #[test]
    fn requests_of_a_peer_are_bounded() {
        let most = StreamSpec { datagrams: u64::MAX, interval_ns: 1000, packet_bytes: 100 };
        assert!(most.validate().is_err());
        let trains = TrainSpec { trains: 32, packets: 256, packet_bytes: 1500, gap_ns: 0 };
        assert!(trains.validate().is_ok());
        for wrong in [
            TrainSpec { trains: 33, ..trains },
            TrainSpec { packets: 257, ..trains },
            TrainSpec { packet_bytes: 70_000, ..trains },
            TrainSpec { gap_ns: u64::MAX, ..trains },
        ] {
            assert!(wrong.validate().is_err(), "{wrong:?}");
        }
    }
}
