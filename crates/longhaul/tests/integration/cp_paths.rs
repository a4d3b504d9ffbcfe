//! `longhaul cp` over emulated links with cuts and corruption. `bench/cp-faults.sh` has cuts of 100
//! s and low rates of corruption.

use std::fs;
use std::process::Output;

use longhaul_core::result::LinkReport;
use serde_json::Value;

use crate::host::{PROGRAM, TestHost, assert_code, names, text};

/// Copies `data` to a server at the far end of a link of `options`.
fn copy_over(host: &TestHost, options: &[&str], flags: &str) -> (Output, LinkReport) {
    let link = host.home().join("link.json");
    let far = host.far("");
    let serve = format!("exec {PROGRAM} serve --root '{}'", far.display());
    let near = format!(
        "until (exec 3<>/dev/tcp/far/5210) 2>/dev/null; do sleep 0.05; done
         exec {PROGRAM} cp --json {flags} data lh://far/x"
    );
    let report = ["--json-report", link.to_str().unwrap(), "--far", &serve];
    let run = [&["wan", "run"], options, &report, &["--", "bash", "-c", &near]].concat();
    let output = host.run(&run);
    (output, serde_json::from_slice(&fs::read(link).unwrap()).unwrap())
}

fn summary(output: &Output) -> Value {
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["summary"].clone()
}

#[test]
fn a_copy_survives_a_cut_of_a_second() {
    let host = TestHost::new();
    let data = host.file("data", 32 << 20);
    let options = ["--rtt", "20ms", "--outage", "2s+1s"];
    let (output, link) = copy_over(&host, &options, "--bwlimit 80M");
    assert_code(&output, 0);
    let cut = link.up.impairments.outage + link.down.impairments.outage;
    assert!(cut.segments > 0, "the cut came during the copy: {link:?}");
    assert_eq!(summary(&output)["reconnects"], 0);
    assert!(fs::read(host.far("x")).unwrap() == fs::read(data).unwrap());
}

#[test]
fn a_copy_reconnects_after_a_long_cut() {
    let host = TestHost::new();
    let data = host.file("data", 48 << 20);
    let options = ["--rtt", "20ms", "--outage", "2s+25s"];
    let (output, link) = copy_over(&host, &options, "--bwlimit 80M");
    assert_code(&output, 0);
    let cut = link.up.impairments.outage + link.down.impairments.outage;
    assert!(cut.segments > 0, "the cut came during the copy: {link:?}");
    let summary = summary(&output);
    assert!(summary["reconnects"].as_u64().unwrap() >= 1, "{summary}");
    assert!(text(&output.stderr).contains("; reconnecting"), "{}", text(&output.stderr));
    assert!(fs::read(host.far("x")).unwrap() == fs::read(data).unwrap());
    assert_eq!(names(&host.far("")), ["x"]);
}

#[test]
fn silent_damage_on_the_link_is_detected() {
    let host = TestHost::new();
    let data = host.file("data", 64 << 20);
    // Of about 45,000 segments a dozen are changed.
    let options = ["--rtt", "5ms", "--mtu", "1500", "--corrupt-silent", "3e-4", "--seed", "11"];
    for flags in ["", "--cleartext"] {
        let (output, link) = copy_over(&host, &options, flags);
        assert_code(&output, 0);
        let changed = link.up.impairments.corrupted_silent.segments;
        assert!(changed >= 3, "{changed}");
        let summary = summary(&output);
        let mended = |name: &str| summary[name].as_u64().unwrap();
        // A damaged header or control message ends the connection; a damaged payload affects only
        // its block.
        assert!(mended("resent_blocks") + mended("reconnects") >= 1, "{changed}: {summary}");
        assert_eq!(summary["verified"], true);
        assert!(fs::read(host.far("x")).unwrap() == fs::read(&data).unwrap(), "{flags}");
        fs::remove_file(host.far("x")).unwrap();
    }
    // If verification is disabled, the result states this.
    let (output, link) = copy_over(&host, &options, "--cleartext --no-verify");
    assert_code(&output, 0);
    assert!(link.up.impairments.corrupted_silent.segments >= 3, "{link:?}");
    assert_eq!(summary(&output)["verified"], false);
    let (copied, data) = (fs::read(host.far("x")).unwrap(), fs::read(&data).unwrap());
    assert_eq!(copied.len(), data.len());
    assert!(copied != data, "so the link did change what the others have caught");
}
