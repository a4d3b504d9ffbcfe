//! What the sampler sees beside the bytes: how each connection is held back, how each thread is
//! scheduled, what the host does. From this the reason for a rate is told
//! (`longhaul_core::result::Reason`).
//!
//! The kernel's clocks say how long a connection waited for the receiver's window and for its
//! send buffer. What the rest of the time was spent on it does not say, so the [`Observer`] looks
//! at the connection fifty times a second and divides that time as the looks fell. What that costs
//! is bounded, however many streams there are: see [`PROBES`].

mod connection;
mod curve;
mod host;

use std::time::{Duration, Instant};

use longhaul_core::result::{Curve, End, HostLimits, HostSample, TcpSample, ThreadSample};

use self::connection::Tally;
use self::curve::Recorder;
use self::host::HostWatch;
use super::mover::Slot;
use super::snapshot::Snapshot;

/// Time between two looks.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// Streams that one look takes in, in turn: 800 system calls a second, below 1 % of a core.
const PROBES: usize = 16;

/// Sees what one end's connections, threads and host do.
pub(super) struct Observer {
    role: End,
    looked: Instant,
    next: usize,
    tallies: Vec<Tally>,
    host: HostWatch,
    curve: Option<Recorder>,
}

/// What was seen in one interval.
pub(super) struct Observed {
    pub(super) host: HostSample,
    pub(super) threads: Vec<ThreadSample>,
    tallies: Vec<Tally>,
}

impl Observer {
    pub(super) fn new(role: End, slots: &[Slot]) -> Self {
        let tallies = slots.iter().map(|_| Tally::default()).collect();
        let curve = (role == End::Receiver).then(Recorder::default);
        Observer { role, looked: Instant::now(), next: 0, tallies, host: HostWatch::new(), curve }
    }

    /// Looks, if it is time to. `since` is how long the test has run, none before its first byte.
    pub(super) fn look(&mut self, slots: &[Slot], since: Option<Duration>) {
        if self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        self.host.look();
        self.record(slots, since);
        for _ in 0..slots.len().min(PROBES) {
            self.next = (self.next + 1) % slots.len();
            self.tallies[self.next].probe(self.role, &slots[self.next]);
        }
    }

    /// Counts the bytes until now.
    pub(super) fn record(&mut self, slots: &[Slot], since: Option<Duration>) {
        if let (Some(curve), Some(since)) = (&mut self.curve, since) {
            curve.record(since, slots.iter().map(Slot::bytes).sum());
        }
    }

    /// Ends an interval: what was seen between the snapshots `from` and `to`.
    pub(super) fn interval(&mut self, slots: &[Slot], from: &Snapshot, to: &Snapshot) -> Observed {
        let elapsed = to.at.saturating_duration_since(from.at);
        let (host, cores) = self.host.interval();
        let mut threads = Vec::with_capacity(slots.len());
        let mut tallies = Vec::with_capacity(slots.len());
        for (number, (tally, slot)) in self.tallies.iter_mut().zip(slots).enumerate() {
            let ran = to.streams[number].cpu.saturating_sub(from.streams[number].cpu);
            threads.push(tally.thread(self.role, slot, ran, elapsed, &cores));
            tallies.push(tally.take());
        }
        Observed { host, threads, tallies }
    }

    /// The curve of the bytes received, and what the kernel allows.
    pub(super) fn finish(&mut self) -> (Option<Curve>, HostLimits) {
        (self.curve.take().and_then(Recorder::finish), host::limits(self.role))
    }
}

impl Observed {
    /// Divides the time of stream `stream` that the kernel's clocks leave open.
    pub(super) fn complete(&self, stream: usize, sample: &mut TcpSample) {
        if let Some(tally) = self.tallies.get(stream) {
            tally.complete(sample);
        }
    }
}
