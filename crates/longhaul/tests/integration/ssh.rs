//! `longhaul cp` over ssh, with a private sshd and temporary keys.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::host::{PROGRAM, TestHost, assert_code, text, wait_for};

/// An sshd on loopback that accepts this user with one key.
pub(crate) struct Sshd {
    process: Child,
    pub(crate) port: u16,
    pub(crate) rsh: String,
}

impl Sshd {
    pub(crate) fn start(host: &TestHost) -> Self {
        let dir = host.home().join("sshd");
        fs::create_dir(&dir).unwrap();
        let at = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        for key in ["host_key", "user_key"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f", &at(key)])
                .status()
                .expect("ssh-keygen is installed");
            assert!(made.success());
        }
        fs::copy(at("user_key.pub"), at("authorized_keys")).unwrap();
        // The port is free at this time, and it is unlikely that another program takes it.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\n\
             PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\n\
             Subsystem sftp internal-sftp\nSetEnv PATH={} HOME={}\n",
            at("host_key"),
            at("authorized_keys"),
            far_path(host),
            host.home().display(),
        );
        fs::write(at("config"), config).unwrap();
        // An sshd started by root needs this empty directory.
        let _ = fs::create_dir("/run/sshd");
        let process = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f", &at("config")])
            .stderr(Stdio::null())
            .spawn()
            .expect("sshd is installed");
        wait_for("sshd", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        let rsh = format!(
            "ssh -F none -p {port} -i {} -o IdentitiesOnly=yes -o BatchMode=yes \
             -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR",
            at("user_key")
        );
        Sshd { process, port, rsh }
    }
}

/// Returns the PATH of the remote host: `home/bin`, the directory of the tested longhaul, and the
/// present PATH.
fn far_path(host: &TestHost) -> String {
    let program = Path::new(PROGRAM).parent().unwrap();
    let (own, rest) = (host.home().join("bin"), std::env::var("PATH").unwrap());
    format!("{}:{}:{rest}", own.display(), program.display())
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn files_are_copied_over_ssh_in_both_directions() {
    let host = TestHost::new();
    let sshd = Sshd::start(&host);
    let data = host.file("data", (5 << 20) + 7);
    let cp = ["cp", "-e", &sshd.rsh, "--far-longhaul", PROGRAM];
    let there = format!("127.0.0.1:{}", host.far("there").display());
    let output = host.run(&[&cp[..], &["data", &there]].concat());
    assert_code(&output, 0);
    assert!(text(&output.stdout).contains("encrypted"), "{}", text(&output.stdout));
    assert!(fs::read(host.far("there")).unwrap() == fs::read(&data).unwrap());
    assert_code(&host.run(&[&cp[..], &[&there, "back"]].concat()), 0);
    assert!(fs::read(host.near("back")).unwrap() == fs::read(&data).unwrap());
}

#[test]
fn errors_over_ssh_are_reported() {
    let host = TestHost::new();
    let sshd = Sshd::start(&host);
    host.file("data", 10);
    let target = format!("127.0.0.1:{}", host.far("x").display());
    let missing = ["cp", "-e", &sshd.rsh, "--far-longhaul", "/no/such/longhaul", "data", &target];
    let output = host.run(&missing);
    assert_code(&output, 3);
    assert!(text(&output.stderr).contains("/no/such/longhaul"), "{}", text(&output.stderr));
    let nowhere = format!("127.0.0.1:{}", host.far("none/x").display());
    let output = host.run(&["cp", "-e", &sshd.rsh, "--far-longhaul", PROGRAM, "data", &nowhere]);
    assert_code(&output, 5);
    let output = host.run(&["cp", "-e", "/no/such/ssh", "data", &target]);
    assert_code(&output, 6);
    assert!(!host.far("x").exists());
}

#[test]
fn a_missing_longhaul_is_installed_by_its_user() {
    let host = TestHost::new();
    let sshd = Sshd::start(&host);
    host.file("data", 10);
    let target = format!("127.0.0.1:{}", host.far("x").display());
    let cp = ["cp", "-e", &sshd.rsh];
    let missing = [&cp[..], &["--far-longhaul", "/no/such/longhaul", "data", &target]].concat();
    let output = host.run(&missing);
    assert_code(&output, 3);
    let error = text(&output.stderr);
    assert!(error.contains("--far-longhaul") && error.contains("--install-far"), "{error}");
    // There is no terminal for the question.
    let output = host.run(&[&cp[..], &["--install-far", "127.0.0.1"]].concat());
    assert_code(&output, 2);
    let error = text(&output.stderr);
    let said = "cannot ask whether to install longhaul on 127.0.0.1, because standard input is not";
    assert!(error.contains(said) && error.contains("add --yes"), "{error}");
    let place = host.home().join(".local/bin/longhaul");
    assert!(!place.exists());
    let output = host.run(&[&cp[..], &["--install-far", "127.0.0.1", "--yes"]].concat());
    assert_code(&output, 0);
    assert_eq!(fs::read(&place).unwrap(), fs::read(PROGRAM).unwrap());
    assert_eq!(fs::read_dir(place.parent().unwrap()).unwrap().count(), 1);
    let output = host.run(&["cp", "-e", "/bin/false", "data", &target]);
    assert_code(&output, 3);
}

#[test]
fn remote_wildcards_and_the_home_directory_are_those_of_the_remote_shell() {
    let host = TestHost::new();
    let sshd = Sshd::start(&host);
    fs::create_dir(host.near("into")).unwrap();
    for name in ["a 1.h5", "b'2.h5", "c.txt"] {
        fs::write(host.far(name), name).unwrap();
    }
    let pattern = format!("127.0.0.1:{}/*.h5", host.far("").display()).replace("//*", "/*");
    let cp = ["cp", "-v", "-e", &sshd.rsh, "--far-longhaul", PROGRAM];
    let output = host.run(&[&cp[..], &[&pattern, "into/"]].concat());
    assert_code(&output, 0);
    let listed = text(&output.stdout);
    for name in ["a 1.h5", "b'2.h5"] {
        assert_eq!(fs::read(host.near("into").join(name)).unwrap(), name.as_bytes());
        assert!(listed.contains("create") && listed.contains(name), "{listed}");
    }
    assert!(!host.near("into/c.txt").exists());
    let none = format!("127.0.0.1:{}/*.none", host.far("").display());
    let output = host.run(&[&cp[..], &[&none, "into/"]].concat());
    assert_code(&output, 5);
    assert!(text(&output.stderr).contains("*.none"), "{}", text(&output.stderr));
}

#[test]
fn a_test_starts_its_server_over_ssh() {
    let host = TestHost::new();
    let sshd = Sshd::start(&host);
    let far = ["-e", &sshd.rsh, "--far-longhaul", PROGRAM];
    let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
    let there = format!("{user}@127.0.0.1");
    let output = host.run(&[&["test", &there, "-n", "1M", "--json"], &far[..]].concat());
    assert_code(&output, 0);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["summary"]["receiver"]["bytes"], 1 << 20);
    assert_eq!(document["target"], there.as_str());
}

#[test]
fn via_ssh_needs_only_the_ssh_port() {
    let host = TestHost::new();
    let sshd = Sshd::start(&host);
    let data = host.file("data", (3 << 20) + 7);
    let cp = ["cp", "--via-ssh", "-P", "3", "--ssh", &sshd.rsh, "--far-longhaul", PROGRAM];
    let there = format!("127.0.0.1:{}", host.far("there").display());
    assert_code(&host.run(&[&cp[..], &["data", &there]].concat()), 0);
    assert!(fs::read(host.far("there")).unwrap() == fs::read(&data).unwrap());
    assert_code(&host.run(&[&cp[..], &[&there, "back"]].concat()), 0);
    assert!(fs::read(host.near("back")).unwrap() == fs::read(&data).unwrap());
}

#[test]
fn data_pass_between_two_ssh_hosts() {
    let host = TestHost::new();
    let sshd = Sshd::start(&host);
    host.file("data", (3 << 20) + 7);
    let at = |path: std::path::PathBuf| format!("127.0.0.1:{}", path.display());
    let (from, to) = (at(host.near("data")), at(host.far("there")));
    let cp = ["cp", "-e", &sshd.rsh, "--far-longhaul", PROGRAM];
    assert_code(&host.run(&[&cp[..], &[&from, &to]].concat()), 0);
    assert!(fs::read(host.far("there")).unwrap() == fs::read(host.near("data")).unwrap());
    // If a sink accepts data only through ssh, the source cannot connect to it.
    let again = at(host.far("again"));
    let output = host.run(&[&cp[..], &["--via-ssh", "-P", "2", &from, &again]].concat());
    assert_code(&output, 0);
    assert!(fs::read(host.far("again")).unwrap() == fs::read(host.near("data")).unwrap());
}

/// An ssh-agent; killed when dropped.
struct Agent {
    process: Child,
    socket: String,
}

impl Agent {
    fn with(host: &TestHost, key: &str) -> Self {
        let socket = host.home().join("agent").to_str().unwrap().to_owned();
        let process = Command::new("ssh-agent")
            .args(["-D", "-a", &socket])
            .stdout(Stdio::null())
            .spawn()
            .expect("ssh-agent is installed");
        wait_for("the agent", || std::path::Path::new(&socket).exists());
        let added = Command::new("ssh-add")
            .args(["-q", key])
            .env("SSH_AUTH_SOCK", &socket)
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(added.success());
        Agent { process, socket }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn jump_hosts_aliases_and_keys_come_from_the_ssh_configuration() {
    let host = TestHost::new();
    let sshd = Sshd::start(&host);
    let key = host.home().join("sshd/user_key");
    // The key is only in the agent.
    let agent = Agent::with(&host, key.to_str().unwrap());
    fs::rename(&key, host.home().join("sshd/elsewhere")).unwrap();
    let config = host.home().join("ssh_config");
    let port = sshd.port;
    fs::write(
        &config,
        format!(
            "Host gate archive\n HostName 127.0.0.1\n Port {port}\nHost archive\n ProxyJump gate\n\
             Host *\n BatchMode yes\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n \
             LogLevel ERROR\n"
        ),
    )
    .unwrap();
    let data = host.file("data", (3 << 20) + 7);
    let rsh = format!("ssh -F {}", config.display());
    let there = format!("archive:{}", host.far("there").display());
    for way in [&[][..], &["--via-ssh", "-P", "2"]] {
        let cp = ["cp", "-e", &rsh, "--far-longhaul", PROGRAM];
        let arguments = [&cp[..], way, &["data", &there]].concat();
        let copied = host.longhaul(&arguments).env("SSH_AUTH_SOCK", &agent.socket).output();
        assert_code(&copied.unwrap(), 0);
        assert!(fs::read(host.far("there")).unwrap() == fs::read(&data).unwrap());
        fs::remove_file(host.far("there")).unwrap();
        // Without the agent, ssh prints the reason.
        let refused = host.longhaul(&arguments).env_remove("SSH_AUTH_SOCK").output().unwrap();
        assert_code(&refused, 3);
        assert!(text(&refused.stderr).contains("Permission denied"), "{}", text(&refused.stderr));
    }
}

#[test]
fn doctor_examines_another_host_over_ssh() {
    let host = TestHost::new();
    let sshd = Sshd::start(&host);
    let doctor = ["doctor", "127.0.0.1", "--there", "-e", &sshd.rsh, "--far-longhaul"];
    let output = host.run(&[&doctor[..], &[PROGRAM, "--json", "--rate", "10G"]].concat());
    let report: longhaul_core::result::DoctorReport =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    assert_eq!(report.host.as_deref(), Some("127.0.0.1"));
    // The remote doctor examines the path back to this host.
    assert_eq!(report.target.to.as_deref(), Some("127.0.0.1"));
    assert_eq!(report.target.rate_bps.bps(), 10_000_000_000);
    let output = host.run(&[&doctor[..], &["/no/such/longhaul"]].concat());
    assert_code(&output, 3);
    assert!(text(&output.stderr).contains("--install-far"), "{}", text(&output.stderr));
}
