//! The entries of a matrix plan, the constraints on its cells, and lists as documents write them.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::plan::link::Scalar;
use crate::units::Bytes;

/// A tool with its options and its work.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PlanEntry {
    /// The driver, for example `iperf3` or `longhaul cp`.
    pub tool: String,
    /// The names of workloads: those of the plan, and `memory` and `disk` for the tables with these
    /// names.
    #[serde(alias = "workload", deserialize_with = "one_or_many")]
    pub workloads: Vec<String>,
    /// Arguments appended to the tool's command.
    #[serde(default)]
    pub options: Vec<String>,
    /// The name of the row, for tools and options that would give an unreadable name.
    #[serde(default)]
    pub label: Option<String>,
    /// The numbers of parallel streams to try, by the tool's option; empty means the tool's
    /// default.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub streams: Vec<u32>,
    /// The window sizes to try, by the tool's option; empty means the tool's default.
    #[serde(rename = "windows_bytes", alias = "windows", default)]
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub windows: Vec<Bytes>,
    /// The sizes of each write to try, by the tool's option; empty means the tool's default.
    #[serde(rename = "messages_bytes", alias = "messages", default)]
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub messages: Vec<Bytes>,
    /// The numbers of simultaneous clients; empty means one.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub clients: Vec<u32>,
    /// The number of TCP flows of `longhaul test`, from the near to the far end, that share the path
    /// with the tool: cross traffic that reacts to congestion.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub beside: u32,
    /// The congestion controls of these flows to try; empty means the default of the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub beside_congestion: Vec<String>,
    /// The size of created files for this entry, if it is smaller than the workload's. It is for
    /// tools so slow that the full size would add no information. The table states the size.
    #[serde(rename = "size_bytes", alias = "size", default)]
    pub size: Option<Bytes>,
}

impl PlanEntry {
    /// Creates a tool without options and with one workload.
    pub fn new(tool: &str, workload: &str) -> Self {
        let (tool, workloads) = (tool.to_owned(), vec![workload.to_owned()]);
        PlanEntry { tool, workloads, ..PlanEntry::default() }
    }

    /// Returns the entry's name: `label`, or the tool with its options.
    pub fn label(&self) -> String {
        if let Some(label) = &self.label {
            return label.clone();
        }
        let mut label = self.tool.clone();
        if !self.options.is_empty() {
            label = format!("{label} {}", self.options.join(" "));
        }
        // Rows that differ in the congestion control of the flows name the flows themselves.
        match self.beside {
            flows if flows > 0 && self.beside_congestion.is_empty() => {
                format!("{label}, {}", self.beside_label(None))
            }
            _ => label,
        }
    }

    /// Returns the entry without flows beside the tool.
    #[must_use]
    pub fn without_flows(&self) -> Self {
        PlanEntry { beside: 0, beside_congestion: Vec::new(), ..self.clone() }
    }

    /// Returns the flows beside the tool as a part of a name, for example `beside 1 cubic flow`.
    pub(super) fn beside_label(&self, congestion: Option<&str>) -> String {
        let plural = if self.beside == 1 { "" } else { "s" };
        let congestion = congestion.map_or_else(String::new, |name| format!("{name} "));
        format!("beside {} {congestion}flow{plural}", self.beside)
    }

    /// Returns whether `name` refers to this entry: by its label, its tool, or the tool's program.
    pub fn is_called(&self, name: &str) -> bool {
        let program = self.tool.split(' ').next();
        self.label() == name || self.tool == name || program == Some(name)
    }
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A constraint: it matches the cells that satisfy all its fields.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Constraint {
    /// Entries by label, tool or program.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub tool: Vec<String>,
    /// Workloads, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub workload: Vec<String>,
    /// Numbers of streams.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub streams: Vec<u32>,
    /// Windows.
    #[serde(rename = "windows_bytes", alias = "windows", default)]
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub windows: Vec<Bytes>,
    /// Sizes of each write.
    #[serde(rename = "messages_bytes", alias = "messages", default)]
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub messages: Vec<Bytes>,
    /// Numbers of clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub clients: Vec<u32>,
    /// Values of link options, by the option's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "paths")]
    pub path: BTreeMap<String, Vec<String>>,
}

impl Constraint {
    /// Returns whether the constraint is empty and would match every cell.
    pub(super) fn is_empty(&self) -> bool {
        *self == Constraint::default()
    }
}

fn paths<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<String, Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    struct Values(#[serde(deserialize_with = "scalars")] Vec<String>);
    let named = BTreeMap::<String, Values>::deserialize(d)?;
    Ok(named.into_iter().map(|(option, Values(values))| (option, values)).collect())
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a value of the kind that belongs here, or a list of such")]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

/// Deserializes a list, for `#[serde(deserialize_with = "one_or_many")]`.
fn one_or_many<'de, T: Deserialize<'de>, D: Deserializer<'de>>(d: D) -> Result<Vec<T>, D::Error> {
    Ok(match OneOrMany::deserialize(d)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    })
}

/// Deserializes a list of texts, in which numbers are accepted too.
pub(super) fn scalars<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<String>, D::Error> {
    Ok(one_or_many::<Scalar, D>(d)?.into_iter().map(Scalar::text).collect())
}
