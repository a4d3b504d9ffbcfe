//! The list of hosts, and the page of one host with its traffic and facts.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use longhaul_chart::traffic::{Bin, Period, TrafficGraph, Unit, section};
use longhaul_fleet::api::HostDocument;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value as Json;

use super::Viewed;
use super::layout::{badge, failure_page, page, segment, time};
use super::runs::table;
use crate::clock::now_ms;
use crate::hub::Hub;
use crate::records::agents::facts;
use crate::records::runs::{RunFilter, runs};
use crate::records::series::{Series, read_series, series};
use crate::samples::{Bucket, Kind};
use crate::store::{Sql, StoreError};
use crate::web::api::hosts_document;
use crate::web::failure::Failure;
use crate::words;

fn state(host: &HostDocument) -> Markup {
    let (word, class) = words::host_state(host.state);
    let glyph = match class {
        "good" => "\u{2713}",
        "critical" => "\u{2715}",
        "maintenance" => "\u{25C6}",
        _ => "\u{00B7}",
    };
    badge(glyph, word, class)
}

/// `GET /hosts`.
pub(super) async fn get_hosts(
    State(hub): State<Arc<Hub>>,
    Viewed(caller): Viewed,
) -> Result<Response, Failure> {
    let applied = hub.refresh().await?;
    let now = now_ms();
    let mesh = applied.clone();
    let read = move |sql: &mut dyn Sql| {
        let hosts = hosts_document(sql, mesh.as_deref().map(|mesh| &mesh.mesh), now)?.hosts;
        Ok((hosts, sql.size_bytes()?))
    };
    let (hosts, size) = hub.store.read(read).await?;
    #[allow(clippy::cast_precision_loss)]
    let main = html! {
        h1 { "Hosts" }
        div.scroll { table.small {
            thead { tr { @for name in ["Host", "State", "Last contact", "Address", "Version", "Backlog", "Memory", "Disk free", "Clock"] { th scope="col" { (name) } } } }
            tbody { @for host in &hosts { tr {
                th scope="row" { a href=(format!("/hosts/{}", segment(&host.name))) { (host.name) } @if !host.in_mesh { span.soft { " not in the mesh" } } }
                td { (state(host)) }
                td { @if let Some(seen) = host.seen_ms { (words::span(now - seen)) " ago" } }
                td { (host.address.as_deref().unwrap_or_default()) }
                @match &host.report {
                    Some(report) => {
                        td { (report.version) }
                        td.figure { (report.backlog) }
                        td.figure { (words::bytes(report.memory_bytes as f64)) }
                        td.figure { (words::bytes(report.disk_free_bytes as f64)) }
                        td.figure { (host.clock_offset_ms.unwrap_or_default()) " ms" }
                    }
                    None => { td colspan="5" {} }
                }
            } } }
        } }
        p.soft { "The database has " (words::bytes(size as f64)) ". " (forecast(&hosts)) }
    };
    Ok(page("Hosts", Some(&caller), true, &main))
}

/// Returns the forecast of the disk use for the hosts that are enrolled.
#[allow(clippy::cast_precision_loss)]
fn forecast(hosts: &[HostDocument]) -> String {
    let enrolled = hosts.iter().filter(|host| host.agent.is_some()).count();
    // Per series: 48 h of samples at 20 bytes, and the buckets of all levels at 300 bytes.
    let buckets = 50.0 * 288.0 + 732.0 * 12.0 + 3660.0;
    let series = 48.0 * 3600.0 * 20.0 + buckets * 300.0;
    format!(
        "An interface needs {} after two years, so {enrolled} hosts with two interfaces need {} besides their runs",
        words::bytes(series),
        words::bytes(series * 2.0 * enrolled as f64)
    )
}

/// The choice of a host's page.
#[derive(Debug, Default, Deserialize)]
pub(super) struct HostQuery {
    unit: Option<String>,
}

/// `GET /hosts/NAME`.
pub(super) async fn get_host(
    State(hub): State<Arc<Hub>>,
    Viewed(caller): Viewed,
    Path(name): Path<String>,
    Query(query): Query<HostQuery>,
) -> Result<Response, Failure> {
    let applied = hub.refresh().await?;
    let now = now_ms();
    let packets = query.unit.as_deref() == Some("packets");
    let wanted = name.clone();
    let read = move |sql: &mut dyn Sql| {
        let mesh = applied.as_deref().map(|applied| &applied.mesh);
        let hosts = hosts_document(sql, mesh, now)?.hosts;
        let Some(host) = hosts.into_iter().find(|host| host.name == wanted) else {
            return Ok(None);
        };
        let known = match &host.agent {
            Some(agent) => facts(sql, agent, now)?,
            None => None,
        };
        let mut graphs = Vec::new();
        for one in series(sql, Kind::Interface, Some(&wanted))? {
            graphs.push((one.name.clone(), graphs_of(sql, &one, packets, now)?));
        }
        let filter = RunFilter { host: Some(wanted.clone()), ..RunFilter::default() };
        Ok(Some((host, known, graphs, runs(sql, &filter, 20)?)))
    };
    let Some((host, known, graphs, latest)) = hub.store.read(read).await? else {
        return Ok(failure_page(StatusCode::NOT_FOUND, Some(&caller), "the hub has no such host"));
    };
    let path = format!("/hosts/{}", segment(&name));
    let main = html! {
        p.kind { "Host" }
        h1 { (name) }
        p { (state(&host)) @if let Some(seen) = host.seen_ms { " last contact " (time(seen)) } }
        (findings(known.as_ref()))
        h2 { "Traffic" }
        nav.tabs aria-label="Unit" {
            a href=(path) aria-current=[(!packets).then_some("true")] { "bit/s" }
            a href=(format!("{path}?unit=packets")) aria-current=[packets.then_some("true")] { "packets/s" }
        }
        @if graphs.is_empty() { p { "The agent has not reported samples." } }
        @for (interface, graphs) in &graphs {
            h3 { (interface) }
            @for graph in graphs { (section(graph)) }
        }
        h2 { "Latest runs" }
        (table(&latest))
    };
    Ok(page(&name, Some(&caller), false, &main))
}

/// Returns the graphs of the four periods of an interface.
fn graphs_of(
    sql: &mut dyn Sql,
    one: &Series,
    packets: bool,
    now: i64,
) -> Result<Vec<TrafficGraph>, StoreError> {
    let (unit, at) = if packets { (Unit::Packets, 2) } else { (Unit::Bits, 0) };
    let mut graphs = Vec::new();
    for period in Period::ALL {
        let (from, to) = period.window(now / 1000);
        let step = period.step_seconds();
        let (_, buckets) = read_series(sql, one, (from * 1000, to * 1000), step * 1000, now)?;
        let bins = |at: usize| -> Vec<Bin> { buckets.iter().filter_map(|b| bin(b, at)).collect() };
        #[allow(clippy::cast_precision_loss)]
        let capacity = one.speed_bps.filter(|_| !packets).map(|speed| speed as f64);
        graphs.push(TrafficGraph {
            title: format!("{} {}", one.host, one.name),
            inbound: bins(at),
            outbound: bins(at + 1),
            capacity,
            sample_seconds: Some(1.0),
            ..TrafficGraph::new(period, now / 1000, unit)
        });
    }
    Ok(graphs)
}

fn bin(bucket: &Bucket, at: usize) -> Option<Bin> {
    let span = bucket.spans.get(at)?;
    Some(Bin {
        start: bucket.start_ms / 1000,
        covered_seconds: span.weight_ms / 1000.0,
        average: span.average()?,
        minimum: span.min,
        maximum: span.max,
    })
}

/// Returns the findings of the doctor's document of a host.
fn findings(known: Option<&(i64, Json)>) -> Markup {
    let Some((at, document)) = known else { return html! {} };
    let list = document.get("findings").and_then(Json::as_array).cloned().unwrap_or_default();
    let text = |finding: &Json, name: &str| {
        finding.get(name).and_then(Json::as_str).unwrap_or_default().to_owned()
    };
    html! {
        h2 { "Facts and findings" }
        p.soft { "Reported " (time(*at)) }
        @if !list.is_empty() {
            div.scroll { table.small { tbody { @for finding in &list { tr {
                td { (text(finding, "status")) (text(finding, "verdict")) }
                td.wrap { (text(finding, "title")) (text(finding, "what")) }
                td.wrap { (text(finding, "remedy")) }
            } } } } }
        }
        details.more { summary { "All facts" } pre { (serde_json::to_string_pretty(document).unwrap_or_default()) } }
    }
}
