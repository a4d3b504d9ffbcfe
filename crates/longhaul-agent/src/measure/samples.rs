//! Samples of this host and its interfaces, held in memory until the next upload.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use longhaul_fleet::protocol::{
    HostRow, HostSnapshot, InterfaceRow, MAX_FLOWS, MAX_NAME_BYTES, QueueRow, SampleBatch,
};
use longhaul_watch::{Sample, Sampler, SamplerOptions, Ticker, WatchError};

use super::rows;
use crate::clock::HubClock;

/// The maximum number of interfaces that an agent samples.
const MOST_INTERFACES: usize = 128;
/// The maximum number of rows of a series in memory: ten minutes at 1 s. The oldest are dropped above.
const MOST_ROWS: usize = 600;
/// The shortest time between two listings of connections, and between two snapshots. The rates of a
/// connection are its means over this time.
const SNAPSHOTS: Duration = Duration::from_secs(5);

/// The samples since the last upload.
#[derive(Debug)]
pub(crate) struct Samples {
    held: Mutex<Held>,
    interval_ms: AtomicU32,
    /// True if the snapshots have the connections of the host.
    flows: bool,
}

#[derive(Debug, Default)]
struct Held {
    interfaces: BTreeMap<String, Series>,
    host: Vec<HostRow>,
    snapshot: Option<HostSnapshot>,
    /// The earliest time of the next snapshot.
    snapshot_due: Option<Instant>,
}

/// The samples of one interface.
#[derive(Debug, Default)]
struct Series {
    speed_bps: Option<u64>,
    rows: Vec<InterfaceRow>,
    queue: Vec<QueueRow>,
}

impl Samples {
    /// Creates a sampler, which reports connections if `flows` is true.
    pub(crate) fn new(flows: bool) -> Self {
        Samples { held: Mutex::default(), interval_ms: AtomicU32::new(1000), flows }
    }

    /// Sets the time between two samples.
    pub(crate) fn set_interval(&self, interval_ms: u32) {
        self.interval_ms.store(interval_ms.clamp(100, 60_000), Ordering::Relaxed);
    }

    /// Samples until `stop` is set.
    ///
    /// # Errors
    /// The kernel refuses to list the interfaces.
    pub(crate) fn run(&self, clock: &HubClock, stop: &AtomicBool) -> Result<(), WatchError> {
        loop {
            let interval_ms = self.interval_ms.load(Ordering::Relaxed);
            let interval = Duration::from_millis(interval_ms.into());
            let options = SamplerOptions {
                interval,
                flows: if self.flows { MAX_FLOWS } else { 0 },
                flow_interval: SNAPSHOTS,
                programs: true,
                ..SamplerOptions::default()
            };
            let mut sampler = Sampler::new(options)?;
            let mut ticker = Ticker::new(interval);
            while self.interval_ms.load(Ordering::Relaxed) == interval_ms {
                if !ticker.wait(stop) {
                    return Ok(());
                }
                self.add(&sampler.sample()?, clock.now_ms());
            }
        }
    }

    fn add(&self, sample: &Sample, end_ms: i64) {
        let mut held = self.held();
        push(&mut held.host, rows::host_row(sample, end_ms));
        for interface in sample.interfaces.iter().filter(|interface| !interface.loopback) {
            let Some(row) = rows::interface_row(sample, interface, end_ms) else { continue };
            let all = &mut held.interfaces;
            let known = all.contains_key(&interface.name);
            if !known && (all.len() >= MOST_INTERFACES || interface.name.len() > MAX_NAME_BYTES) {
                continue;
            }
            let one = all.entry(interface.name.clone()).or_default();
            one.speed_bps = interface.speed.map(|speed| speed.bps());
            push(&mut one.rows, Some(row));
            push(&mut one.queue, rows::queue_row(sample, interface, end_ms));
        }
        let is_due = held.snapshot_due.is_none_or(|due| Instant::now() >= due);
        // The first sample has no rates.
        if is_due && sample.span.is_some() {
            held.snapshot = Some(rows::snapshot(sample, end_ms));
            held.snapshot_due = Some(Instant::now() + SNAPSHOTS);
        }
    }

    /// Removes and returns the samples. The ids count down from the largest, apart from those of the
    /// journal.
    pub(crate) fn take(&self) -> Vec<SampleBatch> {
        let (host, interfaces) = {
            let mut held = self.held();
            (std::mem::take(&mut held.host), std::mem::take(&mut held.interfaces))
        };
        let host = SampleBatch { host, ..SampleBatch::default() };
        let batch = |(interface, one): (String, Series)| {
            let Series { speed_bps, rows, queue } = one;
            SampleBatch { interface, speed_bps, rows, queue, ..SampleBatch::default() }
        };
        let all = std::iter::once(host).chain(interfaces.into_iter().map(batch));
        // JSON numbers are exact up to 2^53.
        let ids = (0..1_u64 << 53).rev();
        let filled = all.filter(|batch| batch.row_count() > 0);
        filled.zip(ids).map(|(batch, id)| SampleBatch { id, ..batch }).collect()
    }

    /// Removes and returns the latest state of the host.
    pub(crate) fn take_snapshot(&self) -> Option<HostSnapshot> {
        self.held().snapshot.take()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Adds a row, and drops the oldest of too many.
fn push<T>(rows: &mut Vec<T>, row: Option<T>) {
    if row.is_some() && rows.len() >= MOST_ROWS {
        rows.remove(0);
    }
    rows.extend(row);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn this_host_and_its_interfaces_are_sampled() {
        let (samples, clock, stop) = (Samples::new(true), HubClock::new(), AtomicBool::new(false));
        samples.set_interval(100);
        // A namespace may have the loopback interface only.
        let others = std::fs::read_dir("/sys/class/net").unwrap().count() > 1;
        std::thread::scope(|scope| {
            scope.spawn(|| samples.run(&clock, &stop).unwrap());
            let deadline = Instant::now() + Duration::from_secs(30);
            let mut taken = Vec::new();
            while taken.is_empty() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(50));
                taken = samples.take();
            }
            let snapshot = samples.take_snapshot().unwrap();
            stop.store(true, Ordering::Relaxed);
            assert!(taken.iter().all(|batch| batch.interface != "lo"));
            assert_eq!(taken.len() > 1, others);
            assert!(taken[0].interface.is_empty() && taken[0].host[0].retransmits.is_some());
            assert!(!snapshot.cores.is_empty() && snapshot.flows.is_some());
        });
    }

    #[test]
    fn the_oldest_rows_are_dropped_and_snapshots_have_a_distance() {
        let samples = Samples::new(false);
        let tcp = longhaul_watch::TcpTotals {
            totals: Default::default(),
            sent: Some(1),
            retransmits: Some(0),
        };
        let (interfaces, cores, span) = (Vec::new(), Vec::new(), Some(Duration::from_secs(1)));
        let sample = Sample { time_ms: 0, span, interfaces, tcp, cores, flows: None };
        samples.add(&Sample { span: None, ..sample.clone() }, 0);
        assert_eq!((samples.take(), samples.take_snapshot()), (Vec::new(), None));
        for end_ms in 1..=700 {
            samples.add(&sample, end_ms);
        }
        let taken = samples.take();
        let ends: Vec<i64> = taken[0].host.iter().map(|row| row.end_ms).collect();
        assert_eq!((taken.len(), ends[0], ends.len()), (1, 101, MOST_ROWS));
        assert_eq!(samples.take_snapshot().unwrap().at_ms, 1);
        samples.add(&sample, 701);
        assert_eq!(samples.take_snapshot(), None, "five seconds have not passed");
    }
}
