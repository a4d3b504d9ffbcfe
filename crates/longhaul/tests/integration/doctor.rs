//! `longhaul doctor` as a program.

use longhaul_core::result::{DoctorReport, FindingVerdict};

use crate::host::{TestHost, assert_code, text};

fn report(output: &std::process::Output) -> DoctorReport {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

const SERVER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../longhaul-sys/tests/hosts/server-untuned.host");
const NODE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../longhaul-sys/tests/hosts/dtn-100g.host");

#[test]
fn a_recorded_host_with_problems_has_exit_code_9() {
    let host = TestHost::new();
    let server = host.run(&["doctor", "--recorded", SERVER, "--disk", "/srv"]);
    assert_code(&server, 9);
    let shown = text(&server.stdout);
    let (problems, advice) = (shown.find("PROBLEMS").unwrap(), shown.find("ADVICE").unwrap());
    assert!(problems < advice && advice < shown.find("\nOK\n").unwrap(), "{shown}");
    assert!(shown.contains("run     sudo setpci -s 0000:86:00.0 CAP_EXP+8.w=5000:7000"), "{shown}");
    assert!(shown.contains("for 100 Gb/s (the interface's) over 100ms (assumed)"), "{shown}");
    // Only lines with commands may be wider than the terminal.
    let command = |line: &str| line.contains("sudo ") || line.trim_start().starts_with("run ");
    let wide = |line: &&str| line.chars().count() > 80 && !command(line);
    assert_eq!(shown.lines().filter(wide).collect::<Vec<_>>(), [""; 0]);

    let node = ["doctor", "--recorded", NODE, "--disk", "/data", "--rtt", "100ms", "--json"];
    let node = host.run(&node);
    assert_code(&node, 0);
    let report = report(&node);
    assert_eq!(report.schema, DoctorReport::SCHEMA);
    assert_eq!(report.about.nodes, Some(2));
    assert_eq!(report.target.bdp_bytes.get(), 1_250_000_000);
    assert!(!report.has_problems() && report.of(FindingVerdict::Ok).count() > 40);
}

#[test]
fn doctor_ends_within_two_seconds() {
    let host = TestHost::new();
    let server = host.serve();
    let far = format!("127.0.0.1:{}", server.port);
    let arguments = ["doctor", &far, "--rate", "1M", "--json", "--record", "this.host"];
    let output = host.run(&arguments);
    let first = report(&output);
    assert!(first.seconds < 2.0, "{}", first.seconds);
    let answer = first.findings.iter().find(|finding| finding.rule == "path_answer").unwrap();
    assert_eq!(answer.verdict, FindingVerdict::Ok, "{answer:?}");
    // The findings come from the recording and do not depend on this host.
    drop(server);
    let again = [&arguments[..5], &["--recorded", "this.host"]].concat();
    let again = report(&host.run(&again));
    assert_eq!((again.findings, again.target), (first.findings, first.target));
}

#[test]
fn unmeasured_parts_are_listed_with_reasons() {
    let host = TestHost::new();
    let output =
        host.run(&["doctor", "no-such-host.invalid", "--interface", "no-such-if", "--json"]);
    assert_code(&output, 9);
    let report = report(&output);
    let problems: Vec<&str> = report.of(FindingVerdict::Problem).map(|f| f.rule.as_str()).collect();
    assert!(
        problems.contains(&"path_route") && problems.contains(&"interface_there"),
        "{problems:?}"
    );
    assert!(report.findings.iter().any(|finding| finding.rule == "tcp_rmem"));
    assert_code(&host.run(&["doctor", "--rate", "fast"]), 2);
    let missing = host.run(&["doctor", "--recorded", "no-such-file"]);
    assert_code(&missing, 5);
    assert!(text(&missing.stderr).contains("no-such-file"), "{}", text(&missing.stderr));
}
