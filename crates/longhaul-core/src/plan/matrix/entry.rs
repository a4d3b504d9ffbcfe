use serde::{Deserialize, Serialize};

use super::list;
use crate::units::Bytes;

/// A tool with options, and what it is given to do.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The driver, such as `iperf3` or `longhaul cp`.
    pub tool: String,
    /// Names of workloads: those of the plan, and `memory` and `disk` for its tables of these
    /// names.
    #[serde(alias = "workload", deserialize_with = "list::of")]
    pub workloads: Vec<String>,
    /// Arguments added to the tool's command.
    #[serde(default)]
    pub options: Vec<String>,
    /// The row's name where tool and options would not read well.
    #[serde(default)]
    pub label: Option<String>,
    /// Numbers of parallel streams to try, by the tool's own option; none leaves the tool's
    /// default.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "list::of")]
    pub streams: Vec<u32>,
    /// Window sizes to try, by the tool's own option; none leaves the tool's default.
    #[serde(rename = "windows_bytes", alias = "windows", default)]
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "list::of")]
    pub windows: Vec<Bytes>,
    /// Numbers of clients to start at once; none is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "list::of")]
    pub clients: Vec<u32>,
    /// Size of made files for this entry where it is less than the workload's: for a tool so slow
    /// that the whole size would only repeat the same second. The table says so.
    #[serde(rename = "size_bytes", alias = "size", default)]
    pub size: Option<Bytes>,
}

impl Entry {
    /// A tool without options, given one workload.
    pub fn new(tool: &str, workload: &str) -> Self {
        let (tool, workloads) = (tool.to_owned(), vec![workload.to_owned()]);
        Entry { tool, workloads, ..Entry::default() }
    }

    /// The entry's name: `label`, or the tool with its options.
    pub fn label(&self) -> String {
        match &self.label {
            Some(label) => label.clone(),
            None if self.options.is_empty() => self.tool.clone(),
            None => format!("{} {}", self.tool, self.options.join(" ")),
        }
    }

    /// Whether `name` means this entry: its label, its tool, or the program of its tool.
    pub fn is_called(&self, name: &str) -> bool {
        let program = self.tool.split(' ').next();
        self.label() == name || self.tool == name || program == Some(name)
    }
}
