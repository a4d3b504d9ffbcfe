//! `longhaul path --stamp` and `longhaul serve --stamp`: the counts must be those of the emulator,
//! and invalid peers and arguments end in one sentence.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use longhaul_core::result::{
    LinkReport, STAMP_RECORD_SCHEMA, STAMP_SCHEMA, StampClass, StampNumbering, StampOrigin,
    StampRecord, StampResult,
};
use longhaul_interop::stamp::{Mode, Reply, Request};

use crate::host::{PROGRAM, Server, TestHost, assert_code, text, wait_for};

/// Starts a server with a reflector on a free port of loopback, which is `Server::port`.
fn reflector(host: &TestHost, options: &[&str]) -> Server {
    let fixed = ["serve", "--bind", "127.0.0.1", "-p", "0", "--stamp=0"];
    Server::start(host.longhaul(&[&fixed[..], options].concat()))
}

fn measure(host: &TestHost, port: u16, options: &[&str]) -> Output {
    let target = format!("127.0.0.1:{port}");
    host.run(&[&["path", "--stamp", &target][..], options].concat())
}

#[track_caller]
fn document(output: &Output) -> StampResult {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {} {}", text(&output.stdout), text(&output.stderr))
    })
}

/// Measures over an emulated link; returns the result and the emulator's report. Only packets of
/// STAMP cross the link.
fn over(host: &TestHost, link: &[&str], options: &str) -> (StampResult, LinkReport) {
    let (log, report) = (host.near("serve.log"), host.near("link.json"));
    fs::write(&log, "").unwrap();
    let (log, report) = (log.to_str().unwrap(), report.to_str().unwrap());
    let serve = format!("exec {PROGRAM} serve --stamp 2>{log}");
    let near = format!(
        "for i in $(seq 200); do grep -q answering {log} && break; sleep 0.05; done; \
         exec {PROGRAM} path --stamp far -4 --same-clock --json {options}"
    );
    let fixed = ["--json-report", report, "--far", &serve, "--", "bash", "-c", &near];
    let output = host.run(&[&["wan", "run"], link, &fixed].concat());
    assert_code(&output, 0);
    let emulator = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    (document(&output), emulator)
}

#[test]
fn loss_and_duplicates_per_direction_are_those_of_the_emulator() {
    let host = TestHost::new();
    for link in [["--loss", "1e-2"], ["--duplicate", "2e-2"]] {
        let link = [&["--up-delay", "20ms", "--down-delay", "5ms"], &link[..]].concat();
        let (found, emulator) = over(&host, &link, "-c 1500 -i 1ms");
        assert_eq!(
            (found.schema.as_str(), found.reflector.numbering),
            (STAMP_SCHEMA, StampNumbering::Stateful)
        );
        let figures = &found.figures;
        for (way, at) in [(&figures.forward, &emulator.up), (&figures.reverse, &emulator.down)] {
            let counted = &at.impairments;
            let lost = way.lost.unwrap();
            assert_eq!(lost.count, counted.lost.segments, "{way:?}");
            assert_eq!(way.duplicated.count, counted.duplicated.segments, "{way:?}");
            // A duplicate at the reflector is a further reply on the way back.
            assert!(lost.of <= at.entered.segments, "{way:?}");
        }
        assert_eq!(figures.sent, emulator.up.entered.segments);
        assert_eq!((figures.undetermined, figures.invalid, figures.unsent), (0, 0, 0));
    }
}

#[test]
fn delays_and_reordering_are_those_of_the_emulator() {
    let host = TestHost::new();
    let link = ["--up-delay", "30ms", "--down-delay", "10ms", "--up-reorder", "3e-2"];
    // Load on the machine only increases the times.
    let tries = 5;
    for attempt in 1..=tries {
        let (found, emulator) = over(&host, &link, "-c 1000 -i 1ms --dscp ef");
        let figures = &found.figures;
        assert_eq!(figures.lost.count, 0);
        assert_eq!(figures.reverse.reordered.count, 0);
        let reordered = emulator.up.impairments.reordered.segments;
        assert_eq!(figures.forward.reordered.count, reordered);
        let class = StampClass { dscp: 46, ecn: 0, packets: figures.sent };
        assert_eq!(
            (&figures.forward.classes, &figures.reverse.classes),
            (&vec![class], &vec![class])
        );
        let origins = (found.stamps.sent, found.stamps.arrived);
        assert_eq!(origins, (StampOrigin::Kernel, StampOrigin::Kernel));
        let rtt = figures.rtt.as_ref().unwrap().p50_ms;
        let delays = [&figures.forward, &figures.reverse].map(|way| way.delay.unwrap().p50_ms);
        assert!(rtt > 39.9 && delays[0] > 29.9 && delays[1] > 9.9, "{rtt} {delays:?}");
        if rtt < 40.5 && delays[0] < 30.3 && delays[1] < 10.3 {
            return;
        }
        assert!(attempt < tries, "RTT {rtt} ms, delays {delays:?} ms");
    }
}

#[test]
fn text_and_document_state_the_same_and_both_families_work() {
    let host = TestHost::new();
    let server = Server::start(host.longhaul(&["serve", "-p", "0", "--stamp=0"]));
    for target in [format!("127.0.0.1:{}", server.port), format!("[::1]:{}", server.port)] {
        let output = host.run(&["path", "--stamp", &target, "-c", "20", "-i", "2ms", "-l", "200"]);
        assert_code(&output, 0);
        let printed = text(&output.stdout);
        assert!(
            printed.contains(&format!("STAMP to {target}: stateful reflector, 20 packets")),
            "{printed}"
        );
        assert!(
            printed.contains("20 of 20") && printed.contains("Both ends use one clock."),
            "{printed}"
        );
        assert!(printed.contains("No loss in 20 round trips"), "{printed}");
    }
}

#[test]
fn a_stateless_reflector_and_plain_packets_are_named() {
    let host = TestHost::new();
    let server = reflector(&host, &["--stamp-stateless"]);
    let output =
        measure(&host, server.port, &["-c", "50", "-i", "1ms", "--no-extensions", "--json"]);
    assert_code(&output, 0);
    let found = document(&output);
    assert_eq!(found.reflector.numbering, StampNumbering::Stateless);
    assert!(!found.reflector.extensions && found.figures.forward.lost.is_none());
    assert_eq!((found.figures.answered, found.reflector.received), (50, StampOrigin::Unknown));
}

#[test]
fn a_source_above_the_limit_gets_no_replies_and_a_line_in_the_log() {
    let host = TestHost::new();
    let log = host.near("log");
    let server = reflector(&host, &["--stamp-rate", "20", "--log", log.to_str().unwrap()]);
    let output = measure(&host, server.port, &["-c", "200", "-i", "2ms", "--json"]);
    assert_code(&output, 0);
    let found = document(&output);
    assert!((20..60).contains(&found.figures.answered), "{}", found.figures.answered);
    let line = "above the limit on packets per second";
    wait_for("the log line", || fs::read_to_string(&log).unwrap().contains(line));
    let written = fs::read_to_string(&log).unwrap();
    assert!(written.contains("refused address=127.0.0.1:"), "{written}");
}

/// Writes a key file with this mode and returns its path.
fn key(host: &TestHost, name: &str, digits: &str, mode: u32) -> String {
    let path = host.home().join(name);
    fs::write(&path, format!("{}\n", digits.repeat(16))).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn authenticated_packets_need_the_key_of_the_reflector() {
    let host = TestHost::new();
    let (right, wrong) = (key(&host, "right", "0a", 0o600), key(&host, "wrong", "0b", 0o600));
    let server = reflector(&host, &["--stamp-key", &right]);
    let output = measure(&host, server.port, &["-c", "20", "--json", "--stamp-key", &right]);
    assert_code(&output, 0);
    let found = document(&output);
    assert!(found.plan.authenticated && found.reflector.extensions);
    assert_eq!(found.figures.answered, 20);
    let begun = Instant::now();
    for options in [&["--stamp-key", &wrong][..], &[]] {
        let output = measure(&host, server.port, options);
        assert_code(&output, 3);
        let said = text(&output.stderr);
        assert!(said.contains("no reply from 127.0.0.1") && said.contains("--stamp-key"), "{said}");
    }
    assert!(begun.elapsed() < Duration::from_secs(20));
    // Files that other users can read, and files without a key.
    let open = key(&host, "open", "0a", 0o644);
    let other = key(&host, "other", "0x", 0o600);
    for (file, reason) in
        [(&open, "chmod 600"), (&other, "has no key"), (&"none".to_owned(), "none")]
    {
        let output = measure(&host, server.port, &["--stamp-key", file]);
        assert!([5, 6].contains(&output.status.code().unwrap()), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(reason), "{}", text(&output.stderr));
    }
}

/// A service that is not a valid reflector.
struct InvalidReflector {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl InvalidReflector {
    /// Answers every packet with the result of `answer`.
    fn start(answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (port, stop) = (socket.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
        let thread = thread::spawn({
            let stop = stop.clone();
            move || {
                let mut buffer = [0; 2000];
                while !stop.load(Ordering::Relaxed) {
                    let Ok((bytes, from)) = socket.recv_from(&mut buffer) else { continue };
                    if let Some(reply) = answer(&buffer[..bytes]) {
                        let _ = socket.send_to(&reply, from);
                    }
                }
            }
        });
        InvalidReflector { port, stop, thread: Some(thread) }
    }
}

impl Drop for InvalidReflector {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

/// Returns a reply to `packet` that repeats its number and time.
fn reply_to(packet: &[u8], mode: Mode) -> Reply {
    let request = Request::decode(packet, mode).unwrap();
    Reply {
        sequence: request.sequence,
        time: request.time,
        received: request.time,
        sender_sequence: request.sequence,
        sender_time: request.time,
        ..Reply::default()
    }
}

#[test]
fn services_that_are_no_reflectors_end_in_one_sentence_and_in_time() {
    let host = TestHost::new();
    let secret = key(&host, "key", "0a", 0o600);
    let spoofed = |packet: &[u8]| {
        let mut bytes = vec![0; 44];
        let reply = reply_to(packet, Mode::Open);
        Reply { sender_sequence: reply.sender_sequence + 7, ..reply }
            .encode(&mut bytes, Mode::Open);
        Some(bytes)
    };
    let unsigned = |packet: &[u8]| {
        let mut bytes = vec![0; 112];
        reply_to(packet, Mode::Authenticated).encode(&mut bytes, Mode::Authenticated);
        Some(bytes)
    };
    let key_option = ["--stamp-key", secret.as_str()];
    let cases: [(InvalidReflector, &[&str], i32, &str); 5] = [
        (InvalidReflector::start(|_| None), &[], 3, "no reply from"),
        (InvalidReflector::start(|_| Some(vec![1; 20])), &[], 3, "answers with 20 bytes"),
        (InvalidReflector::start(|packet| Some(packet.to_vec())), &[], 3, "not STAMP replies"),
        (InvalidReflector::start(spoofed), &[], 3, "not STAMP replies"),
        (InvalidReflector::start(unsigned), &key_option, 4, "invalid HMAC"),
    ];
    let host = &host;
    thread::scope(|scope| {
        for (impostor, options, code, sentence) in &cases {
            scope.spawn(move || {
                let begun = Instant::now();
                let output = measure(host, impostor.port, options);
                assert_code(&output, *code);
                let said = text(&output.stderr);
                assert!(said.contains(sentence) && said.trim_end().lines().count() == 1, "{said}");
                assert!(begun.elapsed() < Duration::from_secs(15), "{sentence}");
            });
        }
    });
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let begun = Instant::now();
    let output = measure(host, free, &[]);
    assert_code(&output, 3);
    assert!(text(&output.stderr).contains("the UDP port is closed"), "{}", text(&output.stderr));
    assert!(begun.elapsed() < Duration::from_secs(4), "a closed port needs no timeout");
    let output = measure(host, free, &["-l", "60"]);
    assert_code(&output, 2);
    assert!(text(&output.stderr).contains("need 124 bytes"), "{}", text(&output.stderr));
}

#[test]
fn a_reflector_of_twamp_light_with_41_bytes_is_enough() {
    let host = TestHost::new();
    let impostor = InvalidReflector::start(|packet| {
        let mut bytes = vec![0; 41];
        reply_to(packet, Mode::Open).encode(&mut bytes, Mode::Open);
        Some(bytes)
    });
    let output = measure(&host, impostor.port, &["-c", "30", "-i", "2ms", "--json"]);
    assert_code(&output, 0);
    let found = document(&output);
    assert_eq!((found.figures.answered, found.reflector.extensions), (30, false));
    assert_eq!(found.reflector.numbering, StampNumbering::Stateless);
}

#[test]
fn a_measurement_without_an_end_survives_its_reflector() {
    let host = TestHost::new();
    let server = reflector(&host, &[]);
    let (port, target) = (server.port, format!("127.0.0.1:{}", server.port));
    let options = ["path", "--stamp", &target, "--continuous", "--record-time", "1", "-i", "20ms"];
    let mut process = host.longhaul(&options).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut next = || -> StampRecord {
        serde_json::from_str(&lines.next().expect("a record").unwrap()).unwrap()
    };
    let first = next();
    assert_eq!((first.schema.as_str(), first.seconds), (STAMP_RECORD_SCHEMA, 1.0));
    assert!(first.figures.sent > 10 && first.figures.answered > 0, "{first:?}");
    let rtts: u64 = first.histograms.rtt.iter().map(|(_, packets)| packets).sum();
    assert_eq!(rtts + first.figures.untimed, first.figures.answered);
    drop(server);
    let gap = (0..10).map(|_| next()).find(|record| record.figures.answered == 0);
    let gap = gap.expect("a record without replies");
    assert_eq!(gap.figures.lost.count, gap.figures.sent);
    let again = format!("--stamp={port}");
    let _server =
        Server::start(host.longhaul(&["serve", "--bind", "127.0.0.1", "-p", "0", &again]));
    let back = (0..20).map(|_| next()).find(|record| record.figures.lost.count == 0);
    assert!(back.is_some_and(|record| record.figures.answered > 10));
    let id = rustix::process::Pid::from_child(&process);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(130));
}
