use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What one end of a probe is to do; the argument of the program's hidden command.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbePlan {
    /// Send, then print [`super::Sent`].
    Send(SendPlan),
    /// Receive until standard input gives a [`super::Sent`], then print a [`super::ProbeReport`].
    Receive(ReceivePlan),
    /// Watch the machine, without a link, then print a
    /// [`MachineTiming`](longhaul_core::result::MachineTiming).
    Watch(WatchPlan),
}

impl ProbePlan {
    /// As the hidden command takes it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// What to send.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendPlan {
    /// The receiver: a name or an address.
    pub to: String,
    /// Its port.
    pub port: u16,
    /// By IPv6, where `to` is a name that has addresses of both kinds.
    #[serde(default)]
    pub ipv6: bool,
    /// How many datagrams.
    pub datagrams: u64,
    /// The UDP payload of each; at least [`SendPlan::LEAST_PAYLOAD`].
    pub payload_bytes: u16,
    /// How many leave as one super-packet.
    pub together: u16,
    /// From one super-packet to the next; a sender that falls behind catches up at once.
    #[serde(with = "duration_seconds")]
    pub interval_seconds: Duration,
    /// Mark them ECN-capable (ECT(0), RFC 3168).
    #[serde(default)]
    pub ecn_capable: bool,
    /// Give each its own number and a checksum over all of it; else only count bytes and times,
    /// which takes far less of the processor.
    pub verify: bool,
    /// How many threads share the work, each with a socket of its own; only without `verify`, for
    /// their numbers would repeat.
    #[serde(default = "one")]
    pub threads: u16,
}

fn one() -> u16 {
    1
}

impl SendPlan {
    /// Number, time and checksum.
    pub const LEAST_PAYLOAD: u16 = 24;
}

/// What to receive.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceivePlan {
    /// Where.
    pub bind: SocketAddr,
    /// How long after the sender's last word something may still arrive.
    #[serde(with = "duration_seconds")]
    pub drain_seconds: Duration,
    /// As the sender's.
    pub verify: bool,
}

/// How to watch the machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchPlan {
    /// For how long.
    #[serde(with = "duration_seconds")]
    pub seconds: Duration,
}

mod duration_seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(span.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(D::Error::custom)
    }
}
