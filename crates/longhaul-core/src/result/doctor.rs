//! The report of an examination of a host.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use crate::units::{Bytes, Rate};

/// The findings about a host; `docs/design/results.md` describes every field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DoctorReport {
    /// [`DoctorReport::SCHEMA`].
    pub schema: String,
    /// The version of longhaul.
    pub version: String,
    /// The host as the user named it; `None` for the local host.
    #[serde(default)]
    pub host: Option<String>,
    /// A short description of the host.
    pub about: HostSummary,
    /// The target of the examination.
    pub target: DoctorTarget,
    /// The findings in the order of the rules; [`DoctorReport::of`] selects those of one verdict.
    pub findings: Vec<Finding>,
    /// The active measurements; empty if none were requested.
    #[serde(default)]
    pub measurements: Vec<Measurement>,
    /// The duration in seconds.
    pub seconds: f64,
}

/// A short description of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostSummary {
    /// The release of the kernel.
    pub kernel: Option<String>,
    /// The model of the processor.
    pub processor: Option<String>,
    /// The number of online processors.
    pub processors: Option<u32>,
    /// The number of online NUMA nodes.
    pub nodes: Option<u32>,
    /// The size of main memory.
    pub memory_bytes: Option<Bytes>,
    /// True if the host is a virtual machine.
    pub virtual_machine: Option<bool>,
}

/// The origin of a figure of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetSource {
    /// The user gave the figure on the command line.
    Asked,
    /// The rate of the interface.
    Interface,
    /// A connection to the host took this time to open.
    Measured,
    /// Assumed by default.
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

/// The rate and round-trip time that a host must support.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DoctorTarget {
    /// The rate that transfers must reach.
    pub rate_bps: Rate,
    /// The origin of the rate.
    pub rate_from: TargetSource,
    /// The round-trip time of the path in ms.
    pub rtt_ms: f64,
    /// The origin of the round-trip time.
    pub rtt_from: TargetSource,
    /// The bandwidth-delay product: `rate x RTT / 8`.
    pub bdp_bytes: Bytes,
    /// The host at the other end, if the user named one.
    #[serde(default)]
    pub to: Option<String>,
    /// The port of `longhaul serve` on both hosts.
    pub port: u16,
}

/// The verdict on a subject for the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingVerdict {
    /// The subject prevents transfers at the target rate, or makes their data incorrect.
    Problem,
    /// The subject could be improved.
    Advice,
    /// The subject could not be read, or does not report its state.
    Unseen,
    /// The subject is in order.
    Ok,
}

/// The area of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Area {
    /// The path to the named host.
    Path,
    /// The buffers of TCP.
    Windows,
    /// The behavior of TCP.
    Tcp,
    /// A network interface.
    Interface,
    /// The bus of a network interface or disk.
    Pcie,
    /// The handling of network interrupts.
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

/// The result of one rule: a case with its values. The program fills in the sentences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The name of the rule, which never changes.
    pub rule: String,
    /// The area of the rule.
    pub area: Area,
    /// The interface, disk or path; empty for the host itself.
    #[serde(default)]
    pub subject: String,
    /// The subject of the rule, as text.
    #[serde(default)]
    pub title: String,
    /// The verdict.
    pub verdict: FindingVerdict,
    /// The value read; for [`FindingVerdict::Unseen`] the unreadable item and the reason.
    #[serde(rename = "seen", default)]
    pub present: String,
    /// The wanted value; empty if the rule has none.
    #[serde(default)]
    pub wanted: String,
    /// The reason, with its arithmetic.
    #[serde(default)]
    pub why: String,
    /// The shell commands that correct the state, one line each; for [`FindingVerdict::Unseen`] the
    /// commands that make the subject readable.
    #[serde(default)]
    pub commands: Vec<String>,
    /// The case of the rule that applies; empty in documents of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub case: String,
    /// The values of the case. Their names end in their units.
    #[serde(default, deserialize_with = "known", skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, FindingValue>,
}

impl Finding {
    /// The beginning of the cases of an unseen fact that a privilege makes readable.
    pub const DENIED: &str = "denied";

    /// Returns whether a missing privilege hides a fact that the rule needs.
    pub fn is_denied(&self) -> bool {
        self.case.starts_with(Finding::DENIED)
    }
}

/// A value of a [`Finding`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FindingValue {
    /// A whole number.
    Count(u64),
    /// Another number.
    Number(f64),
    /// A name, or a list of names.
    Text(String),
}

/// Reads the values of a case, except those of unknown types.
fn known<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<String, FindingValue>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Any {
        Known(FindingValue),
        Unknown(IgnoredAny),
    }
    let all = BTreeMap::<String, Any>::deserialize(d)?;
    let known = all.into_iter().filter_map(|(name, value)| match value {
        Any::Known(value) => Some((name, value)),
        Any::Unknown(IgnoredAny) => None,
    });
    Ok(known.collect())
}

impl From<u64> for FindingValue {
    fn from(count: u64) -> Self {
        FindingValue::Count(count)
    }
}

impl From<u32> for FindingValue {
    fn from(count: u32) -> Self {
        FindingValue::Count(count.into())
    }
}

impl From<f64> for FindingValue {
    fn from(number: f64) -> Self {
        FindingValue::Number(number)
    }
}

impl From<Bytes> for FindingValue {
    fn from(bytes: Bytes) -> Self {
        FindingValue::Count(bytes.get())
    }
}

impl From<Rate> for FindingValue {
    fn from(rate: Rate) -> Self {
        FindingValue::Count(rate.bps())
    }
}

impl From<&str> for FindingValue {
    fn from(text: &str) -> Self {
        FindingValue::Text(text.to_owned())
    }
}

impl From<String> for FindingValue {
    fn from(text: String) -> Self {
        FindingValue::Text(text)
    }
}

/// An active measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The name, which never changes: `memory_copy`, `blake3`, `xxh3`, `aes_256_gcm`, `disk_write`,
    /// `disk_read`, `loopback_tcp`.
    pub name: String,
    /// The subject of the measurement, as text.
    pub title: String,
    /// The result; `None` if the measurement failed.
    pub throughput_bps: Option<Rate>,
    /// The duration in seconds.
    pub seconds: f64,
    /// The method, or the reason for the failure.
    pub note: String,
}

impl DoctorReport {
    /// The schema's name and version.
    pub const SCHEMA: &str = "longhaul.doctor/1";

    /// Returns the findings with one verdict, in the order of the rules.
    pub fn of(&self, verdict: FindingVerdict) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.verdict == verdict)
    }

    /// Returns whether any finding is a problem.
    pub fn has_problems(&self) -> bool {
        self.of(FindingVerdict::Problem).next().is_some()
    }
}
