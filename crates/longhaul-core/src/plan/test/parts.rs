//! The parts of a test plan.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::plan::seconds;
use crate::units::Bytes;

/// The direction of a test, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The client sends.
    Forward,
    /// The server sends.
    Reverse,
    /// Both send at the same time, each over its own streams.
    Both,
}

/// The extent of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// The test ends after this time.
    #[serde(rename = "seconds", with = "seconds")]
    Time(Duration),
    /// The test ends after this many bytes of all streams together, per direction.
    Bytes(Bytes),
}

/// The transport protocol of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// Multipath TCP (RFC 8684).
    Mptcp,
    /// UDP.
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "TCP",
            Protocol::Mptcp => "MPTCP",
            Protocol::Udp => "UDP",
        })
    }
}

/// The end that opens the data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opener {
    /// The client opens them to the server's port.
    #[default]
    Client,
    /// The server opens them to a port on which the client listens during the test (nuttcp's flip).
    Server,
}

/// The mechanism that limits a sender to its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pacing {
    /// The kernel paces each packet (`SO_MAX_PACING_RATE`). TCP always supports this, UDP only if
    /// the interface has the fq queueing discipline, MPTCP not at all.
    Kernel,
    /// The sending thread writes a burst and sleeps until the next one is due.
    Timer,
}
