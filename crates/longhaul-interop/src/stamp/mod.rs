//! STAMP (RFC 8762, RFC 8972) and TWAMP Light (RFC 5357, appendix I): a sender that measures with any
//! reflector, and a reflector.
//!
//! [`Machine`] and [`Mirror`] are the two ends without sockets and clocks; [`measure`] and
//! [`Reflector`] drive them.

mod error;
mod extensions;
mod key;
mod packet;
mod reflector;
mod sender;
mod time;
mod tlv;

pub use error::StampError;
pub use extensions::{Answers, Counters, FollowUp, TimeSources, Unverified, Wanted};
pub use key::{InvalidKey, StampKey};
pub use packet::{LEAST_REPLY_BYTES, Mode, Reply, Request};
pub use reflector::{
    Answer, Arrival, EndedSession, LocalClock, Mirror, Reflector, ReflectorCounts, ReflectorEvent,
    ReflectorSettings, SessionId, Unanswered,
};
pub use sender::{
    Advance, Landed, Machine, Measured, Moment, PeriodReport, Progress, Seen, Sender, Silence,
    Step, clocks, is_this_host, measure,
};
pub use time::{ErrorEstimate, TimeFormat, Timestamp};
pub use tlv::{ClassOfService, Method};

/// The default port of a reflector (RFC 8762, section 4.1).
pub const STAMP_PORT: u16 = 862;
