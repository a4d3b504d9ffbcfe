//! Admission to a server under attack: sessions, descriptors, memory, and unauthenticated
//! connections.

use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use longhaul_core::plan::{CopyOptions, TestPlan};
use longhaul_core::wire::copy::{CopyReply, CopyRequest};
use longhaul_core::wire::{FilePath, Service, TestEvent, TestOrder};
use longhaul_engine::session::{
    ConfigDir, ConnectOptions, Family, HostPolicy, HostPort, Identity, Session, connect,
    connect_early,
};

use crate::host::{Server, TestHost, text};

/// The time limit for events that take only a moment on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client without an authorized key.
struct UnauthorizedClient {
    config: ConfigDir,
    identity: Identity,
    _dir: tempfile::TempDir,
}

impl UnauthorizedClient {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = ConfigDir::at(dir.path());
        let identity = Identity::load_or_create(&config).unwrap();
        UnauthorizedClient { config, identity, _dir: dir }
    }

    fn options(&self) -> ConnectOptions<'_> {
        ConnectOptions {
            identity: &self.identity,
            config: &self.config,
            policy: HostPolicy::RefuseChanged,
            family: Family::Any,
            local: None,
        }
    }

    /// Opens a session whose client waits in the queue.
    fn session(&self, server: &Server) -> Session {
        let target = HostPort::new("127.0.0.1", server.port);
        connect_early(&target, Service::Test, &self.options(), Box::new(|_| true)).unwrap()
    }

    /// Opens a session at the head of the queue.
    fn welcome(&self, server: &Server) -> Session {
        let target = HostPort::new("127.0.0.1", server.port);
        connect(&target, Service::Test, &self.options()).unwrap()
    }
}

fn serve(host: &TestHost, options: &[&str]) -> Server {
    let mut arguments = vec!["serve", "--bind", "127.0.0.1", "-p", "0"];
    arguments.extend(options);
    Server::start(host.longhaul(&arguments))
}

fn test(host: &TestHost, server: &Server, arguments: &str) -> Command {
    let mut command = host.longhaul(&["test", "127.0.0.1", "-p", &server.port.to_string()]);
    command.args(arguments.split_whitespace());
    command
}

#[track_caller]
fn is_served(host: &TestHost, server: &Server, arguments: &str) -> Duration {
    let begun = Instant::now();
    let output = test(host, server, arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    begun.elapsed()
}

fn descriptors(server: &Server) -> usize {
    fs::read_dir(format!("/proc/{}/fd", server.process.id())).unwrap().count()
}

/// Returns a value of `/proc/PID/status`, such as `VmHWM` in KiB.
fn status(server: &Server, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[track_caller]
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn valid_data_hellos_do_not_exhaust_the_descriptors() {
    let host = TestHost::new();
    let limited = "ulimit -n 512; exec \"$0\" serve --bind 127.0.0.1 -p 0";
    let server = Server::start(host.command("sh", &["-c", limited, crate::host::PROGRAM]));
    let before = descriptors(&server);
    is_served(&host, &server, "-n 100K");
    let unauthorized = UnauthorizedClient::new();
    let mut attack = Vec::new();
    for _ in 0..5 {
        let session = unauthorized.session(&server);
        let (sender, receiver, dialer, _) = session.split_early();
        // The client opens as many connections as the server accepts; after the server has closed
        // some, the rest may fail.
        let hellos: Vec<_> = (0..250).filter_map(|n| dialer.open(n, |_| Ok(())).ok()).collect();
        attack.push((sender, receiver, hellos));
        is_served(&host, &server, "-n 100K -P 8");
        assert!(descriptors(&server) < 512);
    }
    // Another anonymous client waits until these sessions end after 5 s.
    is_served(&TestHost::new(), &server, "-n 100K");
    drop(attack);
    wait_until("the descriptors come back", || descriptors(&server) <= before + 2);
}

#[test]
fn the_limit_of_descriptors_is_raised_at_the_start() {
    let host = TestHost::new();
    let limited = "ulimit -Sn 64; exec \"$0\" serve --bind 127.0.0.1 -p 0";
    let server = Server::start(host.command("sh", &["-c", limited, crate::host::PROGRAM]));
    is_served(&host, &server, "-n 100K -P 64");
}

#[test]
fn silent_connections_do_not_lock_out_clients() {
    longhaul_sys::process::raise_descriptor_limit().unwrap();
    let host = TestHost::new();
    let server = serve(&host, &[]);
    let before = descriptors(&server);
    is_served(&host, &server, "-n 10K");
    let connect = || TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let silent: Vec<_> = (0..1100).map(|_| connect()).collect();
    // Hostile clients keep connecting while honest clients connect.
    thread::scope(|scope| {
        let more = scope.spawn(|| {
            let more: Vec<_> = (0..200)
                .map(|_| {
                    thread::sleep(Duration::from_millis(10));
                    connect()
                })
                .collect();
            drop(more);
        });
        for _ in 0..5 {
            is_served(&host, &server, "-n 10K");
        }
        is_served(&TestHost::new(), &server, "-n 10K");
        more.join().unwrap();
    });
    assert!(status(&server, "Threads") <= 1100);
    drop(silent);
    wait_until("the descriptors come back", || descriptors(&server) <= before + 2);
}

#[test]
fn a_silent_connection_is_dropped_for_a_new_one() {
    let host = TestHost::new();
    let server = serve(&host, &["--max-startups", "1:100:1"]);
    // The silent connections are too recent to be dropped at first, so the client retries.
    let silent = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    is_served(&host, &server, "-n 10K");
    drop(silent);
}

#[test]
fn slow_anonymous_tests_do_not_delay_an_authorized_copy() {
    let host = TestHost::new();
    let root = host.far("");
    let server = serve(&host, &["--max-clients", "8", "--root", root.to_str().unwrap()]);
    let before = descriptors(&server);
    is_served(&host, &server, "-n 10K");
    let unauthorized = TestHost::new();
    let mut slow: Vec<_> = (0..9)
        .map(|_| {
            let mut command = test(&unauthorized, &server, "-b 8k -l 1000 -t 3700");
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
            command.spawn().unwrap()
        })
        .collect();
    // Each session has a control connection and a data connection.
    wait_until("the slow tests are there", || descriptors(&server) >= before + 10);
    host.file("data", 100_000);
    let begun = Instant::now();
    let copied = host.run(&["cp", "data", &server.url("data")]);
    assert!(copied.status.success(), "{}", text(&copied.stderr));
    assert!(begun.elapsed() < PATIENCE);
    let mut running = 0;
    for client in &mut slow {
        running += usize::from(client.try_wait().unwrap().is_none());
    }
    assert!(running >= 8, "the slow tests had ended: {running}");
    for client in &mut slow {
        client.kill().unwrap();
        client.wait().unwrap();
    }
}

#[test]
fn anonymous_tests_share_their_memory() {
    let host = TestHost::new();
    let server = serve(&host, &["--anonymous-memory", "64MiB"]);
    is_served(&host, &server, "-n 10K");
    let before = status(&server, "VmHWM");
    let unauthorized = TestHost::new();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| is_served(&unauthorized, &server, "-P 128 -l 2M -t 2"));
        }
    });
    let grown = status(&server, "VmHWM") - before;
    // The tests requested 512 MiB of buffers.
    assert!(grown < 128 << 10, "{grown} KiB");
    // A test that does not fit is refused with the reason.
    let tiny = serve(&host, &["--anonymous-memory", "1MiB"]);
    let refused = test(&unauthorized, &tiny, "-P 128 -t 1").output().unwrap();
    assert_eq!(refused.status.code(), Some(4));
    assert!(text(&refused.stderr).contains("request fewer streams"), "{refused:?}");
}

/// The step at which a client becomes silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Welcome,
    Plan,
    Connected,
    Started,
}

/// Occupies the only session of a server and becomes silent at `step`.
fn silent_at(step: Step, unauthorized: &UnauthorizedClient, server: &Server) -> Box<dyn Send> {
    let (sender, mut receiver, dialer) = unauthorized.welcome(server).split();
    if step == Step::Welcome {
        return Box::new((sender, receiver));
    }
    let plan = TestPlan { streams: 1, latency: false, ..TestPlan::new() };
    sender.send(&TestOrder::Plan(Box::new(plan))).unwrap();
    assert_eq!(receiver.receive::<TestEvent>().unwrap(), TestEvent::Accepted);
    if step == Step::Plan {
        return Box::new((sender, receiver));
    }
    let stream = dialer.open(0, |_| Ok(())).unwrap();
    assert_eq!(receiver.receive::<TestEvent>().unwrap(), TestEvent::Ready);
    if step == Step::Started {
        sender.send(&TestOrder::Start).unwrap();
    }
    Box::new((sender, receiver, stream))
}

#[test]
fn a_silent_client_loses_its_session_at_every_step() {
    let limits = [
        (Step::Welcome, 5),
        (Step::Plan, 20),
        (Step::Connected, 20),
        // The server aborts the test after 30 s without data, and waits 20 s for an answer.
        (Step::Started, 50),
    ];
    thread::scope(|scope| {
        for (step, seconds) in limits {
            scope.spawn(move || {
                let host = TestHost::new();
                let server = serve(&host, &["--exclusive"]);
                let before = descriptors(&server);
                is_served(&host, &server, "-n 10K");
                let unauthorized = UnauthorizedClient::new();
                let silent = silent_at(step, &unauthorized, &server);
                let waited = is_served(&host, &server, "-n 10K");
                let limit = Duration::from_secs(seconds);
                assert!(waited < limit + Duration::from_secs(25), "{step:?}: {waited:?}");
                drop(silent);
                wait_until("the descriptors come back", || descriptors(&server) <= before + 2);
                // A client that disconnects loses its session at once.
                drop(silent_at(step, &unauthorized, &server));
                let waited = is_served(&host, &server, "-n 10K");
                assert!(waited < Duration::from_secs(25), "{step:?}: {waited:?}");
            });
        }
    });
}

#[test]
fn a_silent_copy_loses_its_session_before_its_data_connections() {
    let host = TestHost::new();
    let root = host.far("");
    fs::write(root.join("data"), [0; 1000]).unwrap();
    let server = serve(&host, &["--exclusive", "--root", root.to_str().unwrap()]);
    let before = descriptors(&server);
    is_served(&host, &server, "-n 10K");
    // The user of the server has an authorized key.
    let config = ConfigDir::at(host.home().join(".config/longhaul"));
    let identity = Identity::load_or_create(&config).unwrap();
    let options = ConnectOptions {
        identity: &identity,
        config: &config,
        policy: HostPolicy::RefuseChanged,
        family: Family::Any,
        local: None,
    };
    let target = HostPort::new("127.0.0.1", server.port);
    for asks in [false, true] {
        let copy = connect(&target, Service::Copy, &options).unwrap();
        let (sender, mut receiver, _dialer) = copy.split();
        if asks {
            let request = CopyRequest::Send {
                paths: vec![FilePath::new(b"data".to_vec()).unwrap()],
                asks: false,
                listed: false,
                key: None,
                options: CopyOptions::default(),
            };
            sender.send(&request).unwrap();
            let ready: CopyReply = receiver.receive().unwrap();
            assert!(matches!(ready, CopyReply::Ready { .. }), "{ready:?}");
        }
        let waited = is_served(&host, &server, "-n 10K");
        assert!(waited < Duration::from_secs(30 + 25), "{asks}: {waited:?}");
        drop((sender, receiver));
        wait_until("the descriptors come back", || descriptors(&server) <= before + 2);
    }
}

#[test]
fn a_client_that_leaves_the_queue_does_not_block_others() {
    let host = TestHost::new();
    let server = serve(&host, &["--exclusive"]);
    let unauthorized = UnauthorizedClient::new();
    let before = descriptors(&server);
    is_served(&host, &server, "-n 10K");
    let first = unauthorized.welcome(&server);
    let waiting: Vec<_> = (0..4).map(|_| unauthorized.session(&server)).collect();
    wait_until("they wait", || descriptors(&server) >= before + 5);
    drop(waiting);
    drop(first);
    let waited = is_served(&host, &server, "-n 10K");
    assert!(waited < Duration::from_secs(25), "{waited:?}");
}

/// A server in one network namespace and clients in another. The link goes down while the first
/// client runs a test and the second waits. Both lose their sessions within 45 s, and a client on
/// the server's host is served.
const VANISH: &str = r#"
set -eu
ip link set lo up
unshare -n sleep 300 & peer=$!
trap 'kill $peer $server $first $second 2>/dev/null || true' EXIT
server= first= second=
until [ "$(readlink /proc/$peer/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.1; done
there() { nsenter -t $peer -n "$@"; }
ip link add va type veth peer name vb netns $peer
ip addr add 198.18.0.1/24 dev va
ip link set va up
there ip addr add 198.18.0.2/24 dev vb
there ip link set vb up
"$LONGHAUL" serve --exclusive -p 5399 2>/dev/null & server=$!
until "$LONGHAUL" test 127.0.0.1 -p 5399 -n 10K >/dev/null 2>&1; do sleep 0.2; done
nsenter -t $peer -n "$LONGHAUL" test 198.18.0.1 -p 5399 -t 300 -b 1M >first 2>&1 & first=$!
until grep -q Mb/s first; do sleep 0.2; done
nsenter -t $peer -n "$LONGHAUL" test 198.18.0.1 -p 5399 -t 300 -b 1M >second 2>&1 & second=$!
until grep -q 'in the queue' second; do sleep 0.2; done
there ip link set vb down
timeout 100 "$LONGHAUL" test 127.0.0.1 -p 5399 -n 10K
"#;

#[test]
fn clients_of_vanished_hosts_lose_their_sessions() {
    let host = TestHost::new();
    let mut command = host.command("timeout", &["200", "unshare", "-n", "bash", "-c", VANISH]);
    let output = command.env("LONGHAUL", crate::host::PROGRAM).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}
