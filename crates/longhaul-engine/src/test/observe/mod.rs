//! The observations beside the bytes: the limits of each connection, the scheduling of each thread
//! and the load of the host. They explain the rate (`longhaul_core::result::Reason`).
//!
//! The kernel's clocks count the time in which a connection waited for the receiver's window and
//! for its send buffer, but not the reasons for the rest. So the [`Observer`] probes the
//! connections fifty times a second and divides the rest in the proportion of the probes. The cost
//! is bounded for any number of streams by [`PROBES`].

mod connection;
mod curve;
mod host;
pub(super) mod interval;

use std::time::{Duration, Instant};

use longhaul_core::result::{Curve, End, HostLimits};

use self::connection::Tally;
use self::curve::Recorder;
use self::host::HostWatch;
use self::interval::Observed;
use super::mover::Slot;
use super::snapshot::Snapshot;

/// The interval between two probes.
pub(super) const PROBE_INTERVAL: Duration = Duration::from_millis(20);
/// The streams per probe, in turn: 800 system calls a second, below 1 % of a core.
const PROBES: usize = 16;

/// Observes the connections, threads and host of one end.
pub(super) struct Observer {
    role: End,
    probed: Instant,
    next: usize,
    tallies: Vec<Tally>,
    host: HostWatch,
    curve: Option<Recorder>,
}

impl Observer {
    pub(super) fn new(role: End, slots: &[Slot]) -> Self {
        let tallies = slots.iter().map(|_| Tally::default()).collect();
        let curve = (role == End::Receiver).then(Recorder::default);
        Observer { role, probed: Instant::now(), next: 0, tallies, host: HostWatch::new(), curve }
    }

    /// Probes if it is due. `since` is the time since the first byte.
    pub(super) fn probe_if_due(&mut self, slots: &[Slot], since: Option<Duration>) {
        if self.probed.elapsed() < PROBE_INTERVAL {
            return;
        }
        self.probed = Instant::now();
        self.host.check_if_due();
        self.record(slots, since);
        for _ in 0..slots.len().min(PROBES) {
            self.next = (self.next + 1) % slots.len();
            self.tallies[self.next].probe(self.role, &slots[self.next]);
        }
    }

    /// Records the bytes until now.
    pub(super) fn record(&mut self, slots: &[Slot], since: Option<Duration>) {
        if let (Some(curve), Some(since)) = (&mut self.curve, since) {
            curve.record(since, slots.iter().map(Slot::bytes).sum());
        }
    }

    /// Ends an interval and returns its observations between the snapshots `from` and `to`.
    pub(super) fn interval(&mut self, slots: &[Slot], from: &Snapshot, to: &Snapshot) -> Observed {
        let elapsed = to.at.saturating_duration_since(from.at);
        let (host, cores) = self.host.interval();
        let mut threads = Vec::with_capacity(slots.len());
        let mut tallies = Vec::with_capacity(slots.len());
        for (number, (tally, slot)) in self.tallies.iter_mut().zip(slots).enumerate() {
            let ran = to.streams[number].cpu.saturating_sub(from.streams[number].cpu);
            threads.push(tally.thread(self.role, slot, (ran, elapsed), &cores));
            tallies.push(tally.take());
        }
        Observed { host, threads, tallies }
    }

    /// Returns the curve of the received bytes and the limits of the kernel.
    pub(super) fn finish(&mut self) -> (Option<Curve>, HostLimits) {
        (self.curve.take().and_then(Recorder::finish), host::limits(self.role))
    }
}
