use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::plan::seconds;
use crate::units::Bytes;

/// Which way the bytes of a test go, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The client sends.
    Forward,
    /// The server sends.
    Reverse,
    /// Both send at once, each over its own streams.
    Both,
}

/// How much a test moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// As much as passes in this time.
    #[serde(rename = "seconds", with = "seconds")]
    Time(Duration),
    /// This many bytes over all streams together; in each direction, in a test of both.
    Bytes(Bytes),
}

/// What carries the bytes.
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

/// Who opens the data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opener {
    /// The client, to the server's one port.
    #[default]
    Client,
    /// The server, to a port that the client listens on for the test (nuttcp's flip).
    Server,
}

/// What holds a sender to its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pacing {
    /// The kernel, packet by packet (`SO_MAX_PACING_RATE`). TCP does so by itself; UDP only
    /// where the interface has the fq queueing discipline; MPTCP does not.
    Kernel,
    /// The sending thread, which writes a burst and sleeps.
    Timer,
}
