//! The contents of an archive for tests of the renderers, with every kind of cell.

use std::time::Duration;

use longhaul_core::plan::{
    Conditions, DiskWork, FlowTimes, MatrixPlan, MemoryWork, PlanEntry, Workload,
};
use longhaul_core::result::{
    Caches, FlowFigures, GoodputSample, Guarantees, Outcome, RunRecord, RunSchema, ToolOutput,
};
use longhaul_core::units::{Bytes, Rate};

use crate::archive::{Contents, Data, MatrixHeader, PathRecord, Tool};

pub(crate) fn contents() -> Contents {
    let rtt: Vec<Duration> = [0, 15, 90, 180].map(Duration::from_millis).to_vec();
    let entry = |tool: &str, workload: &str, options: &[&str]| PlanEntry {
        options: options.iter().map(|option| (*option).to_owned()).collect(),
        ..PlanEntry::new(tool, workload)
    };
    let mut plan = MatrixPlan::named("sample");
    plan.repeats = 2;
    plan.conditions = Conditions::new(&rtt, &[]);
    plan.memory = MemoryWork { seconds: 4, omit_seconds: 2 };
    plan.disk = DiskWork { size: Bytes::gib(1), data: None };
    plan.entries = vec![
        entry("iperf3", "memory", &[]),
        entry("nuttcp", "memory", &[]),
        entry("longhaul cp", "disk", &["--cleartext"]),
        entry("scp", "disk", &[]),
        entry("rsync", "disk", &["<odd> & 'long' option of the user's own"]),
    ];
    let mut runs = Vec::new();
    // Gb/s at the four round-trip times in two passes, 10 % apart.
    for (entry, gbps) in [
        (0, [25.0, 24.0, 22.0, 23.0]),
        (2, [10.4, 9.9, 9.5, 9.4]),
        (3, [2.8, 1.1, 0.19, 0.093]),
        (4, [3.5, 1.2, 0.2, 0.095]),
    ] {
        for (column, gbps) in gbps.into_iter().enumerate() {
            for repeat in 1..=2 {
                let rate = Rate::from_bps((gbps * (0.85 + 0.1 * f64::from(repeat)) * 1e9) as u64);
                let sequence = runs.len() as u32 + 1;
                runs.push(run(&plan, (entry, column), repeat, sequence, rate));
            }
        }
    }
    spoil(&mut runs);
    Contents {
        header: MatrixHeader {
            plan,
            started_at: "2026-11-21T09:00:00Z".into(),
            program_version: "0.1.0".into(),
            program_digest: None,
            network: "emulated".into(),
            data: Some(Data { path: "/data/file".into(), bytes: Bytes::gib(1), files: 1 }),
            facts: vec![("Kernel".into(), "6.18.0".into())],
        },
        tools: tools(),
        runs,
        path_records: vec![PathRecord {
            path: "180ms".into(),
            measured_at: "2026-11-21T09:00:00Z".into(),
            found: None,
            failure: Some("no server listens on port 5210".into()),
        }],
        certificate: None,
    }
}

/// The same contents, with a flow beside scp: it has 40 % of the link in the first pass and 50 % in the
/// second, in which it does not recover.
pub(crate) fn contents_with_flows() -> Contents {
    let mut contents = contents();
    let plan = &mut contents.header.plan;
    plan.recovery = Some(FlowTimes::default());
    plan.entries[3].beside = 1;
    plan.entries[3].beside_congestion = vec!["cubic".into()];
    let label = plan.rows().swap_remove(3).label;
    for run in contents.runs.iter_mut().filter(|run| run.tool == "scp") {
        run.label.clone_from(&label);
        let share = 0.3 + 0.1 * f64::from(run.repeat);
        let goodput = |tick: i32| match tick {
            50.. if run.repeat == 1 => 0.9e9,
            _ => share * 1e9,
        };
        let sample = |tick: i32| GoodputSample {
            seconds: f64::from(tick + 1) / 5.0,
            goodput_bps: Rate::from_bps(goodput(tick) as u64),
        };
        let samples = (-25..100).map(sample).collect();
        run.flows = FlowFigures::of(samples, Some(Rate::from_bps(1_000_000_000)), 10.0, 10.0);
    }
    contents
}

/// Marks the failed and invalid runs: scp failed twice at 180 ms and once at 90 ms; the emulator's
/// path for iperf3 was late once at 0 ms.
fn spoil(runs: &mut [RunRecord]) {
    for run in runs {
        let at = (run.tool.as_str(), run.condition.rtt.as_millis(), run.repeat);
        if matches!(at, ("scp", 180, _) | ("scp", 90, 1)) {
            run.outcome = Outcome::Failed { reason: "ended with code 255: lost connection".into() };
            run.throughput_bps = None;
        }
        if at == ("iperf3", 0, 1) {
            run.outcome = Outcome::Invalid { reason: "dropped 7 packets".into() };
        }
    }
}

fn tools() -> Vec<Tool> {
    let found = |name: &str, version: &str| Tool {
        name: name.into(),
        version: Some(version.into()),
        missing: None,
        program: None,
        digest: None,
    };
    vec![
        found("iperf3", "iperf 3.12"),
        found("longhaul cp", "longhaul 0.1.0"),
        Tool {
            name: "nuttcp".into(),
            version: None,
            missing: Some("nuttcp".into()),
            program: None,
            digest: None,
        },
        found("rsync", "rsync 3.5.0"),
        found("scp", "OpenSSH_9.2p1"),
    ]
}

fn run(
    plan: &MatrixPlan,
    (entry, column): (usize, usize),
    repeat: u32,
    sequence: u32,
    rate: Rate,
) -> RunRecord {
    let planned = plan.rows().swap_remove(entry);
    let entry = &plan.entries[entry];
    let disk = planned.work.workload() == Workload::Disk;
    let bytes = Bytes::gib(1);
    let seconds = bytes.get() as f64 * 8.0 / rate.bps() as f64;
    RunRecord {
        schema: RunSchema::V1,
        sequence,
        attempt: 1,
        repeat,
        tool: entry.tool.clone(),
        label: planned.label,
        options: entry.options.clone(),
        workload: planned.work.workload(),
        condition: plan.conditions()[column].clone(),
        outcome: Outcome::Ok,
        throughput_bps: Some(rate),
        tool_throughput_bps: None,
        bytes: Some(bytes),
        seconds: Some(seconds),
        durable_seconds: disk.then_some(seconds + 0.25),
        guarantees: Guarantees {
            encrypted: entry.tool == "scp",
            verified: entry.tool != "scp",
            synced: entry.tool == "longhaul cp",
        },
        caches: disk.then_some(Caches::Dropped),
        far_caches_kept: false,
        started_at: "2026-11-21T09:00:01Z".into(),
        tool_version: "1".into(),
        near_command: format!("{} far", entry.tool),
        far_command: None,
        near_output: ToolOutput::default(),
        far_output: None,
        notes: Vec::new(),
        path: serde_json::Value::Null,
        host: None,
        work: None,
        streams: None,
        window_bytes: None,
        clients: None,
        seed: None,
        cpu: None,
        samples: Vec::new(),
        flows: None,
    }
}
