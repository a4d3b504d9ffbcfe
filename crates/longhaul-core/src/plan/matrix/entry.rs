//! The entries of a matrix plan.

use serde::{Deserialize, Serialize};

use super::list;
use crate::units::Bytes;

/// A tool with its options and its work.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Entry {
    /// The driver, for example `iperf3` or `longhaul cp`.
    pub tool: String,
    /// The names of workloads: those of the plan, and `memory` and `disk` for the tables with these
    /// names.
    #[serde(alias = "workload", deserialize_with = "list::of")]
    pub workloads: Vec<String>,
    /// Arguments appended to the tool's command.
    #[serde(default)]
    pub options: Vec<String>,
    /// The name of the row, if tool and options would not be readable.
    #[serde(default)]
    pub label: Option<String>,
    /// The numbers of parallel streams to try, by the tool's option; empty means the tool's
    /// default.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "list::of")]
    pub streams: Vec<u32>,
    /// The window sizes to try, by the tool's option; empty means the tool's default.
    #[serde(rename = "windows_bytes", alias = "windows", default)]
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "list::of")]
    pub windows: Vec<Bytes>,
    /// The numbers of simultaneous clients; empty means one.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "list::of")]
    pub clients: Vec<u32>,
    /// The size of created files for this entry if it is smaller than the workload's, for a tool so
    /// slow that the full size adds no information. The table states it.
    #[serde(rename = "size_bytes", alias = "size", default)]
    pub size: Option<Bytes>,
}

impl Entry {
    /// Creates a tool without options and with one workload.
    pub fn new(tool: &str, workload: &str) -> Self {
        let (tool, workloads) = (tool.to_owned(), vec![workload.to_owned()]);
        Entry { tool, workloads, ..Entry::default() }
    }

    /// Returns the entry's name: `label`, or the tool with its options.
    pub fn label(&self) -> String {
        match &self.label {
            Some(label) => label.clone(),
            None if self.options.is_empty() => self.tool.clone(),
            None => format!("{} {}", self.tool, self.options.join(" ")),
        }
    }

    /// Returns whether `name` refers to this entry: by its label, its tool, or the tool's program.
    pub fn is_called(&self, name: &str) -> bool {
        let program = self.tool.split(' ').next();
        self.label() == name || self.tool == name || program == Some(name)
    }
}
