//! The report of a probe.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The result of a probe's sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// The number of datagrams passed to the kernel.
    pub datagrams: u64,
    /// The number of super-packets that the kernel refused; each was sent again.
    pub refused: u64,
    /// Seconds from the first to the last datagram.
    pub seconds: f64,
}

/// The result of a probe's receiver. Without `verify` in its plan, only `sent`, `arrivals`,
/// `bytes`, `rate_bps` and `window_rates_bps` are filled.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// The sender's result.
    pub sent: Sent,
    /// The number of datagrams that arrived, duplicates included.
    pub arrivals: u64,
    /// The bytes that arrived, with the IP and UDP headers of each datagram.
    pub bytes: u64,
    /// The number of distinct datagrams that arrived unchanged.
    pub received: u64,
    /// The number of datagrams that did not arrive, neither unchanged nor changed.
    pub lost: u64,
    /// The number of unchanged duplicates.
    pub duplicates: u64,
    /// The number of datagrams that arrived with changed bytes.
    pub changed: u64,
    /// The number of datagrams that arrived with a congestion mark (ECN CE).
    pub marked: u64,
    /// The number of datagrams that arrived ECN-capable, marked or not.
    pub ecn_capable: u64,
    /// The number of datagrams that arrived after a later one, without duplicates (RFC 4737,
    /// section 3).
    pub reordered: u64,
    /// The number of datagrams by reordering extent: the arrivals since the first later one (RFC
    /// 4737, section 4.2).
    pub extents: BTreeMap<u64, u64>,
    /// The number of runs of adjacent lost datagrams by length.
    pub loss_runs: BTreeMap<u64, u64>,
    /// The first lost numbers, at most [`ProbeReport::LISTED`].
    pub first_lost: Vec<u64>,
    /// The number of datagrams that the receiving kernel rejected because of their checksum.
    pub checksum_errors: u64,
    /// The number of datagrams that the receiving socket dropped because the probe was too slow;
    /// `lost` includes them.
    pub socket_drops: u64,
    /// The one-way delays, one sample per arrival.
    pub delay: Option<DelayReport>,
    /// The IP rate between the first and the last arrival, in bit/s.
    pub rate_bps: f64,
    /// The IP rate of each whole second, in bit/s.
    pub window_rates_bps: Vec<f64>,
    /// The change of the wall clock during the probe in ms; the delays are wrong by up to this.
    pub clock_step_ms: f64,
}

impl ProbeReport {
    /// The maximum number of lost numbers that are listed.
    pub const LISTED: usize = 1000;

    /// Returns the number of runs of lost numbers and their mean length.
    pub fn mean_loss_run(&self) -> Option<(u64, f64)> {
        let runs: u64 = self.loss_runs.values().sum();
        let lost: u64 = self.loss_runs.iter().map(|(length, count)| length * count).sum();
        (runs > 0).then(|| (runs, lost as f64 / runs as f64))
    }
}

/// One-way delays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DelayReport {
    /// The number of samples.
    pub samples: u64,
    /// The mean in ms.
    pub mean_ms: f64,
    /// The delays in ms at evenly spaced probabilities from the least to the largest: at most
    /// [`DelayReport::POINTS`], or all samples if there are no more.
    pub quantiles_ms: Vec<f64>,
}

impl DelayReport {
    /// The maximum number of quantiles that are kept.
    pub const POINTS: usize = 1001;

    /// Returns the delay in ms that a share `q` of the samples does not exceed.
    pub fn quantile_ms(&self, q: f64) -> f64 {
        longhaul_core::stats::quantile(&self.quantiles_ms, q).unwrap_or(f64::NAN)
    }
}
