//! Samples of the interfaces of this host, held in memory until the next upload.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use longhaul_fleet::protocol::{InterfaceRow, InterfaceSamples, MAX_NAME_BYTES};
use longhaul_watch::{Sampler, SamplerOptions, Ticker, WatchError};

use crate::clock::HubClock;

/// The maximum number of interfaces that an agent samples.
const MOST_INTERFACES: usize = 128;
/// The maximum number of rows of one interface in memory: ten minutes at 1 s. The oldest are
/// dropped above.
const MOST_ROWS: usize = 600;

/// The samples since the last upload.
#[derive(Debug)]
pub(crate) struct Interfaces {
    series: Mutex<BTreeMap<String, Series>>,
    interval_ms: AtomicU32,
}

/// The samples of one interface.
#[derive(Debug, Default)]
struct Series {
    speed_bps: Option<u64>,
    rows: Vec<InterfaceRow>,
}

impl Interfaces {
    pub(crate) fn new() -> Self {
        Interfaces { series: Mutex::new(BTreeMap::new()), interval_ms: AtomicU32::new(1000) }
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
            let options =
                SamplerOptions { interval, flows: 0, host: false, ..SamplerOptions::default() };
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

    fn add(&self, sample: &longhaul_watch::Sample, end_ms: i64) {
        let mut series = self.series.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for interface in sample.interfaces.iter().filter(|interface| !interface.loopback) {
            let Some(interval) = sample.interval(interface) else { continue };
            let known = series.contains_key(&interface.name);
            if !known && (series.len() >= MOST_INTERFACES || interface.name.len() > MAX_NAME_BYTES)
            {
                continue;
            }
            let Series { speed_bps, rows } = series.entry(interface.name.clone()).or_default();
            *speed_bps = interface.speed.map(|speed| speed.bps());
            if rows.len() >= MOST_ROWS {
                rows.remove(0);
            }
            let counts = interval.counts;
            rows.push(InterfaceRow {
                end_ms,
                span_ms: interval.span_ms,
                in_bytes: counts.in_bytes,
                out_bytes: counts.out_bytes,
                in_packets: counts.in_packets,
                out_packets: counts.out_packets,
                in_drops: counts.in_drops,
                out_drops: counts.out_drops,
                in_errors: counts.in_errors,
                out_errors: counts.out_errors,
            });
        }
    }

    /// Removes and returns the samples. The ids count down from the largest, apart from those of the
    /// journal.
    pub(crate) fn take(&self) -> Vec<InterfaceSamples> {
        let mut series = self.series.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let filled =
            std::mem::take(&mut *series).into_iter().filter(|(_, one)| !one.rows.is_empty());
        // JSON numbers are exact up to 2^53.
        let ids = (0..1_u64 << 53).rev();
        filled
            .zip(ids)
            .map(|((interface, Series { speed_bps, rows }), id)| InterfaceSamples {
                id,
                interface,
                speed_bps,
                rows,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_interfaces_of_this_host_are_sampled() {
        let (interfaces, clock, stop) =
            (Interfaces::new(), HubClock::new(), AtomicBool::new(false));
        interfaces.set_interval(100);
        // A namespace may have the loopback interface only.
        let others = std::fs::read_dir("/sys/class/net").unwrap().count() > 1;
        std::thread::scope(|scope| {
            scope.spawn(|| interfaces.run(&clock, &stop).unwrap());
            let deadline = Instant::now() + Duration::from_secs(30);
            let mut taken = Vec::new();
            while others && taken.is_empty() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(50));
                taken = interfaces.take();
            }
            stop.store(true, Ordering::Relaxed);
            assert!(taken.iter().all(|series| series.interface != "lo"));
            assert_eq!(taken.is_empty(), !others);
        });
    }
}
