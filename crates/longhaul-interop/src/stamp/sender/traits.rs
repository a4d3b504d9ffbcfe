//! The properties of a reflector, from its replies.

use longhaul_core::result::{StampClock, StampNumbering, StampOrigin, StampReflector};

use super::super::extensions::{ReplyExtensions, TimeSources};
use super::super::packet::Reply;
use super::super::time::TimeFormat;
use super::super::tlv::Method;

/// The number of sequence numbers that are left out after the first reply. A stateless reflector
/// repeats the numbers after them, a stateful one continues its count.
pub(super) const LEFT_OUT: u64 = 16;

/// The properties of the reflector, from its replies.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ReflectorTraits {
    /// The numbering of its replies.
    pub numbering: StampNumbering,
    /// True if it answers extensions.
    pub extensions: bool,
    /// True if its timestamps are those of PTP.
    pub ptp: bool,
    /// The sources of its timestamps.
    pub sources: Option<TimeSources>,
    /// True if it reports departures.
    pub follow_up: bool,
    /// Its clock.
    pub clock: StampClock,
}

impl ReflectorTraits {
    /// Updates the properties from the first reply to a packet.
    pub(super) fn learn(&mut self, reply: &Reply, answers: &ReplyExtensions) {
        self.ptp = reply.error.format() == TimeFormat::Ptp;
        self.extensions |= answers.class.is_some() || answers.counters.is_some();
        self.sources = answers.sources.or(self.sources);
        self.follow_up |= answers.follow_up.is_some();
        self.clock = StampClock {
            synchronised: reply.error.is_synchronised(),
            error_ms: reply.error.seconds().map(|seconds| seconds * 1e3),
        };
        // Before the gap in the numbers both kinds of reflectors answer with the same number.
        if u64::from(reply.sender_sequence) >= LEFT_OUT {
            let repeats = reply.sequence == reply.sender_sequence;
            self.numbering = match (self.numbering, repeats) {
                (StampNumbering::Stateful, _) | (_, false) => StampNumbering::Stateful,
                (StampNumbering::Stateless | StampNumbering::Unknown, true) => {
                    StampNumbering::Stateless
                }
            };
        }
    }

    /// Returns the part of the documents. `reply_p50_ms` is the median time of a reply.
    pub(super) fn document(&self, reply_p50_ms: Option<f64>) -> StampReflector {
        let origin = |of: fn(TimeSources) -> Method| match self.sources.map(of) {
            Some(Method::Hardware) => StampOrigin::Hardware,
            Some(Method::Software) => StampOrigin::Software,
            Some(Method::ControlPlane) => StampOrigin::ControlPlane,
            Some(Method::Unknown) | None => StampOrigin::Unknown,
        };
        StampReflector {
            numbering: self.numbering,
            extensions: self.extensions,
            ptp: self.ptp,
            received: origin(|sources| sources.received),
            replied: origin(|sources| sources.replied),
            follow_up: self.follow_up,
            reply_p50_ms,
        }
    }
}
