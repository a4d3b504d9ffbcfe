//! `longhaul diagnose`: the diagnosis of injected limits, missing steps, and clean-up.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use longhaul_core::result::{Diagnosis, DiagnosisStep, Resource};
use rustix::process::{Pid, Signal, kill_process};

use crate::host::{PROGRAM, TestHost, assert_code, names, text, wait_for};
use crate::ssh::Sshd;

fn report(output: &Output) -> Diagnosis {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The options for one round of half a second per step.
const QUICK: [&str; 6] = ["diagnose", "--time", "0.5s", "--rounds", "1", "--json"];

fn diagnose(host: &TestHost, ends: &[&str]) -> Output {
    host.run(&[&QUICK[..], ends].concat())
}

fn measured(diagnosis: &Diagnosis) -> Vec<DiagnosisStep> {
    let steps = diagnosis.steps.iter().filter(|one| one.throughput_bps.is_some());
    steps.map(|one| one.step).collect()
}

/// Diagnoses a copy over an emulated link. The command `far` runs at the far end before the server
/// starts.
fn over_a_link(host: &TestHost, link: &[&str], far: &str) -> Diagnosis {
    over_a_link_for(host, "2.4s", link, far)
}

/// As [`over_a_link`], with another time per step.
fn over_a_link_for(host: &TestHost, time: &str, link: &[&str], far: &str) -> Diagnosis {
    let root = host.far("");
    let far = format!("{far} exec {PROGRAM} serve --root {}", root.display());
    let data = host.near("data");
    let near = format!("{PROGRAM} diagnose --time {time} --json {} lh://far/", data.display());
    let mut command = host.longhaul(&["wan", "run"]);
    command.args(link).args(["--far", &far, "--", "sh", "-c", &near]);
    let output = command.output().unwrap();
    assert_code(&output, 0);
    assert_eq!(names(&root), [""; 0], "something was left at the sink");
    report(&output)
}

#[test]
fn a_slow_link_is_the_limit_and_the_next_limit_is_named() {
    let host = TestHost::new();
    host.file("data", 64 << 20);
    let diagnosis = over_a_link(&host, &["--rtt", "10ms", "--rate", "100M"], "");
    assert_eq!(diagnosis.schema, Diagnosis::SCHEMA);
    assert_eq!(measured(&diagnosis), DiagnosisStep::ALL);
    let first = &diagnosis.limits[0];
    assert_eq!(first.resource, Resource::LinkRate, "{}", diagnosis.sentence);
    assert!(first.gain.unwrap() > 1.0 && !first.cures.is_empty(), "{first:?}");
    // Load on the host cannot make the link faster.
    for step in [
        DiagnosisStep::MemoryOne,
        DiagnosisStep::Memory,
        DiagnosisStep::Protected,
        DiagnosisStep::Whole,
    ] {
        let rate = diagnosis.rate(step).unwrap().bps();
        assert!(rate > 0 && rate < 150_000_000, "{step:?}: {rate}");
    }
    assert!(diagnosis.rtt_ms.unwrap() >= 10.0);
    assert_eq!((diagnosis.subset.files, diagnosis.subset.bytes.get()), (1, 64 << 20));
}

#[test]
fn no_stated_rate_exceeds_that_of_the_link() {
    let host = TestHost::new();
    let data = host.file("data", 4 << 20);
    fs::write(&data, fs::read(&data).unwrap().repeat(100)).unwrap();
    // Long enough for 256 MiB per round, which a steady rate needs. Losses are repaired in bursts.
    let link = ["--rtt", "30ms", "--rate", "1G", "--loss", "1e-4"];
    let diagnosis = over_a_link_for(&host, "6s", &link, "");
    let over_path = diagnosis
        .steps
        .iter()
        .filter(|step| !matches!(step.step, DiagnosisStep::Read | DiagnosisStep::Write));
    let mut rounds = 0;
    for step in over_path {
        for round in &step.rounds {
            rounds += 1;
            for rate in [Some(round.throughput_bps), round.mean_bps].into_iter().flatten() {
                // An emulator that the host delays sends some packets of an interval in the next one.
                assert!(rate.bps() <= 1_025_000_000, "{:?}: {rate}", step.step);
            }
            let whole = round.bytes.get() as f64 * 8.0 / round.seconds;
            assert!(whole <= 1e9, "{:?}: {whole}", step.step);
        }
    }
    assert_eq!(rounds, 2 * (DiagnosisStep::ALL.len() - 2));
}

#[test]
fn a_small_receive_window_is_the_limit_with_a_remedy() {
    let host = TestHost::new();
    host.file("data", 16 << 20);
    let small = "echo '4096 65536 131072' > /proc/sys/net/ipv4/tcp_rmem;";
    let diagnosis = over_a_link(&host, &["--rtt", "50ms"], small);
    let first = &diagnosis.limits[0];
    assert_eq!(first.resource, Resource::ReceiverWindow, "{}", diagnosis.sentence);
    let cure = first.cures.iter().find(|cure| cure.command.contains("net.ipv4.tcp_rmem"));
    let cure = cure.unwrap_or_else(|| panic!("{:?}", first.cures));
    assert!(cure.present.starts_with("131072") && !cure.proposed.is_empty(), "{cure:?}");
}

#[test]
fn every_pair_of_hosts_is_diagnosed_and_leaves_no_files() {
    let host = TestHost::new();
    let server = host.serve();
    host.file("data", 3 << 20);
    fs::copy(host.near("data"), host.far("there")).unwrap();
    let (there, far) = (server.url("there"), server.url(""));
    let memory = [DiagnosisStep::MemoryOne, DiagnosisStep::Memory, DiagnosisStep::Protected];
    for (source, target, without) in [
        ("data", far.as_str(), &[][..]),
        (&there, "copy", &[]),
        (&there, &far, &[]),
        ("data", "copy", &[]),
        (
            "/dev/zero",
            &far,
            &[DiagnosisStep::Read, DiagnosisStep::ReadSend, DiagnosisStep::SendWrite],
        ),
        (
            "data",
            "/dev/null",
            &[DiagnosisStep::Write, DiagnosisStep::ReadSend, DiagnosisStep::SendWrite],
        ),
    ] {
        let output = diagnose(&host, &[source, target]);
        assert_code(&output, 0);
        let diagnosis = report(&output);
        let expected = DiagnosisStep::ALL.into_iter().filter(|step| !without.contains(step));
        assert_eq!(measured(&diagnosis), expected.collect::<Vec<_>>(), "{source} {target}");
        assert!(memory.iter().all(|step| diagnosis.step(*step).is_some()));
        let is_step = |what: &str| {
            let mut planned = diagnosis.steps.iter();
            planned.any(|step| step.title == what)
                || DiagnosisStep::ALL.iter().any(|step| step.title(1) == what)
        };
        let missed = diagnosis.gaps.iter().any(|gap| is_step(&gap.what));
        assert!(!diagnosis.limits.is_empty() && !missed, "{:?}", diagnosis.gaps);
        assert_eq!(names(&host.near("")), ["data"]);
        wait_for("the far end to clear up", || names(&host.far("")) == ["there"]);
    }
}

#[test]
fn every_step_copies_the_small_files_of_a_tree() {
    let host = TestHost::new();
    let server = host.serve();
    fs::create_dir(host.near("tree")).unwrap();
    for file in 0..600 {
        fs::write(host.near(&format!("tree/{file}")), vec![7; 900]).unwrap();
    }
    let output = diagnose(&host, &["tree", &server.url("")]);
    assert_code(&output, 0);
    let diagnosis = report(&output);
    assert_eq!((diagnosis.subset.files, diagnosis.subset.bytes.get()), (600, 600 * 900));
    for step in [
        DiagnosisStep::Read,
        DiagnosisStep::ReadSend,
        DiagnosisStep::SendWrite,
        DiagnosisStep::Write,
        DiagnosisStep::Whole,
    ] {
        let report = diagnosis.step(step).unwrap();
        assert!(report.files_per_second.unwrap() > 0.0, "{step:?}");
        assert!(
            report.rounds.iter().all(|round| round.bytes.get() == round.files * 900),
            "{report:?}"
        );
    }
    assert_eq!(diagnosis.limits[0].resource, Resource::SmallFiles, "{}", diagnosis.sentence);
    wait_for("the far end to clear up", || names(&host.far("")).is_empty());
}

#[test]
fn diagnose_works_over_ssh() {
    let host = TestHost::new();
    let sshd = Sshd::start(&host);
    host.file("data", 2 << 20);
    let there = format!("127.0.0.1:{}", host.far("").display());
    // On a busy host a step may need more than half a second to move its first byte.
    let arguments = ["diagnose", "--time", "2s", "--rounds", "1", "--json"];
    let ssh = ["-e", &sshd.rsh, "--far-longhaul", PROGRAM];
    let output = host.run(&[&arguments[..], &ssh, &["data", &there]].concat());
    assert_code(&output, 0);
    assert_eq!(measured(&report(&output)), DiagnosisStep::ALL);
    wait_for("the far end to clear up", || names(&host.far("")).is_empty());
}

#[test]
fn an_unreachable_host_is_reported_and_other_steps_are_measured() {
    let host = TestHost::new();
    host.file("data", 1 << 20);
    let output = diagnose(&host, &["data", "lh://127.0.0.1:1/"]);
    assert_code(&output, 3);
    let diagnosis = report(&output);
    assert_eq!(measured(&diagnosis), [DiagnosisStep::Read]);
    assert!(diagnosis.limits.is_empty() && diagnosis.sentence.contains("is unknown"));
    let named = |diagnosis: &Diagnosis, words: &str| {
        diagnosis.gaps.iter().any(|gap| gap.why.contains(words))
    };
    assert!(named(&diagnosis, "cannot connect to 127.0.0.1:1"), "{:?}", diagnosis.gaps);
    let listed = diagnosis.gaps_by_reason();
    assert_eq!((listed.len(), listed[0].0.as_str()), (1, "the sink's end, 7 of 8 steps"));
    let output = diagnose(&host, &["/dev/zero", "lh://127.0.0.1:1/dev/null"]);
    assert_code(&output, 3);
    let diagnosis = report(&output);
    let begins = "No step was measured: cannot connect to 127.0.0.1:1";
    assert!(diagnosis.sentence.starts_with(begins), "{}", diagnosis.sentence);

    // Without files at the server, or with a missing target, memory and the source can still be
    // measured.
    let server = host.serve();
    for (target, missing) in [("no/such/place", "no/such"), ("no/such/", " no")] {
        let output = diagnose(&host, &["data", &server.url(target)]);
        assert_code(&output, 7);
        let diagnosis = report(&output);
        assert_eq!(
            measured(&diagnosis),
            [
                DiagnosisStep::Read,
                DiagnosisStep::MemoryOne,
                DiagnosisStep::Memory,
                DiagnosisStep::Protected,
                DiagnosisStep::ReadSend
            ]
        );
        assert!(named(&diagnosis, missing), "{:?}", diagnosis.gaps);
        assert!(!diagnosis.limits.is_empty());
    }
    let output = diagnose(&host, &["missing", &server.url("")]);
    assert_code(&output, 7);
    assert!(named(&report(&output), "missing"));
    assert_eq!(names(&host.near("")), ["data"]);
    wait_for("the far end to clear up", || names(&host.far("")).is_empty());
}

#[test]
fn a_full_sink_is_reported_and_other_steps_are_measured() {
    let host = TestHost::new();
    host.file("data", 1 << 20);
    let small = host.far("small");
    fs::create_dir(&small).unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=256k", "none"];
    let mounted = Command::new("mount").args(mount).arg(&small).status().unwrap();
    assert!(mounted.success(), "cannot mount: these tests run as root");
    // Fills the file system.
    let _ = fs::write(small.join("full"), vec![7; 512 << 10]);
    let server = host.serve();
    let output = diagnose(&host, &["data", &server.url("small/")]);
    wait_for("the far end to clear up", || names(&small) == ["full"]);
    // Lazily, because the server may still have the directory open.
    let _ = Command::new("umount").arg("-l").arg(&small).status();
    assert_code(&output, 7);
    let diagnosis = report(&output);
    assert!(
        diagnosis.rate(DiagnosisStep::Memory).is_some()
            && diagnosis.rate(DiagnosisStep::Write).is_none()
    );
    let gap = diagnosis.gaps.iter().find(|gap| gap.what == DiagnosisStep::Write.title(4)).unwrap();
    assert!(gap.why.contains("No space") || gap.why.contains("no storage space"), "{gap:?}");
}

#[test]
fn an_invalid_argument_is_named_in_the_error() {
    let host = TestHost::new();
    for (ends, expected) in [
        (&["-", "x"][..], "standard input"),
        (&["/dev/null", "x"], "/dev/zero"),
        (&["data"], "DST"),
        (&["data", "x", "--time", "0.1s"], "--time"),
        (&["data", "x", "--size", "0"], "--size"),
        (&["data", "ftp://far/x"], "ftp://far/x"),
    ] {
        let output = host.run(&[&["diagnose"], ends].concat());
        assert_code(&output, 2);
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
}

#[test]
fn the_result_is_printed_and_written_as_a_page() {
    let host = TestHost::new();
    host.file("data", 1 << 20);
    let quick = ["diagnose", "--time", "0.5s", "--rounds", "1", "--html", "page.html"];
    let output = host.run(&[&quick[..], &["data", "copy"]].concat());
    assert_code(&output, 0);
    let printed = text(&output.stdout);
    for words in ["source read, no network", "the whole copy", "<- limit", "LIMIT: ", "limited by"]
    {
        assert!(printed.contains(words), "'{words}' is not in {printed}");
    }
    // Without a terminal, each step is a line.
    let lines = text(&output.stderr);
    assert_eq!(lines.matches("round 1").count(), DiagnosisStep::ALL.len(), "{lines}");
    let page = fs::read_to_string(host.near("page.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("What limits this copy"));

    let output = diagnose(&host, &["data", "copy"]);
    fs::write(host.near("diagnosis.json"), &output.stdout).unwrap();
    let output = host.run(&["report", "--format", "html", "diagnosis.json"]);
    assert_code(&output, 0);
    assert!(text(&output.stdout).contains("What limits this copy"));
    let output = host.run(&["report", "diagnosis.json"]);
    assert_code(&output, 0);
    assert!(text(&output.stdout).contains("the whole copy"));
}

#[test]
fn an_interrupted_or_killed_diagnosis_leaves_no_files() {
    let host = TestHost::new();
    let server = host.serve();
    host.file("data", 8 << 20);
    for signal in [Signal::INT, Signal::KILL] {
        let quick = ["diagnose", "--json", "--time", "0.5s", "--rounds", "9"];
        let mut command = host.longhaul(&[&quick[..], &["data", &server.url("")]].concat());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        wait_for("a directory to write to", || !names(&host.far("")).is_empty());
        std::thread::sleep(Duration::from_millis(1500));
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        if signal == Signal::INT {
            assert_code(&output, 130);
            let diagnosis = report(&output);
            assert!(diagnosis.interrupted && !measured(&diagnosis).is_empty());
        }
        wait_for("an empty sink", || names(&host.far("")).is_empty());
        assert_eq!(names(&host.near("")), ["data"]);
    }
    // After client and server are killed, the next diagnosis removes their files.
    let mut command = host.longhaul(&["diagnose", "data", host.far("").to_str().unwrap()]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("a directory to write to", || !names(&host.far("")).is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(names(&host.far("")).len(), 1);
    assert_code(&diagnose(&host, &["data", &server.url("")]), 0);
    // The server removes its files when the connection of the client ends.
    wait_for("an empty sink", || names(&host.far("")).is_empty());
}
