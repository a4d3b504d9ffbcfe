use serde::{Deserialize, Serialize};

use super::RefusalKind;
use crate::path::{Arrival, Clock};
use crate::plan::{StreamSpec, TrainSpec};
use crate::result::{Hops, MtuProof, ProbeFigures, SentProbes, TcpSegments};

/// What the client of a survey of the path says on the control channel: `Begin`, then any of the
/// others, each once the one before it is answered, and `Finished`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathOrder {
    /// Loss is to be looked for this long.
    Begin {
        /// The time.
        seconds: f64,
    },
    /// Data may come on the flow.
    Start,
    /// End early what is under way; it is answered all the same.
    Stop,
    /// Find the hops to the client.
    Hops {
        /// How far, at most.
        most: u8,
    },
    /// Find the largest packet that reaches the client.
    Mtu,
    /// The client opens data connection 0: send back what comes, and say what TCP made of it.
    Tcp,
    /// Send this stream.
    Send(StreamSpec),
    /// Send these trains.
    SendTrains(TrainSpec),
    /// The client's stream is over: what came of it?
    Count {
        /// Its datagrams, those included that the client's host dropped.
        datagrams: u64,
        /// What the client's host dropped.
        sender_dropped: u64,
    },
    /// The client's trains are over: when did their packets come? The server forgets them.
    Arrivals {
        /// How many trains.
        trains: u8,
    },
    /// The client has what it wants; the session is over.
    Finished,
}

/// What the server of a survey says, one for each order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathEvent {
    /// To `Begin`: the client may open UDP flow 0.
    Accepted {
        /// The server's clock.
        clock: Clock,
        /// Derived from the session's secret and the host's boot: with the same one both ends run on
        /// one kernel, and so on one clock.
        boot: Option<[u8; 16]>,
    },
    /// The survey is not for this server; the session is over.
    Refused {
        /// The class of the reason.
        kind: RefusalKind,
        /// One sentence for the user.
        reason: String,
    },
    /// The flow is open.
    Ready,
    /// To `Start`.
    Started,
    /// To `Hops`.
    Hops(Hops),
    /// To `Mtu`.
    Mtu(MtuProof),
    /// To `Tcp`, when the connection is over.
    Tcp(TcpSegments),
    /// To `Send`, at the end.
    Sent(SentProbes),
    /// To `SendTrains`, at the end: how long each took to leave.
    SentTrains {
        /// Packets that the kernel took, and the seconds that this took, for each train.
        trains: Vec<(u32, f64)>,
    },
    /// To `Count`.
    Counted(Box<ProbeFigures>),
    /// To `Arrivals`, for each train.
    Arrived {
        /// Its packets, in the order in which they came.
        trains: Vec<Vec<Arrival>>,
    },
    /// One thing could not be done; the session goes on.
    Failed {
        /// One sentence for the user.
        reason: String,
    },
}
