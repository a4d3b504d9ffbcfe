//! Full disks: a hub or an agent without space states the reason, keeps what it has, and continues when
//! there is space. A damaged database.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::host::{PROGRAM, assert_code, text};
use crate::running::Running;

/// The addresses of two agents of one host.
const WEST: &str = "198.18.9.1";
const EAST: &str = "198.18.9.2";

/// A host in namespaces with a small file system, on which processes of a fleet run.
struct SmallHost {
    dir: tempfile::TempDir,
    processes: BTreeMap<String, Running>,
    /// The process that keeps the namespaces.
    holder: Running,
}

impl SmallHost {
    /// Makes a host whose directory `disk` is a tmpfs of `size`.
    fn new(size: &str) -> Self {
        crate::needs::check();
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("disk")).unwrap();
        let script = format!(
            "mount -t tmpfs -o size={size},mode=700 none {}/disk && ip link set lo up && \
             ip link add v0 type veth peer name v1 && ip address add {WEST}/24 dev v0 && \
             ip address add {EAST}/24 dev v1 && ip link set v0 up && ip link set v1 up && \
             exec sleep 900",
            dir.path().display()
        );
        let holder = Command::new("unshare").args(["-m", "-n", "sh", "-c", &script]).spawn();
        let mut host =
            SmallHost { dir, processes: BTreeMap::new(), holder: Running(holder.unwrap()) };
        let comm = format!("/proc/{}/comm", host.holder.0.id());
        host.wait("the namespaces", |_| {
            fs::read_to_string(&comm).is_ok_and(|name| name == "sleep\n")
        });
        assert!(host.holder.0.try_wait().unwrap().is_none());
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the path by which this process reaches a file of the small file system.
    fn through(&self, name: &str) -> PathBuf {
        format!("/proc/{}/root{}", self.holder.0.id(), self.path(name).display()).into()
    }

    fn longhaul(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.holder.0.id().to_string(), "-m", "-n", PROGRAM]);
        command.args(arguments).env("HOME", self.dir.path()).env_remove("XDG_CONFIG_HOME");
        command.env_remove("https_proxy").stdin(Stdio::null());
        command
    }

    /// Starts a process; its messages are in `KEY.log`.
    fn spawn(&mut self, key: &str, arguments: &[&str]) {
        let log = OpenOptions::new().append(true).create(true).open(self.path("log").join(key));
        let mut command = self.longhaul(arguments);
        let child = command.stdout(Stdio::null()).stderr(log.unwrap()).spawn().unwrap();
        self.processes.insert(key.to_owned(), Running(child));
    }

    fn log(&self, key: &str) -> String {
        fs::read_to_string(self.path("log").join(key)).unwrap_or_default()
    }

    /// Kills a process with SIGKILL.
    fn kill(&mut self, key: &str) {
        drop(self.processes.remove(key));
    }

    fn fleet(&self, arguments: &[&str]) -> Output {
        self.longhaul(&[&["fleet"], arguments].concat()).output().unwrap()
    }

    fn document(&self, arguments: &[&str]) -> Value {
        let output = self.fleet(&[arguments, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    fn runs(&self) -> Vec<Value> {
        let document = self.document(&["runs", "--limit", "10000"]);
        document["runs"].as_array().cloned().unwrap_or_default()
    }

    #[track_caller]
    fn wait(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(150);
        while !condition(self) {
            let logs: Vec<String> =
                self.processes.keys().map(|key| format!("{key}: {}", self.log(key))).collect();
            assert!(Instant::now() < deadline, "waited in vain for {what}: {logs:#?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Starts a hub with its data in a directory, also again.
    fn start_hub(&mut self, data: &str) {
        let data = self.path(data).to_str().unwrap().to_owned();
        fs::create_dir_all(self.path("log")).unwrap();
        self.spawn("hub", &["hub", "--listen", "127.0.0.1:5280", "--data", &data]);
    }

    fn login(&mut self) {
        self.wait("the hub", |host| host.log("hub").contains("the pin of the hub's key"));
        let log = self.log("hub");
        let last = |mark: &str| {
            let line = log.lines().find(|line| line.contains(mark)).unwrap();
            line.split_whitespace().last().unwrap().to_owned()
        };
        let (password, pin) = (last("password"), last("pin"));
        let arguments = ["fleet", "login", "https://127.0.0.1:5280", "--pin", &pin];
        let mut login = self.longhaul(&arguments).stdin(Stdio::piped()).spawn().unwrap();
        login.stdin.take().unwrap().write_all(password.as_bytes()).unwrap();
        assert!(login.wait().unwrap().success());
    }

    /// Enrolls a host, and starts its agent with its state in a directory.
    fn start_agent(&mut self, name: &str, state: &str) {
        let token = text(&self.fleet(&["token", name]).stdout).trim().to_owned();
        let state = self.path(state).to_str().unwrap().to_owned();
        let hub = ["agent", "--hub", "https://127.0.0.1:5280", "--token", &token];
        let own = ["--name", name, "--stamp-port", "0", "--state", &state];
        self.spawn(name, &[&hub[..], &own[..]].concat());
    }

    /// Returns the number that a query of a database of SQLite on the host returns.
    fn number(&self, path: &Path, query: &str) -> i64 {
        let script = "import sqlite3, sys\n\
                      print(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchone()[0])\n";
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.holder.0.id().to_string(), "-m", "python3", "-c", script]);
        let output = command.arg(path).arg(query).output().unwrap();
        let printed = text(&output.stdout);
        printed.trim().parse().unwrap_or_else(|_| panic!("{query}: {}", text(&output.stderr)))
    }

    /// Fills the small file system to its last page.
    fn fill(&self) {
        let filler = self.through("disk/filler");
        let mut file = OpenOptions::new().create(true).append(true).open(filler).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    }

    fn free(&self) {
        fs::remove_file(self.through("disk/filler")).unwrap();
    }
}

fn now_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

#[track_caller]
fn one_sentence(output: &Output, parts: &[&str]) {
    let message = text(&output.stderr);
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    for part in parts {
        assert!(message.contains(part), "'{part}' is not in: {message}");
    }
}

#[test]
fn a_hub_with_a_full_disk_refuses_keeps_and_continues() {
    let mut host = SmallHost::new("8m");
    host.start_hub("disk/hub");
    host.login();
    host.start_agent("west", "west");
    let (hub, journal) = (host.path("disk/hub/hub.db"), host.path("west/journal.db"));
    let samples = "SELECT count(*) FROM chunk";
    host.wait("acknowledged samples", |host| host.number(&hub, samples) > 0);
    let latest = host.number(&hub, "SELECT max(end_ms) FROM chunk");
    let old = format!("{samples} WHERE end_ms <= {latest}");
    let kept = host.number(&hub, &old);

    host.fill();
    let full_ms = now_ms();
    let mut refused = None;
    host.wait("a refusal", |host| {
        let output = host.fleet(&["token", "east"]);
        refused = (!output.status.success()).then_some(output);
        refused.is_some()
    });
    one_sentence(&refused.unwrap(), &["the disk of the hub is full; free space"]);
    host.wait("the refused upload", |host| {
        host.log("west").contains("its disk is full; the agent keeps its results and retries")
    });
    assert!(host.log("hub").contains("free space on the file system of the database"));
    let waiting = "SELECT count(*) FROM outbox WHERE kind = 'samples'";
    host.wait("samples in the journal", |host| host.number(&journal, waiting) > 0);
    for reading in ["hosts", "runs", "status"] {
        assert_code(&host.fleet(&[reading]), 0);
    }
    host.kill("hub");
    host.start_hub("disk/hub");
    host.wait("the hub with a full disk", |host| host.fleet(&["hosts"]).status.success());
    host.fill();

    let space_ms = now_ms();
    host.free();
    host.wait("a token", |host| host.fleet(&["token", "east"]).status.success());
    host.wait("the kept samples", |host| host.number(&journal, waiting) == 0);
    assert_eq!(host.number(&hub, &old), kept, "nothing acknowledged is lost");
    let between = format!("{samples} WHERE end_ms > {full_ms} AND start_ms < {space_ms}");
    assert!(host.number(&hub, &between) > 0, "the samples of the time of the full disk");
    let event = "SELECT count(*) FROM event WHERE kind = 'disk_full' AND subject = 'hub'";
    host.wait("the event", |host| host.number(&hub, event) > 0);
}

#[test]
fn an_agent_with_a_full_disk_refuses_runs_and_continues() {
    let mut host = SmallHost::new("24m");
    host.start_hub("hub");
    host.login();
    host.start_agent("west", "disk/west");
    host.start_agent("east", "east");
    let mesh = format!(
        "[hosts.west]\naddress = \"{WEST}\"\ncapacity = \"1G\"\n\
         [hosts.east]\naddress = \"{EAST}\"\ncapacity = \"1G\"\nport = 6000\n\
         [tests.short]\nkind = \"throughput\"\nfrom = \"west\"\nto = \"east\"\nseconds = 1\n\
         margin = \"4s\"\nevery = 0\nrate = \"20M\"\n"
    );
    fs::write(host.path("mesh.toml"), mesh).unwrap();
    let mesh = host.path("mesh.toml").to_str().unwrap().to_owned();
    assert_code(&host.fleet(&["apply", &mesh]), 0);
    let finished = |host: &SmallHost| -> Vec<String> {
        let runs = host.runs().into_iter().filter(|run| run["state"] == "finished");
        runs.map(|run| run["run"].to_string()).collect()
    };
    host.wait("a result", |host| !finished(host).is_empty());
    host.fill();
    host.wait("a refused run", |host| host.runs().iter().any(|run| run["reason"] == "disk_full"));
    let before = finished(&host);
    host.wait("the notice", |host| host.log("west").contains("the disk of the journal is full"));
    // Without its reserve the agent cannot write at all, also after a crash.
    host.fill();
    host.kill("west");
    let state = host.path("disk/west").to_str().unwrap().to_owned();
    host.spawn("west", &["agent", "--state", &state, "--stamp-port", "0"]);
    host.wait("the agent", |host| host.log("west").matches("works for").count() == 2);
    std::thread::sleep(Duration::from_secs(2));
    let west = &mut host.processes.get_mut("west").unwrap().0;
    assert!(west.try_wait().unwrap().is_none(), "the agent runs with a full disk");

    host.free();
    host.wait("a later result", |host| finished(host).len() > before.len());
    let runs = host.runs();
    for run in runs.iter().filter(|run| run["reason"].is_null()) {
        assert!(["failed", "missed"].iter().all(|state| run["state"] != *state), "{run}");
    }
    assert!(runs.iter().all(|run| run["reason"] != "unknown"), "{runs:#?}");
    let after = finished(&host);
    assert!(before.iter().all(|run| after.contains(run)), "nothing acknowledged is lost");
    let log = host.log("west");
    let mut starts: Vec<&str> = log.lines().filter(|line| line.ends_with(" started")).collect();
    let all = starts.len();
    starts.sort_unstable();
    starts.dedup();
    assert_eq!(starts.len(), all, "no run starts twice");
}

/// Moves the log of writes of a database of SQLite into its file.
fn settle(path: &Path) {
    let script = "import sqlite3, sys\n\
                  db = sqlite3.connect(sys.argv[1])\n\
                  db.execute('PRAGMA wal_checkpoint(TRUNCATE)')\n\
                  db.close()\n";
    assert!(Command::new("python3").args(["-c", script]).arg(path).status().unwrap().success());
    remove_log(path);
}

/// Removes the log of writes and the index of a database.
fn remove_log(path: &Path) {
    for end in ["db-wal", "db-shm"] {
        let _ = fs::remove_file(path.with_extension(end));
    }
}

#[test]
fn a_damaged_database_is_one_sentence_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("hub");
    let longhaul = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).env("HOME", dir.path()).stdin(Stdio::null());
        command.output().unwrap()
    };
    let list = ["hub", "user", "list", "--data", data.to_str().unwrap()];
    assert_code(&longhaul(&list), 0);
    let file = data.join("hub.db");
    settle(&file);
    let whole = fs::read(&file).unwrap();
    assert!(whole.len() > 20 * 4096, "a page per table");
    let mut pages = whole.clone();
    pages[4096..].fill(0xff);
    let mut header = whole.clone();
    header[..16].fill(b'x');
    for (damage, bytes) in [
        ("another file", b"not a database ".repeat(1000)),
        ("its header", header),
        ("its pages", pages),
        ("its end", whole[..2 * 4096 + 100].to_vec()),
    ] {
        fs::write(&file, &bytes).unwrap();
        remove_log(&file);
        let listen = ["hub", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()];
        let refused = longhaul(&listen);
        assert_code(&refused, 5);
        one_sentence(&refused, &["hub.db is damaged", "restore all files of a copy"]);
        assert!(fs::read(&file).unwrap() == bytes, "{damage}: nothing changed");
    }
    // A copy of the file is enough, if the log of the damaged one is gone.
    fs::write(&file, &whole).unwrap();
    remove_log(&file);
    assert_code(&longhaul(&list), 0);
}
