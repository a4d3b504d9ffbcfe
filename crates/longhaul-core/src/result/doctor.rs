use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Rate};

/// What an examination of a host found; `docs/design/results.md` has every field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DoctorReport {
    /// [`DoctorReport::SCHEMA`].
    pub schema: String,
    /// Of longhaul.
    pub version: String,
    /// The host as it was named on the command line; `None` for the one the command ran on.
    #[serde(default)]
    pub host: Option<String>,
    /// What kind of host it is.
    pub about: HostSummary,
    /// What it was examined for.
    pub target: DoctorTarget,
    /// In the order of the rules; see [`DoctorReport::of`] for one verdict's.
    pub findings: Vec<Finding>,
    /// What the active part measured; empty when it was not asked for.
    #[serde(default)]
    pub measurements: Vec<Measurement>,
    /// How long it took.
    pub seconds: f64,
}

/// A host in a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostSummary {
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// The processor's model.
    pub processor: Option<String>,
    /// Processors online.
    pub processors: Option<u32>,
    /// NUMA nodes online.
    pub nodes: Option<u32>,
    /// Main memory.
    pub memory_bytes: Option<Bytes>,
    /// Whether it is a virtual machine.
    pub virtual_machine: Option<bool>,
}

/// Where a figure of the target comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetSource {
    /// From the command line.
    Asked,
    /// The rate at which the interface works.
    Interface,
    /// The time that a connection to the host took to open.
    Measured,
    /// Nobody said.
    Assumed,
}

impl fmt::Display for TargetSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TargetSource::Asked => "asked for",
            TargetSource::Interface => "the interface's",
            TargetSource::Measured => "measured",
            TargetSource::Assumed => "assumed",
        })
    }
}

/// What a host is to be good for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DoctorTarget {
    /// The rate that transfers are to reach.
    pub rate_bps: Rate,
    /// Where it comes from.
    pub rate_from: TargetSource,
    /// The round-trip time at which they are to reach it.
    pub rtt_ms: f64,
    /// Where it comes from.
    pub rtt_from: TargetSource,
    /// What is under way when the rate fills the round trip: `rate x RTT / 8`.
    pub bdp_bytes: Bytes,
    /// The host at the other end, if one was named.
    #[serde(default)]
    pub to: Option<String>,
    /// The port of `longhaul serve` there and here.
    pub port: u16,
}

/// How good a thing is for the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It keeps transfers from the target, or makes them wrong.
    Problem,
    /// It may be better.
    Advice,
    /// It could not be looked at, or does not say.
    Unseen,
    /// It is as it should be.
    Ok,
}

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Area {
    /// The way to the host named.
    Path,
    /// How much TCP may hold.
    Windows,
    /// How TCP behaves.
    Tcp,
    /// A network interface.
    Interface,
    /// The bus that a network interface or disk is on.
    Pcie,
    /// Who handles the network's interrupts, and where.
    Interrupts,
    /// The processors.
    Processor,
    /// Disks and file systems.
    Disk,
    /// Clock, limits, firewall.
    System,
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Area::Path => "path",
            Area::Windows => "windows",
            Area::Tcp => "tcp",
            Area::Interface => "interface",
            Area::Pcie => "pcie",
            Area::Interrupts => "interrupts",
            Area::Processor => "processor",
            Area::Disk => "disk",
            Area::System => "system",
        })
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The rule's name, which stays the same over versions.
    pub rule: String,
    /// What it is about.
    pub area: Area,
    /// The interface, disk or path; empty when it is the host itself.
    #[serde(default)]
    pub subject: String,
    /// What was looked at, in words.
    pub title: String,
    /// How good it is.
    pub verdict: Verdict,
    /// The value seen; for [`Verdict::Unseen`] what could not be read, and why.
    pub seen: String,
    /// The value wanted; empty where there is none.
    #[serde(default)]
    pub wanted: String,
    /// Why, with the arithmetic.
    #[serde(default)]
    pub why: String,
    /// What to run; for [`Verdict::Unseen`], what lets it be seen. Each is one line of shell.
    #[serde(default)]
    pub commands: Vec<String>,
}

/// A thing that the active part measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Its name, which stays the same over versions: `memory_copy`, `blake3`, `xxh3`,
    /// `aes_256_gcm`, `disk_write`, `disk_read`, `loopback_tcp`.
    pub name: String,
    /// What was measured, in words.
    pub title: String,
    /// What it came to; `None` when it failed.
    pub throughput_bps: Option<Rate>,
    /// For how long it ran.
    pub seconds: f64,
    /// How it was measured, or why it failed.
    pub note: String,
}

impl DoctorReport {
    /// The schema's name and version.
    pub const SCHEMA: &str = "longhaul.doctor/1";

    /// The findings of one verdict, in the order of the rules.
    pub fn of(&self, verdict: Verdict) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.verdict == verdict)
    }

    /// Whether something keeps the host from the target.
    pub fn has_problems(&self) -> bool {
        self.of(Verdict::Problem).next().is_some()
    }
}
