//! One end of a test: starts its threads, has them sampled, and says what they did.

use std::net::{Shutdown, TcpStream};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::{Direction, FlowPlan};
use longhaul_core::result::{End, SideResult, SideSample};
use longhaul_core::units::Rate;
use longhaul_sys::tcp::granted;

use super::limits::{DRAIN_LIMIT, FlowLimits};
use super::mover::{self, Slot};
use super::sampler::Sampler;
use super::ticks::end_of_time;

/// What the client is in a test of this direction.
pub(super) fn client_role(direction: Direction) -> End {
    match direction {
        Direction::Forward | Direction::Both => End::Sender,
        Direction::Reverse => End::Receiver,
    }
}

/// What the server is in a test of this direction.
pub(super) fn server_role(direction: Direction) -> End {
    match direction {
        Direction::Forward | Direction::Both => End::Receiver,
        Direction::Reverse => End::Sender,
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
pub(super) struct Bounds {
    /// From the start to the end of data.
    pub(super) time: Duration,
    /// With nothing moving.
    pub(super) idle: Duration,
    /// The rate that the other side may not exceed.
    pub(super) rate: Option<Rate>,
}

impl Bounds {
    /// A test by time has its time and what it takes to drain, one by bytes what `limits` allow.
    pub(super) fn new(plan: &FlowPlan, limits: &FlowLimits) -> Self {
        let time = end_of_time(plan).map_or(limits.time, |time| time + DRAIN_LIMIT);
        Bounds { time, idle: limits.idle, rate: limits.rate }
    }
}

/// Runs one end over `streams`, from the first byte to the last. Calls `on_sample` each interval,
/// on the calling thread.
pub(super) fn run(
    role: End,
    streams: Vec<TcpStream>,
    plan: &FlowPlan,
    bounds: Bounds,
    signals: Signals<'_>,
    on_sample: impl FnMut(SideSample),
) -> SideResult {
    let slots: Vec<Slot> = streams.into_iter().map(Slot::new).collect();
    let granted: Vec<_> = slots.iter().map(|slot| granted(&slot.stream).ok()).collect();
    let write_bytes = plan.write_bytes.get() as usize;
    let noise = if role == End::Sender { mover::noise(write_bytes) } else { Vec::new() };
    let (first, closing) = (OnceLock::new(), AtomicBool::new(false));
    let mut sampler = Sampler::new(role, &slots, plan, bounds, signals, on_sample);
    let cut = thread::scope(|scope| {
        if role == End::Sender {
            let _ = first.set(Instant::now());
        }
        for (number, slot) in slots.iter().enumerate() {
            let (first, closing, noise, this) = (&first, &closing, &noise, thread::current());
            let share = plan.share(number as u32);
            let work = move || match role {
                End::Sender => mover::send(slot, noise, share, closing, &this),
                End::Receiver => mover::receive(slot, write_bytes, first, &this),
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
