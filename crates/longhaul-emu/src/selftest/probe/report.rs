use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a probe's sender did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Datagrams given to the kernel.
    pub datagrams: u64,
    /// How often the kernel refused a super-packet; each was sent again.
    pub refused: u64,
    /// From the first to the last.
    pub seconds: f64,
}

/// What a probe's receiver saw. Without `verify` in its plan only `sent`, `arrivals`, `bytes`,
/// `rate_bps` and `window_rates_bps` are filled.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// The sender's own account.
    pub sent: Sent,
    /// Datagrams that arrived, copies included.
    pub arrivals: u64,
    /// Their bytes, with the IP and UDP headers of each.
    pub bytes: u64,
    /// Different numbers that arrived unchanged.
    pub received: u64,
    /// Sent, and not arrived unchanged or changed.
    pub lost: u64,
    /// Unchanged copies beyond the first.
    pub duplicates: u64,
    /// Arrived with other bytes than were sent.
    pub changed: u64,
    /// Arrived with the mark of congestion (ECN CE).
    pub marked: u64,
    /// Arrived ECN-capable, marked or not.
    pub ecn_capable: u64,
    /// Arrived after a later one, copies left out (RFC 4737, section 3).
    pub reordered: u64,
    /// How many had which reordering extent: the arrivals since the first later one (RFC 4737,
    /// section 4.2).
    pub extents: BTreeMap<u64, u64>,
    /// How many runs of adjacent lost numbers had which length.
    pub loss_runs: BTreeMap<u64, u64>,
    /// The first of the lost numbers, at most [`ProbeReport::LISTED`].
    pub first_lost: Vec<u64>,
    /// Rejected by the receiving kernel because of their checksum.
    pub checksum_errors: u64,
    /// Lost by the receiving socket itself: the probe was too slow, and `lost` holds them.
    pub socket_drops: u64,
    /// From sending to arrival; one sample for each arrival.
    pub delay: Option<DelayReport>,
    /// The IP rate between the first and the last arrival.
    pub rate_bps: f64,
    /// The same for each whole second of them.
    pub window_rates_bps: Vec<f64>,
    /// By how much the wall clock was set meanwhile: delays are wrong by as much.
    pub clock_step_ms: f64,
}

impl ProbeReport {
    /// How many lost numbers are listed.
    pub const LISTED: usize = 1000;

    /// The lost numbers' runs and their mean length.
    pub fn mean_loss_run(&self) -> Option<(u64, f64)> {
        let runs: u64 = self.loss_runs.values().sum();
        let lost: u64 = self.loss_runs.iter().map(|(length, count)| length * count).sum();
        (runs > 0).then(|| (runs, lost as f64 / runs as f64))
    }
}

/// One-way delays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DelayReport {
    /// How many were measured.
    pub samples: u64,
    /// Their mean.
    pub mean_ms: f64,
    /// At evenly spaced probabilities from the least to the largest, at most
    /// [`DelayReport::POINTS`]: all of them, if they are no more than that.
    pub quantiles_ms: Vec<f64>,
}

impl DelayReport {
    /// How many quantiles are kept.
    pub const POINTS: usize = 1001;

    /// The delay that a part `q` of all did not exceed.
    pub fn quantile_ms(&self, q: f64) -> f64 {
        longhaul_core::stats::quantile(&self.quantiles_ms, q).unwrap_or(f64::NAN)
    }
}
