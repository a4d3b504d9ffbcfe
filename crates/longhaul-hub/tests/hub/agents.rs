//! Agents of a small mesh: they enroll, run a test, and report. Tests of the pages in a browser share this file.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};

use crate::client::{Agent, Client};

pub(crate) const MESH: &str = r#"
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

pub(crate) fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

pub(crate) fn upload() -> Json {
    json!({
        "boot": "boot",
        "clock_ms": now(),
        "state": {"version": "0.1.0", "uptime_seconds": 1, "running": [], "accepted": [],
            "disk_free_bytes": 1, "journal_bytes": 1, "backlog": 0, "memory_bytes": 1, "stamp_port": 8620},
    })
}

/// Enrolls the agent of a host.
pub(crate) async fn enrolled(client: &Client, admin: &str, host: &str, seed: u8) -> Agent {
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

/// Enrolls the agents of the hosts a and b, which report, and applies a mesh.
pub(crate) async fn pair(client: &Client, admin: &str, mesh: &str) -> [Agent; 2] {
    let mut agents = [enrolled(client, admin, "a", 1).await, enrolled(client, admin, "b", 2).await];
    for agent in &mut agents {
        assert_eq!(agent.sync(client, 0, &upload()).await.status, 200);
    }
    let mesh = json!({ "text": mesh });
    let applied = client.post("/api/v1/mesh/apply", &[admin.to_owned()], &mesh).await;
    assert_eq!(applied.status, 200, "{applied:?}");
    agents
}

/// Sends a sync until the hub leases a run to the agent in a role, and returns the lease.
pub(crate) async fn leased(client: &Client, agent: &mut Agent, role: &str) -> Json {
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

/// Reports the run of a lease, with samples, STAMP and an event.
pub(crate) async fn report_and_samples(client: &Client, agent: &mut Agent, lease: &Json) {
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

/// Returns an upload with two seconds of a host and of an interface with a queue.
pub(crate) fn with_load() -> Json {
    let end = now() / 1000 * 1000;
    let times = [end - 2000, end - 1000];
    let mut body = upload();
    body["samples"] = json!([
        {"id": 1, "interface": "", "rows": [],
            "host": times.map(|at| json!([at, 1000, 4000, 20, 7, 300_000, 500_000, 10_000, 20_000, null]))},
        {"id": 2, "interface": "eth0", "rows": times.map(|at| json!([at, 1000, 1000, 1000, 9, 9, 0, 0, 0, 0])),
            "queue": times.map(|at| json!([at, 1000, 6144, 4, 3]))},
        {"id": 3, "interface": "eth1", "rows": times.map(|at| json!([at, 1000, 1, 1, 1, 1, 0, 0, 0, 0]))},
    ]);
    body["snapshot"] = json!({"at_ms": end, "cores": [{"core": 1, "busy_ppm": 900_000, "softirq_ppm": 410_000}],
        "flows": [{"local": "192.0.2.1:5290", "peer": "198.51.100.7:40000", "program": "longhaul", "user_id": 0,
            "congestion": "bbr", "in_bps": 0, "out_bps": 9_400_000_000_u64, "delivery_bps": 9_900_000_000_u64,
            "rtt_ns": 12_500_000, "congestion_window_bytes": 16_777_216, "retransmits": 77, "queued_bytes": 1024}]});
    body
}
