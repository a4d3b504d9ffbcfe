//! A fleet over an emulated topology: a hub at one site, agents at all three, and a mesh of tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::host::{PROGRAM, assert_code, text};
use crate::running::Running;
use crate::topology::Up;

const SITES: [&str; 3] = ["left", "middle", "right"];

/// A hub and agents, with a home directory for the user.
struct Fleet {
    up: Up,
    dir: tempfile::TempDir,
    processes: Vec<Running>,
    addresses: Vec<String>,
}

impl Fleet {
    /// Starts the hub at the left site, and logs in.
    fn start() -> Self {
        let up = Up::row("fleet");
        let script = "echo $LONGHAUL_LEFT $LONGHAUL_MIDDLE $LONGHAUL_RIGHT";
        let output = up.exec("left", &["sh", "-c", script]);
        assert_code(&output, 0);
        let addresses = text(&output.stdout).split_whitespace().map(str::to_owned).collect();
        let dir = tempfile::tempdir().unwrap();
        let mut fleet = Fleet { up, dir, processes: Vec::new(), addresses };
        let data = fleet.path("hub");
        let listen = format!("{}:5280", fleet.addresses[0]);
        let mut hub = fleet.command("left", &["hub", "--data", &data, "--listen", &listen]);
        let mut hub = hub.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(hub.stderr.take().unwrap()).lines();
        fleet.processes.push(Running(hub));
        let (mut password, mut pin) = (None, None);
        while password.is_none() || pin.is_none() {
            let line = lines.next().expect("the hub prints its password and pin").unwrap();
            let last = line.split_whitespace().last().map(str::to_owned);
            if line.contains("password") {
                password = last;
            } else if line.contains("pin") {
                pin = last;
            }
        }
        // A thread drains the pipe, so that the hub never blocks.
        std::thread::spawn(move || lines.for_each(drop));
        fleet.login(&password.unwrap(), &pin.unwrap());
        fleet
    }

    fn path(&self, name: &str) -> String {
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
    fn fleet(&self, arguments: &[&str]) -> Value {
        let all = [&["fleet"], arguments, &["--json"]].concat();
        let output = self.command("left", &all).stderr(Stdio::piped()).output().unwrap();
        assert_code(&output, 0);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn agent(&mut self, site: &str, token: &str) {
        let (url, state) = (self.hub_url(), self.path(site));
        let arguments =
            ["agent", "--hub", &url, "--token", token, "--name", site, "--state", &state];
        let mut agent = self.command(site, &arguments);
        let log = fs::File::create(self.dir.path().join(format!("{site}.log"))).unwrap();
        self.processes.push(Running(agent.stdout(Stdio::null()).stderr(log).spawn().unwrap()));
    }

    fn mesh(&self) -> String {
        let mut mesh = "name = \"row\"\n".to_owned();
        for (site, address) in SITES.iter().zip(&self.addresses) {
            mesh += &format!("[hosts.{site}]\naddress = \"{address}\"\ncapacity = \"1G\"\n");
        }
        mesh + "[tests.short]\nkind = \"throughput\"\nseconds = 1\nmargin = \"4s\"\nevery = 0\n\
                rate = \"20M\"\n[stamp]\ninterval = \"100ms\"\n"
    }

    fn logs(&self) -> String {
        let read = |site: &&str| {
            let log = Path::new(self.dir.path()).join(format!("{site}.log"));
            format!("{site}: {}", fs::read_to_string(log).unwrap_or_default())
        };
        SITES.iter().map(read).collect()
    }
}

#[test]
fn a_mesh_of_three_hosts_measures_itself() {
    let mut fleet = Fleet::start();
    for site in SITES {
        let token = fleet.fleet(&["token", site]);
        fleet.agent(site, token["token"].as_str().unwrap());
    }
    let file = fleet.path("mesh.toml");
    fs::write(&file, fleet.mesh()).unwrap();
    let plan = fleet.fleet(&["plan", &file]);
    assert_eq!((plan["rounds"].as_u64(), plan["cycle_seconds"].as_u64()), (Some(2), Some(10)));
    let applied = fleet.fleet(&["apply", &file]);
    assert_eq!(applied["schema"], "longhaul.fleet-apply/1");
    assert_eq!(fleet.fleet(&["apply", &file])["revision"], applied["revision"]);

    let deadline = Instant::now() + Duration::from_secs(120);
    let runs = loop {
        let document = fleet.fleet(&["runs", "--state", "finished"]);
        let runs = document["runs"].as_array().unwrap().clone();
        let pair = |run: &Value| (run["source"].to_string(), run["destination"].to_string());
        let pairs: BTreeSet<_> = runs.iter().map(pair).collect();
        if pairs.len() == 6 {
            break runs;
        }
        let all = || fleet.fleet(&["runs"]).to_string();
        assert!(Instant::now() < deadline, "{}\n{}", all(), fleet.logs());
        std::thread::sleep(Duration::from_millis(200));
    };
    let mut busy: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
    for run in &runs {
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
