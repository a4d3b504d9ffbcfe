//! Certificates: of the emulator on one machine, and of a link that replays a recording.

use serde::{Deserialize, Serialize};

use crate::plan::Side;
use crate::units::Rate;

/// The unit of a check's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckUnit {
    /// Milliseconds.
    Ms,
    /// Bits per second.
    Bps,
    /// A share, from 0 to 1.
    Share,
    /// A number of segments or other events.
    Count,
}

impl CheckUnit {
    /// Formats a figure with its unit.
    pub fn format(self, value: f64) -> String {
        match self {
            CheckUnit::Ms => format!("{value:.3} ms"),
            CheckUnit::Bps => Rate::from_bps(value.max(0.0).round() as u64).to_string(),
            CheckUnit::Share if value == 0.0 => "0".to_owned(),
            CheckUnit::Share => format!("{value:.3e}"),
            CheckUnit::Count if value.fract() == 0.0 => format!("{value}"),
            CheckUnit::Count => format!("{value:.3}"),
        }
    }
}

/// The verdict of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckVerdict {
    /// The emulator met the criterion.
    Pass,
    /// The emulator missed the criterion.
    Fail,
    /// The check is inconclusive: the machine lacks a feature or was too slow.
    NotDone,
}

/// The timing of a machine without the emulator: on each processor a thread of real-time priority
/// slept for a millisecond at a time and measured how late it woke.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineTiming {
    /// True if the threads had real-time priority; otherwise the figures include the effects of
    /// other programs.
    pub realtime: bool,
    /// The duration of the measurement in seconds.
    pub seconds: f64,
    /// The number of measured processors.
    pub processors: u32,
    /// The number of wake-ups. A late wake-up counts once per millisecond of its lateness.
    pub wakings: u64,
    /// The median lateness in ms.
    pub p50_ms: f64,
    /// The 99th percentile in ms.
    pub p99_ms: f64,
    /// The 99.9th percentile in ms.
    pub p999_ms: f64,
    /// The largest lateness in ms.
    pub max_ms: f64,
    /// The share of the wake-ups that were late by more than [`MachineTiming::STALLED_MS`], 0 to 1.
    #[serde(default)]
    pub stalled_share: f64,
    /// The share of all processors' time that the hypervisor took, 0 to 1; zero without a
    /// hypervisor.
    pub withheld_share: f64,
}

impl MachineTiming {
    /// The lateness in ms above which a wake-up counts as stalled.
    pub const STALLED_MS: f64 = 0.25;
}

/// One property of the emulator, as an independent probe measured it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The name of the check; unique together with `family`.
    pub name: String,
    /// `ipv4` or `ipv6`.
    pub family: String,
    /// The link options, in the form of `longhaul wan run`.
    pub options: String,
    /// The unit of the figures.
    pub unit: CheckUnit,
    /// The configured value.
    pub configured: Option<f64>,
    /// The value that the probe measured.
    pub measured: Option<f64>,
    /// The 95 % confidence interval of the true value.
    pub interval_95: Option<(f64, f64)>,
    /// The emulator's own count.
    pub emulator: Option<f64>,
    /// The number of datagrams, runs or windows in `measured`.
    pub samples: u64,
    /// The criterion of the verdict.
    pub criterion: String,
    /// The verdict.
    pub verdict: CheckVerdict,
    /// The reason for a verdict other than pass; empty for a pass.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// True if the figure is out of range but a bare timer was as late in the same seconds, so that
    /// the figure does not describe the emulator; `verdict` is then [`CheckVerdict::NotDone`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spoiled_by_host: bool,
    /// The timing of a bare timer in the same seconds, for checks of delay and rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineTiming>,
}

impl Check {
    /// Returns the verdict as text.
    pub fn outcome(&self) -> &'static str {
        match self.verdict {
            _ if self.spoiled_by_host => "invalid, host",
            CheckVerdict::Pass => "pass",
            CheckVerdict::Fail => "FAIL",
            CheckVerdict::NotDone => "not done",
        }
    }
}

/// The accuracy of the emulator on one machine, as measured there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// [`Certificate::SCHEMA`].
    pub schema: String,
    /// The version of longhaul.
    pub version: String,
    /// The start time (RFC 3339).
    pub started: String,
    /// The release of the kernel.
    pub kernel: String,
    /// The number of processors that emulator, sender and receiver shared.
    pub processors: u32,
    /// True if fewer datagrams were sent than for a full certificate.
    pub quick: bool,
    /// True if the links were bridges between Ethernet interfaces.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bridge: bool,
    /// The seed of the random decisions.
    pub seed: u64,
    /// The duration in seconds.
    pub seconds: f64,
    /// The upper bound of the probability that any check of a correct emulator fails.
    pub false_alarm: f64,
    /// The checks in order of execution.
    pub checks: Vec<Check>,
}

impl Certificate {
    /// The schema's name and version.
    pub const SCHEMA: &str = "longhaul.certificate/1";

    /// Returns the number of checks with `verdict`; those that the host disturbed count as not
    /// done.
    pub fn count(&self, verdict: CheckVerdict) -> usize {
        self.checks.iter().filter(|check| check.verdict == verdict).count()
    }

    /// Returns the number of checks that the host disturbed.
    pub fn spoiled(&self) -> usize {
        self.checks.iter().filter(|check| check.spoiled_by_host).count()
    }

    /// Returns whether at least one check passed and none failed.
    pub fn holds(&self) -> bool {
        self.count(CheckVerdict::Fail) == 0 && self.count(CheckVerdict::Pass) > 0
    }
}

/// The schema of [`RecordingCertificate`].
pub const RECORDING_CERTIFICATE_SCHEMA: &str = "longhaul.recording_certificate/1";

/// The comparison of a recorded path with the link that replays it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordingCertificate {
    /// [`RECORDING_CERTIFICATE_SCHEMA`].
    pub schema: String,
    /// The time for which the replayed link was measured.
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
    /// The value of the replayed link.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_of_version_1_still_reads() {
        let text = r#"{"schema":"longhaul.certificate/1","version":"0.1.0",
            "started":"2026-11-21T12:00:00Z","kernel":"6.18.0","processors":2,"quick":true,
            "seed":7,"seconds":31.5,"false_alarm":0.004,"checks":[
            {"name":"loss 1e-2","family":"ipv4","options":"--up-loss 1e-2","unit":"share",
             "configured":0.01,"measured":0.0101,"interval_95":[0.0097,0.0105],"emulator":0.0101,
             "samples":200000,"criterion":"inside 99.99 %","verdict":"pass"},
            {"name":"identity","family":"ipv6","options":"","unit":"count","configured":0.0,
             "measured":null,"interval_95":null,"emulator":null,"samples":0,"criterion":"none",
             "verdict":"not_done","reason":"no IPv6 here"}]}"#;
        let mut certificate: Certificate = serde_json::from_str(text).unwrap();
        assert!(certificate.holds());
        assert_eq!(certificate.count(CheckVerdict::NotDone), 1);
        let again = serde_json::to_string(&certificate).unwrap();
        assert_eq!(serde_json::from_str::<Certificate>(&again).unwrap(), certificate);
        certificate.checks[0].verdict = CheckVerdict::NotDone;
        assert!(!certificate.holds(), "nothing was checked");
        assert_eq!((certificate.spoiled(), certificate.checks[0].outcome()), (0, "not done"));
        certificate.checks[0].spoiled_by_host = true;
        assert_eq!((certificate.spoiled(), certificate.checks[0].outcome()), (1, "invalid, host"));
        let again = serde_json::to_string(&certificate).unwrap();
        assert_eq!(serde_json::from_str::<Certificate>(&again).unwrap(), certificate);
    }

    #[test]
    fn figures_carry_their_unit() {
        assert_eq!(CheckUnit::Ms.format(10.0213), "10.021 ms");
        assert_eq!(CheckUnit::Bps.format(9.99e9), "9.99 Gb/s");
        assert_eq!(CheckUnit::Share.format(1.02e-4), "1.020e-4");
        assert_eq!(
            (CheckUnit::Count.format(5.0), CheckUnit::Count.format(4.5)),
            ("5".into(), "4.500".into())
        );
    }
}
