//! Captures, recordings, replays and classes of `longhaul wan run` and `longhaul path`.
//!
//! The bounds of delays are lower bounds, which a busy machine cannot break.

use std::fs;
use std::io::{BufRead, BufReader, BufWriter, Lines, Write};
use std::path::Path;
use std::process::{ChildStderr, Command, Output, Stdio};

use longhaul_core::plan::link::{PathRecording, RecordedWindow, Trace};
use longhaul_core::result::LinkReport;
use rustix::process::{Pid, Signal, kill_process};

use crate::host::{TestHost, wait_for};
use crate::running::Running;

const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn longhaul(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments)
        .current_dir(directory)
        .env("HOME", directory)
        .env("XDG_CONFIG_HOME", directory);
    command.stdin(Stdio::null()).output().unwrap()
}

/// Returns the round trips in ms that ping printed.
fn round_trips(output: &Output) -> Vec<f64> {
    let printed = text(&output.stdout);
    let times = printed.lines().filter_map(|line| line.split_once("time=")?.1.split(' ').next());
    times.filter_map(|time| time.parse().ok()).collect()
}

#[test]
fn a_capture_has_arrivals_departures_and_the_reasons_of_drops() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("link.pcapng");
    let pcap = file.to_str().unwrap();
    // The kernel also sends packets of its own.
    let lossy = "icmp: loss-pattern 2";
    let options = ["wan", "run", "--rtt", "4ms", "--up-class", lossy, "--pcap", pcap];
    let ping = ["--", "ping", "-4", "-n", "-c", "3", "-i", "0.2", "-W", "5", "far"];
    let output = longhaul(directory.path(), &[&options[..], &ping[..]].concat());
    assert_eq!(round_trips(&output).len(), 2, "{}", text(&output.stderr));
    let bytes = fs::read(&file).unwrap();
    let notes = text(&bytes);
    assert_eq!(notes.matches("dropped: lost by the link").count(), 1);
    for name in ["near-to-far arrived", "near-to-far left", "far-to-near left"] {
        assert!(notes.contains(name), "{name}");
    }
    let dump = Command::new("tcpdump").args(["-n", "-r", pcap, "icmp"]).output().unwrap();
    assert!(dump.status.success(), "{}", text(&dump.stderr));
    let lines = text(&dump.stdout);
    // Three requests arrive and one is dropped; two answers arrive. Each of the others leaves.
    assert_eq!(lines.matches("echo request").count(), 3 + 1 + 2, "{lines}");
    assert_eq!(lines.matches("echo reply").count(), 2 + 2, "{lines}");
}

#[test]
fn a_capture_that_cannot_be_written_is_an_error_before_the_command() {
    let directory = tempfile::tempdir().unwrap();
    for file in ["/nowhere/at/all.pcapng", "/dev/full"] {
        let run = ["wan", "run", "--pcap", file, "--", "echo", "ran"];
        let output = longhaul(directory.path(), &run);
        assert_eq!(output.status.code(), Some(125), "{file}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty(), "{file}");
        assert!(text(&output.stderr).contains(file));
    }
}

#[test]
fn a_class_has_its_own_delay() {
    let directory = tempfile::tempdir().unwrap();
    let ping = "ping -4 -n -c 1 -W 9 far; ping -4 -n -c 1 -W 9 -Q 0xb8 far";
    let run = ["wan", "run", "--delay", "2ms", "--class", "dscp ef", "--delay", "60ms"];
    let output = longhaul(directory.path(), &[&run[..], &["--", "sh", "-c", ping]].concat());
    let times = round_trips(&output);
    assert_eq!(times.len(), 2, "{}", text(&output.stderr));
    assert!(times[0] >= 3.9 && times[1] >= 119.5, "{times:?}");
}

#[test]
fn a_recorded_path_is_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("path.jsonl");
    let record = file.to_str().unwrap();
    let far = format!("{PROGRAM} serve");
    let run = ["wan", "run", "--up-delay", "30ms", "--down-delay", "10ms", "--far", &far, "--"];
    let path = [PROGRAM, "path", "far", "--record", record, "-t", "2s", "--skip", "capacity"];
    let output = longhaul(directory.path(), &[&run[..], &path[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let recorded = fs::read_to_string(&file).unwrap();
    assert!(recorded.starts_with(r#"{"schema":"longhaul.recording/1""#), "{recorded}");
    assert_eq!(recorded.lines().count(), 3, "two windows");
    assert!(recorded.contains(r#""same_clock":true"#), "{recorded}");
    assert!(!directory.path().join("path.jsonl.part").exists());
    let replay = ["wan", "run", "--replay", record, "--", "ping", "-4", "-n", "-c", "2", "far"];
    let output = longhaul(directory.path(), &replay);
    let times = round_trips(&output);
    assert!(times.len() == 2 && times.iter().all(|ms| *ms >= 39.5), "{times:?}");
}

/// A recorder whose server has ended after the first second of the recording.
struct Alone {
    recorder: Running,
    /// The port of the server.
    port: u16,
    /// The messages of the recorder that the test has not read yet.
    said: Lines<BufReader<ChildStderr>>,
}

impl Alone {
    /// Records for `time` to `path.jsonl`, until the recorder says that its server is away.
    fn start(host: &TestHost, time: &str) -> Alone {
        let server = host.serve();
        let port = server.port;
        let (number, path) = (port.to_string(), "path.jsonl");
        let record = ["path", "127.0.0.1", "-p", &number, "--record", path, "-t", time];
        let mut recorder = host.longhaul(&[&record[..], &["--skip", "capacity"]].concat());
        let mut recorder = Running(recorder.stderr(Stdio::piped()).spawn().unwrap());
        let has_window = || {
            let part = fs::read_to_string(host.near("path.jsonl.part")).unwrap_or_default();
            part.lines().count() > 1
        };
        wait_for("the first second is recorded", has_window);
        drop(server);
        let mut said = BufReader::new(recorder.0.stderr.take().unwrap()).lines();
        let away = said.by_ref().map_while(Result::ok).find(|line| line.contains("trying again"));
        away.expect("the recorder says that it tries again");
        Alone { recorder, port, said }
    }
}

#[test]
fn a_recording_continues_after_its_server_was_away() {
    let host = TestHost::new();
    let mut alone = Alone::start(&host, "18s");
    let _server = host.serve_at(alone.port);
    assert!(alone.recorder.0.wait().unwrap().success());
    let said: Vec<String> = alone.said.map_while(Result::ok).collect();
    assert!(said.len() == 1 && said[0].contains("recorded "), "{said:?}");
    let recorded = fs::read_to_string(host.near("path.jsonl")).unwrap();
    let windows = recorded.lines().skip(1).map(|line| serde_json::from_str(line).unwrap());
    let windows: Vec<RecordedWindow> = windows.collect();
    let gaps = windows.windows(2).filter(|pair| pair[1].seconds - pair[0].seconds > 2.0).count();
    assert_eq!(gaps, 1, "{recorded}");
    let delays = windows.iter().flat_map(|window| &window.up.delays_us);
    let lost = delays.filter(|delay| **delay == Some(-1)).count();
    assert!(lost < 100, "an outage of the server of seconds is no loss: {lost} probes");
}

#[test]
fn ctrl_c_while_the_server_is_away_keeps_the_recording() {
    let host = TestHost::new();
    let mut alone = Alone::start(&host, "1h");
    let pid = Pid::from_child(&alone.recorder.0);
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(alone.recorder.0.wait().unwrap().code(), Some(130));
    let said: Vec<String> = alone.said.map_while(Result::ok).collect();
    assert!(said.len() == 1 && said[0].contains("recorded "), "{said:?}");
    let recorded = fs::read_to_string(host.near("path.jsonl")).unwrap();
    assert!(PathRecording::parse(&recorded).unwrap().entries() >= 100, "{recorded}");
    assert!(!host.near("path.jsonl.part").exists());
}

#[test]
fn a_file_that_is_no_recording_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("broken.jsonl");
    fs::write(&file, "{\"schema\":\"longhaul.recording/9\"}\n").unwrap();
    let broken = file.to_str().unwrap();
    for (arguments, code) in [
        (&["wan", "certify", broken][..], 2),
        (&["wan", "certify", "/nowhere/at/all"], 2),
        (&["wan", "run", "--replay", broken, "--", "true"], 2),
        (&["path", "127.0.0.1", "--record", "/nowhere/at/all"], 5),
        (&["path", "127.0.0.1", "--record", "x", "-i", "1us"], 2),
        (&["path", "127.0.0.1", "--record", "x", "--rate-every", "5s"], 2),
        (&["path", "127.0.0.1", "--record", "x", "-t", "8d"], 2),
        (&["path", "127.0.0.1", "--record", "x", "--json"], 2),
    ] {
        let output = longhaul(directory.path(), arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert_eq!(said.trim().lines().count(), 1, "{arguments:?}: {said}");
    }
    assert!(!directory.path().join("x.part").exists());
}

/// Writes a recording of this many windows of a second with a delay of 12 ms in both directions, and
/// returns its size.
fn long_recording(file: &Path, windows: u64) -> u64 {
    let mut output = BufWriter::new(fs::File::create(file).unwrap());
    let head =
        r#"{"schema":"longhaul.recording/1","version":"0","target":"far","interval_seconds":0.01"#;
    let head = format!(r#"{head},"started_unix_seconds":0,"packet_bytes":128,"same_clock":true}}"#);
    writeln!(output, "{head}").unwrap();
    let delays = vec!["12000"; 100].join(",");
    for second in 0..windows {
        let probes = format!(r#"{{"delays_us":[{delays}]}}"#);
        writeln!(output, r#"{{"seconds":{second},"up":{probes},"down":{probes}}}"#).unwrap();
    }
    output.into_inner().unwrap().metadata().unwrap().len()
}

#[test]
fn a_recording_longer_than_other_traces_and_cut_off_is_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("long.jsonl");
    let bytes = long_recording(&file, 60_000);
    assert!(bytes > 64 << 20, "{bytes}");
    // A recorder that is killed leaves a part of a line.
    fs::File::options().write(true).open(&file).unwrap().set_len(bytes - 300).unwrap();
    let record = file.to_str().unwrap();
    let report = directory.path().join("report.json");
    let replay = ["wan", "run", "--replay", record, "--json-report", report.to_str().unwrap()];
    let ping = ["--", "ping", "-4", "-n", "-c", "2", "far"];
    let output = longhaul(directory.path(), &[&replay[..], &ping[..]].concat());
    let times = round_trips(&output);
    assert!(times.len() == 2 && times.iter().all(|ms| *ms >= 23.9), "{}", text(&output.stderr));
    let report: LinkReport = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    let replayed = report.plan.up.replay.unwrap();
    assert_eq!(replayed.entries, Some(59_999 * 100), "without the incomplete window");
}

const ROW: &str = "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n[[site]]\nname = \"c\"\n\
    [[link]]\nbetween = [\"a\", \"b\"]\nrtt = \"2ms\"\n\
    [[link]]\nbetween = [\"b\", \"c\"]\nrtt = \"2ms\"\n";

#[test]
fn a_topology_captures_all_links_until_it_is_taken_down() {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("row.toml");
    fs::write(&plan, ROW).unwrap();
    let name = format!("captured-{}", std::process::id());
    let up = ["wan", "up", "row.toml", "--name", &name, "--pcap"];
    let refused = longhaul(directory.path(), &[&up[..], &["/nowhere/at/all.pcapng"]].concat());
    assert_eq!(refused.status.code(), Some(5), "{}", text(&refused.stderr));
    assert_eq!(text(&refused.stderr).lines().count(), 1);

    // The holder writes the file, which is relative to the directory of the caller.
    let output = longhaul(directory.path(), &[&up[..], &["row.pcapng"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let ping = ["--", "ping", "-4", "-c", "1", "-W", "9", "c"];
    let exec = ["wan", "exec", "--name", &name, "a"];
    let pinged = longhaul(directory.path(), &[&exec[..], &ping[..]].concat());
    let down = longhaul(directory.path(), &["wan", "down", "--name", &name]);
    assert_eq!(down.status.code(), Some(0), "{}", text(&down.stderr));
    assert_eq!(pinged.status.code(), Some(0), "{}", text(&pinged.stderr));
    let file = directory.path().join("row.pcapng");
    let bytes = text(&fs::read(&file).unwrap());
    for interface in ["a-b: a-to-b arrived", "a-b: b-to-a left", "b-c: c-to-b dropped"] {
        assert!(bytes.contains(interface), "{interface}");
    }
    let dump = Command::new("tcpdump").args(["-n", "-r"]).arg(&file).arg("icmp").output().unwrap();
    let lines = text(&dump.stdout);
    // The request and the reply arrive at two links and leave them.
    assert_eq!(lines.matches("echo re").count(), 8, "{lines}");
}

#[test]
fn a_full_disk_ends_a_recording_with_one_sentence() {
    // The script mounts a small file system in its own namespace, for which it needs root. A second of
    // the recording has about a kilobyte.
    let directory = tempfile::tempdir().unwrap();
    let script = format!(
        "mount -t tmpfs -o size=8k none {0} && {PROGRAM} path far --record {0}/r.jsonl -t 60s \
         --skip capacity; code=$?; ls {0} | grep r.jsonl; cat {0}/r.jsonl.part; exit $code",
        directory.path().display()
    );
    let far = format!("{PROGRAM} serve");
    let run = ["wan", "run", "--rtt", "2ms", "--jitter", "1ms:normal", "--far", &far, "--"];
    let unshared = ["unshare", "-m", "sh", "-c", &script];
    let output = longhaul(directory.path(), &[&run[..], &unshared[..]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    let sentences = said.lines().filter(|line| line.contains("r.jsonl")).count();
    assert!(sentences == 1 && said.contains("No space left"), "{said}");
    assert!(said.contains("the disk has only 8.00 KiB left"), "{said}");
    let printed = text(&output.stdout);
    let (name, recording) = printed.split_once('\n').unwrap();
    assert_eq!(name, "r.jsonl.part", "{said}");
    assert!(recording.ends_with("}\n"), "only whole windows: {recording}");
    let recording = PathRecording::parse(recording).unwrap();
    assert!(recording.entries() >= 100, "{said}");
}
