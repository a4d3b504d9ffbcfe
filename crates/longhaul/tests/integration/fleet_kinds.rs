//! Runs of the kinds other than `throughput`, through a hub and its agents.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::fleet::Fleet;
use crate::running::Running;

fn tests() -> String {
    let to_agent = "every = \"1h\"\nfrom = \"left\"\nto = \"middle\"\n";
    let to_server =
        "seconds = 1\nevery = \"1h\"\nfrom = \"middle\"\nto = \"right\"\nrate = \"5M\"\n";
    format!(
        "agent = false\n\
         [tests.path]\nkind = \"path\"\nseconds = 40\n{to_agent}\
         [tests.copy]\nkind = \"copy\"\nseconds = 20\nbytes = \"1MB\"\n{to_agent}\
         [tests.iperf]\nkind = \"iperf3\"\n{to_server}\
         [tests.nuttcp]\nkind = \"nuttcp\"\n{to_server}"
    )
}

/// Starts a server of another program at the right site, without an agent.
fn server(fleet: &Fleet, command: &[&str]) -> Running {
    let mut command = fleet.up.command("right", command);
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Running(command.spawn().unwrap())
}

#[test]
fn paths_copies_and_servers_without_an_agent_are_measured() {
    let mut fleet = Fleet::start("kinds");
    let _servers =
        [server(&fleet, &["iperf3", "-s"]), server(&fleet, &["nuttcp", "-S", "--nofork"])];
    for site in ["left", "middle"] {
        fleet.enroll(site);
    }
    let file = fleet.write(&(fleet.hosts() + &tests()));
    fleet.fleet(&["apply", &file]);
    let done = |run: &&Value| run["state"] == "finished";
    let runs =
        fleet.wait_for_runs("a run of each kind", |runs| runs.iter().filter(done).count() == 4);
    let run = |kind: &str| {
        let run =
            runs.iter().find(|run| run["kind"] == kind && run["state"] == "finished").unwrap();
        fleet.fleet(&["runs", run["run"].as_str().unwrap()])
    };
    let path = run("path");
    // The server of the run measured the other direction.
    assert!(path["document"]["alone_because"].is_null(), "{path}");
    assert!((19.0..200.0).contains(&path["rtt_ms"].as_f64().unwrap()), "{path}");
    assert_eq!(path["mtu"], 9000, "{path}");
    let copy = run("copy");
    assert!(copy["throughput_bps"].as_u64().unwrap() > 0, "{copy}");
    assert_eq!(copy["document"]["summary"]["bytes"], 1_000_000, "{copy}");
    for kind in ["iperf3", "nuttcp"] {
        let run = run(kind);
        let rate = run["throughput_bps"].as_u64().unwrap();
        assert!((1_000_000..10_000_000).contains(&rate), "{run}");
    }
    // The data of the copy are gone with its run.
    let state = fleet.path("left");
    fleet.wait_for_runs("the removal of the data", |_| is_empty(&Path::new(&state).join("runs")));
    assert!(!Path::new(&state).join("scratch").exists());
}

#[test]
fn a_diagnosis_through_the_hub_has_an_answer() {
    let mut fleet = Fleet::start("diagnosis");
    for site in ["left", "middle"] {
        fleet.enroll(site);
    }
    let file = fleet.write(
        &(fleet.hosts()
            + "agent = false\n[tests.why]\nkind = \"diagnose\"\nseconds = 90\nbytes = \"1MB\"\n\
               every = \"1h\"\nfrom = \"left\"\nto = \"middle\"\n"),
    );
    fleet.fleet(&["apply", &file]);
    let done = |run: &Value| run["state"] == "finished" && run["kind"] == "diagnose";
    let runs = fleet.wait_for_runs("a diagnosis", |runs| runs.iter().any(done));
    let id = runs.iter().find(|run| done(run)).unwrap()["run"].as_str().unwrap();
    let run = fleet.fleet(&["runs", id]);
    let document = &run["document"];
    assert_eq!(document["schema"], "longhaul.diagnose/1", "{run}");
    assert_eq!(document["interrupted"], false, "{run}");
    assert!(document["sentence"].as_str().is_some_and(|answer| !answer.is_empty()), "{run}");
    assert!(run["throughput_bps"].as_u64().unwrap() > 0, "{run}");
    assert_eq!(run["throughput_bps"], document["limits"][0]["allows_bps"], "{run}");
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
}
