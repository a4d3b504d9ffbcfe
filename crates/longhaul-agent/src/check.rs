//! The self-check of an agent.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use crate::agent::AgentOptions;
use crate::client::{HubClient, Trust};
use crate::error::AgentError;
use crate::home::Home;
use crate::journal::Journal;
use crate::measure::host_state;

/// The result of one check.
#[derive(Debug)]
pub struct CheckItem {
    /// The checked object.
    pub name: &'static str,
    /// The result.
    pub result: CheckResult,
}

/// The result of a check.
#[derive(Debug)]
pub enum CheckResult {
    /// The check passed; the text has the checked value.
    Passed(String),
    /// Another agent runs with the directory, so the check is not possible.
    Running,
    /// The check failed.
    Failed(AgentError),
    /// The check failed with a plain message.
    Wrong(String),
}

/// The free space below which an agent is about to refuse runs.
const LEAST_FREE_BYTES: u64 = 100 << 20;

/// Checks the directory, the key, the enrollment, the journal, the program, the reflector's port and
/// the hub. Changes nothing, except that it creates an empty directory if there is none.
pub fn check(options: &AgentOptions) -> Vec<CheckItem> {
    let mut items = Vec::new();
    let mut add = |name, result| items.push(CheckItem { name, result });
    let home = match Home::open(&options.state) {
        Ok(home) => home,
        Err(error) => {
            let running = matches!(error, AgentError::InUse(_));
            let result = if running { CheckResult::Running } else { CheckResult::Failed(error) };
            add("state directory", result);
            return items;
        }
    };
    add("state directory", CheckResult::Passed(options.state.display().to_string()));
    let (free, _) = host_state(&options.state);
    let text = format!("{} MiB free", free >> 20);
    let enough = free >= LEAST_FREE_BYTES;
    add("disk", if enough { CheckResult::Passed(text) } else { CheckResult::Wrong(text) });
    let key = home.identity().map(|identity| identity.public().fingerprint());
    add("key", of(key));
    add("journal", of(check_journal(&home)));
    add("program", check_program(&options.program));
    for address in &options.reflectors {
        let bound = UdpSocket::bind(address);
        add(
            "STAMP reflector",
            match bound {
                Ok(_) => CheckResult::Passed(address.to_string()),
                Err(error) => CheckResult::Wrong(format!("{address}: {error}")),
            },
        );
    }
    match home.enrollment() {
        Ok(Some(enrollment)) => {
            let text = format!("{} as {}", enrollment.host, enrollment.agent);
            add("enrollment", CheckResult::Passed(text));
            let trust = Trust::of(enrollment.pin.as_deref(), options.ca.as_deref());
            add("hub", check_hub(&enrollment.hub, &trust));
        }
        Ok(None) => {
            if let (Some(hub), Some(token)) = (&options.hub, &options.token) {
                add(
                    "enrollment",
                    CheckResult::Passed("at the first start, by the token".to_owned()),
                );
                let trust = Trust::of(token.pin.as_deref(), options.ca.as_deref());
                add("hub", check_hub(&hub.to_string(), &trust));
            } else {
                let error = AgentError::NotEnrolled(options.state.clone());
                add("enrollment", CheckResult::Failed(error));
            }
        }
        Err(error) => add("enrollment", CheckResult::Failed(error)),
    }
    items
}

fn of(result: Result<String, AgentError>) -> CheckResult {
    result.map_or_else(CheckResult::Failed, CheckResult::Passed)
}

fn check_journal(home: &Home) -> Result<String, AgentError> {
    let path = home.file("journal.db");
    if !fs::exists(&path).unwrap_or(false) {
        return Ok("none yet".to_owned());
    }
    let journal = Journal::open(&path)?;
    Ok(format!("{} entries to send, {} runs open", journal.backlog()?, journal.open_runs()?.len()))
}

fn check_program(program: &Path) -> CheckResult {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => {
            CheckResult::Passed(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(output) => CheckResult::Wrong(format!("{}: {}", program.display(), output.status)),
        Err(error) => CheckResult::Wrong(format!("{}: {error}", program.display())),
    }
}

/// Checks that the hub answers with an accepted certificate; any answer is good.
fn check_hub(hub: &str, trust: &Trust) -> CheckResult {
    let begun = SystemTime::now();
    let url = match hub.parse() {
        Ok(url) => url,
        Err(error) => return CheckResult::Wrong(format!("{hub}: {error}")),
    };
    let answer: Result<serde_json::Value, AgentError> =
        HubClient::new(url, trust).and_then(|client| client.get("/api/v1/openapi.json", &[]));
    match answer {
        Err(error @ (AgentError::Unreachable { .. } | AgentError::Certificate { .. })) => {
            CheckResult::Failed(error)
        }
        _ => {
            let elapsed = begun.elapsed().unwrap_or_default();
            CheckResult::Passed(format!("{hub} answers in {} ms", elapsed.as_millis()))
        }
    }
}
