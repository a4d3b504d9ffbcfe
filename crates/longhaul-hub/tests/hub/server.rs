//! The hub as agents, people and attackers see it.

use std::slice;
use std::time::{Duration, Instant};

use longhaul_hub::store::Store;
use longhaul_hub::{HubConfig, HubError, RunningHub, UserChange, change_users, start};
use serde_json::{Value as Json, json};
use tokio::task::JoinSet;

use crate::agents::{MESH, enrolled, leased, now, pair, report_and_samples, upload};
use crate::client::{Agent, Answer, Client};

/// A running hub.
pub(crate) struct Hub {
    pub(crate) client: Client,
    pub(crate) password: String,
    pub(crate) config: HubConfig,
    pub(crate) tasks: JoinSet<()>,
    pub(crate) _dir: tempfile::TempDir,
}

impl Hub {
    /// Opens the SQLite database of the hub a second time.
    pub(crate) async fn store(&self) -> Store {
        Store::sqlite(&self.config.data.join("hub.db")).await.unwrap()
    }
}

pub(crate) async fn hub(database: Option<String>) -> Hub {
    hub_with(|config| config.database = database).await
}

/// Starts a hub with other settings.
pub(crate) async fn hub_with(change: impl FnOnce(&mut HubConfig)) -> Hub {
    let dir = tempfile::tempdir().unwrap();
    let mut config = HubConfig {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        ..HubConfig::new(dir.path().join("data"))
    };
    change(&mut config);
    let (RunningHub { addresses, pin, first_password }, tasks) = start(&config).await.unwrap();
    let client = Client::new(addresses[0], &pin);
    let password = first_password.unwrap_or_default();
    Hub { client, password, config, tasks, _dir: dir }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_password_is_stored_before_it_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = HubConfig {
        listen: vec![taken.local_addr().unwrap()],
        ..HubConfig::new(dir.path().join("data"))
    };
    let users = |config: &HubConfig| {
        let config = config.clone();
        let list = move || change_users(&config, UserChange::List).unwrap().len();
        tokio::task::spawn_blocking(list)
    };
    let failed = start(&config).await;
    assert!(matches!(failed, Err(HubError::Listen { .. })));
    assert_eq!(users(&config).await.unwrap(), 0);
    // A hub that ends while it prints the password.
    config.listen = vec!["127.0.0.1:0".parse().unwrap()];
    let ending = HubConfig { first_password: |_| panic!("ended"), ..config.clone() };
    assert!(tokio::spawn(async move { start(&ending).await.map(drop) }).await.is_err());
    assert_eq!(users(&config).await.unwrap(), 0);
    let (started, _tasks) = start(&config).await.unwrap();
    assert!(started.first_password.is_some());
    assert_eq!(users(&config).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mesh_is_planned_leased_reported_and_shown() {
    let hub = hub(None).await;
    let client = &hub.client;
    assert_eq!(client.get("/api/v1/status", "x: y").await.status, 401);
    let admin = client.bearer("admin", &hub.password).await;
    let mut a = enrolled(client, &admin, "a", 1).await;
    let mut b = enrolled(client, &admin, "b", 2).await;
    for agent in [&mut a, &mut b] {
        assert_eq!(agent.sync(client, 0, &upload()).await.status, 200);
    }
    let wrong = json!({"text": "name = 'x'\n[tests.t]\nkind = 'throughput'\ngroup = 'none'\n"});
    let answer = client.post("/api/v1/mesh/apply", slice::from_ref(&admin), &wrong).await;
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(answer.body.contains("line "), "{answer:?}");
    let mesh = json!({ "text": MESH });
    let plan = client.post("/api/v1/mesh/plan", slice::from_ref(&admin), &mesh).await;
    assert_eq!(plan.json()["tests"][0]["pairs"], 2, "{plan:?}");
    let applied = client.post("/api/v1/mesh/apply", slice::from_ref(&admin), &mesh).await;
    assert_eq!(applied.json()["revision"], 1, "{applied:?}");
    let again = client.post("/api/v1/mesh/apply", slice::from_ref(&admin), &mesh).await;
    assert_eq!(again.json()["revision"], 1, "nothing differs");
    let late = json!({"text": MESH, "revision": 7});
    assert_eq!(client.post("/api/v1/mesh/apply", slice::from_ref(&admin), &late).await.status, 409);

    let lease = leased(client, &mut a, "source").await;
    assert_eq!((&lease["destination"], &lease["peer"]), (&json!("b"), &json!("127.0.0.2")));
    assert_eq!(lease["peer_key"], json!(b.public_key()));
    assert_eq!(lease["resources"], json!(["a/eth0/out"]));
    report_and_samples(client, &mut a, &lease).await;
    let target = leased(client, &mut b, "target").await;
    assert_eq!((&target["source"], &target["peer_key"]), (&json!("a"), &json!(a.public_key())));
    pages(&hub, &admin, lease["run"].as_str().unwrap()).await;
}

async fn pages(hub: &Hub, admin: &str, run: &str) {
    let client = &hub.client;
    let document = client.get(&format!("/api/v1/runs/{run}"), admin).await.json();
    assert_eq!(
        (&document["state"], &document["throughput_bps"]),
        (&json!("finished"), &json!(9_400_000_000u64))
    );
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let status = client.get("/api/v1/status", admin).await.json();
        let cells = status["cells"].as_array().unwrap().clone();
        if cells.iter().any(|cell| cell["metric"] == "throughput" && cell["value"] == 9.4e9) {
            break;
        }
        assert!(Instant::now() < deadline, "{status}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let login = client.form("/login", "", &format!("user=admin&password={}", hub.password)).await;
    assert_eq!(login.status, 303, "{login:?}");
    let cookie = format!("cookie: {}", login.cookie());
    let expected = [
        ("/", "9.40 Gb/s"),
        ("/?metric=rtt", "b"),
        ("/hosts", "present"),
        ("/hosts/a", "&lt;script&gt;x"),
        ("/hosts/a", "longhaul 0.1.0, up 1 s"),
        ("/hosts/a", "Percentages are relative to 10.0 Gb/s, the speed of the interface."),
        ("/", "9.40 Gb/s, 94 %"),
        ("/pairs/a/b", "Throughput of the runs"),
        ("/pairs/a/b?from=now-2h&to=now", "12.5 ms"),
        ("/runs", "finished"),
        ("/schedule", "a/eth0/out"),
        ("/events?all=1", "&lt;script&gt;alert(1)"),
        ("/search?q=A", "/hosts/a"),
    ];
    for (path, text) in expected {
        let page = client.get(path, &cookie).await;
        assert_eq!(page.status, 200, "{path} {}", page.body);
        assert!(page.body.contains(text), "'{text}' is not in {path}: {}", page.body);
        assert!(!page.body.contains("<script>"), "{path}");
        assert!(page.head.to_lowercase().contains("content-security-policy: default-src 'none'"));
    }
    let page = client.get(&format!("/runs/{run}"), &cookie).await;
    assert!(page.body.contains("longhaul.test/1"), "{}", page.body);
    assert_eq!(client.get("/hosts/none", &cookie).await.status, 404);
    let series = "/api/v1/series?kind=interface&host=a&name=%3Cscript%3Ex&from=now-1h&step=1";
    let series = client.get(series, admin).await.json();
    assert_eq!(series["rows"][0]["values"][0], json!([1e9, 1e9, 1e9]), "{series}");
    let openapi = client.get("/api/v1/openapi.json", "x: y").await.json();
    assert!(openapi["paths"]["/api/v1/runs/{id}"]["get"].is_object());
    let metrics = client.get("/metrics", admin).await.body;
    assert!(metrics.contains("longhaul_fleet_hosts_present 2\n"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_a_path_is_shown_with_old_and_new() {
    let hub = hub(None).await;
    let client = &hub.client;
    let admin = client.bearer("admin", &hub.password).await;
    let (hosts, _) = MESH.split_once("[tests.bulk]").unwrap();
    let text = format!(
        "{hosts}[tests.route]\nkind = \"path\"\nfrom = [\"a\"]\nto = [\"b\"]\nseconds = 1\n\
         margin = \"1s\"\nevery = 0\n"
    );
    let [mut a, _] = pair(client, &admin, &text).await;
    for (hop, mtu) in [("10.0.0.1", 9000), ("10.0.0.9", 1500)] {
        let lease = leased(client, &mut a, "source").await;
        let at = now();
        let mut body = upload();
        body["results"] = json!([{"id": at, "run": lease["run"], "fencing": lease["fencing"],
            "role": "source", "outcome": "finished", "started_ms": at, "ended_ms": at + 1,
            "document": {"schema": "longhaul.path/1", "forward": {"mtu": [{"bytes": mtu}],
                "hops": {"reached": true, "list": [{"distance": 1, "addresses": [hop]},
                    {"distance": 2, "addresses": ["127.0.0.2"]}]}}}}]);
        assert_eq!(a.sync(client, 0, &body).await.status, 200);
    }
    let login = client.form("/login", "", &format!("user=admin&password={}", hub.password)).await;
    let page = client.get("/pairs/a/b", &format!("cookie: {}", login.cookie())).await.body;
    for part in [
        "The path has 2 hops, path MTU 1500 B since",
        "hop 1: 10.0.0.1 \u{2192} 10.0.0.9",
        "path MTU 9000 B \u{2192} 1500 B",
    ] {
        assert!(page.contains(part), "'{part}' is not in {page}");
    }
    let pair = client.get("/api/v1/pairs/a/b", &admin).await.json();
    assert_eq!(pair["routes"][1]["route"]["hops"][0], json!(["10.0.0.1"]), "{pair}");
    let events = client.get("/api/v1/events?kind=path_changed", &admin).await.json();
    assert_eq!(events["events"][0]["subject"], "a > b", "{events}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_no_agent_is_counted_apart() {
    let hub = hub(None).await;
    let client = &hub.client;
    let admin = client.bearer("admin", &hub.password).await;
    let mut agent = enrolled(client, &admin, "a", 1).await;
    assert_eq!(agent.sync(client, 0, &upload()).await.status, 200);
    let mesh = "name = 'm'\n[hosts.a]\naddress = '192.0.2.1'\ncapacity = '1G'\n\
                [hosts.router]\naddress = '192.0.2.2'\ncapacity = '1G'\nagent = false\n\
                [tests.t]\nkind = 'iperf3'\nfrom = 'a'\nto = 'router'\n";
    let mesh = json!({ "text": mesh });
    let applied = client.post("/api/v1/mesh/apply", slice::from_ref(&admin), &mesh).await;
    assert_eq!(applied.status, 200, "{applied:?}");
    let status = client.get("/api/v1/status", &admin).await.json();
    let counts = ["hosts_present", "hosts", "hosts_without_agent"].map(|name| &status[name]);
    assert_eq!(counts, [&json!(1), &json!(2), &json!(1)], "{status}");
    let metrics = client.get("/metrics", &admin).await.body;
    assert!(metrics.contains("longhaul_fleet_hosts_without_agent 1\n"), "{metrics}");
    let login = client.form("/login", "", &format!("user=admin&password={}", hub.password)).await;
    let page = client.get("/", &format!("cookie: {}", login.cookie())).await.body;
    assert!(page.contains("<b>1 of 1</b>") && page.contains("hosts without an agent"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_of_the_operator_replaces_that_of_the_hub() {
    let certificate = crate::receiver::Certificate::new();
    let dir = tempfile::tempdir().unwrap();
    let (chain, key) = (dir.path().join("chain.pem"), dir.path().join("key.pem"));
    for (path, pem) in [(&chain, &certificate.pem), (&key, &certificate.key_pem)] {
        std::fs::write(path, pem).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(path, private).unwrap();
    }
    let hub = hub_with(|config| config.tls = Some((chain.clone(), key.clone()))).await;
    // The client accepts only the key that the hub states at its start.
    assert_eq!(hub.client.get("/api/v1/openapi.json", "x: y").await.status, 200);
    assert!(!hub.config.data.join("hub.pem").exists(), "the hub makes no key");
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_are_refused() {
    let hub = hub(None).await;
    let client = &hub.client;
    let admin = client.bearer("admin", &hub.password).await;
    let mut agent = enrolled(client, &admin, "a", 1).await;
    hostile_agent(client, &mut agent).await;
    let script = json!({"host": "<script>", "valid_seconds": 600});
    assert_eq!(client.post("/api/v1/tokens", slice::from_ref(&admin), &script).await.status, 400);
    // A check stores no counter: the next sync has a smaller one.
    let check = agent.check(client, 1 << 40).await;
    assert_eq!((check.status, &check.json()["host"]), (200, &json!("a")), "{check:?}");
    assert_eq!(agent.sync(client, 0, &upload()).await.status, 200);
    let mut impostor = Agent::new(98);
    impostor.id.clone_from(&agent.id);
    let refused = impostor.check(client, 0).await;
    assert_eq!((refused.status, &refused.json()["code"]), (401, &json!("bad_signature")));
    let revoke = client.post("/api/v1/agents/a/revoke", slice::from_ref(&admin), &json!({})).await;
    assert_eq!(revoke.status, 200);
    let document = revoke.json();
    assert_eq!(document["schema"], "longhaul.fleet-revoked/1");
    assert_eq!(document["host"], "a", "{document}");
    let again = client.post("/api/v1/agents/a/revoke", slice::from_ref(&admin), &json!({})).await;
    assert_eq!((again.status, &again.json()["code"]), (404, &json!("not_found")));
    assert_eq!(agent.check(client, 0).await.json()["code"], "revoked");
    let revoked = agent.sync(client, 0, &upload()).await;
    assert_eq!((revoked.status, &revoked.json()["code"]), (403, &json!("revoked")));
}

async fn hostile_agent(client: &Client, agent: &mut Agent) {
    assert_eq!(agent.sync(client, 0, &upload()).await.status, 200);
    let refused = |answer: Answer, status: u16, code: &str| {
        assert_eq!((answer.status, &answer.json()["code"]), (status, &json!(code)), "{answer:?}");
    };
    let path = "/agent/v1/sync?wait=0";
    let body = upload().to_string();
    let replay = agent.headers(agent.counter, path, body.as_bytes());
    refused(client.send("POST", path, &replay, body.as_bytes()).await, 409, "replayed");
    let signed = agent.headers(agent.counter + 1, path, body.as_bytes());
    let other = body.replace("boot", "toob");
    refused(client.send("POST", path, &signed, other.as_bytes()).await, 401, "bad_signature");
    let moved = client.send("POST", "/agent/v1/sync?wait=1", &signed, body.as_bytes()).await;
    refused(moved, 401, "bad_signature");
    let large = vec![b' '; (8 << 20) + 1];
    let headers = agent.headers(agent.counter + 1, path, &large);
    let answer = client.send("POST", path, &headers, &large).await;
    // The connection may end before the client has read the answer.
    assert!([413, 0].contains(&answer.status), "{answer:?}");
    let long = client.send("POST", "/agent/v1/enrol", &[], &large[..20_000]).await;
    refused(long, 413, "too_large");
    let mut many = upload();
    many["results"] = json!([{"id": 1, "run": "r", "fencing": 1, "role": "source",
        "outcome": "failed", "ended_ms": 1, "message": "x".repeat(10_000)}]);
    refused(agent.sync(client, 0, &many).await, 413, "too_large");
    let mut many = upload();
    many["state"]["running"] = json!(["x".repeat(200)]);
    refused(agent.sync(client, 0, &many).await, 413, "too_large");
    refused(agent.sync(client, 0, &json!({"boot": 1})).await, 400, "malformed");
    // A digest that the agent did not sign is refused before the body arrives, so nobody who knows
    // the id of an agent holds a place.
    let mut forged = agent.headers(agent.counter + 1, path, body.as_bytes());
    forged.retain(|header| !header.starts_with("longhaul-digest"));
    forged.push(format!("longhaul-digest: {}", "0".repeat(64)));
    refused(client.send_head(path, &forged, 8 << 20).await, 401, "bad_signature");
    let mut other_body = agent.headers(agent.counter + 1, path, body.as_bytes());
    assert_eq!(client.send("POST", path, &other_body, b"{}").await.status, 401);
    // An agent of an earlier version sends no digest.
    other_body.retain(|header| !header.starts_with("longhaul-digest"));
    agent.counter += 1;
    assert_eq!(client.send("POST", path, &other_body, body.as_bytes()).await.status, 200);
    let unknown = [
        "longhaul-agent: none".to_owned(),
        "longhaul-counter: 1".to_owned(),
        "longhaul-signature: x".to_owned(),
    ];
    refused(client.send("POST", path, &unknown, b"{}").await, 401, "unknown_agent");
    // None of this changed the counter of the agent.
    assert_eq!(agent.sync(client, 0, &upload()).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hubs_share_a_database() {
    let server = crate::postgres::Server::start();
    let database = server.database("fleet");
    let one = hub(Some(database.clone())).await;
    let two = hub(Some(database)).await;
    assert!(two.password.is_empty(), "the first hub made the user");
    let admin = one.client.bearer("admin", &one.password).await;
    let mut a = enrolled(&one.client, &admin, "a", 1).await;
    let mut b = enrolled(&two.client, &admin, "b", 2).await;
    assert_eq!(a.sync(&two.client, 0, &upload()).await.status, 200);
    assert_eq!(b.sync(&one.client, 0, &upload()).await.status, 200);
    let mesh = json!({ "text": MESH });
    let applied = two.client.post("/api/v1/mesh/apply", slice::from_ref(&admin), &mesh).await;
    assert_eq!(applied.status, 200, "{applied:?}");
    let first = leased(&one.client, &mut a, "source").await;
    let second = leased(&two.client, &mut a, "source").await;
    assert_eq!(first["run"], second["run"], "both hubs lease the same run");
    let runs = one.client.get("/api/v1/runs?limit=1000", &admin).await.json();
    let runs = runs["runs"].as_array().unwrap().clone();
    // No two runs overlap on a resource, whichever hub planned them.
    for (at, run) in runs.iter().enumerate() {
        for other in &runs[at + 1..] {
            let shares = run["resources"]
                .as_array()
                .unwrap()
                .iter()
                .any(|r| other["resources"].as_array().unwrap().contains(r));
            let times = |run: &Json| {
                (run["planned_ms"].as_i64().unwrap(), run["window_end_ms"].as_i64().unwrap())
            };
            let ((start, end), (from, to)) = (times(run), times(other));
            assert!(!shares || start >= to || from >= end, "{run} overlaps {other}");
        }
    }
}
