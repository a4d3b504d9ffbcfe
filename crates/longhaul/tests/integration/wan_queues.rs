//! Links whose interfaces have several queues, each with its own threads.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_core::result::LinkReport;

use rustix::process::Signal;

use crate::host::PROGRAM;
use crate::wan::{assert_code, stderr, stdout};
use crate::wan_bridge::Boxes;

/// Returns the threads of a process that move packets.
fn workers(process: u32) -> Vec<String> {
    let tasks = format!("/proc/{process}/task");
    let names = fs::read_dir(&tasks).unwrap().flatten();
    let names = names.map(|task| task.file_name().to_string_lossy().into_owned());
    let is_worker = |task: &String| {
        fs::read_to_string(format!("{tasks}/{task}/comm")).is_ok_and(|name| name.trim() == "link")
    };
    names.filter(is_worker).collect()
}

/// Returns how often a thread has slept.
fn sleeps(process: u32, task: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/task/{task}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
    line.unwrap().split_whitespace().last().unwrap().parse().unwrap()
}

fn start(report: &Path, near: &str) -> Child {
    let report = report.to_str().unwrap();
    let options = ["wan", "run", "--queues", "2", "--rtt", "4ms", "--json-report", report];
    Command::new(PROGRAM)
        .args(options)
        .args(["--far", "iperf3 -s -1", "--", "sh", "-c", near])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for the threads of a link with two queues, one per direction and queue, and binds them to
/// different processors, as far as there are enough.
fn bound_workers(process: u32) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let found = loop {
        let found = workers(process);
        if found.len() == 4 {
            break found;
        }
        assert!(Instant::now() < deadline, "{found:?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let processors = std::thread::available_parallelism().unwrap().get();
    for (index, task) in found.iter().enumerate() {
        let processor = (index % processors).to_string();
        let bound = Command::new("taskset").args(["-cp", &processor, task]).output().unwrap();
        assert_code(&bound, 0);
    }
    found
}

/// Sends the packets of one flow in both directions, and checks that the two threads of one queue
/// moved all of them while those of the other queue slept.
#[test]
fn a_flow_uses_one_queue_in_both_directions() {
    const PINGS: u64 = 300;
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report.json");
    let near = format!("read go; ping -q -i 0.005 -c {PINGS} far && read go");
    let mut child = start(&report, &near);
    let found = bound_workers(child.id());
    let process = child.id();
    let sleeps = || found.iter().map(|task| sleeps(process, task)).collect::<Vec<u64>>();
    let before = sleeps();
    child.stdin.as_ref().unwrap().write_all(b"go\n").unwrap();
    let mut printed = BufReader::new(child.stdout.take().unwrap()).lines();
    let summary = printed.find(|line| line.as_ref().is_ok_and(|line| line.contains("received")));
    let summary = summary.unwrap().unwrap();
    assert!(summary.contains(&format!("{PINGS} received")), "{summary}");
    let passed = sleeps().into_iter().zip(before).map(|(after, before)| after - before);
    let passed: Vec<u64> = passed.collect();
    // A packet wakes its thread when it arrives and when it leaves.
    let busy = passed.iter().filter(|count| **count >= PINGS).count();
    let idle = passed.iter().filter(|count| **count < 20).count();
    assert_eq!((busy, idle), (2, 2), "{passed:?}");
    child.stdin.take().unwrap().write_all(b"end\n").unwrap();
    assert_code(&child.wait_with_output().unwrap(), 0);
    let report: LinkReport = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    assert_eq!([report.up.delivered.packets, report.down.delivered.packets], [PINGS; 2]);
}

/// Binds the threads to different processors, sends 16 flows, and checks that the threads of both
/// queues have moved packets and that no flow is out of order. Threads that shared state would need
/// locks, on which a thread of the other queue sleeps.
#[test]
fn flows_are_spread_over_queues_and_keep_their_order() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report.json");
    let near = "read go; iperf3 -c far -u -P 16 -t 2 -b 2M -l 1000 -J";
    let mut child = start(&report, near);
    let found = bound_workers(child.id());
    let deadline = Instant::now() + Duration::from_secs(60);
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    // Only the threads that had packets have slept often: 2000 packets per second and queue.
    let busy = loop {
        let slept = found.iter().map(|task| sleeps(child.id(), task));
        let busy = slept.filter(|count| *count > 200).count();
        if busy >= 2 || child.try_wait().unwrap().is_some() {
            break busy;
        }
        assert!(Instant::now() < deadline, "{busy} threads had packets");
        std::thread::sleep(Duration::from_millis(20));
    };
    let output = child.wait_with_output().unwrap();
    assert_code(&output, 0);
    assert!(busy >= 2, "{busy} threads had packets");
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let streams = printed["end"]["streams"].as_array().unwrap();
    assert_eq!(streams.len(), 16);
    for stream in streams {
        assert_eq!(stream["udp"]["out_of_order"], 0, "{stream}");
    }
    let report: LinkReport = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    assert_eq!(report.plan.queues, 2);
    for way in [&report.up, &report.down] {
        assert!(way.is_conserved() && !way.delivered.is_none(), "{way:?}");
    }
    assert!(report.up.delivered.packets >= 4000, "{:?}", report.up.delivered);
}

/// The same between two Ethernet interfaces: each thread reads one socket, to which the kernel assigns
/// flows.
#[test]
fn a_flow_over_a_bridge_uses_one_queue_in_both_directions() {
    const PINGS: u64 = 300;
    let boxes = Boxes::new();
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report.json");
    let options = ["--queues", "2", "--rtt", "4ms", "--json-report", report.to_str().unwrap()];
    let mut bridge = boxes.bridge(&options);
    let process = bridge.child.id();
    let found = bound_workers(process);
    // The hosts learn their addresses first: the kernel hashes ARP apart from the flow.
    assert_code(&boxes.command("a", "ping", &["-c1", "-W9", "10.77.0.2"]).output().unwrap(), 0);
    let sleeps = || found.iter().map(|task| sleeps(process, task)).collect::<Vec<u64>>();
    let before = sleeps();
    let count = PINGS.to_string();
    let words = ["-q", "-i", "0.005", "-c", &count, "10.77.0.2"];
    let pinged = boxes.command("a", "ping", &words).output().unwrap();
    assert!(stdout(&pinged).contains(&format!("{PINGS} received")), "{}", stdout(&pinged));
    let passed = sleeps().into_iter().zip(before).map(|(after, before)| after - before);
    let passed: Vec<u64> = passed.collect();
    let busy = passed.iter().filter(|count| **count >= PINGS).count();
    let idle = passed.iter().filter(|count| **count < 20).count();
    assert_eq!((busy, idle), (2, 2), "{passed:?}");
    assert_eq!(bridge.signal(Signal::TERM), Some(0));
    let report: LinkReport = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    assert_eq!(report.plan.queues, 2);
    for way in [&report.up, &report.down] {
        assert!(way.is_conserved() && way.delivered.packets > PINGS, "{way:?}");
    }
}

#[test]
fn flows_over_a_bridge_are_spread_over_queues_and_keep_their_order() {
    let boxes = Boxes::new();
    let mut bridge = boxes.bridge(&["--queues", "2", "--rtt", "4ms"]);
    let found = bound_workers(bridge.child.id());
    let client = boxes.iperf3(&["-u", "-P", "16", "-t", "2", "-b", "2M", "-l", "1000", "-J"]);
    let busy = found.iter().filter(|task| sleeps(bridge.child.id(), task) > 200).count();
    assert!(busy >= 2, "{busy} threads had packets");
    let printed: serde_json::Value = serde_json::from_slice(&client.stdout).unwrap();
    let streams = printed["end"]["streams"].as_array().unwrap();
    assert_eq!(streams.len(), 16);
    for stream in streams {
        assert_eq!(stream["udp"]["out_of_order"], 0, "{stream}");
    }
    assert_eq!(bridge.signal(Signal::TERM), Some(0));
}

#[test]
fn options_that_all_flows_share_are_refused_with_several_queues() {
    for option in [["--rate", "1G"], ["--police", "1G:4MB"], ["--loss-pattern", "3"]] {
        let words = [&["wan", "run", "--queues", "2"], &option[..], &["--", "true"]].concat();
        let output = Command::new(PROGRAM).args(words).output().unwrap();
        assert_code(&output, 2);
        assert!(stderr(&output).contains("queues"), "{}", stderr(&output));
    }
}
