//! Runs as the lines that pScheduler's archivers read: one JSON object per run, between a record
//! separator and a line feed (RFC 7464).
//!
//! An archiver takes `data` (its own settings), `result`, `attempts` and `last-attempt`; most store
//! `result` as it is. The keys are those of the daemon `archiver` of pScheduler 5, and the result of a
//! throughput test follows schema 1 of its test `throughput`.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use jiff::Timestamp;
use longhaul_fleet::api::{RunDocument, RunState};
use longhaul_fleet::protocol::TestKind;
use serde_json::{Value as Json, json};

use crate::hub::Hub;
use crate::records::runs::run_of;
use crate::web::failure::Failure;

/// The maximum number of bytes of the settings of an archiver.
const DATA_BYTES: usize = 4096;
/// The maximum number of bytes of a document in `diags`.
const DIAGS_BYTES: usize = 256 << 10;

/// Returns the lines of runs that are over. The documents are read one after the other, while the
/// client takes the lines.
pub(super) fn archiver_lines(
    hub: Arc<Hub>,
    runs: Vec<RunDocument>,
    data: Option<&str>,
) -> Result<Response, Failure> {
    let text = data.unwrap_or("{}");
    let data = serde_json::from_str::<Json>(text).ok();
    let data = data.filter(|data| data.is_object() && text.len() <= DATA_BYTES);
    let data = data.ok_or_else(|| Failure::bad("'data' of the query is not a JSON object"))?;
    let over = runs.into_iter().filter(|run| run.state.is_final()).collect::<Vec<_>>();
    let lines = stream::unfold((hub, data, over.into_iter()), async |(hub, data, mut left)| {
        let run = left.next()?;
        let id = run.run.clone();
        let line = match hub.store.read(move |sql| run_of(sql, &id)).await {
            Ok(found) => Ok(line(&found.unwrap_or(run), &data)),
            // The client sees an answer that is cut off.
            Err(error) => {
                hub.log.store_failure(&error);
                Err(std::io::Error::other("the database failed"))
            }
        };
        Some((line, (hub, data, left)))
    });
    let kind = [(header::CONTENT_TYPE, "application/json-seq")];
    Ok((kind, Body::from_stream(lines)).into_response())
}

fn line(run: &RunDocument, data: &Json) -> String {
    let run_href = format!("/runs/{}", run.run);
    let task_href = format!("/pairs/{}/{}", run.source, run.destination);
    let test = json!({"type": test_type(run.kind), "spec": spec(run)});
    let result = json!({
        "id": run.run,
        "schedule": {"start": time(start(run)), "duration": duration(run.window_end_ms - run.planned_ms)},
        "test": test,
        "tool": {"name": "longhaul", "version": env!("CARGO_PKG_VERSION")},
        "run": {
            "href": run_href,
            "task-href": task_href,
            "start-time": time(start(run)),
            "end-time": time(run.ended_ms.unwrap_or(run.window_end_ms)),
            "state": state(run.state),
            "participants": [run.source, run.destination],
        },
        "task": {"href": task_href, "test": test, "tool": "longhaul"},
        "participants": [run.source, run.destination],
        "result": outcome(run),
        "reference": {"longhaul": {
            "test": run.test,
            "state": run.state.as_str(),
            "reason": run.reason.map(|reason| reason.as_str()),
            "fencing": run.fencing,
        }},
    });
    let object = json!({
        "data": data,
        "task-href": task_href,
        "run-href": run_href,
        "result": result,
        "attempts": 0,
        "last-attempt": null,
    });
    format!("\u{1e}{object}\n")
}

fn start(run: &RunDocument) -> i64 {
    run.started_ms.unwrap_or(run.planned_ms)
}

fn time(ms: i64) -> String {
    Timestamp::from_millisecond(ms).unwrap_or_default().to_string()
}

/// Returns a duration in ISO 8601.
#[allow(clippy::cast_precision_loss)]
fn duration(ms: i64) -> String {
    format!("PT{}S", ms.max(0) as f64 / 1000.0)
}

/// Returns the type of the test in pScheduler.
fn test_type(kind: TestKind) -> &'static str {
    match kind {
        TestKind::Throughput | TestKind::Iperf3 | TestKind::Nuttcp => "throughput",
        TestKind::Path => "trace",
        TestKind::Copy | TestKind::Diagnose => "disk-to-disk",
    }
}

/// Returns the state of a run in the words of pScheduler.
fn state(state: RunState) -> &'static str {
    match state {
        RunState::Finished => "finished",
        RunState::Failed => "failed",
        RunState::Missed => "missed",
        RunState::Cancelled => "canceled",
        RunState::Planned | RunState::Leased | RunState::Running => "pending",
    }
}

fn spec(run: &RunDocument) -> Json {
    json!({"schema": 1, "source": run.source, "dest": run.destination})
}

/// Returns the result in the schema of the test, with the document of the run in `diags`.
fn outcome(run: &RunDocument) -> Json {
    let succeeded = run.state == RunState::Finished;
    let diags = run.document.as_ref().map(Json::to_string).unwrap_or_default();
    let diags = if diags.len() <= DIAGS_BYTES { diags } else { String::new() };
    let mut result = match test_type(run.kind) {
        "throughput" => throughput(run),
        "trace" => trace(run),
        _ => json!({"schema": 1, "throughput": run.throughput_bps}),
    };
    result["succeeded"] = json!(succeeded);
    result["diags"] = json!(diags);
    if !succeeded {
        let reason = run.reason.map(|reason| reason.as_str()).unwrap_or_default();
        result["error"] = json!(run.message.as_deref().unwrap_or(reason));
    }
    result
}

fn seconds(run: &RunDocument) -> f64 {
    let reported = run
        .document
        .as_ref()
        .and_then(|document| document.pointer("/summary/receiver/seconds").and_then(Json::as_f64));
    #[allow(clippy::cast_precision_loss)]
    let spent = (run.ended_ms.unwrap_or(start(run)) - start(run)).max(0) as f64 / 1000.0;
    reported.unwrap_or(spent)
}

#[allow(clippy::cast_precision_loss)]
fn throughput(run: &RunDocument) -> Json {
    let Some(bps) = run.throughput_bps else {
        return json!({"schema": 1, "intervals": [], "summary": {"streams": [], "summary": {}}});
    };
    let number = |path: &str| run.document.as_ref().and_then(|all| all.pointer(path)?.as_u64());
    let mut summary = json!({
        "start": 0.0,
        "end": seconds(run),
        "throughput-bits": bps,
        // A rate, in spite of its name: bytes per second.
        "throughput-bytes": bps as f64 / 8.0,
        "receiver-throughput-bits": bps,
    });
    if let Some(retransmits) = number("/summary/sender/retransmits") {
        summary["retransmits"] = json!(retransmits);
    }
    if let Some(rtt) = run.rtt_ms {
        summary["rtt"] = json!(rtt);
    }
    json!({"schema": 1, "intervals": [], "summary": {"streams": [], "summary": summary}})
}

/// Returns the hops of a `path` run as those of pScheduler's `trace`.
fn trace(run: &RunDocument) -> Json {
    let document = run.document.as_ref();
    let hops = document.and_then(|all| all.pointer("/forward/hops/list")?.as_array());
    let hop = |hop: &Json| {
        let address = hop.pointer("/addresses/0").and_then(Json::as_str);
        let rtt = hop.get("min_us").and_then(Json::as_f64);
        match (address, rtt) {
            (Some(ip), Some(us)) => json!({"ip": ip, "rtt": format!("PT{}S", us / 1e6)}),
            (Some(ip), None) => json!({ "ip": ip }),
            (None, _) => json!({"error": "no-response"}),
        }
    };
    let hops: Vec<Json> = hops.into_iter().flatten().take(64).map(hop).collect();
    let mut result = json!({"schema": 1, "paths": [hops]});
    if let Some(mtu) = run.mtu {
        result["mtu"] = json!(mtu);
    }
    result
}

#[cfg(test)]
mod tests {
    use longhaul_fleet::protocol::RunReason;

    use super::*;

    fn run(kind: TestKind) -> RunDocument {
        serde_json::from_value(json!({
            "run": "0198-1", "fencing": 7, "test": "bulk", "kind": kind.as_str(),
            "source": "a", "destination": "b", "state": "finished",
            "planned_ms": 1_700_000_000_000i64, "window_end_ms": 1_700_000_007_000i64,
            "started_ms": 1_700_000_000_500i64, "ended_ms": 1_700_000_003_000i64,
            "resources": [], "throughput_bps": 9_400_000_000u64, "rtt_ms": 12.5,
            "document": {"summary": {"receiver": {"seconds": 2.0}, "sender": {"retransmits": 3}}},
        }))
        .unwrap()
    }

    fn object(run: &RunDocument) -> Json {
        let line = line(run, &json!({"host": "archive"}));
        let text = line.strip_prefix('\u{1e}').unwrap().strip_suffix('\n').unwrap();
        assert!(!text.contains('\n') && !text.contains('\u{1e}'));
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_line_has_the_keys_that_archivers_read() {
        let found = object(&run(TestKind::Throughput));
        assert_eq!(found["data"]["host"], "archive");
        assert_eq!((&found["attempts"], &found["last-attempt"]), (&json!(0), &Json::Null));
        let result = &found["result"];
        assert_eq!(result["id"], "0198-1");
        assert_eq!(result["schedule"]["start"], "2023-11-14T22:13:20.5Z");
        assert_eq!(result["schedule"]["duration"], "PT7S");
        assert_eq!(result["participants"], json!(["a", "b"]));
        let summary = &result["result"]["summary"]["summary"];
        assert_eq!(summary["throughput-bits"], json!(9_400_000_000u64));
        assert_eq!((&summary["end"], &summary["retransmits"]), (&json!(2.0), &json!(3)));
        assert_eq!(result["result"]["succeeded"], true);
    }

    #[test]
    fn a_run_without_a_result_has_its_reason() {
        let mut missed = run(TestKind::Path);
        missed.state = RunState::Missed;
        missed.reason = Some(RunReason::AgentAway);
        let result = object(&missed)["result"].clone();
        assert_eq!(result["result"]["error"], "agent_away");
        assert_eq!(
            (&result["test"]["type"], &result["run"]["state"]),
            (&json!("trace"), &json!("missed"))
        );
    }
}
