//! An agent against a hub in this process, over real TLS on loopback. A shell script stands for the
//! program that measures.

mod fake_hub;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fake_hub::{FakeHub, SECRET, now_ms};
use longhaul_agent::{AgentError, AgentOptions, AllowedPeers, CheckResult};
use longhaul_fleet::protocol::{
    DeclaredCapacity, Lease, RefusalCode, Role, RunOutcome, RunReason, RunReport, TestKind,
    TestSpec, key_pin,
};

fn options(hub: &FakeHub, dir: &Path) -> AgentOptions {
    let program = dir.join("program");
    let script = "#!/bin/sh\ncase $1 in\n\
        test) echo '{\"schema\":\"longhaul.test/1\"}';;\n\
        path) exec sleep 600;;\n\
        doctor) printf '{\"schema\":\"longhaul.doctor/1\",\"arguments\":\"%s\"}' \"$*\";;\n\
        --version) echo script;;\n\
        *) echo broken >&2; exit 1;;\nesac\n";
    // Another process writes it: a fork of a parallel test would keep it open for writing, and the
    // kernel refuses to execute it then (ETXTBSY).
    let written = Command::new("sh")
        .args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""])
        .arg(&program)
        .arg(script)
        .status();
    assert!(written.unwrap().success());
    AgentOptions {
        hub: Some(hub.url().parse().unwrap()),
        token: Some(format!("{SECRET}.{}", hub.pin).parse().unwrap()),
        ca: None,
        name: Some("west".to_owned()),
        state: dir.join("state"),
        program,
        reflectors: vec![],
        allow: AllowedPeers::parse("127.0.0.1").unwrap(),
        flows: true,
    }
}

/// Returns a lease whose server is the hub: it accepts the connection by which the agent waits for it.
fn lease(hub: &FakeHub, run: &str, fencing: u64, kind: TestKind, length_ms: i64) -> Lease {
    Lease {
        run: run.to_owned(),
        fencing,
        resources: vec![format!("west/eth0/{}", kind.as_str())],
        test: "t".into(),
        role: Role::Source,
        spec: TestSpec {
            kind,
            seconds: 1,
            streams: None,
            rate_bps: None,
            udp: false,
            congestion: None,
            bytes: None,
        },
        source: "west".into(),
        destination: "east".into(),
        local: None,
        peer: "127.0.0.1".parse().unwrap(),
        port: hub.address.port(),
        peer_key: None,
        start_ms: now_ms(),
        end_ms: now_ms() + length_ms,
    }
}

/// Ends an agent, also if its test panics.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs an agent while `work` runs.
fn with_agent<T>(options: &AgentOptions, work: impl FnOnce() -> T) -> (T, Result<(), AgentError>) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let agent = scope.spawn(|| longhaul_agent::run(options, &stop, &|_| {}));
        let guard = StopOnDrop(&stop);
        let value = work();
        drop(guard);
        (value, agent.join().unwrap())
    })
}

fn reports(hub: &FakeHub) -> Vec<RunReport> {
    let book = hub.book.lock().unwrap();
    book.uploads.iter().flat_map(|upload| upload.results.clone()).collect()
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_host_is_examined_for_the_declared_capacity_and_again_after_a_change() {
    let (hub, dir) = (FakeHub::start(), tempfile::tempdir().unwrap());
    let options = options(&hub, dir.path());
    // The host has no interface of this name.
    let capacity = |bps: u64| DeclaredCapacity {
        capacity_bps: longhaul_core::units::Rate::from_bps(bps),
        interface: Some("absent0".to_owned()),
    };
    let examined = |wanted: &str| {
        let book = hub.book.lock().unwrap();
        let mut all = book.uploads.iter().filter_map(|upload| upload.facts.as_ref());
        let found = all.next_back().and_then(|facts| facts["arguments"].as_str());
        found.is_some_and(|arguments| arguments.ends_with(wanted))
    };
    hub.book.lock().unwrap().capacity = Some(capacity(50_000_000));
    let ((), ended) = with_agent(&options, || {
        wait_for("the facts for 50 Mb/s", || examined("/state --rate=50000000"));
        hub.book.lock().unwrap().capacity = Some(capacity(7_000_000_000));
        wait_for("the facts for 7 Gb/s", || examined("/state --rate=7000000000"));
        hub.book.lock().unwrap().capacity = None;
        wait_for("the facts without a rate", || examined("/state"));
    });
    ended.unwrap();
}

#[test]
fn runs_happen_once_and_results_are_sent_until_acknowledged() {
    let (hub, dir) = (FakeHub::start(), tempfile::tempdir().unwrap());
    let options = options(&hub, dir.path());
    {
        let mut book = hub.book.lock().unwrap();
        book.silent = true;
        book.leases = vec![
            lease(&hub, "good", 7, TestKind::Throughput, 600_000),
            lease(&hub, "stale", 7, TestKind::Throughput, 600_000),
            lease(&hub, "broken", 8, TestKind::Diagnose, 600_000),
            lease(&hub, "late", 9, TestKind::Iperf3, 1),
            Lease {
                peer: "169.254.169.254".parse().unwrap(),
                ..lease(&hub, "aimed", 10, TestKind::Iperf3, 600_000)
            },
            Lease { run: "../../etc".into(), ..lease(&hub, "evil", 99, TestKind::Nuttcp, 600_000) },
        ];
        book.leases[2].spec.bytes = Some(longhaul_core::units::Bytes::new(1000));
    }
    let of = |run: &str| {
        reports(&hub).into_iter().filter(|report| report.run == run).collect::<Vec<_>>()
    };
    let ((), ended) = with_agent(&options, || {
        wait_for("all results twice", || {
            ["good", "stale", "broken", "late", "aimed"].iter().all(|run| of(run).len() >= 2)
        });
        let facts = |hub: &FakeHub| {
            let book = hub.book.lock().unwrap();
            let found = book.uploads.iter().find_map(|upload| upload.facts.clone());
            found.map(|facts| facts["schema"].to_string())
        };
        wait_for("the facts", || facts(&hub).is_some());
    });
    ended.unwrap();
    let first = |run: &str| of(run).remove(0);
    let good = first("good");
    assert_eq!((good.outcome, good.reason), (RunOutcome::Finished, None));
    assert_eq!(good.document.unwrap()["schema"], "longhaul.test/1");
    assert!(of("good").iter().all(|report| report.id == good.id), "one journal entry");
    let outcome = |run: &str| (first(run).outcome, first(run).reason);
    assert_eq!(outcome("stale"), (RunOutcome::NotRun, Some(RunReason::StaleLease)));
    assert_eq!(outcome("late"), (RunOutcome::NotRun, Some(RunReason::WindowMissed)));
    assert_eq!(outcome("aimed"), (RunOutcome::NotRun, Some(RunReason::AddressRefused)));
    assert_eq!(outcome("broken"), (RunOutcome::Failed, Some(RunReason::Failed)));
    assert_eq!(first("broken").message.as_deref(), Some("broken"));
    assert!(of("../../etc").is_empty());

    // A second process continues: it sends the unacknowledged entries, and runs nothing again.
    {
        let mut book = hub.book.lock().unwrap();
        book.uploads.clear();
        book.silent = false;
    }
    let ((), ended) = with_agent(&options, || {
        let acknowledged = || {
            let book = hub.book.lock().unwrap();
            book.uploads.last().is_some_and(|upload| upload.state.backlog == 0)
        };
        wait_for("an empty journal", acknowledged);
    });
    ended.unwrap();
    assert_eq!(of("good").len(), 1);
    assert_eq!(of("good")[0].id, good.id);
    assert_eq!(hub.book.lock().unwrap().refused, 0);
}

#[test]
fn the_host_is_sampled_and_its_connections_only_if_wanted() {
    let (hub, dir) = (FakeHub::start(), tempfile::tempdir().unwrap());
    let options = options(&hub, dir.path());
    let snapshot = |hub: &FakeHub| {
        let book = hub.book.lock().unwrap();
        book.uploads.iter().rev().find_map(|upload| upload.snapshot.clone())
    };
    let ((), ended) = with_agent(&options, || {
        let sampled = || {
            let book = hub.book.lock().unwrap();
            let mut all = book.uploads.iter().flat_map(|upload| &upload.samples);
            all.any(|batch| !batch.host.is_empty() && batch.interface.is_empty())
        };
        wait_for("samples of the host", sampled);
        // The connection of the agent to the hub moves data.
        let port = hub.address.port();
        let has_own = || {
            let flows = snapshot(&hub).and_then(|one| one.flows).unwrap_or_default();
            flows.iter().any(|flow| flow.peer.port() == port && flow.program.is_some())
        };
        wait_for("the connection to the hub", has_own);
    });
    ended.unwrap();
    hub.book.lock().unwrap().uploads.clear();
    let quiet = AgentOptions { flows: false, ..options };
    let ((), ended) = with_agent(&quiet, || {
        wait_for("a snapshot", || snapshot(&hub).is_some());
    });
    ended.unwrap();
    let last = snapshot(&hub).unwrap();
    assert!(last.flows.is_none() && !last.cores.is_empty(), "{last:?}");
}

#[test]
fn a_run_that_was_running_at_a_crash_has_failed() {
    let (hub, dir) = (FakeHub::start(), tempfile::tempdir().unwrap());
    let options = options(&hub, dir.path());
    hub.book.lock().unwrap().leases = vec![lease(&hub, "cut", 7, TestKind::Path, 600_000)];
    with_agent(&options, || {
        let running = || {
            let book = hub.book.lock().unwrap();
            book.uploads.iter().any(|upload| upload.state.running == ["cut"])
        };
        wait_for("the run", running);
        // The journal as a crash leaves it at this time.
        let copy = dir.path().join("copy");
        fs::create_dir(&copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o700)).unwrap();
        for name in ["journal.db", "journal.db-wal", "identity", "enrolment.json"] {
            fs::copy(options.state.join(name), copy.join(name)).unwrap();
        }
    })
    .1
    .unwrap();
    hub.book.lock().unwrap().uploads.clear();
    let left = dir.path().join("copy/runs/cut-source");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("data"), "x").unwrap();
    let crashed = AgentOptions { state: dir.path().join("copy"), ..options };
    with_agent(&crashed, || wait_for("the report", || !reports(&hub).is_empty())).1.unwrap();
    let report = reports(&hub).remove(0);
    assert_eq!(
        (report.outcome, report.reason),
        (RunOutcome::Failed, Some(RunReason::AgentRestarted))
    );
    assert!(!left.exists(), "the data of the run are removed");
}

#[test]
fn another_key_a_used_token_and_a_revoked_agent_are_errors() {
    let (hub, dir) = (FakeHub::start(), tempfile::tempdir().unwrap());
    let options = options(&hub, dir.path());
    let other = format!("{SECRET}.{}", key_pin(b"other")).parse().unwrap();
    let wrong = longhaul_agent::enroll(&AgentOptions { token: Some(other), ..options.clone() });
    assert!(matches!(wrong, Err(AgentError::Certificate { .. })), "{wrong:?}");
    let unknown = format!("aaaaaaaaaaaaaaaaaaaaaaa.{}", hub.pin).parse().unwrap();
    let unknown = longhaul_agent::enroll(&AgentOptions { token: Some(unknown), ..options.clone() });
    let code = RefusalCode::UnknownToken;
    assert!(matches!(unknown, Err(AgentError::Refused { code: c, .. }) if c == code));
    let none = longhaul_agent::enroll(&AgentOptions { token: None, ..options.clone() });
    assert!(matches!(none, Err(AgentError::NotEnrolled(_))));

    let ca = dir.path().join("ca.pem");
    fs::write(&ca, &hub.certificate).unwrap();
    let by_chain = AgentOptions {
        token: Some(SECRET.parse().unwrap()),
        ca: Some(ca),
        state: dir.path().join("chain"),
        ..options.clone()
    };
    assert_eq!(longhaul_agent::enroll(&by_chain).unwrap().pin, None);

    let good = |result: &CheckResult| matches!(result, CheckResult::Passed(_));
    let checks = longhaul_agent::check(&options);
    assert!(checks.iter().all(|check| good(&check.result)), "{checks:?}");
    assert!(!options.state.join("enrolment.json").exists(), "a check enrolls no host");

    let enrollment = longhaul_agent::enroll(&options).unwrap();
    assert_eq!((enrollment.host.as_str(), enrollment.agent.as_str()), ("west", "agent-1"));
    let checks = longhaul_agent::check(&options);
    assert!(checks.iter().all(|check| good(&check.result)), "{checks:?}");
    let moved = AgentOptions { hub: Some("https://elsewhere".parse().unwrap()), ..options.clone() };
    assert!(matches!(longhaul_agent::enroll(&moved), Err(AgentError::OtherHub { .. })));
    hub.book.lock().unwrap().revoked = true;
    let stop = AtomicBool::new(false);
    let revoked = longhaul_agent::run(&options, &stop, &|_| {});
    assert!(revoked.unwrap_err().is_final());
}
