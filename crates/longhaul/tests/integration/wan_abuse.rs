//! Links under abuse: killed processes, little memory, malformed packets, and users without
//! privileges. No program may crash or leave anything behind.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use longhaul_core::result::{Certificate, CheckUnit, CheckVerdict, LinkReport, LinkWarning};
use rustix::net::{AddressFamily, SocketType, ipproto};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::LinkNameSpaceType;

use super::host::PROGRAM;
use super::wan::{assert_code, stderr, stdout, threads_in};

/// A link with TCP at full speed in both directions.
struct Loaded {
    program: Child,
    namespaces: BTreeSet<String>,
}

impl Loaded {
    fn start() -> Self {
        let program = Command::new(PROGRAM)
            .args(["wan", "run", "--rtt", "10ms", "--loss", "1e-4", "--far", "iperf3 -s -1", "--"])
            .args(["iperf3", "-c", "far", "-t", "1000", "--bidir"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut loaded = Loaded { program, namespaces: BTreeSet::new() };
        let deadline = Instant::now() + Duration::from_secs(20);
        while loaded.processes().iter().filter(|(_, name)| name == "iperf3").count() < 2 {
            assert!(Instant::now() < deadline, "{:?}", loaded.processes());
            std::thread::sleep(Duration::from_millis(20));
        }
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        loaded.namespaces = loaded
            .processes()
            .into_iter()
            .filter_map(|(pid, _)| fs::read_link(format!("/proc/{pid}/ns/net")).ok())
            .filter(|namespace| *namespace != own)
            .map(|namespace| namespace.to_string_lossy().into_owned())
            .collect();
        assert_eq!(loaded.namespaces.len(), 2);
        // The signal arrives in the middle of the transfer.
        std::thread::sleep(Duration::from_millis(300));
        loaded
    }

    /// Returns the program and its descendants with their names, in the order of their ids.
    fn processes(&self) -> Vec<(i32, String)> {
        let mut all = BTreeSet::from([self.program.id() as i32]);
        loop {
            let children = all.iter().flat_map(|pid| children(*pid)).collect::<Vec<_>>();
            let before = all.len();
            all.extend(children);
            if all.len() == before {
                break;
            }
        }
        let name = |pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        all.into_iter().map(|pid| (pid, name(pid).trim().to_owned())).collect()
    }

    /// Terminates the program if it still runs, and asserts that it did not crash and left nothing
    /// behind.
    fn end(mut self, killed: &(i32, String)) {
        std::thread::sleep(Duration::from_millis(300));
        if self.program.try_wait().unwrap().is_none() {
            kill(self.program.id() as i32, Signal::TERM);
        }
        let output = self.program.wait_with_output().unwrap();
        let printed = stderr(&output);
        assert!(!printed.contains("panicked"), "after {killed:?} was killed: {printed}");
        let signal = output.status.signal();
        assert!(matches!(signal, None | Some(9)), "after {killed:?} was killed: {output:?}");
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let left: Vec<PathBuf> = threads_in(&self.namespaces);
            if left.is_empty() {
                break;
            }
            assert!(Instant::now() < deadline, "after {killed:?} was killed: left {left:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn kill(pid: i32, signal: Signal) {
    // A process that has just ended needs no signal.
    let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
}

fn children(of: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

#[test]
fn killing_any_process_of_a_loaded_link_ends_it() {
    let mut index = 0;
    let mut killed = Vec::new();
    loop {
        let loaded = Loaded::start();
        let processes = loaded.processes();
        let Some(victim) = processes.get(index).cloned() else {
            // No other process is left, so this one is interrupted.
            loaded.end(&(0, "nothing".to_owned()));
            break;
        };
        kill(victim.0, Signal::KILL);
        loaded.end(&victim);
        killed.push(victim.1);
        index += 1;
    }
    // The program, and the first process and a command of each site.
    assert!(killed.len() >= 5, "{killed:?}");
    assert!(killed.iter().filter(|name| *name == "iperf3").count() >= 2, "{killed:?}");
}

/// Returns the processes that hold the sites of a process, each with the name of its site.
pub(crate) fn site_processes(of: i32) -> Vec<(i32, String)> {
    let comm = |pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let site = |pid: i32| {
        let target = pid.to_string();
        let output = Command::new("nsenter").args(["--uts", "-t", &target, "uname", "-n"]).output();
        (pid, stdout(&output.unwrap()).trim().to_owned())
    };
    children(of).into_iter().filter(|pid| comm(*pid).trim() == "longhaul-site").map(site).collect()
}

/// Waits at most 20 s for the end of a program and returns its output.
pub(crate) fn output_in_time(mut program: Child) -> Output {
    let deadline = Instant::now() + Duration::from_secs(20);
    while program.try_wait().unwrap().is_none() {
        if Instant::now() >= deadline {
            program.kill().unwrap();
            panic!("still running after 20 s: {:?}", program.wait_with_output().unwrap());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    program.wait_with_output().unwrap()
}

/// Returns the network namespaces of these processes.
fn network_namespaces(processes: &[(i32, String)]) -> BTreeSet<String> {
    let namespace = |pid| fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    processes.iter().map(|(pid, _)| namespace(pid).to_string_lossy().into_owned()).collect()
}

/// Kills the process that holds `site` while the commands run, and asserts that `wan run` reports
/// it and leaves nothing behind.
fn assert_killed_site_is_reported(site: &str, far: &[&str], near: &str) {
    let mut program = Command::new(PROGRAM)
        .args(["wan", "run", "--rtt", "10ms"])
        .args(far)
        .args(["--", "sh", "-c", near])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    program.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).expect("the near command runs");
    let processes = site_processes(program.id() as i32);
    assert_eq!(processes.len(), 2, "{processes:?}");
    let namespaces = network_namespaces(&processes);
    let victim = processes.iter().find(|(_, name)| name == site).unwrap().0;
    kill(victim, Signal::KILL);
    let output = output_in_time(program);
    assert_code(&output, 125);
    let sentence = format!("the process that holds site {site} ended (signal: 9 (SIGKILL))");
    let printed = stderr(&output);
    assert_eq!(printed.matches(&sentence).count(), 1, "{far:?} {near}: {printed}");
    assert!(!printed.contains("panicked"), "{printed}");
    let deadline = Instant::now() + Duration::from_secs(10);
    while !threads_in(&namespaces).is_empty() {
        assert!(Instant::now() < deadline, "{far:?} {near}: left {:?}", threads_in(&namespaces));
        std::thread::sleep(Duration::from_millis(20));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(namespaces.iter().all(|name| !mounts.contains(name)), "{mounts}");
}

#[test]
fn wan_run_reports_the_end_of_a_process_that_holds_a_site() {
    let idle = "echo ready; sleep 1000";
    let stubborn = "trap '' TERM; echo ready; while :; do sleep 1; done";
    for site in ["near", "far"] {
        let daemon = ["--far", "setsid sleep 1000 & sleep 1000"];
        assert_killed_site_is_reported(site, &daemon, idle);
        assert_killed_site_is_reported(site, &["--far", "true"], idle);
        assert_killed_site_is_reported(site, &[], stubborn);
    }
}

#[test]
fn a_selftest_ends_when_a_process_that_holds_a_site_is_killed() {
    let program = Command::new(PROGRAM)
        .args(["wan", "selftest", "--quick", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = program.id() as i32;
    let deadline = Instant::now() + Duration::from_secs(20);
    // There are two processes that hold sites, and the two ends of a probe.
    let victim = loop {
        let far = site_processes(pid).into_iter().find(|(_, site)| site == "far");
        match far {
            Some((victim, _)) if children(pid).len() >= 3 => break victim,
            _ => assert!(Instant::now() < deadline, "no probe runs"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    kill(victim, Signal::KILL);
    let output = output_in_time(program);
    assert_code(&output, 6);
    let said = stderr(&output);
    assert!(said.contains("the process that holds site far ended (signal: 9 (SIGKILL))"), "{said}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], "longhaul.error/1", "there is no certificate");
}

/// A memory control group of either version, which is removed when dropped.
struct MemoryGroup {
    path: PathBuf,
}

impl MemoryGroup {
    fn new(name: &str, bytes: u64) -> Self {
        let first = PathBuf::from("/sys/fs/cgroup/memory");
        let (root, limit) = if first.is_dir() {
            (first, "memory.limit_in_bytes")
        } else {
            (PathBuf::from("/sys/fs/cgroup"), "memory.max")
        };
        let path = root.join(format!("longhaul-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        let group = MemoryGroup { path };
        fs::write(group.path.join(limit), bytes.to_string()).unwrap();
        group
    }

    /// Runs `longhaul wan run` in the group.
    fn wan_run(&self, options: &[&str], near: &str) -> Output {
        let procs = self.path.join("cgroup.procs");
        let script = format!("echo $$ > {} && exec \"$@\"", procs.display());
        Command::new("sh")
            .args(["-c", &script, "sh", PROGRAM, "wan", "run"])
            .args(options)
            .args(["--far", "iperf3 -s -1 > /dev/null", "--", "sh", "-c", near])
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // The group is busy for a short time after its last process has ended.
        let deadline = Instant::now() + Duration::from_secs(5);
        while fs::remove_dir(&self.path).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_link_beyond_its_memory_is_refused_or_drops_with_a_warning() {
    const LIMIT: u64 = 128 << 20;
    let group = MemoryGroup::new("emu", LIMIT);
    let refused = group.wan_run(&["--rtt", "180ms", "--rate", "10G"], "echo begun");
    assert_code(&refused, 125);
    assert!(
        stderr(&refused).contains("of this machine or control group; lower a rate"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(stdout(&refused), "", "before anything is created");

    // A link without a rate is never refused; packets beyond its memory are dropped.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("link.json");
    let report = ["--rtt", "600ms", "--json-report", file.to_str().unwrap()];
    let flood = "iperf3 -c far -u -b 3G -l 8000 -t 3 > /dev/null";
    let output = group.wan_run(&report, flood);
    assert_eq!(output.status.signal(), None, "{}", stderr(&output));
    let link: LinkReport = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let is_full = |warning: &LinkWarning| matches!(warning, LinkWarning::MemoryFull { .. });
    assert!(link.warnings.iter().any(is_full), "{}", stderr(&output));
    assert!(stderr(&output).contains("because its memory was full"), "{}", stderr(&output));
    assert!(link.up.is_conserved() && link.down.is_conserved());
    // The packet that is read next has its memory beside that of the link.
    let most = LIMIT / 4 + (128 << 10);
    assert!(link.up.peak_memory_bytes.get() <= most, "{}", link.up.peak_memory_bytes);
}

/// Sends `packets` (IPv4, including the header) from inside the network namespace of a process.
fn send_raw(pid: i32, to: Ipv4Addr, packets: Vec<Vec<u8>>) {
    std::thread::spawn(move || {
        let namespace = fs::File::open(format!("/proc/{pid}/ns/net")).unwrap();
        let kind = Some(LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), kind)
            .unwrap();
        let socket =
            rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).unwrap();
        let to = std::net::SocketAddrV4::new(to, 0);
        let sent = packets.iter().filter(|packet| {
            rustix::net::sendto(&socket, packet, rustix::net::SendFlags::empty(), &to).is_ok()
        });
        // The kernel rejects some of the packets.
        assert!(sent.count() > packets.len() / 2);
    })
    .join()
    .unwrap();
}

/// Returns packets of every protocol number with inconsistent headers.
fn malformed(to: Ipv4Addr) -> Vec<Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    (0..4000)
        .map(|number| {
            let payload = draw() % 1400;
            let mut packet: Vec<u8> = (0..20 + payload).map(|_| draw() as u8).collect();
            // The kernel sets the length and the checksum, and accepts the remaining fields.
            packet[0] = 0x45;
            packet[6..8].copy_from_slice(&[[0, 0], [0x20, 0], [0, 185], [0x40, 0]][draw() % 4]);
            packet[8] = 64;
            packet[9] = [6, 17, 1, 132, 58, 4][draw() % 6];
            if number % 8 == 0 {
                packet[9] = draw() as u8;
            }
            packet[12..16].copy_from_slice(&[0; 4]);
            packet[16..20].copy_from_slice(&to.octets());
            packet
        })
        .collect()
}

#[test]
fn malformed_packets_pass_every_stage() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("link.json");
    let address = directory.path().join("address");
    // A damaged time stamp in a reply can make ping wait for years, so the script limits its time.
    let script = format!(
        "echo $LONGHAUL_FAR > {0}.new && mv {0}.new {0}; \
         while [ -e {0} ]; do sleep 0.02; done; timeout -s INT 10 ping -c 20 -i 0.01 -q far",
        address.display()
    );
    let mut program = Command::new(PROGRAM)
        .args(["wan", "run", "--rtt", "2ms", "--loss", "0.05", "--corrupt", "0.2"])
        .args([
            "--corrupt-silent",
            "0.2",
            "--duplicate",
            "0.2",
            "--mark",
            "0.2",
            "--reorder",
            "0.1",
        ])
        .args(["--jitter", "1ms", "--rate", "1G", "--json-report", file.to_str().unwrap()])
        .args(["--", "sh", "-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let to: Ipv4Addr = loop {
        if let Ok(text) = fs::read_to_string(&address) {
            break text.trim().parse().unwrap();
        }
        assert!(Instant::now() < deadline && program.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(10));
    };
    let id = program.id() as i32;
    let mut inside = children(id);
    inside.extend(inside.clone().into_iter().flat_map(children));
    let shell = inside.into_iter().find(|pid| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("ping"))
    });
    send_raw(shell.expect("the near command runs"), to, malformed(to));
    fs::remove_file(&address).unwrap();
    let output = program.wait_with_output().unwrap();
    assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    assert!(stdout(&output).contains("20 packets transmitted"), "{}", stdout(&output));
    let link: LinkReport = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert!(link.up.entered.packets > 2000, "{:?}", link.up);
    assert!(link.up.is_conserved() && link.down.is_conserved(), "{:?}", link.up);
    let Some(refused) = link.warnings.iter().find(|w| matches!(w, LinkWarning::Refused { .. }))
    else {
        return;
    };
    panic!("{refused}");
}

#[test]
fn an_ordinary_user_without_the_device_can_run_the_self_test() {
    let directory = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    let copy = directory.path().join("longhaul");
    fs::copy(PROGRAM, &copy).unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let script = format!(
        "mount -t tmpfs none /dev/net && cd / && \
         exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all \
         {} wan selftest --quick --seed 11 --json",
        copy.display()
    );
    let output = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 8)), "{code:?} {}{}", stdout(&output), stderr(&output));
    let certificate: Certificate = serde_json::from_slice(&output.stdout).unwrap();
    let counted = certificate.checks.iter().filter(|check| {
        check.samples > 0
            && !matches!(check.unit, CheckUnit::Ms | CheckUnit::Bps)
            && check.machine.is_none()
    });
    let mut passed = 0;
    for check in counted {
        assert_eq!(check.verdict, CheckVerdict::Pass, "{}: {}", check.name, check.reason);
        passed += 1;
    }
    assert!(passed >= 15, "{}", stderr(&output));
}
