//! `longhaul wan run`: the traffic of the link, the exit code, and the clean-up.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use longhaul_core::result::LinkReport;
use rustix::process::{Pid, Signal, kill_process};

fn program() -> &'static str {
    env!("CARGO_BIN_EXE_longhaul")
}

/// Runs `longhaul wan run` with these options and near command.
fn wan_run(options: &[&str], command: &[&str]) -> Output {
    Command::new(program())
        .args(["wan", "run"])
        .args(options)
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        .output()
        .expect("the program was built with these tests")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
pub(crate) fn assert_code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}{}", stdout(output), stderr(output));
}

/// A run of two idle commands, each with a daemon.
struct Waiting {
    program: Child,
    /// Returns the ids of the network namespaces of both sites.
    namespaces: BTreeSet<String>,
}

impl Waiting {
    fn start() -> Self {
        let idle = "setsid sleep 1000 & readlink /proc/self/ns/net; sleep 1000";
        let mut program = Command::new(program())
            .args(["wan", "run", "--far", idle, "--", "sh", "-c", idle])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The output of the far command goes to standard error.
        let near = first_line(program.stdout.take().unwrap());
        let far = first_line(program.stderr.take().unwrap());
        let namespaces = BTreeSet::from([near, far]);
        assert!(namespaces.iter().all(|name| name.starts_with("net:[")), "{namespaces:?}");
        assert_eq!(namespaces.len(), 2, "each site has a namespace of its own");
        assert!(!threads_in(&namespaces).is_empty());
        Waiting { program, namespaces }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.program.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Asserts that no process, namespace or device is left. Without processes only a file could
    /// keep a namespace, and longhaul creates none.
    fn assert_nothing_left(&self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let left = threads_in(&self.namespaces);
            if left.is_empty() {
                break;
            }
            assert!(Instant::now() < deadline, "left behind: {left:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(self.namespaces.iter().all(|name| !mounts.contains(name)), "{mounts}");
    }
}

fn first_line(from: impl Read) -> String {
    let mut line = String::new();
    BufReader::new(from).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// Returns the threads that are in any of the namespaces or have descriptors of them.
pub(crate) fn threads_in(namespaces: &BTreeSet<String>) -> Vec<PathBuf> {
    let is_inside = |task: &PathBuf| {
        fs::read_link(task.join("ns/net"))
            .is_ok_and(|name| namespaces.contains(&*name.to_string_lossy()))
    };
    entries(Path::new("/proc"))
        .flat_map(|process| entries(&process.join("task")).collect::<Vec<_>>())
        .filter(is_inside)
        .collect()
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Returns the lowest time in the summary of ping, in milliseconds.
pub(crate) fn least_ping(text: &str) -> f64 {
    let times = text.split_once("min/avg/max/mdev = ").expect("ping's summary").1;
    times.split('/').next().unwrap().parse().unwrap()
}

/// Returns the minimum of `measure`, which is repeated for some time until it is at most `most`.
/// The minimum describes the link, because load on the machine only adds to a round trip.
pub(crate) fn least_until(most: f64, mut measure: impl FnMut() -> f64) -> f64 {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut least = measure();
    while least > most && Instant::now() < deadline {
        least = least.min(measure());
    }
    least
}

#[test]
fn a_site_knows_its_own_name() {
    let before = Command::new("uname").arg("-n").output().unwrap().stdout;
    let output = wan_run(&[], &["uname", "-n"]);
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "near\n");
    assert_eq!(Command::new("uname").arg("-n").output().unwrap().stdout, before);
}

#[test]
fn ping_measures_the_configured_rtt() {
    let least = least_until(20.3, || {
        let output = wan_run(&["--rtt", "20ms"], &["ping", "-c", "41", "-i", "0.02", "far"]);
        assert_code(&output, 0);
        let text = stdout(&output);
        assert_eq!(text.matches("time=").count(), 41, "{text}");
        least_ping(&text)
    });
    assert!(least >= 19.95, "a reply came before its time: {least} ms");
    assert!(least <= 20.3, "replies are late: {least} ms");
}

#[test]
fn directions_can_have_different_delays() {
    let options = ["--up-delay", "30ms", "--down-delay", "0ms"];
    let least = least_until(32.0, || {
        let output = wan_run(&options, &["ping", "-c", "3", "-i", "0.01", "-q", "far"]);
        assert_code(&output, 0);
        least_ping(&stdout(&output))
    });
    assert!((29.9..=32.0).contains(&least), "{least} ms");
}

#[test]
fn only_the_names_of_sites_resolve() {
    let look_up = "getent ahostsv4 near | awk 'NR==1 {print $1, $3}'; getent ahostsv4 far | \
                   awk 'NR==1 {print $1, $3}'; echo $LONGHAUL_NEAR $LONGHAUL_FAR; \
                   getent hosts longhaul.example || echo unknown";
    let expected = ["198.18.0.1", "near", "198.18.0.2", "far", "198.18.0.1", "198.18.0.2"];
    let begun = Instant::now();
    let near = wan_run(&[], &["sh", "-c", look_up]);
    assert_code(&near, 0);
    // A resolver that queries a server would need five seconds for an unknown name.
    assert!(begun.elapsed() < Duration::from_secs(4), "took {:?}", begun.elapsed());
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let near = words(&stdout(&near));
    assert_eq!(near[..6], expected);
    assert_eq!(near[6..], ["unknown"]);
    let far = wan_run(&["--far", look_up], &["sleep", "0.5"]);
    assert_eq!(words(&stderr(&far))[..6], expected, "the far end sees the same");
}

#[test]
fn both_families_are_named_and_ipv4_is_the_first_choice() {
    let look_up = "getent ahosts far | awk '$2 == \"STREAM\" {print $1}'; echo $LONGHAUL_FAR_IPV6";
    let output = wan_run(&[], &["sh", "-c", look_up]);
    assert_code(&output, 0);
    let found: Vec<String> = stdout(&output).lines().map(str::to_owned).collect();
    assert_eq!(found, ["198.18.0.2", "2001:2::2", "2001:2::2"]);
}

#[test]
fn ipv6_works_at_once() {
    let output = wan_run(&["--rtt", "20ms"], &["ping", "-6", "-c", "11", "-i", "0.02", "far"]);
    assert_code(&output, 0);
    let text = stdout(&output);
    assert!(text.contains(" 0% packet loss"), "{text}");
    let serve = format!("{} serve --one-off", program());
    let test = [program(), "test", "2001:2::2", "-n", "16MiB", "--json"];
    let output = wan_run(&["--rtt", "4ms", "--far", &serve], &test);
    assert_code(&output, 0);
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["summary"]["receiver"]["bytes"], 16 << 20, "{result}");
}

#[test]
fn an_idle_link_carries_no_packets() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("link.json");
    let options = ["--json-report", report.to_str().unwrap()];
    assert_code(&wan_run(&options, &["sleep", "2"]), 0);
    let link: LinkReport = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    assert_eq!(link.up.entered.packets + link.down.entered.packets, 0, "{link:?}");
}

#[test]
fn a_rate_beyond_the_memory_is_refused_before_the_start() {
    // 75 GB in flight exceed the memory that TCP may use on any host.
    let output = wan_run(&["--rate", "20G", "--rtt", "30s"], &["touch", "/nonexistent"]);
    assert_code(&output, 125);
    let text = stderr(&output);
    assert!(text.contains("; lower a rate") || text.contains("net.ipv4.tcp_mem="), "{text}");
    assert_eq!(text.lines().count(), 1, "one sentence: {text}");
}

#[test]
fn a_tcp_transfer_is_complete_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("link.json");
    let serve = format!("{} serve --one-off", program());
    let options = ["--rtt", "10ms", "--far", &serve, "--json-report", report.to_str().unwrap()];
    let output = wan_run(&options, &[program(), "test", "far", "-n", "64MiB", "--json"]);
    assert_code(&output, 0);
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["summary"]["receiver"]["bytes"], 64 << 20, "{result}");
    let link: LinkReport = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    for direction in [&link.up, &link.down] {
        assert!(direction.is_conserved(), "{direction:?}");
        assert_eq!(direction.not_delivered().segments + direction.interface_drops, 0);
    }
    assert!(link.up.delivered.bytes > 64 << 20, "{link:?}");
    assert!(link.up.delivered.segments > (64 << 20) / 9000, "{link:?}");
    assert!(link.tcp_offload, "super-packets pass whole on every supported kernel");
}

#[test]
fn a_rate_is_not_exceeded() {
    let serve = format!("{} serve --one-off", program());
    let options = ["--rate", "200M", "--far", &serve];
    let output = wan_run(&options, &[program(), "test", "far", "-n", "16MiB", "--json"]);
    assert_code(&output, 0);
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rate = result["summary"]["throughput_bps"].as_f64().unwrap();
    // Goodput excludes the headers. The tolerance of 1 % allows for the receiver's clock, which
    // starts with the first byte.
    assert!(rate < 202e6, "{rate}");
}

#[test]
fn wan_run_returns_the_exit_code_of_the_command() {
    assert_code(&wan_run(&[], &["true"]), 0);
    assert_code(&wan_run(&[], &["sh", "-c", "exit 3"]), 3);
    assert_code(&wan_run(&[], &["sh", "-c", "kill -9 $$"]), 128 + 9);
    let missing = wan_run(&[], &["no-such-program"]);
    assert_code(&missing, 127);
    assert!(stderr(&missing).contains("cannot run 'no-such-program' at near"));
    assert_code(&wan_run(&[], &["/etc/passwd"]), 126);
}

#[test]
fn errors_of_longhaul_have_separate_exit_codes() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("missing/link.json");
    let report = wan_run(&["--json-report", file.to_str().unwrap()], &["true"]);
    assert_code(&report, 125);
    assert!(stderr(&report).contains("cannot create the report of the link"));
    for (options, expected) in [
        (["--rtt", "90parsecs"], "--rtt cannot be '90parsecs'"),
        (["--rate", "0"], "a rate of 0.00 b/s is below"),
        (["--loss", "1.5"], "--loss cannot be '1.5'"),
        (["--down-loss", "2"], "--down-loss cannot be '2'"),
    ] {
        let output = wan_run(&options, &["touch", "/nonexistent"]);
        assert_code(&output, 2);
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn a_failing_far_command_is_a_warning_only() {
    let output = wan_run(&["--far", "exit 9"], &["sh", "-c", "sleep 0.2; exit 4"]);
    assert_code(&output, 4);
    assert!(stderr(&output).contains("the far command failed (exit status: 9)"));
}

#[test]
fn the_far_command_may_finish_reading_data_in_flight() {
    // The far command never listens, so the near command starts after a second and ends at 1.7 s.
    let output = wan_run(&["--rtt", "400ms", "--far", "sleep 2; echo finished"], &["sleep", "0.7"]);
    assert_code(&output, 0);
    assert!(stderr(&output).contains("finished"), "{}", stderr(&output));
}

#[test]
fn a_far_command_that_ignores_sigterm_is_killed() {
    let begun = Instant::now();
    let stubborn = "trap '' TERM; while :; do sleep 1; done";
    assert_code(&wan_run(&["--far", stubborn], &["true"]), 0);
    assert!(begun.elapsed() < Duration::from_secs(20), "took {:?}", begun.elapsed());
}

#[test]
fn nothing_is_left_when_the_command_ends() {
    let mut waiting = Waiting::start();
    // The near command is a shell that has a sleep as its child and leads no session.
    let near = children(waiting.program.id()).into_iter().find(|pid| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("sh\0-c"))
    });
    let near = Pid::from_raw(near.expect("the near command runs")).unwrap();
    kill_process(near, Signal::KILL).unwrap();
    let status = waiting.program.wait().unwrap();
    assert!(status.code().is_some(), "{status}");
    waiting.assert_nothing_left();
}

fn children(of: u32) -> Vec<i32> {
    entries(Path::new(&format!("/proc/{of}/task")))
        .filter_map(|task| fs::read_to_string(task.join("children")).ok())
        .flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

#[test]
fn nothing_is_left_after_a_signal() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut waiting = Waiting::start();
        waiting.signal(signal);
        let status = waiting.program.wait().unwrap();
        assert_eq!(status.code(), Some(128 + signal.as_raw()), "after {signal:?}");
        waiting.assert_nothing_left();
    }
}

#[test]
fn nothing_is_left_after_sigkill() {
    let mut waiting = Waiting::start();
    waiting.signal(Signal::KILL);
    assert_eq!(waiting.program.wait().unwrap().signal(), Some(9));
    waiting.assert_nothing_left();
}

/// Runs `longhaul wan run -- ping` as a user without privileges, with a private `/dev/net` that
/// `device` creates and a copy of the program that any user may execute.
fn unprivileged(device: &str) -> Output {
    let directory = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    let copy = directory.path().join("longhaul");
    fs::copy(program(), &copy).unwrap();
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let script = format!(
        "mount -t tmpfs none /dev/net && {device} && cd / && \
         exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all \
         {} wan run --rtt 10ms -- ping -c 2 -i 0.01 -q far",
        copy.display()
    );
    Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap()
}

#[test]
fn an_ordinary_user_can_run_a_link() {
    let output = unprivileged("mknod /dev/net/tun c 10 200 && chmod 0666 /dev/net/tun");
    assert_code(&output, 0);
    assert!(stdout(&output).contains(" 0% packet loss"), "{}", stdout(&output));
}

#[test]
fn an_ordinary_user_needs_no_device() {
    for device in ["true", "mknod /dev/net/tun c 10 200 && chmod 0600 /dev/net/tun"] {
        let output = unprivileged(device);
        assert_code(&output, 0);
        assert!(stdout(&output).contains(" 0% packet loss"), "{}", stdout(&output));
    }
}

#[test]
fn a_limit_of_namespaces_is_named_with_its_remedy() {
    // The limit is that of a separate user namespace.
    let script =
        format!("echo 0 > /proc/sys/user/max_net_namespaces && exec {} wan run -- true", program());
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .output()
        .unwrap();
    assert_code(&output, 125);
    let expected = "sudo sysctl -w user.max_net_namespaces=15000";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
}

/// Runs `longhaul wan` with these arguments.
fn wan(arguments: &[&str]) -> Output {
    let mut command = Command::new(program());
    command.arg("wan").args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// A `wan run --name` whose command waits for the end of its standard input.
struct Named {
    name: String,
    program: Child,
}

impl Named {
    fn start(kind: &str) -> Self {
        let name = format!("{kind}-{}", std::process::id());
        let mut program = Command::new(program())
            .args(["wan", "run", "--name", &name, "--rtt", "20ms"])
            .args(["--", "sh", "-c", "echo up; cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        assert_eq!(first_line(program.stdout.take().unwrap()), "up");
        Named { name, program }
    }

    fn part(&self, part: &str) -> String {
        format!("{}/{part}", self.name)
    }

    /// Ends the command and returns the exit code.
    fn end(mut self) -> Option<i32> {
        drop(self.program.stdin.take());
        self.program.wait().unwrap().code()
    }
}

#[test]
fn a_named_link_is_entered_read_and_changed_from_another_terminal() {
    let link = Named::start("named");
    let far = wan(&["exec", &link.part("far"), "--", "sh", "-c", "echo at $LONGHAUL_SITE"]);
    assert_code(&far, 0);
    assert_eq!(stdout(&far), "at far\n");
    assert_code(&wan(&["set", &link.part("link"), "--rtt", "60ms"]), 0);
    let ping = || {
        let output = wan(&["exec", &link.part("near"), "--", "ping", "-c", "1", "far"]);
        least_ping(&stdout(&output))
    };
    let ms = least_until(70.0, ping);
    assert!((60.0..70.0).contains(&ms), "{ms}");
    let status = wan(&["status", "--name", &link.name, "--json"]);
    assert_code(&status, 0);
    let report: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(report["name"], link.name.as_str());
    assert_eq!(report["links"][0]["link"]["plan"]["up"]["delay_seconds"], 0.03);
    let name = link.name.clone();
    assert_eq!(link.end(), Some(0));
    let gone = wan(&["exec", &format!("{name}/far"), "--", "true"]);
    assert_code(&gone, 125);
    assert!(stderr(&gone).contains("no topology"), "{}", stderr(&gone));
}

#[test]
fn a_named_link_refuses_invalid_requests_and_a_second_use_of_its_name() {
    let link = Named::start("busy");
    for (arguments, code, says) in [
        (vec!["exec", "PART/moon", "--", "true"], 125, "no site 'moon'; the sites are near, far"),
        (vec!["exec", "--name", "other", "PART/far", "--", "true"], 125, "is not in the topology"),
        (vec!["set", "PART/moon", "--rtt", "1ms"], 2, "no link 'moon'; the links are link"),
        (vec!["set", "PART/link", "--rtt", "soon"], 2, "--rtt cannot be 'soon'"),
        (vec!["down", "--name", "PART"], 1, "ends with the command of 'wan run'"),
        (vec!["run", "--name", "PART", "--", "true"], 125, "is already up"),
        (vec!["run", "--name", "a b", "--", "true"], 2, "'a b' is not a valid name"),
    ] {
        let own = arguments.iter().map(|word| word.replace("PART", &link.name));
        let own: Vec<String> = own.collect();
        let output = wan(&own.iter().map(String::as_str).collect::<Vec<_>>());
        assert_code(&output, code);
        assert!(stderr(&output).contains(says), "{own:?}: {}", stderr(&output));
    }
    assert_eq!(link.end(), Some(0));
}

#[test]
fn a_line_of_netem_and_a_policer_apply_to_real_packets() {
    let line = "tc qdisc add dev eth0 root netem delay 30ms limit 5000";
    let output = wan_run(&["--up-netem", line], &["ping", "-c", "3", "-i", "0.2", "far"]);
    assert_code(&output, 0);
    let ms = least_ping(&stdout(&output));
    assert!((30.0..45.0).contains(&ms), "{ms}");
    // 100 packets of 1028 bytes in 0.2 s: the burst of 50 kB holds 48, and the rate adds 4.
    let options = ["--police", "160k:50000", "--mtu", "1500"];
    let ping = ["ping", "-q", "-s", "1000", "-c", "100", "-i", "0.002", "-W", "1", "far"];
    let output = wan_run(&options, &ping);
    let text = stdout(&output);
    let received = text.split(" received").next().and_then(|text| text.rsplit(' ').next());
    let received: u32 = received.and_then(|count| count.parse().ok()).expect(&text);
    assert!((48..70).contains(&received), "{text}");
}
