//! The control messages of a path measurement.

use serde::{Deserialize, Serialize};

use super::RefusalKind;
use crate::path::{Clock, TrainPacket};
use crate::plan::{StreamSpec, TrainSpec};
use crate::result::{Hops, MtuProof, ProbeFigures, SentProbes, TcpSegments};

/// The messages of a path measurement's client on the control channel: `Begin`, then any of the
/// others, each after the answer to the previous one, and finally `Finished`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathOrder {
    /// Announces the duration of the loss measurement.
    Begin {
        /// The duration in seconds.
        seconds: f64,
    },
    /// Data may arrive on the flow.
    Start,
    /// Stop the current operation early. The server still answers it.
    Stop,
    /// Determine the hops to the client.
    Hops {
        /// The largest number of hops.
        most: u8,
    },
    /// Determine the largest packet that reaches the client.
    Mtu,
    /// The client opens data connection 0: return its data, and report the segment size of TCP.
    Tcp,
    /// Send this stream.
    Send(StreamSpec),
    /// Send these trains.
    SendTrains(TrainSpec),
    /// The client's stream has ended: report the result.
    Count {
        /// The number of its datagrams, including those that the client's host dropped.
        datagrams: u64,
        /// The number that the client's host dropped.
        sender_dropped: u64,
    },
    /// The client's trains have ended: report the arrival times of their packets. The server
    /// discards them.
    Arrivals {
        /// The number of trains.
        trains: u8,
    },
    /// The client has finished; the session ends.
    Finished,
}

/// The messages of a path measurement's server, one per order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathEvent {
    /// The answer to `Begin`: the client may open UDP flow 0.
    Accepted {
        /// The state of the server's clock.
        clock: Clock,
        /// A value derived from the session's secret and the boot id of the host. Equal values mean
        /// that both ends run on the same kernel, and so have the same clock.
        boot: Option<[u8; 16]>,
    },
    /// The server refuses the measurement; the session ends.
    Refused {
        /// The class of the reason.
        kind: RefusalKind,
        /// The reason as one sentence for the user.
        reason: String,
    },
    /// The flow is open.
    Ready,
    /// The answer to `Start`.
    Started,
    /// The answer to `Hops`.
    Hops(Hops),
    /// The answer to `Mtu`.
    Mtu(MtuProof),
    /// The answer to `Tcp`, after the connection ended.
    Tcp(TcpSegments),
    /// The answer to `Send`, after the stream ended.
    Sent(SentProbes),
    /// The answer to `SendTrains`, after the trains ended, with the sending time of each train.
    SentTrains {
        /// The number of packets that the kernel accepted and the sending time in seconds, per
        /// train.
        trains: Vec<(u32, f64)>,
    },
    /// The answer to `Count`.
    Counted(Box<ProbeFigures>),
    /// The answer to `Arrivals`, per train.
    Arrived {
        /// The packets of each train, in order of arrival.
        trains: Vec<Vec<TrainPacket>>,
    },
    /// One operation failed; the session continues.
    Failed {
        /// The reason as one sentence for the user.
        reason: String,
    },
}
