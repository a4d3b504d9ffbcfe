//! Archives whose figures follow from a simple model, so that a report of any kind of plan can be
//! drawn without running one.

use longhaul_core::plan::{Content, MatrixPlan, MatrixRow};
use longhaul_core::result::{CpuSeconds, HostLoad, Outcome, RunRecord, RunSample, WorkDone};
use longhaul_core::units::{Bytes, Rate};
use longhaul_lab::archive::{Contents, Data, MatrixHeader, Tool};

/// A record with the fields of every run; the others follow from the model.
const BLANK: &str = r#"{"schema": "longhaul.run/1", "sequence": 1, "repeat": 1, "tool": "x",
    "label": "x", "options": [], "workload": "memory",
    "condition": {"rtt_ms": 0.0, "rate_bps": null}, "outcome": {"status": "ok"},
    "throughput_bps": null, "tool_throughput_bps": null, "bytes": null, "seconds": null,
    "durable_seconds": null,
    "guarantees": {"encrypted": false, "verified": false, "synced": false},
    "caches": null, "started_at": "2026-11-21T09:00:01Z", "tool_version": "1.2.3",
    "near_command": "tool --to far", "far_command": "tool --serve",
    "near_output": {"exit_code": 0, "stdout": "", "stderr": "", "truncated": false},
    "far_output": null, "notes": [], "path": null}"#;

/// The contents of an archive of `plan`, all of whose tools are installed.
pub(crate) fn contents(plan: MatrixPlan) -> Contents {
    let (rows, conditions) = (plan.rows(), plan.conditions());
    let mut runs = Vec::new();
    let mut sequence = 0;
    for repeat in 1..=plan.repeats {
        for cell in plan.cells() {
            sequence += 1;
            let blank: RunRecord = serde_json::from_str(BLANK).unwrap();
            let (row, condition) = (&rows[cell.row], &conditions[cell.condition]);
            let noise = noise(u64::from(sequence) * 31 + cell.row as u64);
            let entry = &plan.entries[row.entry];
            let run = RunRecord {
                sequence,
                repeat,
                tool: entry.tool.clone(),
                label: row.label.clone(),
                workload: row.work.workload(),
                condition: condition.clone(),
                near_command: format!("{} --to far", entry.tool),
                ..blank
            };
            runs.push(fill(run, row, noise));
        }
    }
    let mut tools: Vec<Tool> = Vec::new();
    for entry in &plan.entries {
        if tools.iter().all(|tool| tool.name != entry.tool) {
            tools.push(Tool {
                name: entry.tool.clone(),
                version: Some("1.2.3".into()),
                missing: None,
                program: None,
                digest: None,
            });
        }
    }
    let facts = [("Kernel", "6.18.0"), ("Processor", "Synthetic EPYC"), ("Cores", "2")];
    Contents {
        header: MatrixHeader {
            plan,
            started_at: "2026-11-21T09:00:00Z".into(),
            program_version: "0.1.0".into(),
            program_digest: None,
            network: "a model, not a network".into(),
            data: Some(Data { path: "/data/file".into(), bytes: Bytes::gib(1), files: 1 }),
            facts: facts.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        },
        tools,
        runs,
        path_records: Vec::new(),
        certificate: None,
    }
}

/// Between 0.95 and 1.05, the same for the same seed.
fn noise(seed: u64) -> f64 {
    let mixed = seed
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(23)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9);
    0.95 + (mixed >> 40) as f64 / (1_u64 << 24) as f64 * 0.1
}

/// A window over the round trip, a loss bound, a machine's limit, and a start that grows.
fn fill(run: RunRecord, row: &MatrixRow, noise: f64) -> RunRecord {
    let rtt = run.condition.rtt.as_secs_f64().max(0.000_2);
    let (limit, window): (f64, f64) = match run.tool.as_str() {
        "iperf3" => (22e9, 512e6),
        "nuttcp" => (20e9, 256e6),
        "longhaul test" => (24e9, 1e9),
        "longhaul cp" => (9e9, 1e9),
        "globus-url-copy" => (6.5e9, 512e6),
        "rsync" => (3.5e9, 2.1e6),
        _ => (2.8e9, 2.0e6),
    };
    let streams = f64::from(row.streams.unwrap_or(1)) * f64::from(row.clients);
    let window = row.window.map_or(window, |bytes| bytes.get() as f64);
    let windowed = streams.powf(0.9) * window * 8.0 / rtt;
    // Mathis, Semke, Mahdavi and Ott: MSS / RTT * 1.22 / sqrt(p).
    let loss = run.condition.loss().unwrap_or(0.0);
    let lossy = if loss > 0.0 { streams * 8948.0 * 8.0 / rtt * 1.22 / loss.sqrt() } else { 1e12 };
    let limit = run.condition.rate.map_or(limit, |rate| limit.min(rate.bps() as f64 * 0.97));
    let steady = limit.min(windowed).min(lossy) * noise;
    let (files, size) = match &row.work.content {
        Content::Files { files, size } => (Some(*files), Some(*size)),
        _ => (None, None),
    };
    let ramp = rtt * 12.0;
    let (bytes, seconds) = match (files, size) {
        (Some(files), Some(size)) => {
            let bytes = (files * size.get()) as f64;
            (bytes, bytes * 8.0 / steady + ramp + 0.05)
        }
        _ => (steady / 8.0 * 10.0, 10.0),
    };
    let throughput = if run.workload.copies() { bytes * 8.0 / seconds } else { steady };
    let samples = (1..=100).map(|step| {
        let at = seconds * f64::from(step) / 100.0;
        let grown = (at / ramp.max(0.01)).min(1.0).powi(3);
        let rate = steady * grown * (1.0 + 0.03 * (f64::from(step) * 1.7).sin());
        RunSample { seconds: at, throughput_bps: Rate::from_bps(rate as u64) }
    });
    let cost = if run.tool == "scp" || run.tool == "rsync" { 4.0 } else { 0.7 };
    RunRecord {
        throughput_bps: Some(Rate::from_bps(throughput as u64)),
        bytes: Some(Bytes::new(bytes as u64)),
        seconds: Some(seconds),
        durable_seconds: run.workload.copies().then_some(seconds + 0.2),
        host: Some(HostLoad { busy_share: 0.8, steal_share: 0.01 }),
        cpu: Some(CpuSeconds {
            near_seconds: bytes / 1e9 * cost * noise * 0.4,
            far_seconds: Some(bytes / 1e9 * cost * 0.6),
            // Clock ticks of 10 ms.
            emulator_seconds: Some((bytes / 1e9 * 50.0).round() / 100.0),
        }),
        samples: samples.collect(),
        work: Some(WorkDone { name: row.work.name.clone(), files, file_bytes: size }),
        streams: row.streams,
        window_bytes: row.window,
        clients: Some(row.clients),
        outcome: Outcome::Ok,
        ..run
    }
}
