use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::plan::{Condition, Workload};
use crate::units::{Bytes, Rate};

/// One run of one tool over one path: the document `longhaul.run/1`.
///
/// It is complete: the exact commands, what they printed, what the path counted, and whether the
/// figure may be believed. Later versions may add fields; readers of version 1 ignore them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The version of this document.
    pub schema: RunSchema,
    /// The run's place in the whole matrix, from 1; names its file.
    pub sequence: u32,
    /// The pass that the run belongs to, from 1.
    pub repeat: u32,
    /// Which attempt at this place it is, from 1: an invalid run is made again.
    #[serde(default = "first")]
    pub attempt: u32,
    /// The driver.
    pub tool: String,
    /// The row's name.
    pub label: String,
    /// The options that the plan added.
    pub options: Vec<String>,
    /// What the tool was given to do.
    pub workload: Workload,
    /// The path.
    pub condition: Condition,
    /// How it ended.
    pub outcome: Outcome,
    /// The figure of the table. Memory: what the tool measured, without the omitted seconds.
    /// Disk: bytes over the wall-clock time of the command. `None` when the run failed.
    pub throughput_bps: Option<Rate>,
    /// What the tool itself says it reached, where it says so.
    pub tool_throughput_bps: Option<Rate>,
    /// Bytes copied (disk) or counted by the tool (memory).
    pub bytes: Option<Bytes>,
    /// Wall-clock seconds of the near command.
    pub seconds: Option<f64>,
    /// `seconds`, and the time after it until the copy was on stable storage (disk only).
    pub durable_seconds: Option<f64>,
    /// What the transfer promised.
    pub guarantees: Guarantees,
    /// How this host's page cache was treated before a disk run.
    pub caches: Option<Caches>,
    /// Whether the page cache of the far end was left as it was: that of another host is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub far_caches_kept: bool,
    /// When the run began, RFC 3339 in UTC.
    pub started_at: String,
    /// What the tool says its version is.
    pub tool_version: String,
    /// The command at the near end, as a shell would take it.
    pub near_command: String,
    /// The server's command at the far end, for tools that need one.
    pub far_command: Option<String>,
    /// The near command's output.
    pub near_output: ToolOutput,
    /// The server's output.
    pub far_output: Option<ToolOutput>,
    /// What was odd without making the run invalid.
    pub notes: Vec<String>,
    /// The path's own counters, in the path's own words.
    pub path: Value,
    /// What the host did meanwhile; `None` in documents of the first version.
    #[serde(default)]
    pub host: Option<HostLoad>,
    /// What was moved; `None` in documents that do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkDone>,
    /// Parallel streams that were asked for; `None` is the tool's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// The window that was asked for; `None` is the tool's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_bytes: Option<Bytes>,
    /// Clients that ran at once; `None` in documents that do not tell, of a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// What the path's chances followed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Processor time, in seconds, of what the commands themselves used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuSeconds>,
    /// What the path carried over time, by its own counters, whatever the tool says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<RunSample>,
}

/// The workload of a run as it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkDone {
    /// The plan's name for it.
    pub name: String,
    /// How many files; `None` for a timed test.
    pub files: Option<u64>,
    /// The size of each, where they are of one size.
    pub file_bytes: Option<Bytes>,
}

/// Processor time of the commands at the two ends, their children included as far as they were
/// waited for, in user and in kernel mode. What the kernel does for a flow on behalf of nobody,
/// and what the emulator uses, is not in it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CpuSeconds {
    /// Of the command at the near end.
    pub near_seconds: f64,
    /// Of the server; `None` where the tool needs none.
    pub far_seconds: Option<f64>,
}

impl CpuSeconds {
    /// Of both ends.
    pub fn total_seconds(&self) -> f64 {
        self.near_seconds + self.far_seconds.unwrap_or_default()
    }
}

/// What passed the path in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RunSample {
    /// The interval's end, after the command was started.
    pub seconds: f64,
    /// The mean rate since the last one, in the direction that carried more, headers of IP and
    /// TCP and what was sent again included.
    pub throughput_bps: Rate,
}

/// What the host's processors did while a command ran, as shares (0 to 1) of all their time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HostLoad {
    /// Not idle, the run's own work included.
    pub busy_share: f64,
    /// Taken by the hypervisor for someone else.
    pub steal_share: f64,
}

const fn first() -> u32 {
    1
}

/// The name and version of a run's document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunSchema {
    /// The first.
    #[serde(rename = "longhaul.run/1")]
    V1,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// It ended well, and its figure counts.
    Ok,
    /// The tool failed, or what it delivered is wrong; there is no figure.
    Failed {
        /// One line.
        reason: String,
    },
    /// The tool ended well over a path that was not what was asked for; its figure is kept and
    /// not counted.
    Invalid {
        /// One line.
        reason: String,
    },
}

/// What a transfer promises, so that unlike things are not silently compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Guarantees {
    /// The data cannot be read on the way.
    pub encrypted: bool,
    /// The tool itself compares a checksum of the contents, end to end.
    pub verified: bool,
    /// The data is on stable storage when the tool ends.
    pub synced: bool,
}

/// How the page cache was treated before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Caches {
    /// The host's page cache was dropped.
    Dropped,
    /// The kernel was advised to drop the source's pages, for want of the right to drop all.
    Advised,
}

/// What a command printed and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ToolOutput {
    /// The exit code; `None` when a signal ended it.
    pub exit_code: Option<i32>,
    /// Standard output, up to a bound.
    pub stdout: String,
    /// Standard error, up to a bound.
    pub stderr: String,
    /// Whether either went on beyond the bound.
    pub truncated: bool,
}

impl ToolOutput {
    /// The last line that says something: of standard error, else of standard output.
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

    /// Written by the first version; never edited. A reader that fails on it has broken the
    /// promise that archives stay readable.
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
