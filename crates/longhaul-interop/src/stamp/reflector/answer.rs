//! The inputs and outputs of the state machine of a reflector.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::super::stamping::PacketTime;
use super::sessions::StampSessionId;

/// The circumstances of a request's arrival.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// The sender.
    pub from: SocketAddr,
    /// The destination address of the packet.
    pub to: Option<IpAddr>,
    /// The time.
    pub time: PacketTime,
    /// The remaining hop limit; 0 if it is unknown.
    pub hop_limit: u8,
    /// The traffic class.
    pub class: u8,
    /// The same time on a clock that never steps.
    pub now: Instant,
}

/// The reason why a request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unanswered {
    /// It is too short for a reply of the same length.
    Short,
    /// Its HMAC is invalid.
    Unauthentic,
    /// Its source exceeds the limit on packets.
    TooFast,
    /// It looks like a reply and comes from the port of a service: an answer could go back and
    /// forth forever.
    Reply,
}

/// A reply that was written over its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The traffic class of the reply.
    pub class: u8,
    /// The session, if it began with this request.
    pub began: Option<StampSessionId>,
    /// True if the sender asks for the time of departure: pass it to
    /// [`departed`](super::ReflectorMachine::departed).
    pub stamp: bool,
}

/// The counts of a reflector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReflectorCounts {
    /// Replies.
    pub replied: u64,
    /// Requests that are too short.
    pub short: u64,
    /// Requests with an invalid HMAC.
    pub unauthentic: u64,
    /// Requests above the limits.
    pub too_fast: u64,
    /// Packets that look like replies of a service.
    pub replies: u64,
}
