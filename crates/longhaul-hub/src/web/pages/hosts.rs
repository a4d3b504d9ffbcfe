//! The list of hosts, and the page of one host with its facts, load and traffic.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use longhaul_chart::traffic::{Bin, Period, TrafficGraph, TrafficUnit, section};
use longhaul_fleet::api::{HostDocument, RunDocument};
use longhaul_fleet::mesh::Mesh;
use longhaul_fleet::protocol::{AgentState, HostSnapshot};
use longhaul_fleet::schedule::Task;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value as Json;

use super::PageViewer;
use super::findings::findings;
use super::host_load::{HostLoad, snapshot as snapshot_section};
use super::layout::{badge, failure_page, page, query, range_form, segment, time};
use super::runs::table;
use crate::clock::{DAY, now_ms};
use crate::fleet::{Applied, declared_capacity};
use crate::hub::Hub;
use crate::records::agents::facts;
use crate::records::forecast::StoreUsage;
use crate::records::runs::{RunFilter, runs};
use crate::records::series::{Series, read_series, series};
use crate::records::snapshots::snapshot;
use crate::samples::{Bucket, Kind};
use crate::store::{Sql, StoreError};
use crate::web::api::hosts_document;
use crate::web::failure::Failure;
use crate::web::range::Range;
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
    PageViewer(caller): PageViewer,
) -> Result<Response, Failure> {
    let applied = hub.refresh().await?;
    let now = now_ms();
    let mesh = applied.clone();
    let read = move |sql: &mut dyn Sql| {
        let hosts = hosts_document(sql, mesh.as_deref().map(|mesh| &mesh.mesh), now)?.hosts;
        Ok((hosts, sql.size_bytes()?, forecast(sql, mesh.as_deref())?))
    };
    let (hosts, size, [year, decade]) = hub.store.read(read).await?;
    #[allow(clippy::cast_precision_loss)]
    let main = html! {
        h1 { "Hosts" }
        div.scroll { table.small {
            thead { tr {
                @for name in ["Host", "State", "Last contact", "Address", "Version"] { th scope="col" { (name) } }
                @for name in ["Backlog", "Memory", "Disk free", "Clock"] { th.figure scope="col" { (name) } }
            } }
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
        p.soft { "The database has " (words::bytes(size as f64)) ". With these series and tests it will have about "
            (words::bytes(year)) " after a year and " (words::bytes(decade)) " after ten years." }
    };
    Ok(page("Hosts", Some(&caller), true, &main))
}

/// Returns the forecast of the size of the database after a year, and after ten years.
fn forecast(sql: &mut dyn Sql, applied: Option<&Applied>) -> Result<[f64; 2], StoreError> {
    let schedule = applied.map(|applied| &applied.schedule);
    #[allow(clippy::cast_precision_loss)]
    let per_day = schedule.map_or(0.0, |schedule| {
        let each = |task: &Task| DAY as f64 / task.period_ms.max(schedule.cycle_ms).max(1) as f64;
        schedule.tasks.iter().map(each).sum()
    });
    let usage = StoreUsage::of(sql, per_day)?;
    Ok([366, 3660].map(|days| usage.forecast(sql, days * DAY).total()))
}

/// The choice of a host's page.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct HostQuery {
    unit: Option<String>,
    /// The index of the first interface of the page.
    #[serde(default)]
    first: usize,
}

impl HostQuery {
    fn is_packets(&self) -> bool {
        self.unit.as_deref() == Some("packets")
    }

    /// Returns the fields of this choice in a URL.
    fn fields(&self) -> Vec<(&'static str, String)> {
        let unit = self.is_packets().then(|| ("unit", "packets".to_owned()));
        let first = (self.first > 0).then(|| ("first", self.first.to_string()));
        unit.into_iter().chain(first).collect()
    }
}

/// The page of a host as the reader chose it.
struct Chosen<'p> {
    path: &'p str,
    query: &'p HostQuery,
    range: &'p Range,
}

impl Chosen<'_> {
    /// Returns the address of the same page and range with another choice.
    fn link(&self, unit: Option<&str>, first: usize) -> String {
        let mut fields = HostQuery { unit: unit.map(str::to_owned), first }.fields();
        let times = [("from", &self.range.from), ("to", &self.range.to)];
        fields.extend(times.into_iter().filter_map(|(name, time)| Some((name, time.clone()?))));
        format!("{}?{}", self.path, query(&fields))
    }

    /// Returns the links to the units of the graphs of traffic.
    fn units(&self) -> Markup {
        let (packets, first) = (self.query.is_packets(), self.query.first);
        html! {
            nav.tabs aria-label="Unit" {
                a href=(self.link(None, first)) aria-current=[(!packets).then_some("true")] { "bit/s" }
                a href=(self.link(Some("packets"), first)) aria-current=[packets.then_some("true")] { "packets/s" }
            }
        }
    }

    /// Returns the links to the parts of the interfaces, if they do not fit a page.
    fn parts(&self, interfaces: usize) -> Markup {
        let (unit, first) = (self.query.unit.as_deref(), self.query.first);
        html! {
            @if interfaces > INTERFACES {
                nav.tabs aria-label="Interfaces" {
                    span.soft { "Interfaces" }
                    @for start in (0..interfaces).step_by(INTERFACES) {
                        a href=(self.link(unit, start)) aria-current=[(start == first).then_some("true")] {
                            (start + 1) " to " ((start + INTERFACES).min(interfaces))
                        }
                    }
                }
            }
        }
    }
}

/// The maximum number of interfaces of a page. Each has four graphs, and a host can have hundreds.
const INTERFACES: usize = 16;

/// The data of the page of a host.
struct HostPage {
    host: HostDocument,
    facts: Option<(i64, Json)>,
    snapshot: Option<HostSnapshot>,
    load: HostLoad,
    /// The interfaces of this part, with their capacities and graphs.
    interfaces: Vec<(String, Capacity, Vec<TrafficGraph>)>,
    /// The number of all interfaces.
    count: usize,
    latest: Vec<RunDocument>,
}

impl HostPage {
    /// Reads the data; `None` without such a host.
    fn of(
        sql: &mut dyn Sql,
        (name, mesh): (&str, Option<&Mesh>),
        query: &HostQuery,
        (window, now): ((i64, i64), i64),
    ) -> Result<Option<Self>, StoreError> {
        let hosts = hosts_document(sql, mesh, now)?.hosts;
        let Some(host) = hosts.into_iter().find(|host| host.name == name) else {
            return Ok(None);
        };
        let (facts, snapshot) = match &host.agent {
            Some(agent) => (facts(sql, agent, now)?, snapshot(sql, agent)?),
            None => (None, None),
        };
        let all = series(sql, Kind::Interface, Some(name))?;
        let part: Vec<Series> = all.iter().skip(query.first).take(INTERFACES).cloned().collect();
        let mut interfaces = Vec::new();
        for one in &part {
            let capacity = Capacity::of(one, mesh, host.report.as_ref());
            let graphs = graphs_of(sql, one, (query.is_packets(), capacity), now)?;
            interfaces.push((one.name.clone(), capacity, graphs));
        }
        let load = HostLoad::of(sql, (name, &part), window, now)?;
        let filter = RunFilter { host: Some(name.to_owned()), ..RunFilter::default() };
        let latest = runs(sql, &filter, 20)?;
        Ok(Some(HostPage { host, facts, snapshot, load, interfaces, count: all.len(), latest }))
    }

    fn main(&self, chosen: &Chosen<'_>, connections: &Markup, range: &Markup) -> Markup {
        let (name, packets) = (self.host.name.as_str(), chosen.query.is_packets());
        html! {
            p.kind { "Host" }
            h1 { (name) }
            p { (state(&self.host)) @if let Some(seen) = self.host.seen_ms { " last contact " (time(seen)) } }
            (agent_table(&self.host))
            @if self.facts.is_some() { h2 { "Facts and findings" } }
            (findings(self.facts.as_ref()))
            h2 { "Connections" }
            (connections)
            h2 { "Load" }
            (range)
            (self.load.graphs())
            h2 { "Traffic" }
            (chosen.units())
            @if self.count == 0 { p { "The agent has not reported samples." } }
            (chosen.parts(self.count))
            @for (interface, capacity, graphs) in &self.interfaces {
                h3 { (interface) }
                @if !packets { p.soft { (capacity.words()) } }
                @for graph in graphs { (section(graph)) }
            }
            h2 { "Latest runs" }
            (table(&self.latest))
        }
    }
}

/// `GET /hosts/NAME`.
pub(super) async fn get_host(
    State(hub): State<Arc<Hub>>,
    PageViewer(caller): PageViewer,
    Path(name): Path<String>,
    Query(query): Query<HostQuery>,
    Query(range): Query<Range>,
) -> Result<Response, Failure> {
    let applied = hub.refresh().await?;
    let now = now_ms();
    let window = range.times(now)?;
    let (wanted, chosen) = (name.clone(), query.clone());
    let read = move |sql: &mut dyn Sql| {
        let mesh = applied.as_deref().map(|applied| &applied.mesh);
        HostPage::of(sql, (&wanted, mesh), &chosen, (window, now))
    };
    let Some(found) = hub.store.read(read).await? else {
        return Ok(failure_page(StatusCode::NOT_FOUND, Some(&caller), "the hub has no such host"));
    };
    let connections = match &found.snapshot {
        // The addresses of peers are not for everybody.
        _ if caller.is_anonymous() => html! { p { "Log in to see the connections." } },
        None => html! { p { "The agent has not reported connections." } },
        Some(snapshot) => snapshot_section(snapshot),
    };
    let path = format!("/hosts/{}", segment(&name));
    let chosen = Chosen { path: &path, query: &query, range: &range };
    let form = range_form(&path, &range, window, &query.fields());
    let main = found.main(&chosen, &connections, &form);
    Ok(page(&name, Some(&caller), false, &main))
}

/// Returns the state that the agent of a host reported last.
#[allow(clippy::cast_precision_loss)]
fn agent_table(host: &HostDocument) -> Markup {
    let (Some(report), Some(offset)) = (&host.report, host.clock_offset_ms) else {
        return html! {};
    };
    let uptime = i64::try_from(report.uptime_seconds).unwrap_or(i64::MAX).saturating_mul(1000);
    let rows = [
        ("Agent", format!("longhaul {}, up {}", report.version, words::span(uptime))),
        ("Address", host.address.clone().unwrap_or_default()),
        ("Runs", format!("{} running, {} accepted", report.running.len(), report.accepted.len())),
        (
            "Journal",
            format!(
                "{}, with {} entries that the hub has not stored",
                words::bytes(report.journal_bytes as f64),
                report.backlog
            ),
        ),
        ("Memory of the agent", words::bytes(report.memory_bytes as f64)),
        ("Free disk space", words::bytes(report.disk_free_bytes as f64)),
        ("Clock minus the clock of the hub", format!("{offset} ms")),
    ];
    html! {
        div.scroll { table.facts { tbody { @for (name, value) in rows {
            tr { th scope="row" { (name) } td { (value) } }
        } } } }
    }
}

/// The capacity that percentages of an interface refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Capacity {
    /// The capacity that the mesh declares, in bit/s.
    Declared(u64),
    /// The speed that the interface reports, in bit/s.
    Speed(u64),
    Unknown,
}

impl Capacity {
    /// Returns the declared capacity of an interface, or else its speed.
    fn of(series: &Series, mesh: Option<&Mesh>, report: Option<&AgentState>) -> Self {
        let known = report.map(|report| report.addresses.as_slice()).unwrap_or_default();
        let place = (series.host.as_str(), series.name.as_str());
        let declared = mesh.and_then(|mesh| declared_capacity(mesh, place, known));
        match (declared, series.speed_bps.and_then(|speed| u64::try_from(speed).ok())) {
            (Some(declared), _) => Capacity::Declared(declared.bps()),
            (None, Some(speed)) if speed > 0 => Capacity::Speed(speed),
            _ => Capacity::Unknown,
        }
    }

    fn bps(self) -> Option<u64> {
        match self {
            Capacity::Declared(bps) | Capacity::Speed(bps) => Some(bps),
            Capacity::Unknown => None,
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn words(self) -> String {
        let rate = |bps: u64| words::rate(bps as f64);
        match self {
            Capacity::Declared(bps) => {
                format!(
                    "Percentages are relative to {}, the capacity that the mesh declares.",
                    rate(bps)
                )
            }
            Capacity::Speed(bps) => {
                format!("Percentages are relative to {}, the speed of the interface.", rate(bps))
            }
            Capacity::Unknown => "The capacity of the interface is unknown.".to_owned(),
        }
    }
}

/// Returns the graphs of the four periods of an interface.
fn graphs_of(
    sql: &mut dyn Sql,
    one: &Series,
    (packets, capacity): (bool, Capacity),
    now: i64,
) -> Result<Vec<TrafficGraph>, StoreError> {
    let (unit, at) = if packets { (TrafficUnit::Packets, 2) } else { (TrafficUnit::Bits, 0) };
    let mut graphs = Vec::new();
    for period in Period::ALL {
        let (from, to) = period.window(now / 1000);
        let step = period.step_seconds();
        let (_, buckets) = read_series(sql, one, (from * 1000, to * 1000), step * 1000, now)?;
        let bins = |at: usize| -> Vec<Bin> { buckets.iter().filter_map(|b| bin(b, at)).collect() };
        #[allow(clippy::cast_precision_loss)]
        let capacity = capacity.bps().filter(|_| !packets).map(|bps| bps as f64);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_keep_the_other_choices() {
        let query = HostQuery { unit: Some("packets".to_owned()), first: 16 };
        let range = Range {
            from: Some("now-7d".to_owned()),
            to: Some("2026-11-23T07:00:00+01:00".to_owned()),
        };
        let chosen = Chosen { path: "/hosts/a", query: &query, range: &range };
        let times = "from=now-7d&amp;to=2026-11-23T07%3A00%3A00%2B01%3A00\"";
        let units = chosen.units().into_string();
        assert!(units.contains(&format!("\"/hosts/a?first=16&amp;{times}")), "{units}");
        let parts = chosen.parts(33).into_string();
        for start in ["", "first=16&amp;", "first=32&amp;"] {
            assert!(parts.contains(&format!("?unit=packets&amp;{start}{times}")), "{parts}");
        }
        let form = range_form("/hosts/a", &range, (0, DAY), &query.fields()).into_string();
        let kept = "\"/hosts/a?from=now-1h&amp;to=now&amp;unit=packets&amp;first=16\"";
        assert!(form.contains(kept), "{form}");
        assert_eq!(
            form.matches("&amp;unit=packets&amp;first=16\"").count(),
            form.matches("href").count()
        );
        assert!(form.contains("type=\"hidden\" name=\"first\" value=\"16\""), "{form}");
    }
}
