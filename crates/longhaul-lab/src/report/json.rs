//! Renders an archive as JSON.

use longhaul_core::result::RunRecord;
use serde::Serialize;

use crate::archive::{Contents, Header, PathRecord, Tool};
use crate::plan::fingerprint;
use crate::table::Table;

/// The document `longhaul.matrix/1`.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    plan_fingerprint: String,
    header: &'a Header,
    tools: &'a [Tool],
    table: &'a Table,
    #[serde(rename = "surveys")]
    path_records: &'a [PathRecord],
    runs: &'a [RunRecord],
}

/// Renders everything as one JSON document, `longhaul.matrix/1`, with a final line break.
pub fn json(contents: &Contents, table: &Table) -> String {
    let document = Document {
        schema: "longhaul.matrix/1",
        plan_fingerprint: fingerprint(&contents.header.plan),
        header: &contents.header,
        tools: &contents.tools,
        table,
        path_records: &contents.path_records,
        runs: &contents.runs,
    };
    // Serialization cannot fail: the document consists of numbers, texts and lists of these.
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}
