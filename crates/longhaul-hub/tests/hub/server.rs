//! The hub as agents, people and attackers see it.

use std::slice;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longhaul_hub::{HubConfig, Started, UserChange, change_users, start};
use serde_json::{Value as Json, json};
use tokio::task::JoinSet;

use crate::client::{Agent, Answer, Client};

const MESH: &str = r#"
name = "bed"
[hosts.a]
address = "127.0.0.1"
interface = "eth0"
capacity = "10G"
[hosts.b]
address = "127.0.0.2"
interface = "eth0"
capacity = "10G"
[tests.bulk]
kind = "throughput"
group = "all"
seconds = 2
every = 0
[stamp]
group = "all"
"#;

struct Hub {
    client: Client,
    password: String,
    config: HubConfig,
    _tasks: JoinSet<()>,
    _dir: tempfile::TempDir,
}

async fn hub(database: Option<String>) -> Hub {
    let dir = tempfile::tempdir().unwrap();
    let config = HubConfig {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        data: dir.path().join("data"),
        database,
        tls: None,
        public: false,
        channels: Vec::new(),
    };
    let (Started { addresses, pin, first_password }, tasks) = start(&config).await.unwrap();
    let client = Client::new(addresses[0], &pin);
    let password = first_password.unwrap_or_default();
    Hub { client, password, config, _tasks: tasks, _dir: dir }
}

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn upload() -> Json {
    json!({
        "boot": "boot",
        "clock_ms": now(),
        "state": {"version": "0.1.0", "uptime_seconds": 1, "running": [], "accepted": [],
            "disk_free_bytes": 1, "journal_bytes": 1, "backlog": 0, "memory_bytes": 1, "stamp_port": 8620},
    })
}

/// Enrols the agent of a host.
async fn enrolled(client: &Client, admin: &str, host: &str, seed: u8) -> Agent {
    let token = json!({"host": host, "valid_seconds": 600});
    let answer = client.post("/api/v1/tokens", &[admin.to_owned()], &token).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let token = answer.json()["token"].as_str().unwrap().to_owned();
    let mut agent = Agent::new(seed);
    let secret = token.split('.').next().unwrap();
    let request = |key: String| json!({"secret": secret, "host": host, "public_key": key, "version": "0.1.0"});
    let answer = client.post("/agent/v1/enrol", &[], &request(agent.public_key())).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    agent.id = answer.json()["agent"].as_str().unwrap().to_owned();
    let other = client.post("/agent/v1/enrol", &[], &request(Agent::new(99).public_key())).await;
    assert_eq!((other.status, &other.json()["code"]), (409, &json!("token_used")));
    agent
}

/// Sends a sync until the hub leases a run to the agent in a role, and returns the lease.
async fn leased(client: &Client, agent: &mut Agent, role: &str) -> Json {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = agent.sync(client, 5, &upload()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let leases = answer.json()["leases"].clone();
        let found = leases.as_array().and_then(|all| all.iter().find(|one| one["role"] == role));
        if let Some(lease) = found {
            return lease.clone();
        }
        assert!(Instant::now() < deadline, "no lease in time");
    }
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

async fn report_and_samples(client: &Client, agent: &mut Agent, lease: &Json) {
    let at = now() / 1000 * 1000;
    let mut body = upload();
    let rows: Vec<Json> = (0..5)
        .map(|i| json!([at - 5000 + i * 1000, 1000, 125_000_000, 1000, 9, 9, 0, 0, 0, 0]))
        .collect();
    body["samples"] =
        json!([{"id": 1, "interface": "<script>x", "speed_bps": 10_000_000_000u64, "rows": rows}]);
    body["stamp"] = json!([{"id": 2, "peer": "b", "start_ms": at - 60_000, "span_ms": 60_000,
        "sent": 600, "lost": 0, "rtt_p50_ms": 12.5, "rtt_min_ms": 12.0, "rtt_p99_ms": 14.0}]);
    body["events"] = json!([{"id": 3, "at_ms": at, "severity": "warning", "kind": "clock_step",
        "message": "<script>alert(1)</script>"}]);
    body["facts"] = json!({"findings": []});
    body["results"] = json!([{"id": 4, "run": lease["run"], "fencing": lease["fencing"], "role": "source",
        "outcome": "finished", "started_ms": at - 2000, "ended_ms": at,
        "document": {"schema": "longhaul.test/1", "summary": {"throughput_bps": 9_400_000_000u64}}}]);
    for _ in 0..2 {
        // The second upload repeats the first, as after a lost answer.
        let answer = agent.sync(client, 0, &body).await.json();
        let mut acknowledged: Vec<u64> =
            serde_json::from_value(answer["acknowledged"].clone()).unwrap();
        acknowledged.sort_unstable();
        assert_eq!(acknowledged, [1, 2, 3, 4]);
        assert_eq!(answer["facts_stored"], true);
        assert_eq!(answer["stamp_peers"][0]["host"], "b");
    }
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
async fn attacks_are_refused() {
    let hub = hub(None).await;
    let client = &hub.client;
    let admin = client.bearer("admin", &hub.password).await;
    let mut agent = enrolled(client, &admin, "a", 1).await;
    hostile_agent(client, &mut agent).await;
    let script = json!({"host": "<script>", "valid_seconds": 600});
    assert_eq!(client.post("/api/v1/tokens", slice::from_ref(&admin), &script).await.status, 400);
    let revoke = client.post("/api/v1/agents/a/revoke", slice::from_ref(&admin), &json!({})).await;
    assert_eq!(revoke.status, 204);
    let revoked = agent.sync(client, 0, &upload()).await;
    assert_eq!((revoked.status, &revoked.json()["code"]), (403, &json!("revoked")));
    viewer_and_forged_requests(&hub).await;
    wrong_logins(client, &admin).await;
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
    let unknown = [
        "longhaul-agent: none".to_owned(),
        "longhaul-counter: 1".to_owned(),
        "longhaul-signature: x".to_owned(),
    ];
    refused(client.send("POST", path, &unknown, b"{}").await, 401, "unknown_agent");
    // None of this changed the counter of the agent.
    assert_eq!(agent.sync(client, 0, &upload()).await.status, 200);
}

async fn viewer_and_forged_requests(hub: &Hub) {
    let client = &hub.client;
    let config = hub.config.clone();
    let add = UserChange::Add {
        name: "eve".to_owned(),
        role: longhaul_fleet::api::UserRole::Viewer,
        password: "a long password".to_owned(),
    };
    let changed = move || change_users(&config, add).unwrap().len();
    assert_eq!(tokio::task::spawn_blocking(changed).await.unwrap(), 2);
    let viewer = client.bearer("eve", "a long password").await;
    assert_eq!(client.get("/api/v1/status", &viewer).await.status, 200);
    for (path, body) in [
        ("/api/v1/tokens", json!({"host": "x", "valid_seconds": 600})),
        ("/api/v1/mesh/apply", json!({"text": MESH})),
        ("/api/v1/agents/a/revoke", json!({})),
        ("/api/v1/runs/x/cancel", json!({})),
        ("/api/v1/events/x/ack", json!({})),
    ] {
        let answer = client.post(path, slice::from_ref(&viewer), &body).await;
        assert_eq!((answer.status, &answer.json()["code"]), (403, &json!("forbidden")), "{path}");
    }
    let login = client.form("/login", "", &format!("user=admin&password={}", hub.password)).await;
    let cookie = login.cookie();
    assert!(login.head.contains("HttpOnly") && login.head.contains("SameSite=Strict"));
    let header = format!("cookie: {cookie}");
    let forged =
        client.post("/api/v1/mesh/apply", slice::from_ref(&header), &json!({"text": MESH})).await;
    assert_eq!((forged.status, &forged.json()["code"]), (403, &json!("csrf")));
    let forged = client.form("/logout", &cookie, "csrf=guess").await;
    assert_eq!(forged.status, 403);
    assert_eq!(client.get("/hosts", &header).await.status, 200, "the session still exists");
    let page = client.get("/", &header).await.body;
    let csrf = page.split("name=\"csrf\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(client.form("/logout", &cookie, &format!("csrf={csrf}")).await.status, 303);
    assert_eq!(client.get("/hosts", &header).await.status, 303, "the session is over");
}

async fn wrong_logins(client: &Client, admin: &str) {
    let mut seen = [0u32; 2];
    for at in 0..40 {
        let body = json!({"user": "admin", "password": format!("guess {at}"), "label": ""});
        let answer = client.post("/api/v1/login", &[], &body).await;
        match answer.status {
            401 => seen[0] += 1,
            429 => seen[1] += 1,
            status => panic!("{status}"),
        }
    }
    assert!(seen[0] <= 10 && seen[1] >= 30, "{seen:?}");
    let events = client.get("/api/v1/events?kind=login_failed", admin).await.json();
    let repeats: i64 =
        events["events"].as_array().unwrap().iter().filter_map(|e| e["repeats"].as_i64()).sum();
    assert_eq!(repeats, i64::from(seen[0]), "{events}");
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
