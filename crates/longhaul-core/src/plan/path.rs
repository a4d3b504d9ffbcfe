use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::PlanError;
use super::seconds;

/// What is to be found out of a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathPlan {
    /// Round trips of each size.
    pub echoes: u32,
    /// Between one round trip and the next.
    #[serde(rename = "echo_interval_seconds", with = "seconds")]
    pub echo_interval: Duration,
    /// How long loss is looked for, in both directions at once.
    #[serde(rename = "probe_seconds", with = "seconds")]
    pub probe_time: Duration,
    /// Between one probe for loss and the next; `None` is 1 ms, or what leaves nine tenths of the
    /// capacity.
    #[serde(rename = "probe_interval_seconds", with = "maybe_seconds")]
    pub probe_interval: Option<Duration>,
    /// Of each probe for loss, with its IP header.
    pub probe_bytes: u32,
    /// Hops that are looked for, at most.
    pub most_hops: u8,
    /// What is left out.
    pub skip: Vec<PathPart>,
}

/// A part of the survey of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathPart {
    /// Round trips of small and full-size packets.
    Rtt,
    /// The routers on the way.
    Hops,
    /// The largest packet that passes.
    Mtu,
    /// Loss, duplication, reordering and jitter.
    Loss,
    /// The rate of the slowest link.
    Capacity,
}

impl PathPart {
    /// All of them, in the order in which they are measured: each may build on those before it.
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
    /// The least packet of a probe: IPv6 and UDP headers and the probe's own.
    pub const LEAST_BYTES: u32 = 48 + crate::wire::PROBE_BYTES as u32;
    /// The largest packet that IP has.
    pub const MOST_BYTES: u32 = 65_535;

    /// What is measured unless the user says otherwise: 100 round trips of each size in a second, 5 s
    /// of 1000 probes a second each way.
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

    /// Whether `part` is measured.
    pub fn wants(&self, part: PathPart) -> bool {
        !self.skip.contains(&part)
    }

    /// The parts that are measured, in order.
    pub fn parts(&self) -> impl Iterator<Item = PathPart> {
        PathPart::ALL.into_iter().filter(|part| self.wants(*part))
    }

    /// The probes for loss, `interval` apart.
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
    /// Names the field that is out of range.
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

/// Numbered datagrams at a steady pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSpec {
    /// How many.
    pub datagrams: u64,
    /// From one to the next.
    pub interval_ns: u64,
    /// Of each, with its IP header.
    pub packet_bytes: u32,
}

impl StreamSpec {
    /// How long they take.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.datagrams.saturating_mul(self.interval_ns))
    }

    /// Their rate in bit/s.
    pub fn rate_bps(&self) -> f64 {
        f64::from(self.packet_bytes) * 8e9 / self.interval_ns.max(1) as f64
    }

    /// Checks what a peer may ask for.
    ///
    /// # Errors
    /// Names the field that is out of range.
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

/// Packets one behind the other, several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainSpec {
    /// How many trains.
    pub trains: u8,
    /// Packets in each.
    pub packets: u32,
    /// Of each packet, with its IP header.
    pub packet_bytes: u32,
    /// From the end of one train to the beginning of the next.
    pub gap_ns: u64,
}

impl TrainSpec {
    /// The most packets of a train.
    pub const MOST_PACKETS: u32 = 256;
    /// The most trains at once.
    pub const MOST_TRAINS: u8 = 32;

    /// Checks what a peer may ask for.
    ///
    /// # Errors
    /// Names the field that is out of range.
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
    fn a_plan_comes_back_and_what_makes_no_sense_is_named() {
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
    fn what_a_peer_asks_for_is_bounded() {
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
