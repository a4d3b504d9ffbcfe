//! The mesh, the agents, the runs and the events of the year.

use longhaul_fleet::protocol::{
    AgentState, EnrollRequest, Role, RunOutcome, RunReason, RunReport, Severity, TestKind,
};
use longhaul_hub::Figures;
use longhaul_hub::records::agents::{Contact, add_enrollment, add_facts, contact, enroll};
use longhaul_hub::records::events::{NewEvent, acknowledge, add_event};
use longhaul_hub::records::leases::report;
use longhaul_hub::records::meshes::{StoredMesh, add_mesh};
use longhaul_hub::records::numbers;
use longhaul_hub::records::runs::{NewRun, add_runs};
use longhaul_hub::store::{Sql, Store, StoreError};
use serde_json::json;

use crate::model::{SITES, is_down, noise, rtt_ms};
use crate::{DAY, Extent, write};

/// The resources of a trunk between the continents; the sites of Europe are near the first one.
const EUROPE_MS: f64 = 40.0;

/// Stores the mesh and the agents.
pub(crate) async fn fill(store: &Store, extent: Extent) -> Result<(), StoreError> {
    let work = move |sql: &mut dyn Sql| {
        let text = mesh(extent);
        let applied_ms = extent.now - extent.days * DAY;
        let name = "backbone".to_owned();
        add_mesh(
            sql,
            &StoredMesh { revision: 1, name, text, applied_ms, person: "admin".to_owned() },
        )?;
        for (at, (host, _)) in SITES.iter().enumerate().take(extent.hosts) {
            agent(sql, extent, at, host)?;
        }
        Ok(())
    };
    store.write(work).await
}

fn mesh(extent: Extent) -> String {
    let mut text = "name = \"backbone\"\n".to_owned();
    for (at, (host, _)) in SITES.iter().enumerate().take(extent.hosts) {
        let interface = |name: &str, net: u8, capacity: &str| {
            format!(
                "{{ name = \"{name}\", address = \"10.{net}.0.{}\", capacity = \"{capacity}\" }}",
                at + 1
            )
        };
        text += &format!(
            "[hosts.{host}]\ninterfaces = [{}, {}]\n",
            interface("eth0", 1, "100G"),
            interface("eth1", 2, "10G")
        );
    }
    let side = |europe: bool| {
        let all = SITES.iter().take(extent.hosts).filter(|site| (site.1 < EUROPE_MS) == europe);
        all.map(|site| format!("\"{}\"", site.0)).collect::<Vec<_>>().join(", ")
    };
    let hours = extent.every_ms / 3_600_000;
    text + &format!(
        "[trunks.atlantic]\ncapacity = \"400G\"\nleft = [{}]\nright = [{}]\n\
         [tests.throughput]\nkind = \"throughput\"\ngroup = \"all\"\nseconds = 2\nevery = \"{hours}h\"\n\
         [stamp]\ngroup = \"all\"\ninterval = \"100ms\"\n",
        side(true),
        side(false)
    )
}

fn agent(sql: &mut dyn Sql, extent: Extent, at: usize, host: &str) -> Result<(), StoreError> {
    let (hash, id) = (format!("token-{host}"), format!("{at:011x}-year"));
    add_enrollment(sql, &hash, host, extent.now + DAY)?;
    let request = EnrollRequest {
        secret: String::new(),
        host: host.to_owned(),
        public_key: format!("{at:044}"),
        version: "0.1.0".to_owned(),
    };
    // The token is new, so the enrollment is accepted.
    let _ = enroll(sql, (&hash, &id), &request, extent.now - extent.days * DAY)?;
    let state = AgentState {
        version: "0.1.0".to_owned(),
        uptime_seconds: 86_400 * 30,
        disk_free_bytes: 400 << 30,
        journal_bytes: 3 << 20,
        memory_bytes: 24 << 20,
        stamp_port: 8620,
        ..AgentState::default()
    };
    let met = Contact {
        agent: id.clone(),
        counter: 1,
        address: format!("10.1.0.{}", at + 1),
        boot: "year".to_owned(),
        clock_offset_ms: 3,
        state,
    };
    contact(sql, &met, extent.now)?;
    let finding = |title: &str, verdict: &str| {
        json!({"title": title, "subject": "eth0", "verdict": verdict, "seen": "4 MB", "wanted": "256 MB",
            "commands": ["sysctl -w net.core.rmem_max=268435456"]})
    };
    let mut findings = vec![finding("receive buffers are small", "advice")];
    findings.extend((0..40).map(|at| finding(&format!("fact {at}"), "ok")));
    let facts = json!({"schema": "longhaul.doctor/1", "findings": findings});
    for month in 0..(extent.days / 30).max(1) {
        add_facts(sql, &id, &facts, extent.now - (month + 1) * 30 * DAY)?;
    }
    Ok(())
}

/// Stores the runs with their reports.
pub(crate) async fn runs(store: &Store, extent: Extent) -> Result<i64, StoreError> {
    let first = (extent.now - extent.days * DAY).div_euclid(extent.every_ms) * extent.every_ms;
    let cycles: Vec<i64> =
        (first..extent.now - 1_800_000).step_by(extent.every_ms as usize).collect();
    let mut count = 0;
    for together in cycles.chunks(3) {
        let mut tasks = tokio::task::JoinSet::new();
        for start in together.iter().copied() {
            let store = store.clone();
            tasks.spawn(async move { write(&store, move |sql| cycle(sql, extent, start)).await });
        }
        while let Some(one) = tasks.join_next().await {
            count += one.map_err(|_| StoreError::Closed)??;
        }
    }
    Ok(count)
}

/// Stores the runs of one cycle: 7 s each, as many at once as hosts.
fn cycle(sql: &mut dyn Sql, extent: Extent, start: i64) -> Result<i64, StoreError> {
    let hosts = extent.hosts;
    let pairs =
        (1..hosts).flat_map(|shift| (0..hosts).map(move |from| (from, (from + shift) % hosts)));
    let fencing = numbers::advance(sql, "fencing", (hosts * (hosts - 1)) as i64)?;
    let mut all = Vec::new();
    for (at, (from, to)) in pairs.enumerate() {
        let round = (at / hosts) as i64;
        let planned = start + round * 7000;
        all.push(new_run(planned, fencing + at as i64, (from, to)));
    }
    add_runs(sql, &all)?;
    for run in all.iter().filter(|run| run.missed.is_none()) {
        let report_of = report_of(run);
        let figures = Figures::of(run.kind, report_of.document.as_ref());
        report(sql, &run.source, &report_of, &figures)?;
    }
    Ok(all.len() as i64)
}

fn new_run(planned: i64, fencing: i64, (from, to): (usize, usize)) -> NewRun {
    let (source, destination) = (SITES[from].0, SITES[to].0);
    let missed = if is_down(from as i64, planned) {
        Some(RunReason::AgentAway)
    } else if is_down(to as i64, planned) {
        Some(RunReason::PeerAway)
    } else {
        None
    };
    let crosses = (SITES[from].1 < EUROPE_MS) != (SITES[to].1 < EUROPE_MS);
    let mut resources = vec![format!("{source}/eth0/out"), format!("{destination}/eth0/in")];
    resources.extend(crosses.then(|| "trunk atlantic".to_owned()));
    NewRun {
        id: format!("{planned:011x}-{fencing:010x}"),
        fencing,
        test: "throughput".to_owned(),
        kind: TestKind::Throughput,
        source: source.to_owned(),
        destination: destination.to_owned(),
        due_ms: planned,
        window_ms: (planned, planned + 7000),
        port: 5290,
        resources,
        lease: json!({"spec": {"kind": "throughput", "seconds": 2}, "source": "10.1.0.1",
            "destination": "10.1.0.2", "port": 5290})
        .to_string(),
        revision: 1,
        has_target: true,
        missed,
    }
}

fn report_of(run: &NewRun) -> RunReport {
    let at = |name: &str| SITES.iter().position(|site| site.0 == name).unwrap_or(0);
    let (from, to) = (at(&run.source), at(&run.destination));
    let chance = noise(run.fencing, run.window_ms.0);
    let rate = 98e9 * (0.75 + 0.25 * chance) * if chance > 0.97 { 0.4 } else { 1.0 };
    let failed = chance < 0.01;
    let interval = |at: usize| {
        let share = 0.9 + 0.2 * noise(run.fencing, at as i64);
        json!({"start_seconds": at as f64 / 10.0, "seconds": 0.1, "bytes": (rate * share / 80.0) as u64,
            "throughput_bps": (rate * share) as u64, "rtt_ms": rtt_ms(from, to) + share,
            "cwnd_bytes": (2e8 * share) as u64, "retransmits": 0})
    };
    let document = json!({"schema": "longhaul.test/1",
        "summary": {"throughput_bps": rate as u64, "sender": {"rtt_ms": rtt_ms(from, to) + 0.5}},
        "intervals": (0..20).map(interval).collect::<Vec<_>>()});
    RunReport {
        id: 1,
        run: run.id.clone(),
        fencing: run.fencing.cast_unsigned(),
        role: Role::Source,
        outcome: if failed { RunOutcome::Failed } else { RunOutcome::Finished },
        reason: failed.then_some(RunReason::Failed),
        started_ms: Some(run.window_ms.0 + 500),
        ended_ms: run.window_ms.0 + 3000,
        exit_code: Some(if failed { 3 } else { 0 }),
        message: failed.then(|| "the connection was reset".to_owned()),
        document: (!failed).then_some(document),
    }
}

/// Stores 60 events per day, of which those of the last three days wait for an acknowledgement.
pub(crate) async fn events(store: &Store, extent: Extent) -> Result<i64, StoreError> {
    for day in 0..extent.days {
        write(store, move |sql| events_of(sql, extent, day)).await?;
    }
    Ok(extent.days * 60)
}

fn events_of(sql: &mut dyn Sql, extent: Extent, day: i64) -> Result<(), StoreError> {
    for number in 0..60 {
        let at_ms = extent.now - (extent.days - day) * DAY + number * DAY / 60;
        let pick = |salt: i64| (noise(salt, at_ms) * extent.hosts as f64) as usize % extent.hosts;
        let (from, to) = (pick(1), pick(2));
        let subject = format!("{} > {}", SITES[from].0, SITES[to].0);
        let event = NewEvent {
            at_ms,
            severity: if number % 3 == 0 { Severity::Error } else { Severity::Warning },
            kind: "cell_critical".to_owned(),
            message: "throughput is critical: 39.2 Gb/s".to_owned(),
            origin: format!("year/{at_ms}/{number}"),
            subject,
        };
        let id = format!("{at_ms:011x}-{number:010x}");
        add_event(sql, &id, &event)?;
        if day < extent.days - 3 {
            acknowledge(sql, &id, "admin", at_ms + 60_000)?;
        }
    }
    Ok(())
}
