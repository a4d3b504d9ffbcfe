//! The figures of a load: counters, errors, latencies.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_agent::AgentError;
use serde_json::{Value, json};

/// The counters of all agents.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    syncs: AtomicU64,
    samples: AtomicU64,
    reports: AtomicU64,
    unacknowledged: AtomicU64,
    errors: Mutex<BTreeMap<String, u64>>,
    times: Mutex<BTreeMap<&'static str, Vec<f64>>>,
    last: Mutex<Option<(Instant, u64)>>,
}

impl Figures {
    /// Counts an answer. A long poll that lasted to its end shows the time that the hub needed besides.
    pub(crate) fn answered(&self, spent: Duration, wait: u64) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        if let Some(more) = spent.checked_sub(Duration::from_secs(wait)) {
            self.took(if wait == 0 { "upload_without_wait" } else { "long_poll" }, more);
        }
    }

    /// Notes the time of a request.
    pub(crate) fn took(&self, what: &'static str, time: Duration) {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.entry(what).or_default().push(time.as_secs_f64() * 1000.0);
    }

    pub(crate) fn stored(&self, samples: u64) {
        self.samples.fetch_add(samples, Ordering::Relaxed);
    }

    /// Returns the number of stored samples.
    pub(crate) fn samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    pub(crate) fn reported(&self) {
        self.reports.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unacknowledged(&self) {
        self.unacknowledged.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, error: &AgentError) {
        let text: String = error.to_string().chars().take(120).collect();
        *self.errors.lock().unwrap_or_else(PoisonError::into_inner).entry(text).or_default() += 1;
    }

    fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a line about the time since the last call.
    pub(crate) fn line(&self) -> String {
        let samples = self.samples();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let rate = last.map_or(0.0, |(at, before)| {
            (samples - before) as f64 / (now - at).as_secs_f64().max(0.001)
        });
        *last = Some((now, samples));
        let errors: u64 = self.errors().values().sum();
        format!(
            "{rate:.0} samples/s, {} syncs, {errors} errors",
            self.syncs.load(Ordering::Relaxed)
        )
    }

    /// Returns all figures. Times are in ms.
    pub(crate) fn document(&self) -> Value {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let quantiles = |all: &Vec<f64>| {
            let mut all = all.clone();
            all.sort_unstable_by(f64::total_cmp);
            let at = |share: f64| all[((all.len() - 1) as f64 * share) as usize];
            json!({"n": all.len(), "p50": at(0.5), "p99": at(0.99), "max": at(1.0)})
        };
        let times: BTreeMap<_, _> =
            times.iter().map(|(name, all)| (*name, quantiles(all))).collect();
        json!({
            "syncs": self.syncs.load(Ordering::Relaxed),
            "samples": self.samples(),
            "reports": self.reports.load(Ordering::Relaxed),
            "unacknowledged": self.unacknowledged.load(Ordering::Relaxed),
            "errors": self.errors(),
            "times_ms": times,
        })
    }
}
