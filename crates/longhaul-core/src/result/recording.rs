//! The certificate of a link that replays a recording.

use serde::{Deserialize, Serialize};

use crate::plan::Side;

/// The schema of [`RecordingCertificate`].
pub const RECORDING_CERTIFICATE_SCHEMA: &str = "longhaul.recording_certificate/1";

/// The comparison of a recorded path with the link that replays it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordingCertificate {
    /// [`RECORDING_CERTIFICATE_SCHEMA`].
    pub schema: String,
    /// The time for which the rebuilt link was measured.
    pub seconds: f64,
    /// True if no check failed.
    pub passed: bool,
    /// The checks.
    pub checks: Vec<RecordingCheck>,
    /// Warnings of the emulator, such as that it was late.
    pub warnings: Vec<String>,
}

/// The comparison of one figure in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RecordingCheck {
    /// The direction.
    pub from: Side,
    /// The figure.
    pub figure: RecordingFigure,
    /// The recorded value: the median in ms of delays, the share of probes or runs, or bit/s.
    pub recorded: Option<f64>,
    /// The value of the rebuilt link.
    pub rebuilt: Option<f64>,
    /// The distance of the distributions, or the relative error of a capacity.
    pub distance: Option<f64>,
    /// The largest distance that passes.
    pub bound: Option<f64>,
    /// `None` if the recording has too few values for a comparison.
    pub passed: Option<bool>,
}

/// A figure of a path that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingFigure {
    /// The distribution of the one-way delay.
    Delay,
    /// The distribution of the difference between the delays of consecutive probes.
    DelayVariation,
    /// The share of lost probes outside of outages.
    Loss,
    /// The share of seconds with an outage: three or more consecutive lost probes.
    Outage,
    /// The share of pairs among the runs of lost probes.
    LossRuns,
    /// The share of probes that arrived after a later one.
    Reordering,
    /// The capacity.
    Capacity,
}
