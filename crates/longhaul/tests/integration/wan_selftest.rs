//! `longhaul wan selftest`. Checks of times depend on the load of the machine, so these tests
//! require only the checks of counts.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use longhaul_core::result::{Certificate, CheckUnit, CheckVerdict};

fn selftest(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_longhaul");
    Command::new(program).args(["wan", "selftest"]).args(arguments).output().unwrap()
}

#[test]
fn the_certificate_is_printed() {
    let output = selftest(&["--quick", "--seed", "7", "--json"]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    let certificate: Certificate = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((certificate.schema.as_str(), certificate.seed), (Certificate::SCHEMA, 7));
    assert!(!certificate.bridge);
    assert!(certificate.false_alarm < 0.01, "{}", certificate.false_alarm);
    let failed = certificate.count(CheckVerdict::Fail);
    assert_eq!(output.status.code(), Some(if failed == 0 { 0 } else { 8 }), "{printed}");
    for check in &certificate.checks {
        assert!(printed.contains(&check.name), "{} is not in {printed}", check.name);
        let counted = check.samples > 0 && !matches!(check.unit, CheckUnit::Ms | CheckUnit::Bps);
        assert!(
            !counted || check.machine.is_some() || check.verdict == CheckVerdict::Pass,
            "{}: {}",
            check.name,
            check.reason
        );
        assert_eq!(check.verdict == CheckVerdict::Pass, check.reason.is_empty(), "{check:?}");
        assert!(!check.spoiled_by_host || check.verdict == CheckVerdict::NotDone, "{check:?}");
        let of_time = ["delay", "rate", "jitter uniform", "jitter normal", "jitter pareto"]
            .iter()
            .chain(&["reordering by", "full queue", "policer", "burst of the policer", "outage"])
            .chain(&["cross traffic", "slots", "codel", "fq-codel", "RED", "pie", "dualpi2"])
            .chain(&["class with a delay", "class with a rate", "class with a priority"])
            .any(|kind| check.name.starts_with(kind));
        let of_time = of_time && check.samples > 0;
        assert_eq!(of_time, check.machine.is_some(), "{check:?}");
    }
    for (name, family) in [
        ("identity, single", "ipv4"),
        ("identity, single", "ipv6"),
        ("loss 1e-1", "ipv6"),
        ("duplication 0.1", "ipv4"),
        ("corruption 0.1, silent", "ipv4"),
    ] {
        let check = certificate.checks.iter().find(|c| c.name == name && c.family == family);
        assert_eq!(check.expect(name).verdict, CheckVerdict::Pass, "{name}, {family}");
    }
}

/// Returns whether a process has a TUN device open.
fn has_tun(process: u32) -> bool {
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let mut targets = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.any(|target| target == Path::new("/dev/net/tun"))
}

/// Runs a self-test until it has printed this many checks of identity. Returns these rows, and whether
/// a TUN device was open at any time; the link of a check is open for longer than the time between two
/// looks.
fn identity(options: &[&str], checks: usize) -> (Vec<String>, bool) {
    let program = env!("CARGO_BIN_EXE_longhaul");
    let mut command = Command::new(program);
    command.args(["wan", "selftest", "--quick", "--seed", "7"]).args(options);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (process, ended) = (child.id(), AtomicBool::new(false));
    let rows = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut seen = false;
            while !ended.load(Ordering::Relaxed) {
                seen |= has_tun(process);
                thread::sleep(Duration::from_millis(5));
            }
            seen
        });
        let rows = rows.filter(|row| row.contains("identity")).take(checks).collect();
        ended.store(true, Ordering::Relaxed);
        let _ = child.kill();
        let _ = child.wait();
        (rows, looks.join().unwrap())
    })
}

#[test]
fn the_links_of_a_bridge_have_no_tun_device_and_pass_the_checks_of_identity() {
    let (rows, has_tun) = identity(&["--bridge"], 4);
    assert_eq!(rows.len(), 4, "single and super-packets, IPv4 and IPv6");
    assert!(rows.iter().all(|row| row.contains("pass")), "{rows:?}");
    assert!(!has_tun);
    let (_, has_tun) = identity(&[], 1);
    assert!(has_tun, "the links of sites have TUN devices, which this test can see");
}

#[test]
fn an_invalid_probe_plan_is_an_error() {
    let program = env!("CARGO_BIN_EXE_longhaul");
    for plan in ["", "{}", r#"{"send":{"to":"far"}}"#, r#"{"receive":{"bind":"nowhere"}}"#] {
        let output = Command::new(program).args(["wan", "probe", plan]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{plan}");
    }
}
