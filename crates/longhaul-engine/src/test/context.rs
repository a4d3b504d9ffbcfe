//! The parts of a test, and the limits and signals of a running end.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longhaul_core::plan::{Direction, TestPlan};
use longhaul_core::result::End;
use longhaul_core::units::Rate;

use super::block_format::BlockFormat;
use super::limits::{DRAIN_LIMIT, TestLimits};
use super::placement::Places;
use super::ticks::end_of_time;
use crate::share::SessionPool;

/// One direction of a test at one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// The role of this end.
    pub(super) role: End,
    /// True for the half from the server to the client in a bidirectional test.
    pub(super) reverse: bool,
}

impl Part {
    /// Returns the parts of a test of `direction`, in the order of the stream numbers.
    pub(super) fn of(direction: Direction, at_client: bool) -> Vec<Part> {
        let role = |client_sends: bool| {
            if client_sends == at_client { End::Sender } else { End::Receiver }
        };
        let forward = Part { role: role(true), reverse: false };
        match direction {
            Direction::Forward => vec![forward],
            Direction::Reverse => vec![Part { role: role(false), reverse: false }],
            Direction::Both => vec![forward, Part { role: role(false), reverse: true }],
        }
    }
}

/// The flags that end a running test, set by other threads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signals<'a> {
    /// Ends the test early: a sender closes its streams as at the end of the time. A receiver
    /// ignores the flag, because its client informs the sender.
    pub(super) stop: &'a AtomicBool,
    /// Aborts the test because the peer is gone.
    pub(super) abort: &'a AtomicBool,
}

/// The event that ends the data of one end of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The sender stops at the amount of the plan or by its stop flag, and closes its half of each
    /// connection. The receiver reads until then.
    HalfClose,
    /// This end stops at the amount of the plan or by its stop flag, as sender or receiver. The
    /// connections stay open.
    Amount,
    /// This end stops by its stop flag, as sender or receiver. The connections stay open.
    Stop,
}

impl Ending {
    /// Returns whether an end with this `role` stops at the amount of the plan.
    pub(super) fn by_amount(self, role: End) -> bool {
        match self {
            Ending::HalfClose => role == End::Sender,
            Ending::Amount => true,
            Ending::Stop => false,
        }
    }

    /// Returns whether an end with this `role` obeys its stop flag.
    pub(super) fn by_flag(self, role: End) -> bool {
        self != Ending::HalfClose || role == End::Sender
    }
}

/// The limits of one end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds<'a> {
    /// The time from the start to the end of the data.
    pub(super) time: Duration,
    /// The longest time without progress.
    pub(super) idle: Duration,
    /// The rate that the peer may not exceed.
    pub(super) rate: Option<Rate>,
    /// The length of the longest read.
    pub(super) read_bytes: usize,
    /// The pool of an anonymous test, which must not be slow while others wait.
    pub(super) pool: Option<&'a SessionPool>,
}

impl<'a> Bounds<'a> {
    /// Returns the limits for `plan`: a test by time gets its time and the time to drain, a test by
    /// bytes the time of `limits`.
    pub(super) fn new(plan: &TestPlan, limits: &'a TestLimits) -> Self {
        let time = end_of_time(plan).map_or(limits.time, |time| time + DRAIN_LIMIT);
        let (idle, rate, pool) = (limits.idle, limits.rate, limits.pool.as_ref());
        Bounds { time, idle, rate, read_bytes: usize::MAX, pool }
    }
}

/// The test that an end takes part in.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) plan: &'a TestPlan,
    pub(super) places: &'a Places,
    pub(super) bounds: Bounds<'a>,
    pub(super) signals: Signals<'a>,
    pub(super) ending: Ending,
    /// The format of the blocks of TCP streams, in another program's protocol.
    pub(super) blocks: Option<&'a dyn BlockFormat>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_every_direction_face_each_other() {
        for direction in [Direction::Forward, Direction::Reverse, Direction::Both] {
            let (client, server) = (Part::of(direction, true), Part::of(direction, false));
            assert_eq!(client.len(), server.len());
            for (ours, theirs) in client.iter().zip(&server) {
                assert_ne!(ours.role, theirs.role);
                assert_eq!(ours.reverse, theirs.reverse);
            }
        }
        assert_eq!(Part::of(Direction::Reverse, true)[0].role, End::Receiver);
        assert!(Part::of(Direction::Both, true)[1].reverse);
    }
}
