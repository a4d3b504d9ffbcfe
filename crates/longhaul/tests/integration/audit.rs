//! The log of `longhaul serve`.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use longhaul_core::result::{AuditEvent, AuditRecord};
use rustix::process::{Pid, Signal, kill_process};

use crate::host::{Server, TestHost, assert_code, wait_for};

fn serve(host: &TestHost, log: &Path, options: &[&str]) -> Server {
    let (root, log) = (host.far(""), log.to_str().unwrap());
    let mut arguments = vec!["serve", "--bind", "127.0.0.1", "-p", "0", "--root"];
    arguments.extend([root.to_str().unwrap(), "--log", log]);
    arguments.extend(options);
    Server::start(host.longhaul(&arguments))
}

fn records(log: &Path) -> Vec<AuditRecord> {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn wait_for_event(log: &Path, event: AuditEvent) -> AuditRecord {
    let found = || records(log).into_iter().rfind(|record| record.event == event);
    wait_for(event.name(), || found().is_some());
    found().unwrap()
}

#[test]
fn every_session_and_transfer_is_a_document() {
    let host = TestHost::new();
    let log = host.near("").join("audit.log");
    let server = serve(&host, &log, &["--log-format", "json"]);
    host.file("odd\nname", 200_000);
    assert_code(&host.run(&["cp", "--accept-new", "odd\nname", &server.url("put\nhere")]), 0);
    let put = wait_for_event(&log, AuditEvent::Transfer);
    assert_eq!(put.operation.as_deref(), Some("put"));
    assert_eq!(put.paths, ["put%0Ahere"]);
    assert_eq!((put.bytes.map(|bytes| bytes.get()), put.files), (Some(200_000), Some(1)));
    assert_eq!((put.failures, put.result.as_deref()), (Some(0), Some("ok")));
    assert!(put.rate_bps.is_some_and(|rate| rate.bps() > 0) && put.seconds.is_some());
    let began = wait_for_event(&log, AuditEvent::Session);
    assert_eq!((&began.session, &began.key), (&put.session, &put.key));
    assert!(put.key.is_some_and(|key| key.starts_with("SHA256:")));
    assert_eq!(put.authorized, Some(true));

    assert_code(&host.run(&["cp", &server.url("put\nhere"), "back"]), 0);
    wait_for("the get", || {
        records(&log).iter().any(|record| record.operation.as_deref() == Some("get"))
    });
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    let start = &records(&log)[0];
    assert_eq!(start.event, AuditEvent::Start);
    assert!(start.address.as_ref().is_some_and(|at| at.ends_with(&server.port.to_string())));

    // After a rotation the server writes to the new file.
    fs::rename(&log, host.near("").join("audit.log.1")).unwrap();
    let process = Pid::from_child(&server.process);
    kill_process(process, Signal::HUP).unwrap();
    wait_for("the new log", || log.exists());
    let port = server.port.to_string();
    assert_code(&host.run(&["test", "127.0.0.1", "-p", &port, "-n", "100K"]), 0);
    let test = wait_for_event(&log, AuditEvent::Transfer);
    assert_eq!(test.operation.as_deref(), Some("test"));
    assert_eq!(test.bytes.map(|bytes| bytes.get()), Some(102_400));
    kill_process(process, Signal::TERM).unwrap();
    wait_for_event(&log, AuditEvent::Stop);
}

#[test]
fn anonymous_clients_cannot_forge_lines_or_flood_the_log() {
    let [host, unauthorized] = [(); 2].map(|()| TestHost::new());
    let log = host.near("").join("audit.log");
    let mut server = serve(&host, &log, &[]);
    let forged = b"x\n2026-11-22T00:00:00.000Z transfer result=ok\x1b[2J";
    let knock = |first: &[u8]| {
        let mut socket = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        let _ = socket.write_all(&[first, forged, &[0; 100]].concat());
        let _ = socket.read_to_end(&mut Vec::new());
    };
    (0..60).for_each(|_| knock(b""));
    (0..60).for_each(|_| knock(b"\x16"));
    // The log records the refusal of an unauthorized key.
    let url = server.url("a\nforged");
    assert_code(&unauthorized.run(&["cp", "--accept-new", &url, "b"]), 4);
    let text = || fs::read_to_string(&log).unwrap_or_default();
    wait_for("the refusal", || text().contains(" refused "));
    kill_process(Pid::from_child(&server.process), Signal::TERM).unwrap();
    server.process.wait().unwrap();
    let text = text();
    assert!(!text.contains(|c: char| c != '\n' && c.is_control()), "{text}");
    assert!(!text.lines().any(|line| line.ends_with("result=ok%1B[2J")), "{text}");
    let events =
        |event: &str| text.lines().filter(|line| line.split(' ').nth(1) == Some(event)).count();
    assert_eq!(events("transfer"), 0, "{text}");
    assert!((50..=100).contains(&(events("dropped") + events("handshake"))), "{text}");
    assert!(events("suppressed") > 0 && events("refused") == 1, "{text}");
    assert_eq!((events("start"), events("stop")), (1, 1), "{text}");
}

#[test]
fn a_log_on_a_full_disk_ends_no_transfer() {
    let host = TestHost::new();
    let server = serve(&host, Path::new("/dev/full"), &["--landlock", "off"]);
    host.file("a", 100_000);
    for _ in 0..3 {
        assert_code(&host.run(&["cp", "--accept-new", "a", &server.url("b")]), 0);
    }
    assert_eq!(fs::read(host.far("b")).unwrap(), fs::read(host.near("a")).unwrap());
}
