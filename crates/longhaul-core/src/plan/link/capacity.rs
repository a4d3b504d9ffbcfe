//! The capacity of a link: its queue, queue management, policer and cross traffic.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::MIN_RATE;
use super::{LinkPlanError, Probability};
use crate::units::{Bytes, Rate, format_span, parse_span, seconds};

/// The bytes that Ethernet adds to each IP packet: preamble and start of frame (8), header (14),
/// checksum (4) and gap (12 bytes), IEEE 802.3 clauses 3.1.1 and 4.4.2.
pub const ETHERNET_OVERHEAD: u32 = 38;
/// The maximum number of bytes per packet that the layer of a rate may add.
pub(super) const MAX_OVERHEAD: u32 = 1000;
/// The form of a valid rate layer, for error messages.
pub(super) const RATE_LAYER_FORM: &str = "a rate counts ip, wire (Ethernet: 38 bytes more per packet), or \
                                          wire:BYTES with at most 1000";

/// The limit of the queue before a link's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueLimit {
    /// A number of bytes, counted as the rate counts them.
    Bytes(Bytes),
    /// The bytes that the current rate sends in this time.
    #[serde(rename = "seconds", with = "seconds")]
    Time(Duration),
    /// A number of segments.
    Segments(u32),
}

impl QueueLimit {
    /// The form of a valid text, for error messages.
    pub const FORM: &str = "a queue is from 1B to 64GiB, from 1us to 60s, or from 1p to 1000000p (packets): \
                            64MiB, 50ms or 1000p";
    const MAX_BYTES: Bytes = Bytes::gib(64);
    const MAX_TIME: Duration = Duration::from_secs(60);
    const MAX_SEGMENTS: u32 = 1_000_000;

    /// Returns the limit in bytes at `rate` if the largest packets have `packet` bytes.
    pub fn bytes(self, rate: Rate, packet: Bytes) -> Bytes {
        match self {
            QueueLimit::Bytes(bytes) => bytes,
            QueueLimit::Time(time) => rate.bdp(time),
            QueueLimit::Segments(count) => Bytes::new(packet.get() * u64::from(count)),
        }
    }

    pub(super) fn validate(self) -> Result<(), LinkPlanError> {
        let refuse = |value: String| Err(LinkPlanError::value("queue", value, Self::FORM));
        match self {
            QueueLimit::Bytes(bytes) if bytes.get() == 0 || bytes > Self::MAX_BYTES => {
                refuse(bytes.to_string())
            }
            QueueLimit::Time(time) if time < Duration::from_micros(1) || time > Self::MAX_TIME => {
                refuse(format_span(time))
            }
            QueueLimit::Segments(count) if !(1..=Self::MAX_SEGMENTS).contains(&count) => {
                refuse(format!("{count}p"))
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for QueueLimit {
    type Err = &'static str;

    /// Parses a limit. A text with a unit of seconds (`s`, `ms`, `us`) is a time, a number with `p`
    /// a number of packets; everything else is a size, including `5m`.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        let packets = text.trim_end().strip_suffix('p').and_then(|count| count.parse().ok());
        if let Some(packets) = packets {
            return Ok(QueueLimit::Segments(packets));
        }
        if text.trim_end().ends_with('s') {
            parse_span(text).map(QueueLimit::Time).map_err(|_| Self::FORM)
        } else {
            text.parse().map(QueueLimit::Bytes).map_err(|_| Self::FORM)
        }
    }
}

/// The queue management, which drops or marks segments before the queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Aqm {
    /// CoDel (RFC 8289).
    Codel {
        /// The accepted queueing delay.
        #[serde(rename = "target_seconds", with = "seconds")]
        target: Duration,
        /// The time for which a longer queueing delay must last.
        #[serde(rename = "interval_seconds", with = "seconds")]
        interval: Duration,
    },
    /// PIE (RFC 8033).
    Pie {
        /// The target queueing delay.
        #[serde(rename = "target_seconds", with = "seconds")]
        target: Duration,
    },
    /// RED (Floyd and Jacobson 1993), without the gentle variant.
    Red {
        /// The mean queue from which on segments are dropped at random.
        min: QueueLimit,
        /// The mean queue from which on all segments are dropped; in the same unit.
        max: QueueLimit,
        /// The probability of a drop at `max`.
        probability: Probability,
    },
    /// FQ-CoDel (RFC 8290): a queue with CoDel per flow, served in turn.
    FqCodel {
        /// The accepted queueing delay.
        #[serde(rename = "target_seconds", with = "seconds")]
        target: Duration,
        /// The time for which a longer queueing delay must last.
        #[serde(rename = "interval_seconds", with = "seconds")]
        interval: Duration,
    },
    /// DualPI2 (RFC 9332): a queue for L4S traffic and a queue for other traffic.
    #[serde(rename = "dualpi2")]
    DualPi2 {
        /// The target queueing delay of the other traffic.
        #[serde(rename = "target_seconds", with = "seconds")]
        target: Duration,
    },
}

impl Aqm {
    /// The form of a valid text, for error messages.
    pub const FORM: &str = "queue management is codel[:TARGET[:INTERVAL]], fq-codel[:TARGET[:INTERVAL]], pie[:TARGET], \
                            dualpi2[:TARGET], red:MIN:MAX[:P] or none, with \
                            times from 1us to 10s, and MIN below MAX, both as times or as sizes";
    /// The default of RED's `max_p` in ns-2 and Linux's documentation.
    const RED_PROBABILITY: f64 = 0.1;
    /// The default of RFC 8289, section 4.3.
    const CODEL_TARGET: Duration = Duration::from_millis(5);
    /// The default of RFC 8289, section 4.2.
    const CODEL_INTERVAL: Duration = Duration::from_millis(100);
    /// `QDELAY_REF` of RFC 8033, section 4.2.
    const PIE_TARGET: Duration = Duration::from_millis(15);
    /// `target` of RFC 9332, appendix A.1.
    const DUALPI2_TARGET: Duration = Duration::from_millis(15);

    pub(super) fn validate(self) -> Result<(), LinkPlanError> {
        let (name, times) = match self {
            Aqm::Codel { target, interval } => ("codel", [target, interval]),
            Aqm::FqCodel { target, interval } => ("fq-codel", [target, interval]),
            Aqm::Pie { target } => ("pie", [target; 2]),
            Aqm::DualPi2 { target } => ("dualpi2", [target; 2]),
            Aqm::Red { min, max, .. } => return validate_red(min, max),
        };
        let range = Duration::from_micros(1)..=Duration::from_secs(10);
        match times.into_iter().find(|time| !range.contains(time)) {
            None => Ok(()),
            Some(time) => {
                let value = format!("{name}:{}", format_span(time));
                Err(LinkPlanError::value("aqm", value, Self::FORM))
            }
        }
    }
}

/// Accepts thresholds in the same unit, of which the first is smaller.
fn validate_red(min: QueueLimit, max: QueueLimit) -> Result<(), LinkPlanError> {
    let is_order = match (min, max) {
        (QueueLimit::Bytes(min), QueueLimit::Bytes(max)) => min < max,
        (QueueLimit::Time(min), QueueLimit::Time(max)) => min < max,
        _ => false,
    };
    min.validate()?;
    max.validate()?;
    if is_order { Ok(()) } else { Err(LinkPlanError::value("aqm", "red", Aqm::FORM)) }
}

impl Aqm {
    fn parse_red<'a>(parts: &mut impl Iterator<Item = &'a str>) -> Result<Self, &'static str> {
        let mut limit =
            || parts.next().and_then(|text| text.parse::<QueueLimit>().ok()).ok_or(Self::FORM);
        let (min, max) = (limit()?, limit()?);
        let probability = match parts.next() {
            Some(text) => text.parse().map_err(|_| Self::FORM)?,
            None => Probability::try_from(Self::RED_PROBABILITY).unwrap_or_default(),
        };
        Ok(Aqm::Red { min, max, probability })
    }
}

impl FromStr for Aqm {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let mut time = |default| match parts.next() {
            None => Ok(default),
            Some(text) => parse_span(text).map_err(|_| Self::FORM),
        };
        let aqm = match name {
            "codel" => Aqm::Codel {
                target: time(Self::CODEL_TARGET)?,
                interval: time(Self::CODEL_INTERVAL)?,
            },
            "fq-codel" | "fq_codel" => Aqm::FqCodel {
                target: time(Self::CODEL_TARGET)?,
                interval: time(Self::CODEL_INTERVAL)?,
            },
            "pie" => Aqm::Pie { target: time(Self::PIE_TARGET)? },
            "dualpi2" => Aqm::DualPi2 { target: time(Self::DUALPI2_TARGET)? },
            "red" => Aqm::parse_red(&mut parts)?,
            _ => return Err(Self::FORM),
        };
        if parts.next().is_none() { Ok(aqm) } else { Err(Self::FORM) }
    }
}

/// Cross traffic in the same queue: packets of the link's MTU in bursts. The start times of bursts
/// are a Poisson process; the number of packets per burst is geometric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrossTraffic {
    /// The mean rate, counted like the link's rate.
    pub rate_bps: Rate,
    /// The mean size of a burst; `None` means one packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_bytes: Option<Bytes>,
}

impl CrossTraffic {
    /// The form of a valid text, for error messages.
    pub const FORM: &str = "cross traffic is a rate from 1 kb/s to that of the link and the mean \
                            size of its bursts, at most 1GiB: 2G or 2G:256KiB";

    pub(super) fn validate(self, link: Rate) -> Result<(), LinkPlanError> {
        let burst = self.burst_bytes.unwrap_or(Bytes::new(1));
        let good = (MIN_RATE..=link).contains(&self.rate_bps)
            && (Bytes::new(1)..=Bytes::gib(1)).contains(&burst);
        if good { Ok(()) } else { Err(LinkPlanError::value("cross", self, Self::FORM)) }
    }
}

impl FromStr for CrossTraffic {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (rate, burst) = match text.split_once(':') {
            None => (text, None),
            Some((rate, burst)) => (rate, Some(burst.parse().map_err(|_| Self::FORM)?)),
        };
        Ok(CrossTraffic { rate_bps: rate.parse().map_err(|_| Self::FORM)?, burst_bytes: burst })
    }
}

impl std::fmt::Display for CrossTraffic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.burst_bytes {
            None => write!(f, "{}", self.rate_bps),
            Some(burst) => write!(f, "{}:{burst}", self.rate_bps),
        }
    }
}

/// A token bucket. A segment passes if the bucket holds its bytes, and is dropped otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policer {
    /// The rate at which the bucket is filled, counted as the link's rate counts bytes.
    pub rate_bps: Rate,
    /// The size of the bucket, which is full at the start.
    pub burst_bytes: Bytes,
}

impl Policer {
    /// The form of a valid text, for error messages.
    pub const FORM: &str = "a policer is a rate from 1 kb/s and a burst of at most 64GiB that holds a packet of the \
                            MTU: 1G:4MB";
    const MAX_BURST: Bytes = Bytes::gib(64);

    /// Checks the policer of a link whose largest packets have `packet` bytes, as the rate counts
    /// them.
    pub(super) fn validate(self, packet: Bytes) -> Result<(), LinkPlanError> {
        let good =
            self.rate_bps >= MIN_RATE && (packet..=Self::MAX_BURST).contains(&self.burst_bytes);
        if good { Ok(()) } else { Err(LinkPlanError::value("police", self, Self::FORM)) }
    }
}

impl FromStr for Policer {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (rate, burst) = text.split_once(':').ok_or(Self::FORM)?;
        Ok(Policer {
            rate_bps: rate.parse().map_err(|_| Self::FORM)?,
            burst_bytes: burst.parse().map_err(|_| Self::FORM)?,
        })
    }
}

impl fmt::Display for Policer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.rate_bps, self.burst_bytes)
    }
}
