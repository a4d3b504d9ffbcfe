//! Constraints on cells.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::conditions::same_value;
use super::{Condition, Entry, Row, list};
use crate::units::Bytes;

/// A constraint: it matches the cells that satisfy all its fields.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Rule {
    /// Entries by label, tool or program.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "list::of")]
    pub tool: Vec<String>,
    /// Workloads, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "list::of")]
    pub workload: Vec<String>,
    /// Numbers of streams.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "list::of")]
    pub streams: Vec<u32>,
    /// Windows.
    #[serde(rename = "windows_bytes", alias = "windows", default)]
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "list::of")]
    pub windows: Vec<Bytes>,
    /// Numbers of clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "list::of")]
    pub clients: Vec<u32>,
    /// Values of link options, by the option's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "paths")]
    pub path: BTreeMap<String, Vec<String>>,
}

impl Rule {
    /// Returns whether the constraint is empty and would match every cell.
    pub(super) fn is_empty(&self) -> bool {
        *self == Rule::default()
    }

    /// Returns whether the constraint matches a cell.
    pub(super) fn matches(&self, entry: &Entry, row: &Row, condition: &Condition) -> bool {
        let fits = |wanted: &[u32], has: Option<u32>| {
            wanted.is_empty() || has.is_some_and(|has| wanted.contains(&has))
        };
        (self.tool.is_empty() || self.tool.iter().any(|name| entry.is_called(name)))
            && (self.workload.is_empty() || self.workload.contains(&row.work.name))
            && fits(&self.streams, row.streams)
            && (self.windows.is_empty() || row.window.is_some_and(|w| self.windows.contains(&w)))
            && fits(&self.clients, Some(row.clients))
            && self.path.iter().all(|(option, values)| {
                let has = condition.option(option);
                has.is_some_and(|has| values.iter().any(|value| same_value(option, value, &has)))
            })
    }
}

fn paths<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<String, Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    struct Values(#[serde(deserialize_with = "list::of_scalars")] Vec<String>);
    let named = BTreeMap::<String, Values>::deserialize(d)?;
    Ok(named.into_iter().map(|(option, Values(values))| (option, values)).collect())
}
