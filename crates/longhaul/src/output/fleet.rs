//! The documents of a hub as text.

use std::fmt::Write as _;
use std::time::Duration;

use longhaul_core::text::escape;
use longhaul_core::units::Rate;
use longhaul_fleet::api::{
    ApplyDocument, CellMetric, CellState, HostState, HostsDocument, PlanDocument, RevokedDocument,
    RunDocument, RunsDocument, StatusDocument,
};

/// The maximum number of rows of the load table.
const LOAD_ROWS: usize = 20;
/// The most runs of a cycle that are printed; the JSON document has more.
const RUN_ROWS: usize = 20;

/// Returns the plan of a mesh: tests, load, differences; the last line is the time of a cycle.
pub(crate) fn fleet_plan_text(plan: &PlanDocument) -> String {
    let mut rows = vec![["test", "pairs", "rounds", "slot", "every"].map(str::to_owned).to_vec()];
    rows.extend(plan.tests.iter().map(|test| {
        let every = match test.every_seconds {
            0 => "always".to_owned(),
            seconds => span(seconds.into()),
        };
        let (pairs, rounds) = (test.pairs.to_string(), test.rounds.to_string());
        vec![test.test.clone(), pairs, rounds, span(test.slot_seconds.into()), every]
    }));
    let mut text = table(&rows);
    let mut rows =
        vec![["resource", "capacity", "busy", "mean", "light"].map(str::to_owned).to_vec()];
    rows.extend(plan.load.iter().take(LOAD_ROWS).map(|load| {
        vec![
            load.resource.clone(),
            Rate::from_bps(load.capacity_bps).to_string(),
            format!("{:.1} %", load.busy_share * 100.0),
            Rate::from_bps(load.mean_bps).to_string(),
            Rate::from_bps(load.light_bps).to_string(),
        ]
    }));
    let _ = writeln!(text, "\n{}", table(&rows).trim_end());
    if plan.load.len() > LOAD_ROWS {
        let _ = writeln!(text, "and {} resources with less load", plan.load.len() - LOAD_ROWS);
    }
    text += &planned_runs(plan);
    let _ = writeln!(text, "\n{}", change_lines(&plan.changes).trim_end());
    let cycle = span(plan.cycle_seconds);
    let rounds = if plan.rounds == 1 { "round" } else { "rounds" };
    let _ = writeln!(
        text,
        "\n{}: {} hosts, a full cycle takes {cycle} in {} {rounds}",
        escape(&plan.mesh),
        plan.hosts,
        plan.rounds
    );
    text
}

/// Returns the first runs of a cycle with their starts.
fn planned_runs(plan: &PlanDocument) -> String {
    if plan.runs.is_empty() {
        return String::new();
    }
    let mut rows = vec![["start", "test", "source", "destination"].map(str::to_owned).to_vec()];
    rows.extend(plan.runs.iter().take(RUN_ROWS).map(|run| {
        let start = format!("+{}", span(run.offset_seconds));
        vec![start, run.test.clone(), run.source.clone(), run.destination.clone()]
    }));
    let mut text = format!("\n{}\n", table(&rows).trim_end());
    let all: usize = plan.tests.iter().map(|test| test.pairs as usize).sum();
    if all > rows.len() - 1 {
        let _ = writeln!(text, "and {} later runs of the cycle", all - (rows.len() - 1));
    }
    text
}

/// Returns the applied differences; the last line is the revision.
pub(crate) fn fleet_apply_text(done: &ApplyDocument) -> String {
    let (mesh, revision) = (escape(&done.mesh), done.revision);
    format!("{}{mesh} is at revision {revision}\n", change_lines(&done.changes))
}

fn change_lines(changes: &[String]) -> String {
    match changes {
        [] => "no differences\n".to_owned(),
        changes => changes.iter().map(|line| format!("{}\n", escape(line))).collect(),
    }
}

/// Returns the cells that are not good, and the summary.
pub(crate) fn fleet_status_text(status: &StatusDocument) -> String {
    let mut rows =
        vec![["source", "destination", "metric", "state", "value"].map(str::to_owned).to_vec()];
    let bad = status
        .cells
        .iter()
        .filter(|cell| !matches!(cell.state, CellState::Good | CellState::NotTested));
    rows.extend(bad.map(|cell| {
        let value =
            cell.value.map_or_else(|| "-".to_owned(), |value| cell_value(cell.metric, value));
        vec![
            cell.source.clone(),
            cell.destination.clone(),
            metric_name(cell.metric).to_owned(),
            state_name(cell.state).to_owned(),
            value,
        ]
    }));
    let mut text = if rows.len() > 1 { table(&rows) + "\n" } else { String::new() };
    let good = status.cells.iter().filter(|cell| cell.state == CellState::Good).count();
    let Some(mesh) = &status.mesh else {
        return "the hub has no mesh: apply one with 'longhaul fleet apply mesh.toml'\n".to_owned();
    };
    let without = match status.hosts_without_agent {
        0 => String::new(),
        count => format!(", {count} without an agent"),
    };
    let _ = writeln!(
        text,
        "{}: {} of {} hosts present{without}, {good} of {} cells good, {} of {} due runs of 24 h \
         finished",
        escape(mesh),
        status.hosts_present,
        status.hosts.saturating_sub(status.hosts_without_agent),
        status.cells.len(),
        status.runs_finished,
        status.runs_expected
    );
    text
}

fn metric_name(metric: CellMetric) -> &'static str {
    match metric {
        CellMetric::Throughput => "throughput",
        CellMetric::Loss => "loss",
        CellMetric::Rtt => "rtt",
        CellMetric::Mtu => "mtu",
    }
}

fn cell_value(metric: CellMetric, value: f64) -> String {
    match metric {
        CellMetric::Throughput => Rate::from_bps(value as u64).to_string(),
        CellMetric::Loss => format!("{:.3} %", value * 100.0),
        CellMetric::Rtt => format!("{value:.2} ms"),
        CellMetric::Mtu => format!("{value:.0} bytes"),
    }
}

fn state_name(state: CellState) -> &'static str {
    match state {
        CellState::Good => "good",
        CellState::Warning => "warning",
        CellState::Critical => "critical",
        CellState::Unknown => "unknown",
        CellState::NotRun => "not run",
        CellState::Maintenance => "maintenance",
        CellState::NotTested => "not tested",
    }
}

/// Returns a table of the hosts.
pub(crate) fn fleet_hosts_text(hosts: &HostsDocument) -> String {
    let head = ["host", "agent", "version", "address", "clock", "memory", "backlog"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let none = || "-".to_owned();
    rows.extend(hosts.hosts.iter().map(|host| {
        let report = host.report.as_ref();
        let state = match host.state {
            HostState::Present => "present",
            HostState::Away => "away",
            HostState::Maintenance => "maintenance",
            HostState::NotEnrolled => "not enrolled",
            HostState::Revoked => "revoked",
            HostState::NoAgent => "none",
        };
        vec![
            host.name.clone(),
            state.to_owned(),
            report.map_or_else(none, |report| report.version.clone()),
            host.address.clone().unwrap_or_else(none),
            host.clock_offset_ms.map_or_else(none, |offset| format!("{offset:+} ms")),
            report.map_or_else(none, |report| format!("{} MiB", report.memory_bytes >> 20)),
            report.map_or_else(none, |report| report.backlog.to_string()),
        ]
    }));
    table(&rows)
}

/// Returns the revoked agent, and the command for a new one.
pub(crate) fn fleet_revoked_text(revoked: &RevokedDocument) -> String {
    let (host, agent) = (escape(&revoked.host), escape(&revoked.agent));
    format!(
        "revoked the agent {agent} of {host}\n\
         'longhaul fleet token {host}' creates a token for another agent\n"
    )
}

/// Returns a table of runs.
pub(crate) fn fleet_runs_text(runs: &RunsDocument) -> String {
    let head = ["run", "planned", "test", "source", "destination", "state", "result"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(runs.runs.iter().map(|run| {
        vec![
            run.run.clone(),
            time(run.planned_ms),
            run.test.clone(),
            run.source.clone(),
            run.destination.clone(),
            run.state.as_str().to_owned(),
            outcome(run),
        ]
    }));
    table(&rows)
}

/// Returns one run with its message and its result document.
pub(crate) fn fleet_run_text(run: &RunDocument) -> String {
    let mut text = format!(
        "{} of {} from {} to {} at {}: {}, {}\n",
        escape(&run.run),
        escape(&run.test),
        escape(&run.source),
        escape(&run.destination),
        time(run.planned_ms),
        run.state.as_str(),
        outcome(run)
    );
    if let Some(message) = &run.message {
        let _ = writeln!(text, "message: {}", escape(message));
    }
    if let Some(document) = &run.document {
        let document = serde_json::to_string_pretty(document).unwrap_or_default();
        let _ = writeln!(text, "{}", longhaul_core::text::escape_json(&document));
    }
    text
}

fn outcome(run: &RunDocument) -> String {
    let rate = run.throughput_bps.map(|bps| Rate::from_bps(bps).to_string());
    let loss = || run.loss.map(|loss| format!("loss {:.3} %", loss * 100.0));
    let reason = || run.reason.map(|reason| reason.as_str().replace('_', " "));
    rate.or_else(loss).or_else(reason).unwrap_or_else(|| "-".to_owned())
}

fn time(ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    time.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// Returns whole seconds with the largest units: `1 h 30 min`.
fn span(seconds: u64) -> String {
    let time = Duration::from_secs(seconds).as_secs();
    let (hours, minutes, seconds) = (time / 3600, time / 60 % 60, time % 60);
    match (hours, minutes, seconds) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, 0) => format!("{minutes} min"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, 0, 0) => format!("{hours} h"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// Returns rows with aligned columns. The first row is the heading.
fn table(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| escape(cell).into_owned()).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let width = *width;
            let _ = write!(line, "{cell:width$}  ");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use longhaul_fleet::api::{STATUS_SCHEMA, plan_document};
    use longhaul_fleet::mesh::parse;

    use super::*;

    #[test]
    fn a_plan_ends_with_the_time_of_a_cycle() {
        let mesh = parse(
            "name = \"two\"\n[hosts.a]\naddress=\"10.0.0.1\"\ncapacity=\"10G\"\n\
             [hosts.b]\naddress=\"10.0.0.2\"\ncapacity=\"1G\"\n\
             [tests.daily]\nkind=\"throughput\"\nseconds=85\nevery=\"1h\"\n",
        );
        let text = fleet_plan_text(&plan_document(&mesh.unwrap(), None, 0));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "test   pairs  rounds  slot        every");
        assert_eq!(lines[1], "daily  2      1       1 min 30 s  1 h");
        assert!(text.contains("a/default/in   10.0 Gb/s  2.5 %"), "{text}");
        assert!(text.contains("+0 s   daily  a       b\n+0 s   daily  b       a\n"), "{text}");
        assert!(text.contains("+ host a\n+ host b\n+ test daily\n"), "{text}");
        let last = "two: 2 hosts, a full cycle takes 1 min 30 s in 1 round";
        assert_eq!(lines.last(), Some(&last));
    }

    #[test]
    fn hosts_with_no_agent_are_not_absent() {
        let text = |without: u32| {
            fleet_status_text(&StatusDocument {
                schema: STATUS_SCHEMA.to_owned(),
                version: "1".to_owned(),
                at_ms: 0,
                mesh: Some("lab".to_owned()),
                hosts_present: 2,
                hosts: 3,
                hosts_without_agent: without,
                cycle_seconds: None,
                runs_expected: 5,
                runs_finished: 4,
                cells: Vec::new(),
            })
        };
        let end = "0 of 0 cells good, 4 of 5 due runs of 24 h finished\n";
        assert_eq!(text(1), format!("lab: 2 of 2 hosts present, 1 without an agent, {end}"));
        assert_eq!(text(0), format!("lab: 2 of 3 hosts present, {end}"));
    }

    #[test]
    fn hostile_names_are_escaped() {
        let rows = vec![vec!["a\x1b[31m".to_owned(), "b".to_owned()]];
        assert_eq!(table(&rows), "a%1B[31m  b\n");
    }
}
