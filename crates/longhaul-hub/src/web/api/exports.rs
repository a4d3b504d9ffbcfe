//! Exports: JSON lines, CSV and Prometheus metrics.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use longhaul_core::text::escape;
use longhaul_fleet::api::{RunDocument, StatusDocument};
use serde::Serialize;

use crate::clock::now_ms;
use crate::hub::Hub;
use crate::records::buckets::blocks_waiting;
use crate::records::runs::name_of;
use crate::web::access::ApiCaller;
use crate::web::failure::Failure;

/// Returns a file to download.
pub(super) fn attachment(text: String, kind: &'static str, name: &str) -> Response {
    let disposition = format!("attachment; filename=\"{name}\"");
    ([(header::CONTENT_TYPE, kind.to_owned()), (header::CONTENT_DISPOSITION, disposition)], text)
        .into_response()
}

/// Returns documents as JSON, one per line.
pub(super) fn json_lines(documents: &[impl Serialize]) -> Response {
    let lines = documents.iter().filter_map(|one| serde_json::to_string(one).ok());
    let text: String = lines.map(|line| line + "\n").collect();
    attachment(text, "application/jsonl", "runs.jsonl")
}

/// Returns runs as CSV. A text that a spreadsheet would take for a formula begins with an
/// apostrophe.
pub(super) fn runs_csv(runs: &[RunDocument]) -> Response {
    let mut text = "run,test,kind,source,destination,state,reason,planned_ms,started_ms,ended_ms,\
                    throughput_bps,loss,rtt_ms,mtu,message\n"
        .to_owned();
    for run in runs {
        let number = |value: Option<i64>| value.map(|n| n.to_string()).unwrap_or_default();
        let real = |value: Option<f64>| value.map(|n| n.to_string()).unwrap_or_default();
        let cells = [
            quoted(&run.run),
            quoted(&run.test),
            run.kind.as_str().to_owned(),
            quoted(&run.source),
            quoted(&run.destination),
            run.state.as_str().to_owned(),
            run.reason.map(|reason| reason.as_str().to_owned()).unwrap_or_default(),
            run.planned_ms.to_string(),
            number(run.started_ms),
            number(run.ended_ms),
            number(run.throughput_bps.map(u64::cast_signed)),
            real(run.loss),
            real(run.rtt_ms),
            number(run.mtu.map(i64::from)),
            quoted(run.message.as_deref().unwrap_or_default()),
        ];
        text += &cells.join(",");
        text.push('\n');
    }
    attachment(text, "text/csv; charset=utf-8", "runs.csv")
}

fn quoted(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let apostrophe = if formula { "'" } else { "" };
    // A terminal would execute the control characters of a message.
    format!("\"{apostrophe}{}\"", escape(text).replace('"', "\"\""))
}

/// Returns the state of the fleet for Prometheus.
#[utoipa::path(get, path = "/metrics", responses((status = 200, body = String)))]
pub(crate) async fn get_metrics(
    State(hub): State<Arc<Hub>>,
    _: ApiCaller,
) -> Result<Response, Failure> {
    let applied = hub.applied();
    let now = now_ms();
    let read = move |sql: &mut dyn crate::store::Sql| {
        let status = super::status_document(sql, applied.as_deref(), now)?;
        let blocks = blocks_waiting(sql)?;
        Ok((status, [sql.size_bytes()?.unsigned_abs(), blocks]))
    };
    let waiting = hub.store.waiting();
    let (status, [size, blocks]) = hub.store.read(read).await?;
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let own = [
        ("database_bytes", "The size of the database.", size),
        ("blocks_waiting", "The blocks of samples that wait for consolidation.", blocks),
        ("store_waiting_reads", "The reading transactions that wait.", waiting.0 as u64),
        ("store_waiting_writes", "The writing transactions that wait.", waiting.1 as u64),
    ];
    Ok(([(header::CONTENT_TYPE, kind)], metrics(&status, &own)).into_response())
}

/// A gauge without labels: its name, its help and its value.
type Gauge = (&'static str, &'static str, u64);

fn metrics(status: &StatusDocument, own: &[Gauge]) -> String {
    let mut text = String::new();
    let without = u64::from(status.hosts_without_agent);
    let gauges: [Gauge; 5] = [
        ("hosts", "The number of hosts in the mesh.", u64::from(status.hosts)),
        ("hosts_without_agent", "The number of hosts that have no agent.", without),
        ("hosts_present", "The number of hosts in contact.", u64::from(status.hosts_present)),
        ("runs_expected_24h", "The runs of the last 24 hours that were due.", status.runs_expected),
        ("runs_finished_24h", "The runs of the last 24 hours with a result.", status.runs_finished),
    ];
    for (name, help, value) in gauges.iter().chain(own) {
        let _ = write!(
            text,
            "# HELP longhaul_fleet_{name} {help}\n# TYPE longhaul_fleet_{name} gauge\n"
        );
        let _ = writeln!(text, "longhaul_fleet_{name} {value}");
    }
    text +=
        "# HELP longhaul_fleet_cell_value The last value of a cell: bit/s, share, ms or bytes.\n";
    text += "# TYPE longhaul_fleet_cell_value gauge\n";
    for cell in &status.cells {
        let Some(value) = cell.value else { continue };
        let labels = [
            ("source", cell.source.clone()),
            ("destination", cell.destination.clone()),
            ("metric", name_of(&cell.metric)),
            ("state", name_of(&cell.state)),
        ];
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let _ = writeln!(text, "longhaul_fleet_cell_value{{{}}} {value}", labels.join(","));
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_texts_stay_in_their_cells() {
        assert_eq!(quoted("=cmd()"), "\"'=cmd()\"");
        assert_eq!(quoted("a\"b,c"), "\"a\"\"b,c\"");
        assert_eq!(quoted("a\u{1b}[2J\nb 5%"), "\"a%1B[2J%0Ab 5%\"");
        assert_eq!(escaped("a\"\n\\"), "a\\\"\\n\\\\");
    }
}
