//! `longhaul matrix` and `longhaul report` over emulated links.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use longhaul_core::result::{PathDirection, PathResult};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::host::{TestHost, assert_code, text};

/// A plan with two paths, both longhaul commands, and scp with its private sshd.
const PLAN: &str = r#"name = "small"
[conditions]
rtt = ["0ms", "15ms"]
[memory]
seconds = 1
omit_seconds = 0
[disk]
size = "8MiB"
[[entries]]
tool = "longhaul test"
workload = "memory"
[[entries]]
tool = "longhaul cp"
workload = "disk"
[[entries]]
tool = "scp"
workload = "disk"
"#;

pub(crate) fn host_with_plan(plan: &str) -> TestHost {
    let host = TestHost::new();
    fs::write(host.near("plan.toml"), plan).unwrap();
    host
}

#[test]
fn a_matrix_measures_copies_and_reports() {
    let host = host_with_plan(PLAN);
    let output = host.run(&["matrix", "plan.toml", "--out", "out", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], "longhaul.matrix/1");
    let runs = document["runs"].as_array().unwrap();
    // A busy machine can invalidate a run, which is then repeated; the tools must succeed in any
    // case.
    let places: BTreeSet<u64> = runs.iter().map(|run| run["sequence"].as_u64().unwrap()).collect();
    assert_eq!(places, (1..=6).collect());
    for run in runs {
        assert_ne!(run["outcome"]["status"], "failed", "{run:#}");
        assert!(run["throughput_bps"].as_u64().unwrap() > 0);
    }
    let counts = |place: &u64| {
        runs.iter().any(|run| run["sequence"] == *place && run["outcome"]["status"] == "ok")
    };
    let valid = places.iter().all(counts);
    assert_code(&output, if valid { 0 } else { 7 });
    assert!(!host.near("out/scratch").exists());
    assert_eq!(fs::read_dir(host.near("out/runs")).unwrap().count(), runs.len());

    fs::remove_file(host.near("out/report.html")).unwrap();
    let again = host.run(&["report", "out"]);
    assert_code(&again, 0);
    assert!(text(&again.stdout).contains("longhaul cp"));
    // A figure needs at least one valid run.
    let plotted = fs::read_to_string(host.near("out/report.html")).unwrap().contains("<svg");
    assert_eq!(plotted, runs.iter().any(|run| run["outcome"]["status"] == "ok"));

    let used = host.run(&["matrix", "plan.toml", "--out", "out"]);
    assert_code(&used, 2);
    assert!(text(&used.stderr).contains("is not empty"));
    let other = host.run(&["matrix", "--quick", "--resume", "--out", "out"]);
    assert_code(&other, 2);
    assert!(text(&other.stderr).contains("was measured with plan"));
    let complete = host.run(&["matrix", "--resume", "--out", "out"]);
    let made_again = text(&complete.stderr).contains("[6/6]");
    assert_eq!(made_again, !valid, "a run that counts was made again, or an invalid one was not");
}

#[test]
fn an_interrupted_matrix_prints_the_command_to_resume() {
    let host = host_with_plan(&PLAN.replace("seconds = 1", "seconds = 300"));
    let mut child = host
        .longhaul(&["matrix", "plan.toml", "--only", "longhaul test", "--out", "out"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let archive = host.near("out/matrix.sqlite");
    crate::host::wait_for("the archive", || archive.exists());
    std::thread::sleep(std::time::Duration::from_millis(700));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let printed: Vec<String> =
        BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{printed:?}");
    assert!(printed.last().unwrap().contains("longhaul matrix --resume --out"), "{printed:?}");
    assert!(host.near("out/report.html").exists());
}

#[test]
fn the_shipped_plans_are_listed_and_shown() {
    let host = TestHost::new();
    let listed = host.run(&["matrix", "--list-plans"]);
    assert_code(&listed, 0);
    let listed = text(&listed.stdout);
    for name in ["quick", "sc10", "loss", "small-files", "distance", "stability", "real"] {
        assert!(listed.lines().any(|line| line.starts_with(name)), "{name} is not in {listed}");
    }
    let tools = host.run(&["matrix", "--list-tools"]);
    assert_code(&tools, 0);
    let tools = text(&tools.stdout);
    assert!(
        tools.lines().any(|line| line.starts_with("longhaul cp ") && !line.contains("untried"))
    );
    assert!(tools.lines().any(|line| line.starts_with("escp ") && line.contains("; untried: ")));
    let shown = host.run(&["matrix", "sc10", "--show-plan"]);
    assert_code(&shown, 0);
    let shown = text(&shown.stdout);
    assert!(
        shown.starts_with("# Cost with these arguments: ") && shown.contains("16@16"),
        "{shown}"
    );
}

/// The plan `parallel-links` with one short row: sixteen flows exceed the rate of a link only over
/// several links, and each link has counters.
#[test]
fn the_plan_of_parallel_links_runs() {
    let host = TestHost::new();
    let shown = host.run(&["matrix", "parallel-links", "--show-plan"]);
    let plan = text(&shown.stdout)
        .replace("repeats = 3", "repeats = 1")
        .replace("\nseconds = 5", "\nseconds = 2")
        .replace("rtt = [\"30ms\"]", "rtt = [\"10ms\"]")
        .replace("[1, 2, 4]", "[1, 4]")
        .replace("[1, 4, 16]", "[16]")
        .replace("\"500M\"", "\"50M\"");
    fs::write(host.near("plan.toml"), plan).unwrap();
    let only = ["--only", "longhaul test", "--out", "out", "--json"];
    let output = host.run(&[&["matrix", "plan.toml"], &only[..]].concat());
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = document["runs"].as_array().unwrap();
    let of = |links: &str| {
        let here = |run: &&Value| run["condition"]["options"]["links"] == links;
        runs.iter().rfind(here).unwrap()
    };
    let rate = |run: &Value| run["throughput_bps"].as_f64().unwrap();
    let (one, four) = (of("1"), of("4"));
    assert!(rate(one) > 25e6 && rate(one) < 51e6, "{one:#}");
    assert!(rate(four) > 75e6 && rate(four) < 204e6, "{four:#}");
    assert!(one["path"]["up"].is_object());
    let links = four["path"].as_array().unwrap();
    let carried = |link: &&Value| link["up"]["delivered"]["bytes"].as_u64().unwrap() > 1_000_000;
    assert_eq!((links.len(), links.iter().filter(carried).count() >= 3), (4, true), "{four:#}");
    let html = fs::read_to_string(host.near("out/report.html")).unwrap();
    assert!(html.contains("Throughput against number of parallel links"));
}

#[test]
fn any_link_option_setting_and_place_runs() {
    let host = host_with_plan(
        r#"name = "options"
[conditions]
distance = ["0.2mi"]
rate = ["200M"]
loss = ["0", "1e-3"]
queue = "20ms"
[memory]
seconds = 1
omit_seconds = 0
[[workloads]]
name = "few"
files = 3
size = "1MiB"
from = "memory"
to = "memory"
[[entries]]
tool = "longhaul test"
workload = "memory"
streams = [2]
[[entries]]
tool = "longhaul cp"
workload = "few"
"#,
    );
    let output = host.run(&["matrix", "plan.toml", "--out", "out", "--json"]);
    assert_code(&output, 0);
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir(host.near("out/runs")).unwrap() {
        let run: Value = serde_json::from_slice(&fs::read(entry.unwrap().path()).unwrap()).unwrap();
        assert_eq!(run["condition"]["options"]["distance"], "0.2mi");
        assert_eq!(run["path"]["plan"]["seed"], run["seed"], "the path has another seed");
        assert!(run["cpu"]["near_seconds"].as_f64().is_some());
        let lossy = run["path"]["plan"]["up"]["loss"].is_object();
        seen.insert((run["label"].as_str().unwrap().to_owned(), lossy));
    }
    let labels = ["longhaul cp", "longhaul test, 2 streams"];
    let expected = labels.into_iter().flat_map(|l| [(l.to_owned(), false), (l.to_owned(), true)]);
    assert_eq!(seen, expected.collect());
    // Each path was measured before its first run, and the measurement matches the plan.
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let records = document["surveys"].as_array().unwrap();
    assert_eq!(records.len(), 2);
    for record in records {
        assert!(record["failure"].is_null(), "{record}");
        let found: PathResult = serde_json::from_value(record["found"].clone()).unwrap();
        assert_eq!([&found.forward, &found.reverse].map(PathDirection::mtu_bytes), [Some(9000); 2]);
        assert!(found.rtt.is_some() && found.forward.probes.unwrap().sent > 0);
    }
    let page = fs::read_to_string(host.near("out/report.html")).unwrap();
    assert!(page.contains("id=\"paths\"") && !page.contains("not measured"), "the paths are shown");
}

#[test]
fn an_invalid_argument_is_an_error_before_anything_is_written() {
    let host = host_with_plan(&PLAN.replace("15ms", "15 furlongs"));
    for (arguments, code, words) in [
        (vec!["matrix", "plan.toml"], 2, "plan.toml:3:15: '15 furlongs' has the unknown unit"),
        (vec!["matrix", "--quick", "--only", "ftp"], 2, "no entry 'ftp'"),
        (vec!["matrix", "--quick", "--size", "1000TiB"], 5, "are needed; free some space"),
        (vec!["matrix", "--quick", "--repeats", "900"], 2, "; add --yes, or reduce it"),
        (vec!["matrix", "no-such-plan"], 2, "no plan 'no-such-plan'; the shipped plans are quick,"),
        (vec!["matrix", "quick", "--far", "a b"], 2, "real.far is 'a b'; it must be user@host"),
        (vec!["matrix", "--quick", "--data", "nowhere"], 5, "nowhere"),
        (vec!["matrix", "--resume"], 2, "to resume"),
        (vec!["report", "."], 5, "contains no archive"),
    ] {
        let output = host.run(&arguments);
        assert_code(&output, code);
        let printed = text(&output.stderr);
        assert!(printed.contains(words), "{words:?} is not in {printed:?}");
        // The cost of the plan is printed before the error.
        let refusal =
            printed.trim_end().lines().filter(|line| !line.starts_with("longhaul: quick: "));
        assert_eq!(refusal.count(), 1, "{printed}");
    }
    let left: Vec<_> = fs::read_dir(host.near("")).unwrap().map(Result::unwrap).collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn a_damaged_archive_is_reported_and_not_changed() {
    let host = TestHost::new();
    fs::create_dir(host.near("out")).unwrap();
    let archive = host.near("out/matrix.sqlite");
    fs::write(&archive, vec![b'x'; 10_000]).unwrap();
    for arguments in [
        vec!["report", "out"],
        vec!["matrix", "--resume", "--out", "out"],
        vec!["report", "out", "--json"],
    ] {
        let output = host.run(&arguments);
        assert_code(&output, 5);
        let printed = text(&output.stderr);
        assert!(printed.contains("is damaged") && printed.contains("was not changed"), "{printed}");
        assert_eq!(printed.trim_end().lines().count(), 1, "{printed}");
    }
    assert_eq!(fs::read(&archive).unwrap(), vec![b'x'; 10_000]);
    assert_eq!(fs::read_dir(host.near("out")).unwrap().count(), 1);
}

/// A flow that fills a link, a tool beside it, and the recovery; and a flow that cannot start.
#[test]
fn the_share_and_recovery_of_a_flow_are_measured() {
    let host = host_with_plan(
        r#"name = "share"
[recovery]
before_seconds = 2
after_seconds = 3
[conditions]
rtt = ["10ms"]
rate = ["100M"]
[memory]
seconds = 2
omit_seconds = 0
[[entries]]
tool = "longhaul test"
beside = 1
beside_congestion = ["cubic", "lhnone"]
workload = "memory"
"#,
    );
    let output = host.run(&["matrix", "plan.toml", "--out", "out", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = document["runs"].as_array().unwrap();
    let of = |label: &str| runs.iter().rfind(|run| run["label"] == label).unwrap();
    let run = of("longhaul test, beside 1 cubic flow");
    assert_ne!(run["outcome"]["status"], "failed", "{run:#}");
    let flows = &run["flows"];
    let number = |name: &str| flows[name].as_f64().unwrap_or_else(|| panic!("{name}: {flows:#}"));
    assert_eq!(flows["congestion"], "cubic");
    assert_eq!(number("reference_bps"), 100e6);
    // A queue that drains delivers more than the link for a moment.
    assert!((0.5..1.1).contains(&number("before_share")), "{flows:#}");
    let (least, mean) = (number("least_share"), number("mean_share"));
    assert!(least >= 0.0 && least <= mean && mean > 0.02 && mean < 0.98, "{flows:#}");
    // The time of a recovery is null if it takes longer than the measurement.
    if !flows["recovery_seconds"].is_null() {
        assert!((1.0..=3.0).contains(&number("recovery_seconds")), "{flows:#}");
    }
    let times: Vec<f64> = flows["samples"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["seconds"].as_f64().unwrap())
        .collect();
    let took = run["seconds"].as_f64().unwrap();
    assert!(times[0] < -1.5 && *times.last().unwrap() > took + 2.7, "{times:?}, {took}");

    // A flow that cannot start is a row with its reason.
    let absent = of("longhaul test, beside 1 lhnone flow");
    let reason = absent["outcome"]["reason"].as_str().unwrap();
    assert!(reason.contains("cannot use congestion control 'lhnone'"), "{reason}");
    let shares = document["flow_shares"].as_array().unwrap();
    assert_eq!((shares.len(), &shares[1]["state"]), (2, &Value::from("failed")));
    let rows = host.run(&["report", "out", "--format", "csv"]);
    assert!(
        text(&rows.stdout)
            .lines()
            .next()
            .unwrap()
            .ends_with(",flow_recovery_seconds,flow_after_seconds,notes")
    );
}
