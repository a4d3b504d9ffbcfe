//! STAMP (RFC 8762, RFC 8972) and TWAMP Light (RFC 5357, appendix I): a sender that measures with any
//! reflector, and a reflector.
//!
//! [`SenderMachine`] and [`ReflectorMachine`] are the two ends without sockets and clocks; [`measure`] and
//! [`Reflector`] drive them.

mod extensions;
mod key;
mod packet;
mod reflector;
mod sender;
mod stamping;
mod time;
mod tlv;

pub use extensions::{
    Counters, FollowUp, ReplyExtensions, RequestedExtensions, TimeSources, Unverified,
};
pub use key::{InvalidKey, StampKey};
pub use packet::{MIN_REPLY_BYTES, Mode, Reply, Request};
pub use reflector::{
    Answer, Arrival, EndedSession, LocalClock, Reflector, ReflectorCounts, ReflectorEvent,
    ReflectorMachine, ReflectorSettings, StampSessionId, Unanswered,
};
pub use sender::{
    Advance, Measured, MeasuredPeriod, Moment, NoReply, PeriodReport, ReflectorTraits,
    ReplyArrival, Sender, SenderAction, SenderMachine, StampEnds, StampError, clocks, is_this_host,
    measure, origins,
};
pub use stamping::PacketTime;
pub use time::{ErrorEstimate, TimeFormat, Timestamp};
pub use tlv::{ClassOfService, Method};

/// The default port of a reflector (RFC 8762, section 4.1).
pub const STAMP_PORT: u16 = 862;
