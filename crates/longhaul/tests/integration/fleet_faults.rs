//! A fleet whose hub and agents are killed while it measures.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::fleet::{Fleet, SITES, finished_pairs};

/// Returns the ids of the runs that the agent of a site started, with the number of their starts.
fn starts(fleet: &Fleet, site: &str) -> BTreeMap<String, u32> {
    let mut starts = BTreeMap::new();
    for line in fleet.log(site).lines().filter(|line| line.ends_with(" started")) {
        if let Some(run) =
            line.strip_prefix("longhaul: run ").and_then(|rest| rest.split(' ').next())
        {
            *starts.entry(run.to_owned()).or_default() += 1;
        }
    }
    starts
}

fn is_open(run: &Value) -> bool {
    ["planned", "leased", "running"].iter().any(|state| run["state"] == *state)
}

#[test]
fn killed_hubs_and_agents_neither_lose_nor_repeat_a_run() {
    let mut fleet = Fleet::start("faults");
    for site in SITES {
        fleet.enroll(site);
    }
    let file = fleet.write(&fleet.mesh());
    fleet.fleet(&["apply", &file]);
    // Each kill follows a run that the killed agent has started, at an unknown time within the run.
    let mut known = 0;
    for victim in ["middle", "hub", "right", "left", "hub", "middle"] {
        let begun =
            |fleet: &Fleet| SITES.iter().map(|site| starts(fleet, site).len()).sum::<usize>();
        fleet.wait_for_runs("the next start", |_| begun(&fleet) > known);
        fleet.kill(victim);
        known = begun(&fleet);
        match victim {
            "hub" => fleet.start_hub(),
            site => fleet.start_agent(site),
        }
    }
    let planned = fleet.wait_for_runs("the hub", |runs| !runs.is_empty());
    let killed_ms = planned[0]["planned_ms"].as_i64().unwrap();
    fleet.wait_for_runs("a run of each pair", |runs| finished_pairs(runs, killed_ms) == 6);
    let empty = fleet.write(&fleet.hosts());
    fleet.fleet(&["apply", &empty]);
    let runs = fleet.wait_for_runs("the end of all runs", |runs| !runs.iter().any(is_open));
    for run in &runs {
        let finished = run["state"] == "finished";
        assert_eq!(run["reason"].is_null(), finished, "{run}");
        assert_ne!(run["reason"], "unknown", "{run}");
    }
    let states: BTreeMap<&str, &str> = runs
        .iter()
        .map(|run| (run["run"].as_str().unwrap(), run["state"].as_str().unwrap()))
        .collect();
    for site in SITES {
        for (run, count) in starts(&fleet, site) {
            assert_eq!(count, 1, "{site} started {run} more than once");
            let source = runs.iter().any(|one| one["run"] == run.as_str() && one["source"] == site);
            let state = states.get(run.as_str());
            assert!(!source || state.is_some_and(|state| *state != "missed"), "{run}: {state:?}");
        }
    }
}
