//! One end of one direction: starts its threads, has them sampled, and says what they did.

use std::net::Shutdown;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::{Direction, Pacing, TestPlan};
use longhaul_core::result::{End, SideResult, SideSample};
use longhaul_core::units::Rate;

use super::limits::{DRAIN_LIMIT, TestLimits};
use super::mover::{self, Carrier, Pacer, Reading, Slot, Supply};
use super::placement::Places;
use super::sampler::Sampler;
use super::ticks::end_of_time;
use super::udp;
use crate::anonymous::AnonymousPool;

/// One direction of a test at one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// What this end is in it.
    pub(super) role: End,
    /// It is the half from the server to the client, in a test of both directions.
    pub(super) reverse: bool,
}

impl Part {
    /// The parts of a test of `direction`, in the order of their streams' numbers.
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

/// What an end looks at while it runs; others set them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signals<'a> {
    /// End early and in order: a sender closes its streams as when time is up. A receiver takes
    /// no notice; its client tells the sender.
    pub(super) stop: &'a AtomicBool,
    /// Break off: the other side is gone.
    pub(super) abort: &'a AtomicBool,
}

/// The most an end may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds<'a> {
    /// From the start to the end of data.
    pub(super) time: Duration,
    /// With nothing moving.
    pub(super) idle: Duration,
    /// The rate that the other side may not exceed.
    pub(super) rate: Option<Rate>,
    /// The longest read of a stream.
    pub(super) read_bytes: usize,
    /// The pool of a test that may not be slow while others wait.
    pub(super) pool: Option<&'a AnonymousPool>,
}

impl<'a> Bounds<'a> {
    /// A test by time has its time and what it takes to drain, one by bytes what `limits` allow.
    pub(super) fn new(plan: &TestPlan, limits: &'a TestLimits) -> Self {
        let time = end_of_time(plan).map_or(limits.time, |time| time + DRAIN_LIMIT);
        let (idle, rate, pool) = (limits.idle, limits.rate, limits.pool.as_ref());
        Bounds { time, idle, rate, read_bytes: usize::MAX, pool }
    }
}

/// Runs one end of one direction over `carriers`, from the first byte to the last. Calls
/// `on_sample` each interval, on the calling thread.
pub(super) fn run(
    part: Part,
    carriers: Vec<Carrier>,
    plan: &TestPlan,
    places: &Places,
    bounds: Bounds<'_>,
    signals: Signals<'_>,
    on_sample: impl FnMut(SideSample),
) -> SideResult {
    let role = part.role;
    let slots: Vec<Slot> = carriers
        .into_iter()
        .enumerate()
        .map(|(number, carrier)| {
            let cpus = places.of_stream(number, &carrier);
            Slot::new(carrier, cpus)
        })
        .collect();
    let granted: Vec<_> = slots.iter().map(|slot| slot.carrier.granted().ok()).collect();
    let mut sampler = Sampler::new((role, part.reverse), &slots, plan, bounds, signals, on_sample);
    let length = plan.write_bytes.get() as usize;
    let supply = Supply::new(if role == End::Sender { length } else { 0 }, plan.zero_copy);
    let reading = Reading {
        buffer_bytes: length.min(bounds.read_bytes),
        skip_copy: plan.skip_receive_copy,
        gather: plan.window_bytes.is_none(),
    };
    let (first, closing) = (OnceLock::new(), AtomicBool::new(false));
    let cut = thread::scope(|scope| {
        if role == End::Sender {
            let _ = first.set(Instant::now());
        }
        for (number, slot) in slots.iter().enumerate() {
            let (first, closing, supply, this) = (&first, &closing, &supply, thread::current());
            let share = plan.share(number as u32);
            let work = move || match (&slot.carrier, role) {
                (Carrier::Tcp(stream), End::Sender) => {
                    let pacer = pacer(plan, 1);
                    mover::send(slot, stream, supply, share, pacer, closing, &this);
                }
                (Carrier::Tcp(stream), End::Receiver) => {
                    mover::receive(slot, stream, reading, first, &this);
                }
                (Carrier::Udp(flow), End::Sender) => {
                    let pacer = pacer(plan, length as u64);
                    udp::send(slot, flow, length, share, pacer, closing, &this);
                }
                (Carrier::Udp(flow), End::Receiver) => udp::receive(slot, flow, first, &this),
            };
            let thread = thread::Builder::new().name(format!("{role}-{number}"));
            if let Err(error) = thread.spawn_scoped(scope, work) {
                // The threads that run already end with their connections.
                sampler.shut(Shutdown::Both);
                return Some(format!("cannot start a thread for stream {number}: {error}"));
            }
        }
        let cut = sampler.watch(&first, &closing);
        if cut.is_some() {
            sampler.shut(Shutdown::Both);
        }
        cut
    });
    sampler.result(&granted, cut)
}

/// What holds a stream's thread to the rate, if a timer is to; `unit` is the least that it sends.
fn pacer(plan: &TestPlan, unit: u64) -> Option<Pacer> {
    let rate = plan.stream_rate().filter(|_| plan.pacing() == Pacing::Timer)?;
    let burst = plan.burst_bytes.map(|burst| burst.get());
    Some(Pacer::new(rate.bytes_per_second().max(1), burst, unit))
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
