//! Constraints on cells.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::list;
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
}

fn paths<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<String, Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    struct Values(#[serde(deserialize_with = "list::of_scalars")] Vec<String>);
    let named = BTreeMap::<String, Values>::deserialize(d)?;
    Ok(named.into_iter().map(|(option, Values(values))| (option, values)).collect())
}
