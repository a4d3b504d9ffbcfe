//! Renders an archive for other programs: as JSON, and its runs as CSV.

use longhaul_core::result::{Outcome, RunRecord};
use longhaul_core::text::escape;
use serde::Serialize;

use crate::archive::{Contents, MatrixHeader, PathRecord, Tool};
use crate::flow_share::{FlowShare, flow_shares};
use crate::plan::fingerprint;
use crate::table::Table;

/// The document `longhaul.matrix/1`.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    plan_fingerprint: String,
    header: &'a MatrixHeader,
    tools: &'a [Tool],
    table: &'a Table,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    flow_shares: Vec<FlowShare>,
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
        flow_shares: flow_shares(contents, table),
        path_records: &contents.path_records,
        runs: &contents.runs,
    };
    // Serialization cannot fail: the document consists of numbers, texts and lists of these.
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

/// The columns, named as in the archive's table `run` if it has them.
const COLUMNS: [&str; 42] = [
    "sequence",
    "attempt",
    "repeat",
    "tool",
    "label",
    "workload",
    "work",
    "files",
    "file_bytes",
    "path",
    "rtt_ms",
    "rate_bps",
    "loss_share",
    "streams",
    "window_bytes",
    "clients",
    "status",
    "reason",
    "throughput_bps",
    "tool_throughput_bps",
    "bytes",
    "seconds",
    "durable_seconds",
    "near_cpu_seconds",
    "far_cpu_seconds",
    "emulator_cpu_seconds",
    "encrypted",
    "verified",
    "synced",
    "busy_share",
    "steal_share",
    "seed",
    "started_at",
    "tool_version",
    "near_command",
    "flow_congestion",
    "flow_before_share",
    "flow_mean_share",
    "flow_least_share",
    "flow_recovery_seconds",
    "flow_after_seconds",
    "notes",
];

/// Renders every run as a row of comma-separated values (RFC 4180) for spreadsheets and data
/// frames. An empty field means a missing figure.
pub fn csv(contents: &Contents) -> String {
    let mut table = line(COLUMNS.map(str::to_owned));
    for run in &contents.runs {
        table.push_str(&line(fields(run)));
    }
    table
}

fn fields(run: &RunRecord) -> [String; COLUMNS.len()] {
    let (status, reason) = match &run.outcome {
        Outcome::Ok => ("ok", ""),
        Outcome::Failed { reason } => ("failed", reason.as_str()),
        Outcome::Invalid { reason } => ("invalid", reason.as_str()),
    };
    let work = run.work.as_ref();
    let promised = |promise: bool| u8::from(promise).to_string();
    [
        run.sequence.to_string(),
        run.attempt.to_string(),
        run.repeat.to_string(),
        text(&run.tool),
        text(&run.label),
        run.workload.name().to_owned(),
        work.map(|work| text(&work.name)).unwrap_or_default(),
        number(work.and_then(|work| work.files)),
        number(work.and_then(|work| work.file_bytes).map(|bytes| bytes.get())),
        text(&run.condition.label()),
        (run.condition.rtt.as_nanos() as f64 / 1e6).to_string(),
        number(run.condition.rate.map(|rate| rate.bps())),
        number(run.condition.loss()),
        number(run.streams),
        number(run.window_bytes.map(|bytes| bytes.get())),
        run.clients.unwrap_or(1).to_string(),
        status.to_owned(),
        text(reason),
        number(run.throughput_bps.map(|rate| rate.bps())),
        number(run.tool_throughput_bps.map(|rate| rate.bps())),
        number(run.bytes.map(|bytes| bytes.get())),
        number(run.seconds),
        number(run.durable_seconds),
        number(run.cpu.map(|cpu| cpu.near_seconds)),
        number(run.cpu.and_then(|cpu| cpu.far_seconds)),
        number(run.cpu.and_then(|cpu| cpu.emulator_seconds)),
        promised(run.guarantees.encrypted),
        promised(run.guarantees.verified),
        promised(run.guarantees.synced),
        number(run.host.map(|host| host.busy_share)),
        number(run.host.map(|host| host.steal_share)),
        number(run.seed),
        text(&run.started_at),
        text(&run.tool_version),
        text(&run.near_command),
        run.flows
            .as_ref()
            .and_then(|flows| flows.congestion.as_deref())
            .map(text)
            .unwrap_or_default(),
        number(run.flows.as_ref().map(|flows| flows.before_share)),
        number(run.flows.as_ref().map(|flows| flows.mean_share)),
        number(run.flows.as_ref().and_then(|flows| flows.least_share)),
        number(run.flows.as_ref().and_then(|flows| flows.recovery_seconds)),
        number(run.flows.as_ref().map(|flows| flows.after_seconds)),
        text(&run.notes.join("; ")),
    ]
}

/// Returns a text that no spreadsheet interprets as a formula: an apostrophe precedes a first
/// character that would begin one.
fn text(text: &str) -> String {
    let guard = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    format!("{guard}{}", escape(text))
}

fn number<T: ToString>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn line<const N: usize>(fields: [String; N]) -> String {
    let quoted = fields.map(|field| {
        if field.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", field.replace('"', "\"\""))
        } else {
            field
        }
    });
    quoted.join(",") + "\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn each_run_is_a_row_and_odd_text_is_quoted() {
        let mut contents = fixture::contents();
        contents.runs[1].notes = vec!["rare packets were late".into(), "a second".into()];
        let text = csv(&contents);
        let rows: Vec<&str> = text.split_terminator("\r\n").collect();
        assert_eq!(rows.len(), contents.runs.len() + 1);
        assert!(rows[0].starts_with("sequence,attempt,repeat,tool,label,workload,work,files"));
        assert_eq!(
            rows[1],
            "1,1,1,iperf3,iperf3,memory,,,,0 ms,0,,,,,1,invalid,dropped 7 packets,23750000000,,\
             1073741824,0.3616814565052632,,,,,0,1,0,,,,2026-11-21T09:00:01Z,1,iperf3 far,,,,,,,"
        );
        assert!(rows[2].ends_with(",rare packets were late; a second"), "{}", rows[2]);
        assert_eq!(super::text("=cmd|'/c calc'!A0\n"), "'=cmd|'/c calc'!A0%0A");
        assert_eq!(line(["a \"b\", c".to_owned()]), "\"a \"\"b\"\", c\"\r\n");
    }
}
