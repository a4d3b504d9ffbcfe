//! Measures the wake-up delay of a bare timer on this machine.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use longhaul_core::result::MachineTiming;
use longhaul_core::stats::quantile;
use longhaul_sys::cpu::HostTimes;

/// The requested interval between two wake-ups of a thread.
const EVERY: Duration = Duration::from_millis(1);

/// A priority above the emulator's, so that a witness thread never waits for the emulator.
const PRIORITY: i32 = 2;

/// The maximum number of processors that are measured.
const WATCHED: usize = 4;

/// Measures the timing of the machine without the emulator, as cyclictest does: on each processor a
/// thread of real-time priority sleeps for a millisecond and measures how late it wakes. It moves
/// no packets, so the emulator does not affect it. It uses about 1 % of each processor.
#[derive(Debug)]
pub struct Witness {
    threads: Vec<JoinHandle<(bool, Vec<f64>)>>,
    done: Arc<AtomicBool>,
    begun: Instant,
    times: Option<HostTimes>,
}

impl Witness {
    /// Starts the measurement. Without permission for real-time priority it uses ordinary threads,
    /// and the report states this.
    pub fn start() -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let cpus = longhaul_sys::cpu::allowed().unwrap_or_default();
        let threads = cpus.into_iter().take(WATCHED).map(|cpu| {
            let done = Arc::clone(&done);
            std::thread::spawn(move || watch(cpu, &done))
        });
        let threads = threads.collect();
        Witness { threads, done, begun: Instant::now(), times: HostTimes::now().ok() }
    }

    /// Stops and returns the measurements.
    pub fn finish(mut self) -> MachineTiming {
        self.done.store(true, Ordering::Relaxed);
        let seconds = self.begun.elapsed().as_secs_f64();
        let processors = self.threads.len() as u32;
        let withheld_share = match (self.times, HostTimes::now()) {
            (Some(before), Ok(now)) => now.stolen_since(&before),
            _ => 0.0,
        };
        let mut late_ms = Vec::new();
        let mut realtime = processors > 0;
        for (is_realtime, lateness) in
            self.threads.drain(..).filter_map(|thread| thread.join().ok())
        {
            realtime &= is_realtime;
            late_ms.extend(lateness);
        }
        late_ms.sort_by(f64::total_cmp);
        let stalled = late_ms.iter().filter(|late| **late > MachineTiming::STALLED_MS).count();
        let late = |q| quantile(&late_ms, q).unwrap_or_default();
        MachineTiming {
            realtime,
            seconds,
            processors,
            wakings: late_ms.len() as u64,
            p50_ms: late(0.5),
            p99_ms: late(0.99),
            p999_ms: late(0.999),
            max_ms: late(1.0),
            stalled_share: stalled as f64 / late_ms.len().max(1) as f64,
            withheld_share,
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
    }
}

/// Returns whether the thread had real-time priority, and its lateness at each wake-up in ms.
fn watch(cpu: u32, done: &AtomicBool) -> (bool, Vec<f64>) {
    // A thread that cannot be bound to a processor measures the processor on which it runs.
    let _ = longhaul_sys::cpu::bind_thread(&[cpu]);
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let realtime = longhaul_sys::schedule::run_first(PRIORITY).is_ok();
    let mut late_ms = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let asked = Instant::now() + EVERY;
        std::thread::sleep(EVERY);
        add_late(asked.elapsed(), &mut late_ms);
    }
    (realtime, late_ms)
}

/// Adds the lateness of a wake-up, and that of the wake-ups which it delayed: a packet can be due
/// at any time, and a thread that wakes 10 ms late sleeps once while ten packets wait.
fn add_late(late: Duration, late_ms: &mut Vec<f64>) {
    let mut rest = late;
    loop {
        late_ms.push(rest.as_secs_f64() * 1e3);
        match rest.checked_sub(EVERY) {
            Some(less) if !less.is_zero() => rest = less,
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_wake_up_counts_for_every_packet_that_it_delays() {
        let mut late_ms = Vec::new();
        add_late(Duration::from_micros(50), &mut late_ms);
        add_late(Duration::from_micros(3500), &mut late_ms);
        assert_eq!(late_ms, [0.05, 3.5, 2.5, 1.5, 0.5]);
    }

    #[test]
    fn it_is_woken_every_millisecond_on_each_processor_and_never_early() {
        let witness = Witness::start();
        std::thread::sleep(Duration::from_millis(100));
        let timing = witness.finish();
        assert!(
            timing.processors > 0 && timing.wakings >= u64::from(timing.processors),
            "{timing:?}"
        );
        let longest = timing.seconds * 1e3 + timing.max_ms + 2.0;
        assert!(timing.wakings as f64 <= f64::from(timing.processors) * longest, "{timing:?}");
        assert!((0.0..=1.0).contains(&timing.stalled_share));
        assert!(
            0.0 < timing.p50_ms && timing.p50_ms <= timing.p99_ms && timing.p99_ms <= timing.max_ms
        );
    }
}
