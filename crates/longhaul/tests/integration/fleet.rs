//! A fleet over an emulated topology: a hub at one site, agents at all three, and a mesh of tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::host::{PROGRAM, assert_code, text};
use crate::running::Running;
use crate::topology::Up;

pub(crate) const SITES: [&str; 3] = ["left", "middle", "right"];

/// A hub and agents, with a home directory for the user.
pub(crate) struct Fleet {
    pub(crate) up: Up,
    dir: tempfile::TempDir,
    /// The hub, and the agents by site.
    processes: BTreeMap<String, Running>,
    pub(crate) addresses: Vec<String>,
}

impl Fleet {
    /// Starts the hub at the left site, and logs in.
    pub(crate) fn start(name: &str) -> Self {
        let up = Up::row(name);
        let script = "echo $LONGHAUL_LEFT $LONGHAUL_MIDDLE $LONGHAUL_RIGHT";
        let output = up.exec("left", &["sh", "-c", script]);
        assert_code(&output, 0);
        let addresses = text(&output.stdout).split_whitespace().map(str::to_owned).collect();
        let dir = tempfile::tempdir().unwrap();
        let mut fleet = Fleet { up, dir, processes: BTreeMap::new(), addresses };
        fleet.start_hub();
        let deadline = Instant::now() + Duration::from_secs(60);
        let (mut password, mut pin) = (None, None);
        while password.is_none() || pin.is_none() {
            assert!(Instant::now() < deadline, "the hub prints its password and pin");
            std::thread::sleep(Duration::from_millis(50));
            // A line without its end may be incomplete.
            for line in fleet.log("hub").split_inclusive('\n').filter(|line| line.ends_with('\n')) {
                let last = line.split_whitespace().last().map(str::to_owned);
                if line.contains("password") {
                    password = last;
                } else if line.contains("pin") {
                    pin = last;
                }
            }
        }
        fleet.login(&password.unwrap(), &pin.unwrap());
        fleet
    }

    /// Starts the hub, also again.
    pub(crate) fn start_hub(&mut self) {
        let listen = format!("{}:5280", self.addresses[0]);
        let data = self.path("hub");
        self.spawn("hub", "left", &["hub", "--data", &data, "--listen", &listen]);
    }

    /// Starts a process at a site; its messages are in `KEY.log`.
    fn spawn(&mut self, key: &str, site: &str, arguments: &[&str]) {
        let log = self.dir.path().join(format!("{key}.log"));
        let log = fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
        let mut command = self.command(site, arguments);
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.processes.insert(key.to_owned(), Running(child));
    }

    /// Kills the hub or the agent of a site with SIGKILL.
    pub(crate) fn kill(&mut self, key: &str) {
        let Running(child) = self.processes.get_mut(key).unwrap();
        // `wan exec` is the parent of the process, and ends with it.
        let list = format!("/proc/{0}/task/{0}/children", child.id());
        let children = fs::read_to_string(list).unwrap();
        let pid = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
        let pid = pid.and_then(Pid::from_raw).expect("wan exec has started the process");
        kill_process(pid, Signal::KILL).unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn log(&self, key: &str) -> String {
        fs::read_to_string(self.dir.path().join(format!("{key}.log"))).unwrap_or_default()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn hub_url(&self) -> String {
        format!("https://{}:5280", self.addresses[0])
    }

    /// Returns a longhaul command at a site.
    fn command(&self, site: &str, arguments: &[&str]) -> Command {
        let mut command = self.up.command(site, &[&[PROGRAM], arguments].concat());
        command.env("HOME", self.dir.path()).env_remove("XDG_CONFIG_HOME");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    fn login(&self, password: &str, pin: &str) {
        let url = self.hub_url();
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let mut login = self.command("left", &["fleet", "login", &url, "--pin", pin]);
            let mut login = login.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            login.stdin.take().unwrap().write_all(password.as_bytes()).unwrap();
            let output = login.wait_with_output().unwrap();
            if output.status.success() {
                return;
            }
            assert!(Instant::now() < deadline, "{}", text(&output.stderr));
        }
    }

    /// Runs `longhaul fleet` and returns its document.
    pub(crate) fn fleet(&self, arguments: &[&str]) -> Value {
        let output = self.try_fleet(arguments);
        assert_code(&output, 0);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn try_fleet(&self, arguments: &[&str]) -> Output {
        let all = [&["fleet"], arguments, &["--json"]].concat();
        self.command("left", &all).stderr(Stdio::piped()).output().unwrap()
    }

    /// Enrolls a site, and starts its agent.
    pub(crate) fn enroll(&mut self, site: &str) {
        let token = self.fleet(&["token", site]);
        let (url, state) = (self.hub_url(), self.path(site));
        let token = token["token"].as_str().unwrap();
        let arguments =
            ["agent", "--hub", &url, "--token", token, "--name", site, "--state", &state];
        self.spawn(site, site, &arguments);
    }

    /// Starts the agent of a site again.
    pub(crate) fn start_agent(&mut self, site: &str) {
        let state = self.path(site);
        self.spawn(site, site, &["agent", "--state", &state]);
    }

    pub(crate) fn hosts(&self) -> String {
        let mut mesh = "name = \"row\"\n".to_owned();
        for (site, address) in SITES.iter().zip(&self.addresses) {
            mesh += &format!("[hosts.{site}]\naddress = \"{address}\"\ncapacity = \"1G\"\n");
        }
        mesh
    }

    pub(crate) fn mesh(&self) -> String {
        self.hosts()
            + "[tests.short]\nkind = \"throughput\"\nseconds = 1\nmargin = \"4s\"\nevery = 0\n\
                rate = \"20M\"\n[stamp]\ninterval = \"100ms\"\n"
    }

    /// Writes a mesh file, and returns its path.
    pub(crate) fn write(&self, mesh: &str) -> String {
        let file = self.path("mesh.toml");
        fs::write(&file, mesh).unwrap();
        file
    }

    pub(crate) fn logs(&self) -> String {
        SITES.iter().map(|site| format!("{site}: {}", self.log(site))).collect()
    }

    /// Waits until `condition` holds for the runs, and returns them.
    pub(crate) fn wait_for_runs(
        &self,
        what: &str,
        condition: impl Fn(&[Value]) -> bool,
    ) -> Vec<Value> {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let output = self.try_fleet(&["runs", "--limit", "10000"]);
            // The hub may be starting.
            let runs: Option<Value> = serde_json::from_slice(&output.stdout).ok();
            let runs = runs.and_then(|document| document["runs"].as_array().cloned());
            if let Some(runs) = runs.as_ref().filter(|runs| condition(runs)) {
                return runs.clone();
            }
            let in_time = Instant::now() < deadline;
            assert!(in_time, "waited in vain for {what}: {runs:#?}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Returns the number of pairs with a result of a run that started at `since_ms` or later.
pub(crate) fn finished_pairs(runs: &[Value], since_ms: i64) -> usize {
    let new = |run: &&Value| run["started_ms"].as_i64().is_some_and(|start| start >= since_ms);
    let finished = runs.iter().filter(|run| run["state"] == "finished").filter(new);
    let pair = |run: &Value| (run["source"].to_string(), run["destination"].to_string());
    finished.map(pair).collect::<BTreeSet<_>>().len()
}

#[test]
fn a_mesh_of_three_hosts_measures_itself() {
    let mut fleet = Fleet::start("fleet");
    for site in SITES {
        fleet.enroll(site);
    }
    let file = fleet.write(&fleet.mesh());
    let plan = fleet.fleet(&["plan", &file]);
    assert_eq!((plan["rounds"].as_u64(), plan["cycle_seconds"].as_u64()), (Some(2), Some(10)));
    let applied = fleet.fleet(&["apply", &file]);
    assert_eq!(applied["schema"], "longhaul.fleet-apply/1");
    assert_eq!(fleet.fleet(&["apply", &file])["revision"], applied["revision"]);

    let runs = fleet.wait_for_runs("a run of each pair", |runs| finished_pairs(runs, 0) == 6);
    let mut busy: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run["state"] == "finished") {
        assert!(run["throughput_bps"].as_u64().unwrap() > 1_000_000, "{run}");
        let span = (run["started_ms"].as_i64().unwrap(), run["ended_ms"].as_i64().unwrap());
        for resource in run["resources"].as_array().unwrap() {
            busy.entry(resource.to_string()).or_default().push(span);
        }
    }
    for (resource, mut spans) in busy {
        spans.sort_unstable();
        assert!(spans.windows(2).all(|two| two[0].1 <= two[1].0), "{resource}: {spans:?}");
    }
    let hosts = fleet.fleet(&["hosts"]);
    let states = hosts["hosts"].as_array().unwrap().iter().map(|host| host["state"].as_str());
    assert!(states.into_iter().all(|state| state == Some("present")), "{hosts}");
}
