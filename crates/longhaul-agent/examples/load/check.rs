//! The checks of a loaded hub: latencies, the age of the newest sample, and acknowledged samples that
//! the hub does not return.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_agent::{AgentError, HubClient};
use serde_json::Value;

use crate::Options;
use crate::agent::{Simulated, now_ms};
use crate::figures::Figures;

/// Sends an upload without a long poll each second, and reads the grid and a series.
pub(crate) fn probe(
    options: &Options,
    bearer: &str,
    agent: &mut Simulated,
    stop: &AtomicBool,
    figures: &Figures,
) {
    let Ok(client) = options.client() else { return };
    let mut at = 0usize;
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_secs(1));
        at += 1;
        if let Err(error) = agent.sync(Some(0), figures) {
            figures.failed(&error);
        }
        let sent = Instant::now();
        let host = format!("h{:04}", at * 37 % 1000 % options.agents());
        let read = match at % 3 {
            // The first uploads of all agents take 60 s.
            1 if at < 60 => continue,
            0 => get(&client, bearer, "/api/v1/status").map(|_| "status"),
            1 => series(&client, bearer, (&host, "eth0"), figures).map(|_| "series_3_minutes"),
            _ => continue,
        };
        match read {
            Ok(what) => figures.took(what, sent.elapsed()),
            Err(error) => figures.failed(&error),
        }
    }
}

fn get(client: &HubClient, bearer: &str, path: &str) -> Result<Value, AgentError> {
    client.get(path, &[("authorization", bearer)])
}

/// Reads the last samples of a series, and notes the age of the newest.
fn series(
    client: &HubClient,
    bearer: &str,
    (host, name): (&str, &str),
    figures: &Figures,
) -> Result<(), AgentError> {
    let query = format!("kind=interface&host={host}&name={name}&from=now-3m&to=now&step=1");
    let found = get(client, bearer, &format!("/api/v1/series?{query}"))?;
    let newest = found["rows"].as_array().and_then(|rows| rows.last()?["start_ms"].as_i64());
    let end = newest.map_or(now_ms() - 180_000, |start| start + 1000);
    let age = (now_ms() - end).max(0);
    figures.took("age_of_newest_sample", Duration::from_millis(age.unsigned_abs()));
    Ok(())
}

/// Returns the number of acknowledged samples that the hub does not return, of 40 series.
pub(crate) fn missing(
    options: &Options,
    bearer: &str,
    agents: &[Simulated],
) -> Result<Value, AgentError> {
    let client = options.client()?;
    let (mut read, mut expected) = (0, 0);
    for agent in agents.iter().step_by((agents.len() / 40).max(1)) {
        let Some((first, last)) = agent.acknowledged_ms else { continue };
        let query = format!(
            "kind=interface&host={}&name=eth0&from={}&to={}&step=1",
            agent.host,
            first - 1000,
            last
        );
        let found = get(&client, bearer, &format!("/api/v1/series?{query}"))?;
        read += found["rows"].as_array().map_or(0, Vec::len) as i64;
        expected += agent.acknowledged;
    }
    Ok(serde_json::json!({"expected": expected, "read": read}))
}
