//! The grid of the mesh: rows are sources, columns are destinations.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Response;
use longhaul_fleet::api::{CellDocument, CellMetric, CellState, StatusDocument};
use maud::{Markup, html};
use serde::Deserialize;

use super::Viewed;
use super::layout::{page, segment};
use crate::clock::now_ms;
use crate::fleet::Applied;
use crate::hub::Hub;
use crate::web::api::status_document;
use crate::web::failure::Failure;
use crate::words;

const METRICS: [CellMetric; 4] =
    [CellMetric::Throughput, CellMetric::Loss, CellMetric::Rtt, CellMetric::Mtu];

/// The choice of the grid.
#[derive(Debug, Default, Deserialize)]
pub(super) struct GridQuery {
    metric: Option<CellMetric>,
}

/// `GET /`.
pub(super) async fn get_grid(
    State(hub): State<Arc<Hub>>,
    Viewed(caller): Viewed,
    Query(query): Query<GridQuery>,
) -> Result<Response, Failure> {
    let applied = hub.refresh().await?;
    let now = now_ms();
    let mesh = applied.clone();
    let status = hub.store.read(move |sql| status_document(sql, mesh.as_deref(), now)).await?;
    let main = html! {
        (summary(&status))
        @match applied.as_deref() {
            None => { (first_steps()) }
            Some(applied) => {
                nav.tabs aria-label="Metric" {
                    a href="/" aria-current=[query.metric.is_none().then_some("true")] { "All" }
                    @for metric in METRICS {
                        @let name = crate::records::runs::name_of(&metric);
                        a href=(format!("/?metric={name}"))
                            aria-current=[(query.metric == Some(metric)).then_some("true")] { (words::metric(metric)) }
                    }
                }
                (grid(applied, &status.cells, query.metric))
                (legend())
            }
        }
    };
    Ok(page("Grid", Some(&caller), true, &main))
}

fn summary(status: &StatusDocument) -> Markup {
    html! {
        h1 { (status.mesh.as_deref().unwrap_or("No mesh")) }
        div.tiles {
            div { b { (status.hosts_present) " of " (status.hosts) } span { "hosts present" } }
            div { b { (status.runs_finished) " of " (status.runs_expected) } span { "runs of 24 h with a result" } }
            @if let Some(cycle) = status.cycle_seconds {
                div { b { (words::span(i64::try_from(cycle).unwrap_or(i64::MAX).saturating_mul(1000))) } span { "full cycle" } }
            }
            @for (state, text) in [(CellState::Critical, "critical"), (CellState::Warning, "degraded"), (CellState::NotRun, "not run")] {
                @let count = status.cells.iter().filter(|cell| cell.state == state).count();
                div { b { (count) } span { "cells " (text) } }
            }
        }
    }
}

fn first_steps() -> Markup {
    html! {
        p { "Declare hosts and tests in a file and apply it:" }
        pre { "longhaul fleet plan mesh.toml\nlonghaul fleet apply mesh.toml" }
        p { "Then create a token for each host and start its agent:" }
        pre { "longhaul fleet token HOST\nlonghaul agent --hub https://THIS-HUB:5280 --token TOKEN" }
    }
}

fn grid(applied: &Applied, cells: &[CellDocument], only: Option<CellMetric>) -> Markup {
    let mut by_pair = HashMap::<(&str, &str), Vec<&CellDocument>>::new();
    for cell in cells.iter().filter(|cell| only.is_none_or(|only| cell.metric == only)) {
        by_pair.entry((&cell.source, &cell.destination)).or_default().push(cell);
    }
    let hosts: Vec<&str> = applied.mesh.hosts.iter().map(|host| host.name.as_str()).collect();
    html! {
        div.scroll tabindex="0" role="region" aria-label="Grid of the mesh" {
            table.grid {
                caption { "Rows are sources, columns are destinations." }
                thead { tr {
                    td {}
                    @for host in &hosts { th scope="col" { a href=(format!("/hosts/{}", segment(host))) { (host) } } }
                } }
                tbody { @for source in &hosts { tr {
                    th scope="row" { a href=(format!("/hosts/{}", segment(source))) { (source) } }
                    @for destination in &hosts {
                        @if source == destination { td.same aria-label="same host" {} }
                        @else { (cell(source, destination, by_pair.get(&(*source, *destination)))) }
                    }
                } } }
            }
        }
    }
}

/// Returns the cell of a pair: the worst state of its metrics, and their values.
fn cell(source: &str, destination: &str, cells: Option<&Vec<&CellDocument>>) -> Markup {
    let rank = |state: CellState| match state {
        CellState::Critical => 5,
        CellState::Warning => 4,
        CellState::NotRun => 3,
        CellState::Maintenance => 2,
        CellState::Good => 1,
        CellState::Unknown | CellState::NotTested => 0,
    };
    let all = cells.map(Vec::as_slice).unwrap_or_default();
    let worst = all.iter().map(|cell| cell.state).max_by_key(|state| rank(*state));
    let (word, glyph, class) = words::state(worst.unwrap_or(CellState::NotTested));
    let value = |cell: &CellDocument| {
        cell.value.map_or("\u{2013}".to_owned(), |value| words::value(cell.metric, value))
    };
    html! {
        td class=(class) {
            a href=(format!("/pairs/{}/{}", segment(source), segment(destination)))
                title=(format!("{source} to {destination}: {word}")) {
                span.glyph aria-hidden="true" { (glyph) }
                span.hidden { (word) }
                @for cell in all { span.value { (value(cell)) } }
            }
        }
    }
}

fn legend() -> Markup {
    let states = [
        CellState::Good,
        CellState::Warning,
        CellState::Critical,
        CellState::NotRun,
        CellState::Unknown,
        CellState::Maintenance,
        CellState::NotTested,
    ];
    html! {
        ul.legend aria-label="States" {
            @for state in states {
                @let (word, glyph, class) = words::state(state);
                li { (super::layout::badge(glyph, word, class)) }
            }
        }
        p.soft { "A state is relative to the expected rate, or the capacity of the path, and turns after several \
            measurements, as the mesh declares." }
    }
}
