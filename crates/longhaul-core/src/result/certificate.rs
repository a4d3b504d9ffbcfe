use serde::{Deserialize, Serialize};

use crate::units::Rate;

/// In what a check's figures are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Milliseconds.
    Ms,
    /// Bits a second.
    Bps,
    /// A share of something, from 0 to 1.
    Share,
    /// A number of segments, or of anything else that is counted.
    Count,
}

impl Unit {
    /// A figure as a person reads it.
    pub fn format(self, value: f64) -> String {
        match self {
            Unit::Ms => format!("{value:.3} ms"),
            Unit::Bps => Rate::from_bps(value.max(0.0).round() as u64).to_string(),
            Unit::Share if value == 0.0 => "0".to_owned(),
            Unit::Share => format!("{value:.3e}"),
            Unit::Count if value.fract() == 0.0 => format!("{value}"),
            Unit::Count => format!("{value:.3}"),
        }
    }
}

/// What a check came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckVerdict {
    /// The link did what was asked of it.
    Pass,
    /// It did not.
    Fail,
    /// Nothing is known: the machine lacks something, or was too slow for the check.
    NotDone,
}

/// What a machine alone does to the time of a thread: on each processor one thread of real-time
/// priority that did nothing but sleep for a millisecond and look how late it was woken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineTiming {
    /// Whether the threads had real-time priority; without it, other programs are in the figures.
    pub realtime: bool,
    /// For how long it was watched.
    pub seconds: f64,
    /// Processors that were watched.
    pub processors: u32,
    /// How often a thread was woken.
    pub wakings: u64,
    /// How late: the median, in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile, in milliseconds.
    pub p99_ms: f64,
    /// 99.9th percentile, in milliseconds.
    pub p999_ms: f64,
    /// The largest, in milliseconds.
    pub max_ms: f64,
    /// The part of all processors' time that the host of this virtual machine withheld, 0 to 1;
    /// zero on hardware.
    pub withheld_share: f64,
}

/// One property of the emulator, as an independent probe saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What was checked; with `family` it is unique.
    pub name: String,
    /// `ipv4` or `ipv6`.
    pub family: String,
    /// The link options, as `longhaul wan run` takes them.
    pub options: String,
    /// In what the figures are.
    pub unit: Unit,
    /// What was asked for.
    pub configured: Option<f64>,
    /// What the probe saw.
    pub measured: Option<f64>,
    /// What the true figure may be, given what was seen: it is inside in 95 % of all such runs.
    pub interval_95: Option<(f64, f64)>,
    /// What the emulator itself counted.
    pub emulator: Option<f64>,
    /// How many datagrams, runs or windows `measured` is of.
    pub samples: u64,
    /// The rule by which it passed or failed.
    pub criterion: String,
    /// Whether it did.
    pub verdict: CheckVerdict,
    /// Why not; empty for a pass.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The figure is outside its range, but this machine did as badly in the same seconds without
    /// the emulator, so that it says nothing of the emulator; `verdict` is then
    /// [`CheckVerdict::NotDone`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spoiled_by_host: bool,
    /// What the machine did to a bare timer in the same seconds; with checks of delay and
    /// of rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineTiming>,
}

impl Check {
    /// The verdict in words.
    pub fn outcome(&self) -> &'static str {
        match self.verdict {
            _ if self.spoiled_by_host => "invalid, host",
            CheckVerdict::Pass => "pass",
            CheckVerdict::Fail => "FAIL",
            CheckVerdict::NotDone => "not done",
        }
    }
}

/// What an emulator can do on one machine, as measured there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// [`Certificate::SCHEMA`].
    pub schema: String,
    /// Of longhaul.
    pub version: String,
    /// When it began (RFC 3339).
    pub started: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Processors that the emulator, the sender and the receiver shared.
    pub processors: u32,
    /// Fewer datagrams were sent than for a full certificate.
    pub quick: bool,
    /// What the random decisions followed from.
    pub seed: u64,
    /// How long it took.
    pub seconds: f64,
    /// The chance that at least one check of a right emulator fails, at most.
    pub false_alarm: f64,
    /// In the order in which they were made.
    pub checks: Vec<Check>,
}

impl Certificate {
    /// The schema's name and version.
    pub const SCHEMA: &str = "longhaul.certificate/1";

    /// How many checks came to `verdict`; those that the host spoiled count as not done.
    pub fn count(&self, verdict: CheckVerdict) -> usize {
        self.checks.iter().filter(|check| check.verdict == verdict).count()
    }

    /// How many checks the host spoiled.
    pub fn spoiled(&self) -> usize {
        self.checks.iter().filter(|check| check.spoiled_by_host).count()
    }

    /// Whether something was checked and nothing failed.
    pub fn holds(&self) -> bool {
        self.count(CheckVerdict::Fail) == 0 && self.count(CheckVerdict::Pass) > 0
    }
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
        assert_eq!(Unit::Ms.format(10.0213), "10.021 ms");
        assert_eq!(Unit::Bps.format(9.99e9), "9.99 Gb/s");
        assert_eq!(Unit::Share.format(1.02e-4), "1.020e-4");
        assert_eq!(
            (Unit::Count.format(5.0), Unit::Count.format(4.5)),
            ("5".into(), "4.500".into())
        );
    }
}
