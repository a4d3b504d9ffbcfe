//! The schedule: the planned runs, the tasks that are due next, the tests, and the load of the resources.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use longhaul_fleet::schedule::{Task, TaskState};
use maud::{Markup, html};

use super::PageViewer;
use super::layout::{page, segment, time};
use super::runs::table;
use crate::clock::{HOUR, now_ms};
use crate::fleet::Applied;
use crate::hub::Hub;
use crate::records::meshes::task_states;
use crate::records::runs::{RunFilter, runs};
use crate::store::Sql;
use crate::web::failure::Failure;
use crate::words;

/// The most tasks in the table of the tasks that are due next.
const NEXT: usize = 50;
/// The most tasks of a mesh whose states a page reads.
const MOST_TASKS: usize = 20_000;

/// `GET /schedule`.
pub(super) async fn get_schedule(
    State(hub): State<Arc<Hub>>,
    PageViewer(caller): PageViewer,
) -> Result<Response, Failure> {
    let applied = hub.refresh().await?;
    let Some(applied) = applied else {
        let main = html! { h1 { "Schedule" } p { "No mesh is applied: " code { "longhaul fleet apply mesh.toml" } } };
        return Ok(page("Schedule", Some(&caller), true, &main));
    };
    let now = now_ms();
    let few = applied.schedule.tasks.len() <= MOST_TASKS;
    let filter = RunFilter { from_ms: Some(now - HOUR), ..RunFilter::default() };
    let read = move |sql: &mut dyn Sql| {
        let states = if few { task_states(sql)? } else { Default::default() };
        Ok((runs(sql, &filter, 2000)?, states))
    };
    let (mut planned, states) = hub.store.read(read).await?;
    planned.retain(|run| !run.state.is_final());
    planned.reverse();
    let tasks = applied.schedule.tasks.iter();
    let known = tasks.filter_map(|task| Some((task, *states.get(&task.id)?)));
    let mut due: Vec<(&Task, TaskState)> = known.collect();
    due.sort_by_key(|(_, state)| ready(state));
    let main = html! {
        h1 { "Schedule" }
        p { "A full cycle of all tests takes " (words::span(applied.schedule.cycle_ms)) ". Mesh "
            b { (applied.mesh.name) } ", revision " (applied.revision) ", applied " (time(applied.applied_ms)) "." }
        h2 { "Planned and running" }
        @if planned.is_empty() {
            p { "No run is planned at this moment. The hub plans a run shortly before its start." }
        } @else { (table(&planned)) }
        @if !due.is_empty() { h2 { "Due next" } (next(&applied, &due, now)) }
        h2 { "Tests" }
        (tests(&applied))
        h2 { "Load of interfaces and trunks" }
        (load(&applied))
        details.more { summary { "Mesh file" } pre { (applied.text) } }
    };
    Ok(page("Schedule", Some(&caller), true, &main))
}

/// Returns the earliest start of the next run of a task.
fn ready(state: &TaskState) -> i64 {
    state.due_ms.max(state.ready_ms)
}

fn next(applied: &Applied, due: &[(&Task, TaskState)], now: i64) -> Markup {
    html! {
        div.scroll { table.small {
            thead { tr { @for name in ["Due", "In", "Test", "Source", "Destination"] { th scope="col" { (name) } } } }
            tbody { @for (task, state) in due.iter().take(NEXT) { tr {
                td { (time(ready(state))) }
                td { @if ready(state) > now { (words::span(ready(state) - now)) } @else { "waits for its resources" } }
                td { (applied.mesh.tests[task.test].name) }
                @for host in [&task.source, &task.destination] { td { a href=(format!("/hosts/{}", segment(host))) { (host) } } }
            } } }
        } }
        @if due.len() > NEXT { p.soft { "The table has the first " (NEXT) " of " (due.len()) " tasks." } }
    }
}

fn tests(applied: &Applied) -> Markup {
    html! {
        div.scroll { table.small {
            thead { tr {
                th scope="col" { "Test" }
                th scope="col" { "Kind" }
                @for name in ["Pairs", "Rounds", "Run with margin", "Time of a cycle", "Every", "Priority"] { th.figure scope="col" { (name) } }
            } }
            tbody { @for (test, rounds) in applied.mesh.tests.iter().zip(&applied.schedule.tests) { tr {
                th scope="row" { a href=(format!("/runs?test={}", segment(&test.name))) { (test.name) } }
                td { (test.spec.kind.as_str()) }
                td.figure { (test.pairs.len()) }
                td.figure { (rounds.rounds) }
                td.figure { (words::span(test.slot_ms())) }
                td.figure { (words::span(rounds.cycle_ms)) }
                td.figure { @match test.every_seconds { 0 => { "always" } seconds => { (words::span(i64::from(seconds) * 1000)) } } }
                td.figure { (test.priority) }
            } } }
        } }
        @if let Some(stamp) = &applied.mesh.stamp {
            p.soft { "STAMP runs all the time between " (stamp.pairs.len()) " pairs, with a packet every " (stamp.interval_ms) " ms." }
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn load(applied: &Applied) -> Markup {
    let mut all: Vec<_> = applied.schedule.load.iter().collect();
    all.sort_by(|a, b| b.busy_share.total_cmp(&a.busy_share));
    html! {
        div.scroll { table.small {
            thead { tr {
                th scope="col" { "Resource" }
                @for name in ["Capacity", "Busy", "Mean rate of tests", "Rate of STAMP"] { th.figure scope="col" { (name) } }
            } }
            tbody { @for one in all { tr {
                td { (one.resource) }
                td.figure { (words::rate(one.capacity_bps.bps() as f64)) }
                td.figure { meter min="0" max="1" value=(format!("{:.3}", one.busy_share.min(1.0))) {} " " (words::percent(one.busy_share)) }
                td.figure { (words::rate(one.mean_bps.bps() as f64)) }
                td.figure { (words::rate(one.light_bps.bps() as f64)) }
            } } }
        } }
    }
}
