//! `longhaul wan up`, `exec`, `status`, `set` and `down`: topologies with a holder process.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use longhaul_core::result::TopologyReport;
use rustix::process::{Pid, Signal, kill_process};

use crate::host::PROGRAM;
use crate::wan::{assert_code, least_ping, least_until, stderr, stdout, threads_in};
use crate::wan_abuse::{output_in_time, site_processes};

/// Three sites in a row: the outer sites reach each other through the middle one.
const ROW: &str = r#"
[[site]]
name = "left"
[[site]]
name = "middle"
[[site]]
name = "right"
[[link]]
between = ["left", "middle"]
rtt = "20ms"
[[link]]
name = "second"
between = ["middle", "right"]
rtt = "10ms"
mtu = 1500
"#;

/// A running topology with a unique name, which is removed on drop.
pub(crate) struct Up {
    name: String,
    _directory: tempfile::TempDir,
}

impl Up {
    pub(crate) fn row(name: &str) -> Self {
        Self::file(name, ROW)
    }

    /// Starts the topology in a file with this text.
    pub(crate) fn file(name: &str, text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file.toml");
        fs::write(&file, text).unwrap();
        let name = format!("{name}-{}", std::process::id());
        let output = wan(&["up", file.to_str().unwrap(), "--name", &name]);
        assert_code(&output, 0);
        assert!(stdout(&output).contains("is up: sites "), "{}", stdout(&output));
        Up { name, _directory: directory }
    }

    /// Runs `longhaul wan COMMAND --name NAME ...`.
    pub(crate) fn wan(&self, command: &str, rest: &[&str]) -> Output {
        wan(&[&[command, "--name", &self.name], rest].concat())
    }

    pub(crate) fn exec(&self, site: &str, command: &[&str]) -> Output {
        self.wan("exec", &[&[site, "--"], command].concat())
    }

    /// Returns a command at a site.
    pub(crate) fn command(&self, site: &str, command: &[&str]) -> Command {
        let mut whole = Command::new(PROGRAM);
        whole.args(["wan", "exec", "--name", &self.name, site, "--"]).args(command);
        whole
    }

    /// Starts a shell at a site and waits until it prints that it is ready.
    pub(crate) fn start(&self, site: &str, script: &str) -> Child {
        let mut child = Command::new(PROGRAM)
            .args(["wan", "exec", "--name", &self.name, site, "--", "sh", "-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let read = child.stdout.take().unwrap().read(&mut [0; 16]).unwrap();
        assert!(read > 0, "the command began");
        child
    }

    pub(crate) fn status(&self) -> TopologyReport {
        let output = self.wan("status", &["--json"]);
        assert_code(&output, 0);
        serde_json::from_slice(&output.stdout).expect("status prints one document")
    }

    /// Returns the holder: the process with the name in its command line.
    fn holder(&self) -> Pid {
        let is_holder = |process: &PathBuf| {
            let line = fs::read(process.join("cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            words.contains(&&b"--background"[..]) && words.contains(&self.name.as_bytes())
        };
        let mut holders = processes().filter(is_holder);
        // The first processes of the sites are forks of the holder with the same command line, and
        // its children.
        let process = holders.find(|process| parent(process).is_none_or(|of| !is_holder(&of)));
        let pid = process.expect("a process holds it").file_name().unwrap().to_owned();
        Pid::from_raw(pid.to_str().unwrap().parse().unwrap()).unwrap()
    }

    /// Returns the ids of the network namespaces of the sites.
    fn namespaces(&self) -> BTreeSet<String> {
        let of = |site| {
            let output = self.exec(site, &["readlink", "/proc/self/ns/net"]);
            assert_code(&output, 0);
            stdout(&output).trim().to_owned()
        };
        BTreeSet::from(["left", "middle", "right"].map(of))
    }

    fn files(&self) -> Vec<PathBuf> {
        let ours = |path: &PathBuf| path.to_string_lossy().contains(&self.name);
        fs::read_dir("/run/longhaul")
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(ours)
            .collect()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.wan("down", &[]);
    }
}

fn wan(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("wan").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn processes() -> impl Iterator<Item = PathBuf> {
    fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path())
}

fn parent(process: &Path) -> Option<PathBuf> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let pid = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim();
    Some(Path::new("/proc").join(pid))
}

/// Waits until no thread is in any of the namespaces.
fn assert_deserted(namespaces: &BTreeSet<String>) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let left = threads_in(namespaces);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "left behind: {left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the lowest RTT of some pings in milliseconds; repeats them while the RTT is above
/// `most`.
fn ping_ms(up: &Up, from: &str, arguments: &[&str], most: f64) -> f64 {
    least_until(most, || {
        let output = up.exec(from, &[&["ping", "-c", "5", "-i", "0.05", "-q"], arguments].concat());
        assert_code(&output, 0);
        least_ping(&stdout(&output))
    })
}

#[test]
fn a_topology_of_three_sites_forwards_changes_and_ends() {
    let up = Up::row("row");
    for family in ["-4", "-6"] {
        let least = ping_ms(&up, "left", &[family, "right"], 32.0);
        assert!((29.9..=32.0).contains(&least), "{least} ms through the middle");
    }
    let before = up.status();
    assert_eq!((before.name.as_str(), before.sites.len(), before.links.len()), (&*up.name, 3, 2));
    for link in &before.links {
        assert!(link.link.up.delivered.packets >= 10, "{link:?}");
        assert!(link.link.up.is_conserved() && link.link.down.is_conserved());
    }
    let changed = up.wan("set", &["second", "--up-delay", "45ms"]);
    assert_code(&changed, 0);
    assert!(stdout(&changed).contains("second: RTT 50ms"), "{}", stdout(&changed));
    let least = ping_ms(&up, "left", &["right"], 72.0);
    assert!((69.9..=72.0).contains(&least), "{least} ms after the change");
    let table = stdout(&up.wan("status", &[]));
    assert!(table.contains("left-middle  left    middle"), "{table}");

    let namespaces = up.namespaces();
    assert_eq!(namespaces.len(), 3, "each site has a namespace of its own");
    let down = up.wan("down", &[]);
    assert_code(&down, 0);
    assert!(stdout(&down).contains("second: middle to right:"), "{}", stdout(&down));
    assert_deserted(&namespaces);
    assert_eq!(up.files(), Vec::<PathBuf>::new());
    let gone = up.exec("left", &["true"]);
    assert_code(&gone, 125);
    assert!(stderr(&gone).contains("no topology '"), "{}", stderr(&gone));
}

#[test]
fn idle_links_between_routers_carry_no_packets() {
    let up = Up::row("idle");
    std::thread::sleep(Duration::from_secs(2));
    for link in up.status().links {
        let packets = link.link.up.entered.packets + link.link.down.entered.packets;
        assert_eq!(packets, 0, "{link:?}");
    }
}

#[test]
fn wan_exec_keeps_directory_environment_and_streams() {
    let up = Up::row("exec");
    let directory = tempfile::tempdir().unwrap();
    let script =
        "pwd; echo $COLOR $LONGHAUL_SITE $LONGHAUL_RIGHT $LONGHAUL_RIGHT_IPV6; cat; exit 7";
    let mut child = Command::new(PROGRAM)
        .args(["wan", "exec", "--name", &up.name, "middle", "--", "sh", "-c", script])
        .current_dir(directory.path())
        .env("COLOR", "green")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"from the caller").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_code(&output, 7);
    let directory = directory.path().display();
    let expected = format!("{directory}\ngreen middle 198.18.0.3 2001:2::3\nfrom the caller");
    assert_eq!(stdout(&output), expected);
}

#[test]
fn exit_codes_distinguish_longhaul_from_the_command() {
    let up = Up::row("codes");
    assert_code(&up.exec("left", &["sh", "-c", "kill -9 $$"]), 128 + 9);
    let missing = up.exec("left", &["no-such-program"]);
    assert_code(&missing, 127);
    assert!(stderr(&missing).contains("cannot run 'no-such-program' at left"));
    assert_code(&up.exec("left", &["/etc/passwd"]), 126);
    let site = up.exec("nowhere", &["true"]);
    assert_code(&site, 125);
    assert!(stderr(&site).contains("no site 'nowhere'; the sites are left, middle, right"));
    for (arguments, expected) in [
        (&["third", "--rtt", "1ms"][..], "no link 'third'; the links are left-middle, second"),
        (&["second", "--mtu", "9000"], "--mtu of a running link cannot be changed"),
        (&["second", "--loss", "2"], "--loss cannot be '2'"),
        (&["second"], "nothing to change"),
    ] {
        let output = up.wan("set", arguments);
        assert_code(&output, 2);
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
    let again = wan(&["up", "lan", "--name", &up.name]);
    assert_code(&again, 1);
    assert!(stderr(&again).contains("is already up"), "{}", stderr(&again));
}

#[test]
fn signals_are_passed_to_the_command() {
    let up = Up::row("signal");
    let trap = "trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child = up.start("left", trap);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn an_invalid_topology_is_an_error_with_line_and_column() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bad.toml");
    for (text, code, expected) in [
        (ROW.replace("10ms", "10parsecs"), 2, "bad.toml:14:7: rtt cannot be '10parsecs'"),
        (ROW.replace("\"right\"]", "\"wrong\"]"), 2, "bad.toml:13:11: there is no site 'wrong'"),
        (ROW.replace("1500", "1"), 2, "bad.toml:15:7: an MTU of 1 is outside"),
        (format!("{ROW}rate = \"100G\"\nup-delay = \"29s\""), 6, "in the emulator, more than the"),
    ] {
        fs::write(&file, text).unwrap();
        let output = wan(&["up", file.to_str().unwrap()]);
        assert_code(&output, code);
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "one sentence: {}", stderr(&output));
    }
    let missing = wan(&["up", "/nonexistent.toml"]);
    assert_code(&missing, 5);
    let left = Path::new("/run/longhaul/bad.sock").exists();
    assert!(!left, "a refusal leaves no socket");
}

#[test]
fn nothing_is_left_when_the_holder_is_killed_and_the_name_can_be_used_again() {
    let up = Up::row("killed");
    let namespaces = up.namespaces();
    let mut inside = up.start("left", "echo ready; sleep 1000");
    kill_process(up.holder(), Signal::KILL).unwrap();
    assert_eq!(inside.wait().unwrap().code(), Some(128 + 9), "the command went with its site");
    assert_deserted(&namespaces);
    let status = up.wan("status", &[]);
    assert_code(&status, 1);
    assert!(stderr(&status).contains("was killed"), "{}", stderr(&status));
    assert_code(&wan(&["up", "lan", "--name", &up.name]), 0);
    let again = up.status();
    assert_eq!(again.links.len(), 1, "the name is a new topology's");
}

/// Kills the process that holds a site of the topology with this holder.
fn kill_site(holder: i32, site: &str) {
    let processes = site_processes(holder);
    let (victim, _) = processes.iter().find(|(_, name)| name == site).expect("the site has one");
    kill_process(Pid::from_raw(*victim).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn commands_at_a_site_cannot_end_it() {
    let up = Up::row("inside");
    // Processes of a PID namespace cannot kill its first process.
    let inside = up.exec("left", &["sh", "-c", "kill -9 -1; true"]);
    assert!(inside.status.code().is_some() && inside.status.signal().is_none());
    for site in ["left", "middle", "right"] {
        assert_code(&up.exec(site, &["true"]), 0);
    }
}

#[test]
fn the_end_of_a_process_that_holds_a_site_ends_the_topology_and_is_reported() {
    for site in ["left", "middle", "right"] {
        let up = Up::row(&format!("ended-{site}"));
        let namespaces = up.namespaces();
        let inside = ["left", "right"].map(|at| up.start(at, "echo ready; sleep 1000"));
        let holder = up.holder();
        kill_site(holder.as_raw_pid(), site);
        for command in inside {
            assert_code(&output_in_time(command), 128 + 9);
        }
        assert_deserted(&namespaces);
        let log = format!("/run/longhaul/{}.log", up.name);
        let sentence = format!("the process that holds site {site} ended (signal: 9 (SIGKILL))");
        let deadline = Instant::now() + Duration::from_secs(20);
        while Path::new(&format!("/proc/{holder}/fd/0")).exists() {
            assert!(Instant::now() < deadline, "the holder still runs");
            std::thread::sleep(Duration::from_millis(20));
        }
        let printed = fs::read_to_string(&log).unwrap();
        assert_eq!(printed.matches(&sentence).count(), 1, "{printed}");
        let status = up.wan("status", &[]);
        assert_code(&status, 1);
        assert!(stderr(&status).contains(&log), "{}", stderr(&status));
        assert_code(&up.wan("down", &[]), 0);
        assert_eq!(up.files(), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_topology_in_the_foreground_reports_the_end_of_a_process_that_holds_a_site() {
    let name = format!("foreground-{}", std::process::id());
    let program = Command::new(PROGRAM)
        .args(["wan", "up", "lan", "--foreground", "--name", &name])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !wan(&["status", "--name", &name]).status.success() {
        assert!(Instant::now() < deadline, "the topology is not up");
        std::thread::sleep(Duration::from_millis(20));
    }
    let holder = program.id() as i32;
    let (_, site) = site_processes(holder).pop().expect("the topology has sites");
    kill_site(holder, &site);
    let output = output_in_time(program);
    assert_code(&output, 1);
    let sentence = format!("the process that holds site {site} ended (signal: 9 (SIGKILL))");
    assert!(stderr(&output).contains(&sentence), "{}", stderr(&output));
    assert!(!Path::new(&format!("/run/longhaul/{name}.sock")).exists());
}

#[test]
fn invalid_requests_do_not_affect_the_holder() {
    use std::os::unix::net::UnixStream;
    let up = Up::row("noise");
    let socket = format!("/run/longhaul/{}.sock", up.name);
    for noise in [&b"\xff\xff\xff\xff"[..], b"\0\0\0\x05hello", b"GET / HTTP/1.0\r\n\r\n", b"\0\0"]
    {
        UnixStream::connect(&socket).unwrap().write_all(noise).unwrap();
    }
    assert_eq!(up.status().sites.len(), 3);
}

/// Runs a script as a user without privileges, with a private `/dev/net` that `device` creates and
/// a copy of the program that any user may execute.
fn unprivileged(device: &str, script: &str) -> Output {
    let directory = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    let copy = directory.path().join("longhaul");
    fs::copy(PROGRAM, &copy).unwrap();
    fs::write(directory.path().join("row.toml"), ROW).unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let script = format!(
        "mount -t tmpfs none /dev/net && {device} && \
         cd {0} && mkdir session && chown 65534:65534 session && chmod 0700 session && \
         exec env XDG_RUNTIME_DIR={0}/session setpriv --reuid 65534 --regid 65534 --clear-groups \
         --inh-caps=-all sh -c '{script}'",
        directory.path().display()
    );
    Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap()
}

#[test]
fn an_ordinary_user_can_keep_a_topology_with_the_device_and_without() {
    for device in ["mknod /dev/net/tun c 10 200 && chmod 0666 /dev/net/tun", "true"] {
        let output = unprivileged(
            device,
            "./longhaul wan up row.toml && ./longhaul wan exec left -- ping -c 2 -i 0.05 -q right \
             && ./longhaul wan exec left -- ping -6 -c 2 -i 0.05 -q right \
             && ./longhaul wan exec right -- id -u && ./longhaul wan set second --rtt 1ms \
             && ./longhaul wan status && ./longhaul wan down; code=$?; echo files:; ls session/longhaul; \
             exit $code",
        );
        assert_code(&output, 0);
        let text = stdout(&output);
        assert_eq!(text.matches(" 0% packet loss").count(), 2, "{text}");
        assert!(text.contains("\n65534\n"), "commands keep the user: {text}");
        assert!(text.trim_end().ends_with("files:"), "no file is left: {text}");
    }
}

#[test]
fn a_shell_at_a_site_has_the_terminal_and_its_keys() {
    let up = Up::row("terminal");
    // script(1) runs the command on a terminal and types its input. The interrupt character reaches
    // only the sleep, because the shell has job control.
    let line = format!("{PROGRAM} wan exec --name {} left -- bash --norc -i", up.name);
    let mut child = Command::new("script")
        .args(["-q", "-e", "-c", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = child.stdin.take().unwrap();
    let mut screen = child.stdout.take().unwrap();
    let mut seen = String::new();
    let mut wait_for = |what: &str| {
        let mut part = [0; 1024];
        while !seen.contains(what) {
            let read = screen.read(&mut part).unwrap();
            assert!(read > 0, "the screen ended before '{what}': {seen}");
            seen.push_str(&String::from_utf8_lossy(&part[..read]));
        }
    };
    keys.write_all(b"stty rows 33 cols 77; echo size=$(stty size) at=$LONGHAUL_SITE\n").unwrap();
    wait_for("size=33 77 at=left");
    keys.write_all(b"echo sta''rt; sleep 1000; echo code=$?\n").unwrap();
    wait_for("start");
    std::thread::sleep(Duration::from_millis(300));
    keys.write_all(b"\x03").unwrap();
    keys.write_all(b"echo after=$?\n").unwrap();
    wait_for("after=130");
    keys.write_all(b"sleep 1000 &\njobs; kill %1; exit 5\n").unwrap();
    wait_for("Running");
    drop(keys);
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(5));
    assert!(!seen.contains("no job control"), "{seen}");
}
