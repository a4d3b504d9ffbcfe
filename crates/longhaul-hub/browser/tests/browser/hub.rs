//! A process `longhaul hub` with its data in a temporary directory.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::agents::{MESH, leased, pair, report_and_samples, with_load};
use crate::client::Client;

/// The variable with the path of the program; without it, the one of the workspace's debug build.
const PROGRAM: &str = "LONGHAUL_PROGRAM";

/// A running hub. Its process ends when the value is dropped.
pub(super) struct Hub {
    pub(super) client: Client,
    pub(super) password: String,
    child: Child,
    _dir: tempfile::TempDir,
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> PathBuf {
    let built = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../target/debug/longhaul");
    let path = std::env::var_os(PROGRAM).map_or_else(built, PathBuf::from);
    assert!(
        path.is_file(),
        "{} is missing; run in the root of the workspace: cargo build -p longhaul",
        path.display()
    );
    path
}

/// Starts a hub on a free port.
fn hub() -> Hub {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(program());
    command.args(["hub", "--listen", "127.0.0.1:0", "--data"]).arg(dir.path().join("data"));
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let [password, address, pin] = announced(child.stderr.take().unwrap());
    let client = Client::new(address.parse().unwrap(), &pin);
    Hub { client, password, child, _dir: dir }
}

/// Returns the password, the address and the pin that a starting hub prints.
fn announced(output: ChildStderr) -> [String; 3] {
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    let marks =
        ["log in as admin with the password ", "hub on https://", "the pin of the hub's key is "];
    let found = marks.map(|mark| {
        let line = lines.find_map(|line| Some(line.split_once(mark)?.1.trim().to_owned()));
        line.unwrap_or_else(|| panic!("the hub ended without '{mark}'"))
    });
    // The hub must not wait for a reader of its output.
    std::thread::spawn(move || lines.for_each(drop));
    found
}

/// Starts a hub with two agents, a run, samples, connections and events; returns the id of the run.
pub(super) async fn filled() -> (Hub, String) {
    let hub = hub();
    let client = &hub.client;
    let admin = client.bearer("admin", &hub.password).await;
    let [mut a, _] = pair(client, &admin, MESH).await;
    let lease = leased(client, &mut a, "source").await;
    report_and_samples(client, &mut a, &lease).await;
    assert_eq!(a.sync(client, 0, &with_load()).await.status, 200);
    let run = lease["run"].as_str().unwrap().to_owned();
    (hub, run)
}
