//! The grid of the mesh: rows are sources, columns are destinations.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Response;
use longhaul_fleet::api::{CellDocument, CellMetric, CellState, StatusDocument};
use longhaul_fleet::mesh::Mesh;
use longhaul_fleet::schedule::path_capacity;
use maud::{Markup, html};
use serde::Deserialize;

use super::PageViewer;
use super::layout::{page, segment};
use crate::clock::now_ms;
use crate::fleet::Applied;
use crate::hub::Hub;
use crate::web::api::status_document;
use crate::web::failure::Failure;
use crate::words;

const METRICS: [CellMetric; 4] =
    [CellMetric::Throughput, CellMetric::Loss, CellMetric::Rtt, CellMetric::Mtu];

/// The maximum number of hosts whose grid has room for all values in a cell.
const WIDE: usize = 12;

/// The maximum number of sources and destinations of one page, of which a mesh can have 1000.
const BLOCK: usize = 64;

/// The content of a cell besides its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CellContent {
    /// All values with units.
    Full,
    /// One value without its unit.
    Short,
    /// No value.
    Symbol,
}

/// The choice of the grid.
#[derive(Debug, Default, Deserialize)]
pub(super) struct GridQuery {
    metric: Option<CellMetric>,
    /// The block of sources of a large mesh, from 0.
    #[serde(default)]
    rows: usize,
    /// The block of destinations.
    #[serde(default)]
    columns: usize,
}

/// `GET /`.
pub(super) async fn get_grid(
    State(hub): State<Arc<Hub>>,
    PageViewer(caller): PageViewer,
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
                (grid(applied, &status.cells, &query))
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
            @let agents = status.hosts.saturating_sub(status.hosts_without_agent);
            div { b { (status.hosts_present) " of " (agents) } span { "hosts present" } }
            @if status.hosts_without_agent > 0 {
                div { b { (status.hosts_without_agent) } span { "hosts without an agent" } }
            }
            div { b { (status.runs_finished) " of " (status.runs_expected) } span { "runs of 24 h with a result" } }
            @if let Some(cycle) = status.cycle_seconds {
                div { b { (words::span(i64::try_from(cycle).unwrap_or(i64::MAX).saturating_mul(1000))) } span { "full cycle" } }
            }
            @for (state, text) in [(CellState::Critical, "critical"), (CellState::Warning, "with a warning"), (CellState::NotRun, "not run")] {
                @let count = status.cells.iter().filter(|cell| cell.state == state).count();
                div { b { (count) } span { "cells " (text) } }
            }
        }
    }
}

fn first_steps() -> Markup {
    html! {
        p { "Declare hosts and tests in a file, and apply it:" }
        pre { "longhaul fleet plan mesh.toml\nlonghaul fleet apply mesh.toml" }
        p { "If the hub runs on another host, as another user or in another directory than the default, log in first with the pin that the hub printed:" }
        pre { "longhaul fleet login https://THIS-HUB:5280 --pin PIN" }
        p { "Then create a token for each host and start its agent:" }
        pre { "longhaul fleet token HOST\nlonghaul agent --hub https://THIS-HUB:5280 --token TOKEN" }
    }
}

fn grid(applied: &Applied, cells: &[CellDocument], query: &GridQuery) -> Markup {
    let only = query.metric;
    let mut by_pair = HashMap::<(&str, &str), Vec<&CellDocument>>::new();
    for cell in cells.iter().filter(|cell| only.is_none_or(|only| cell.metric == only)) {
        by_pair.entry((cell.source.as_str(), cell.destination.as_str())).or_default().push(cell);
    }
    by_pair.values_mut().for_each(|cells| cells.sort_by_key(|cell| cell.metric));
    let hosts: Vec<&str> = applied.mesh.hosts.iter().map(|host| host.name.as_str()).collect();
    let dense = hosts.len() > WIDE;
    // Without a choice of the metric, small cells have no room for all values.
    let shown = match (dense, only) {
        (false, _) => CellContent::Full,
        (true, Some(_)) => CellContent::Short,
        (true, None) => CellContent::Symbol,
    };
    let blocks: Vec<&[&str]> = hosts.chunks(BLOCK).collect();
    let block = |at: usize| blocks.get(at).or(blocks.first()).copied().unwrap_or_default();
    let (sources, destinations) = (block(query.rows), block(query.columns));
    html! {
        @if blocks.len() > 1 {
            (block_links("Sources", &blocks, query, true))
            (block_links("Destinations", &blocks, query, false))
        }
        div.scroll tabindex="0" role="region" aria-label="Grid of the mesh" {
            table.grid.dense[dense] {
                caption { "Rows are sources, columns are destinations." (unit(shown, only)) }
                thead { tr {
                    td {}
                    @for host in destinations { th scope="col" { a href=(format!("/hosts/{}", segment(host))) { (host) } } }
                } }
                tbody { @for source in sources { tr {
                    th scope="row" { a href=(format!("/hosts/{}", segment(source))) { (source) } }
                    @for destination in destinations {
                        @if source == destination { td.same aria-label="same host" {} }
                        @else { (cell(&applied.mesh, (source, destination), by_pair.get(&(*source, *destination)), shown)) }
                    }
                } } }
            }
        }
    }
}

/// Returns the links to the blocks of the rows or of the columns.
fn block_links(name: &str, blocks: &[&[&str]], query: &GridQuery, of_rows: bool) -> Markup {
    let metric = query.metric.map(|metric| crate::records::runs::name_of(&metric));
    let metric = metric.map(|name| format!("&metric={name}")).unwrap_or_default();
    let link = |at: usize| {
        if of_rows {
            format!("/?rows={at}&columns={}{metric}", query.columns)
        } else {
            format!("/?rows={}&columns={at}{metric}", query.rows)
        }
    };
    let present = if of_rows { query.rows } else { query.columns };
    html! {
        nav.tabs aria-label=(name) {
            span.soft { (name) }
            @for (at, block) in blocks.iter().enumerate() {
                a href=(link(at)) aria-current=[(at == present).then_some("true")] {
                    (block.first().copied().unwrap_or_default()) " \u{2026} " (block.last().copied().unwrap_or_default())
                }
            }
        }
    }
}

/// Returns the sentence about the values of a grid with small cells.
fn unit(shown: CellContent, only: Option<CellMetric>) -> &'static str {
    match (shown, only) {
        (CellContent::Symbol, _) => {
            " A symbol is the worst state of a pair. Choose a metric to see its values."
        }
        (CellContent::Short, Some(CellMetric::Throughput)) => " Values are in bit/s.",
        (CellContent::Short, Some(CellMetric::Loss)) => " Values are the share of lost packets.",
        (CellContent::Short, Some(CellMetric::Rtt)) => " Values are in ms.",
        (CellContent::Short, Some(CellMetric::Mtu)) => " Values are in bytes.",
        _ => "",
    }
}

/// Returns the cell of a pair: the worst state of its metrics, and their values.
fn cell(
    mesh: &Mesh,
    (source, destination): (&str, &str),
    cells: Option<&Vec<&CellDocument>>,
    shown: CellContent,
) -> Markup {
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
    let capacity = path_capacity(mesh, None, source, destination);
    let value = |cell: &CellDocument| {
        let text = |value| match cell.metric {
            metric if shown == CellContent::Short => words::short(metric, value),
            CellMetric::Loss => format!("{} lost", words::percent(value)),
            CellMetric::Throughput => match capacity {
                Some(capacity) => {
                    format!("{}, {}", words::rate(value), words::share(value, capacity.bps()))
                }
                None => words::rate(value),
            },
            metric => words::value(metric, value),
        };
        cell.value.map_or("\u{2013}".to_owned(), text)
    };
    html! {
        td class=(class) {
            a href=(format!("/pairs/{}/{}", segment(source), segment(destination)))
                title=(format!("{source} to {destination}: {word}")) {
                span.glyph aria-hidden="true" { (glyph) }
                span.hidden { (word) }
                @if shown != CellContent::Symbol { @for cell in all { span.value { (value(cell)) } } }
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
        p.soft { "Percentages of throughput are relative to the lowest declared capacity of the path. A state compares measurements with the values that the mesh expects, and changes after several \
            measurements." }
    }
}
