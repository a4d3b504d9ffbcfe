//! Words for the agent of a fleet: notices and checks.

use std::fmt::Write as _;

use longhaul_agent::{CheckItem, CheckResult, Notice};
use longhaul_core::text::Escaped;
use serde_json::{Value, json};

use super::failure::failure_text;

/// The result of the check of a directory that a running agent uses.
const RUNNING: &str =
    "an agent runs with this directory; its journal and its STAMP port are not checked";

/// Returns a notice as one line.
pub(crate) fn agent_notice(notice: &Notice<'_>) -> String {
    match notice {
        Notice::Enrolled { host, agent } => {
            format!("enrolled as {} (agent {})", Escaped(host), Escaped(agent))
        }
        Notice::Started { host, hub } => {
            format!("the agent of {} works for {hub}", Escaped(host))
        }
        Notice::HubBack => "the hub answers again".to_owned(),
        Notice::HubAway(error) => {
            format!("{}; the agent keeps its results and retries", failure_text(*error))
        }
        Notice::RunStarted { run, test } => {
            format!("run {run} of {} started", Escaped(test))
        }
        Notice::RunOver { run, reason: None } => format!("run {run} has ended"),
        Notice::RunOver { run, reason: Some(reason) } => {
            format!("run {run} has no result: {}", reason.replace('_', " "))
        }
        Notice::DiskFull => {
            "the disk of the journal is full: no runs start until there is space".to_owned()
        }
        Notice::PartFailed { part, message } => format!("{part} failed: {message}"),
    }
}

/// Returns the checks of an agent as a document and as text.
pub(crate) fn agent_checks(items: &[CheckItem]) -> (Value, String) {
    let mut text = String::new();
    let mut rows = Vec::new();
    for CheckItem { name, result } in items {
        let (state, detail) = match result {
            CheckResult::Passed(value) => ("ok", value.clone()),
            CheckResult::Running => ("running", RUNNING.to_owned()),
            CheckResult::Failed(error) => ("failed", failure_text(error)),
            CheckResult::Wrong(message) => ("failed", message.clone()),
        };
        let _ = writeln!(text, "{name:16} {state:8} {}", Escaped(&detail));
        // The name in the document does not change with the spelling of the text.
        let check = if *name == "enrollment" { "enrolment" } else { name };
        rows.push(json!({ "check": check, "state": state, "detail": detail }));
    }
    (json!({ "schema": "longhaul.agent-check/1", "checks": rows }), text)
}
