//! The document of one run of a matrix.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::flow::FlowFigures;
use crate::plan::{Condition, Workload};
use crate::units::{Bytes, Rate};

/// One run of one tool over one path: the document `longhaul.run/1`.
///
/// The document is complete: it has the exact commands, their output, the counters of the path, and
/// the validity of the figure. Later versions may add fields; readers of version 1 ignore these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The version of this document.
    pub schema: RunSchema,
    /// The position of the run in the whole matrix, from 1; part of its file name.
    pub sequence: u32,
    /// The pass of the run, from 1.
    pub repeat: u32,
    /// The number of the attempt at this position, from 1: an invalid run is repeated.
    #[serde(default = "first")]
    pub attempt: u32,
    /// The name of the driver.
    pub tool: String,
    /// The name of the row.
    pub label: String,
    /// The options that the plan added.
    pub options: Vec<String>,
    /// The kind of work.
    pub workload: Workload,
    /// The conditions of the path.
    pub condition: Condition,
    /// The outcome of the run.
    pub outcome: Outcome,
    /// The figure in the table. Memory: the tool's measurement without the omitted seconds. Disk:
    /// bytes divided by the wall-clock time of the command. `None` if the run failed.
    pub throughput_bps: Option<Rate>,
    /// The rate that the tool reports; `None` if it reports none.
    pub tool_throughput_bps: Option<Rate>,
    /// The bytes copied (disk) or counted by the tool (memory).
    pub bytes: Option<Bytes>,
    /// The wall-clock seconds of the near command.
    pub seconds: Option<f64>,
    /// `seconds` plus the time until the copy was on stable storage (disk only).
    pub durable_seconds: Option<f64>,
    /// The guarantees of the transfer.
    pub guarantees: Guarantees,
    /// The treatment of this host's page cache before a disk run.
    pub caches: Option<Caches>,
    /// True if the page cache of the far end was kept, because it is another host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub far_caches_kept: bool,
    /// The start time of the run, RFC 3339 in UTC.
    pub started_at: String,
    /// The version that the tool reports.
    pub tool_version: String,
    /// The command at the near end in shell syntax.
    pub near_command: String,
    /// The server's command at the far end, for tools that need one.
    pub far_command: Option<String>,
    /// The output of the near command.
    pub near_output: ToolOutput,
    /// The output of the server.
    pub far_output: Option<ToolOutput>,
    /// Unusual observations that do not invalidate the run.
    pub notes: Vec<String>,
    /// The counters of the path, in the path's own format.
    pub path: Value,
    /// The load of the host during the run; `None` in documents of the first version.
    #[serde(default)]
    pub host: Option<HostLoad>,
    /// The data that were moved; `None` in documents that do not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkDone>,
    /// The requested number of parallel streams; `None` means the tool's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// The requested window; `None` means the tool's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_bytes: Option<Bytes>,
    /// The number of simultaneous clients; `None` for one client, or in documents that do not
    /// record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// The seed of the path's random decisions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The CPU seconds of the commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuSeconds>,
    /// The throughput over time by the path's own counters, independent of the tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<RunSample>,
    /// The flows beside the tool, if the plan measures their share and recovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<FlowFigures>,
}

/// The workload of a run as it was executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkDone {
    /// The plan's name of the workload.
    pub name: String,
    /// The number of files; `None` for a timed test.
    pub files: Option<u64>,
    /// The size of each file, if all have one size.
    pub file_bytes: Option<Bytes>,
}

/// The CPU seconds, user and system, of the commands at the two ends and of the children that they
/// waited for. Kernel work that belongs to no process is not included. Over an emulated path, the
/// kernel's receiving TCP work runs when the emulator writes a packet, and belongs to the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CpuSeconds {
    /// The command at the near end.
    pub near_seconds: f64,
    /// The server; `None` if the tool needs none, or if the far end is another host.
    pub far_seconds: Option<f64>,
    /// The program that emulates the path, while the clients ran; `None` over other paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulator_seconds: Option<f64>,
}

impl CpuSeconds {
    /// Returns the sum of the commands at both ends, without the emulator.
    pub fn total_seconds(&self) -> f64 {
        self.near_seconds + self.far_seconds.unwrap_or_default()
    }
}

/// The throughput of the path in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RunSample {
    /// The end of the interval in seconds after the start of the command.
    pub seconds: f64,
    /// The mean rate since the previous sample in the busier direction, including IP and TCP
    /// headers and retransmissions.
    pub throughput_bps: Rate,
}

/// The load of the host's processors while a command ran, as shares (0 to 1) of all their time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HostLoad {
    /// The share that was not idle, including the run's own work.
    pub busy_share: f64,
    /// The share that the hypervisor took for other guests.
    pub steal_share: f64,
}

const fn first() -> u32 {
    1
}

/// The name and version of a run document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunSchema {
    /// The first version.
    #[serde(rename = "longhaul.run/1")]
    V1,
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// The run is valid and its figure counts.
    Ok,
    /// The tool failed or delivered wrong data; there is no figure.
    Failed {
        /// The reason in one line.
        reason: String,
    },
    /// The tool succeeded over a path that violated its conditions; the figure is recorded but does
    /// not count.
    Invalid {
        /// The reason in one line.
        reason: String,
    },
}

/// The guarantees of a transfer, so that comparisons can state differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Guarantees {
    /// The data are encrypted in transit.
    pub encrypted: bool,
    /// The tool compares a checksum of the contents end to end.
    pub verified: bool,
    /// The data are on stable storage when the tool ends.
    pub synced: bool,
}

/// The treatment of the page cache before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Caches {
    /// The host's page cache was dropped.
    Dropped,
    /// The kernel was advised to drop the source's pages, because the user may not drop all.
    Advised,
}

/// The output of a command and its exit status.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ToolOutput {
    /// The exit code; `None` if a signal ended it.
    pub exit_code: Option<i32>,
    /// Standard output up to a limit.
    pub stdout: String,
    /// Standard error up to a limit.
    pub stderr: String,
    /// True if either exceeded the limit.
    pub truncated: bool,
}

impl ToolOutput {
    /// Returns the last non-empty line of standard error, or else of standard output.
    pub fn last_line(&self) -> Option<&str> {
        [&self.stderr, &self.stdout]
            .into_iter()
            .find_map(|text| text.lines().map(str::trim).rfind(|line| !line.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The text was written by the first version and must never be edited: a reader that rejects it
    /// cannot read old archives.
    const FIXTURE: &str = r#"{
        "schema": "longhaul.run/1", "sequence": 7, "repeat": 1, "tool": "scp", "label": "scp",
        "options": [], "workload": "disk", "condition": {"rtt_ms": 90.0, "rate_bps": null},
        "outcome": {"status": "failed", "reason": "connection closed"},
        "throughput_bps": null, "tool_throughput_bps": null, "bytes": null, "seconds": 1.5,
        "durable_seconds": null,
        "guarantees": {"encrypted": true, "verified": false, "synced": false},
        "caches": "dropped", "started_at": "2026-11-21T08:00:00Z", "tool_version": "OpenSSH_9.2p1",
        "near_command": "scp a far:b", "far_command": "sshd -D",
        "near_output": {"exit_code": 255, "stdout": "", "stderr": "lost\n\n", "truncated": false},
        "far_output": null, "notes": [], "path": {"packets": 5}, "added_later": true
    }"#;

    #[test]
    fn a_version_1_document_still_reads() {
        let run: RunRecord = serde_json::from_str(FIXTURE).unwrap();
        assert_eq!(run.condition.rtt, Duration::from_millis(90));
        assert_eq!(run.outcome, Outcome::Failed { reason: "connection closed".into() });
        assert_eq!(run.near_output.last_line(), Some("lost"));
        let again = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<RunRecord>(&again).unwrap(), run);
    }

    #[test]
    fn another_version_is_refused() {
        let other = FIXTURE.replace("longhaul.run/1", "longhaul.run/9");
        assert!(serde_json::from_str::<RunRecord>(&other).is_err());
    }
}
