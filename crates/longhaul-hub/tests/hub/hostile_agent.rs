//! An enrolled agent as an attacker: deep and large documents, huge numbers, control characters, markup,
//! and times far away. Every page still answers, with text that is bounded and escaped.

use serde_json::{Value as Json, json};

use crate::agents::{MESH, enrolled, leased, now, pair, upload};
use crate::client::{Agent, Answer, Client};
use crate::server::{Hub, hub_with};

/// A text that runs a script, leaves an attribute, clears a terminal, and reverses the text behind it.
const EVIL: &str = "<script>alert(1)</script>\"'\u{1b}[2J\r\n\u{202e}\u{0}";
/// The maximum number of bytes of a page.
const MOST_PAGE: usize = 8 << 20;

/// Sends a text that is no document of serde, so a test can write any number or depth.
async fn sync_text(agent: &mut Agent, client: &Client, text: &str) -> Answer {
    agent.counter += 1;
    let path = "/agent/v1/sync?wait=0";
    let headers = agent.headers(agent.counter, path, text.as_bytes());
    client.send("POST", path, &headers, text.as_bytes()).await
}

/// Returns an upload with facts that are not checked.
fn with_facts(facts: &str) -> String {
    let mut body = upload();
    body["facts"] = json!("FACTS");
    body.to_string().replace("\"FACTS\"", facts)
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_cannot_be_kept_are_refused() {
    let hub = hub_with(|_| {}).await;
    let client = &hub.client;
    let admin = client.bearer("admin", &hub.password).await;
    let mut agent = enrolled(client, &admin, "a", 1).await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let values = format!("[{}0]", "0,".repeat(3_000_000));
    for (facts, status, code) in [
        (deep.as_str(), 400, "malformed"),
        ("1e999", 400, "malformed"),
        ("NaN", 400, "malformed"),
        ("\"\\ud800\"", 400, "malformed"),
        (values.as_str(), 413, "too_large"),
    ] {
        let answer = sync_text(&mut agent, client, &with_facts(facts)).await;
        assert_eq!((answer.status, &answer.json()["code"]), (status, &json!(code)), "{answer:?}");
    }
    let mut runs = upload();
    runs["state"]["accepted"] = json!(vec!["r"; 3000]);
    assert_eq!(agent.sync(client, 0, &runs).await.status, 413);
    let sample = |row: &str| {
        let body = upload().to_string();
        let samples = format!(",\"samples\":[{{\"id\":1,\"interface\":\"e\",\"rows\":[{row}]}}]}}");
        format!("{}{samples}", &body[..body.len() - 1])
    };
    for row in ["[1,2]", "[1,1,1,1,1,1,1,1,1,18446744073709551616]", "[1,1,1,1,1,1,1,1,1,0.5]"] {
        let answer = sync_text(&mut agent, client, &sample(row)).await;
        assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("malformed")), "{row}");
    }
    let with = |snapshot: &str| {
        let body = upload().to_string();
        format!("{},\"snapshot\":{snapshot}}}", &body[..body.len() - 1])
    };
    let flow = |peer: &str, congestion: &str| {
        format!(
            r#"{{"local":"192.0.2.1:1","peer":"{peer}","user_id":0,"congestion":"{congestion}","in_bps":0,
            "out_bps":0,"delivery_bps":0,"rtt_ns":0,"congestion_window_bytes":0,"retransmits":0,"queued_bytes":0}}"#
        )
    };
    let flows = |one: &str, count: usize| {
        with(&format!(r#"{{"at_ms":1,"flows":[{}],"cores":[]}}"#, vec![one; count].join(",")))
    };
    let (good, long) = (flow("192.0.2.2:2", "cubic"), flow("192.0.2.2:2", &"c".repeat(17)));
    for (text, status) in [
        (flows(&good, 20), 200),
        (flows(&good, 21), 413),
        (flows(&long, 1), 413),
        (flows(&flow("<script>", "cubic"), 1), 400),
        (flows(&good.replace("\"in_bps\":0", "\"in_bps\":-1"), 1), 400),
    ] {
        let answer = sync_text(&mut agent, client, &text).await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
    // Rows of queues and of the host count as those of interfaces.
    let rows = |field: &str, row: &str, count: usize| {
        let rows = vec![row; count].join(",");
        let batch = format!(r#"{{"id":1,"interface":"e","rows":[],"{field}":[{rows}]}}"#);
        with("null").replace("\"snapshot\":null", &format!("\"samples\":[{batch}]"))
    };
    let at = now();
    for (field, row) in
        [("queue", format!("[{at},1000,0,0,0]")), ("host", format!("[{at},1000,0,0,0,0,0,0,0,0]"))]
    {
        for (count, status) in [(20_000, 200), (20_001, 413)] {
            let answer = sync_text(&mut agent, client, &rows(field, &row, count)).await;
            assert_eq!(answer.status, status, "{field}: {answer:?}");
        }
    }
    // An enrollment with another key than one of Ed25519 would reach the peers of the agent.
    let token = json!({"host": "k", "valid_seconds": 600});
    let token = client.post("/api/v1/tokens", &[admin], &token).await.json()["token"].clone();
    let secret = token.as_str().unwrap().split('.').next().unwrap();
    for key in ["", "AAAA", "ssh-ed25519 AAAA\nssh-rsa", EVIL] {
        let request = json!({"secret": secret, "host": "k", "public_key": key, "version": "1"});
        let answer = client.post("/agent/v1/enrol", &[], &request).await;
        assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("malformed")), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_of_a_hostile_agent_is_bounded_and_escaped() {
    let hub = hub_with(|_| {}).await;
    let client = &hub.client;
    let admin = client.bearer("admin", &hub.password).await;
    let [mut a, _] = pair(client, &admin, MESH).await;
    let lease = leased(client, &mut a, "source").await;
    let answer = a.sync(client, 0, &hostile(&lease)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let run = lease["run"].as_str().unwrap();
    // The grid and the intervals of the samples are made in the background.
    let store = hub.store().await;
    store.write(longhaul_hub::records::buckets::consolidate).await.unwrap();
    pages(&hub, run).await;
    let runs = format!("/api/v1/runs/{run}");
    for path in [
        "/api/v1/status",
        "/api/v1/hosts",
        "/api/v1/events",
        "/api/v1/pairs/a/b",
        "/api/v1/runs?format=csv",
        "/api/v1/runs?format=jsonl",
        "/api/v1/runs?format=pscheduler",
        "/api/v1/hosts/a/snapshot",
        "/api/v1/series?kind=queue&host=a&name=eth0&from=now-10m",
        "/api/v1/series?kind=host&host=a&from=now-10m",
        "/api/v1/series?kind=host&host=a&from=now-10m&format=csv",
        "/api/v1/series?kind=stamp&host=a&name=b",
        "/api/v1/series?kind=stamp&host=a&name=b&format=csv",
        "/metrics",
        runs.as_str(),
    ] {
        let answer = client.get(path, &admin).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        let head = answer.head.to_lowercase();
        assert!(head.contains("x-content-type-options: nosniff"), "{path}: {head}");
        assert!(!head.contains("text/html"), "{path}: {head}");
    }
    let series = client.get("/api/v1/series?kind=stamp&host=a&name=b&from=now-2h", &admin).await;
    let series = series.json();
    assert!(!series["rows"].as_array().unwrap().is_empty(), "{series}");
}

/// Returns an upload with everything that an attacker could write.
fn hostile(lease: &Json) -> Json {
    let at = now() / 1000 * 1000;
    let most = i64::MAX;
    let mut body = upload();
    let mut samples: Vec<Json> = (0..40)
        .map(|number| {
            let rows = json!([
                [at - 60_000, 1, most, most, most, most, most, most, most, most],
                [at - 50_000, 1000, -1, -5, 0, 0, 0, 0, 0, 0],
                // The year 9999, and a time before 1970.
                [253_402_300_799_000_i64, 1000, 1, 1, 1, 1, 1, 1, 1, 1],
                [i64::MIN, most, 1, 1, 1, 1, 1, 1, 1, 1],
            ]);
            let name = format!("{number}{EVIL}");
            json!({"id": number + 1, "interface": name, "speed_bps": u64::MAX, "rows": rows})
        })
        .collect();
    samples[0]["interface"] = json!("eth0");
    samples[0]["queue"] =
        json!([[at - 60_000, 1, most, most, most], [at - 50_000, 1000, -1, -5, null]]);
    samples.push(json!({"id": 50, "interface": "", "rows": [], "host": [
        [at - 60_000, 1, most, most, most, most, most, most, most, most],
        [at - 50_000, 1000, null, -1, -1, null, -1, null, null, null],
        [null, null, null, null, null, null, null, null, null, null],
        [i64::MIN, most, 1, 1, 1, 1, 1, 1, 1, 1]]}));
    body["samples"] = json!(samples);
    let flow = json!({"local": "[::1]:1", "peer": "203.0.113.9:65535", "program": "<script>alert(1)",
        "user_id": u32::MAX, "congestion": "\u{1b}[2J\u{202e}", "in_bps": u64::MAX, "out_bps": u64::MAX,
        "delivery_bps": u64::MAX, "rtt_ns": u64::MAX, "min_rtt_ns": u64::MAX,
        "congestion_window_bytes": u64::MAX, "retransmits": u64::MAX, "queued_bytes": u64::MAX});
    let core = json!({"core": u32::MAX, "busy_ppm": u64::MAX, "softirq_ppm": u64::MAX});
    body["snapshot"] = json!({"at_ms": i64::MAX, "flows": vec![flow; 20], "cores": vec![core; 8]});
    let stamp = |id: u64, peer: &str, start_ms: i64| {
        json!({"id": id, "peer": peer, "start_ms": start_ms, "span_ms": 60_000, "sent": 0,
            "lost": u64::MAX, "rtt_min_ms": -1e308, "rtt_p50_ms": 1e308, "rtt_p99_ms": 1e308,
            "rtt_max_ms": 1e308, "clock_error_ms": 5e-324})
    };
    body["stamp"] = json!([
        stamp(100, "b", at - 120_000),
        stamp(101, EVIL, at - 120_000),
        stamp(102, "b", i64::MAX),
        stamp(103, "b", i64::MIN),
    ]);
    let event = |id: u64, kind: &str| json!({"id": id, "at_ms": i64::MIN, "severity": "error", "kind": kind, "message": EVIL.repeat(90)});
    body["events"] = json!([event(200, EVIL), event(201, "cell_good"), event(202, "hub_away")]);
    let finding = json!({"verdict": "problem", "title": EVIL, "subject": EVIL, "seen": EVIL,
        "wanted": EVIL, "commands": [EVIL, 1, null]});
    let nested = format!("{}[]{}", "[".repeat(100), "]".repeat(100));
    let nested: Json =
        serde_json::from_str(&nested.replace("[]", &vec!["[]"; 50_000].join(","))).unwrap();
    body["facts"] = json!({"findings": vec![finding; 500], EVIL: EVIL, "nested": nested});
    let interval = |bytes: f64, from: f64, to: f64| json!({"bytes": bytes, "start_seconds": from, "end_seconds": to});
    body["results"] = json!([{"id": 300, "run": lease["run"], "fencing": lease["fencing"],
        "role": "source", "outcome": "finished", "started_ms": at, "ended_ms": at,
        "message": EVIL.repeat(90),
        "document": {"schema": EVIL, "verdict": EVIL, "nested": nested,
            "summary": {"throughput_bps": 1e300, "sender": {"rtt_ms": 1e300, "retransmits": -1},
                "udp": {"lost_percent": 1e300}, "receiver": {"seconds": -1e300},
                "reason": {"sentence": EVIL, "advice": "x".repeat(100_000)}},
            "intervals": [interval(1e308, 0.0, 1e-300), interval(-1.0, 0.0, 1.0),
                interval(1.0, -1e300, 1e300), {"bytes": EVIL}, EVIL, 7]}}]);
    body
}

async fn pages(hub: &Hub, run: &str) {
    let form = format!("user=admin&password={}", hub.password);
    let cookie = format!("cookie: {}", hub.client.form("/login", "", &form).await.cookie());
    let run = format!("/runs/{run}");
    let mut shown = 0;
    for path in [
        "/",
        "/?metric=rtt",
        "/hosts",
        "/hosts/a",
        "/hosts/a?first=32",
        "/hosts/a?from=now-10m&to=now",
        "/hosts/a?from=now-1y&to=now",
        "/hosts/a?first=16&unit=packets",
        "/hosts/a?first=18446744073709551615",
        "/pairs/a/b",
        "/pairs/a/b?from=now-1y&to=now",
        "/pairs/a/b?from=-009998-01-01T00:00:00Z&to=-009997-01-01T00:00:00Z",
        "/pairs/a/b?from=9998-01-01T00:00:00Z&to=9999-01-01T00:00:00Z",
        "/runs",
        "/schedule",
        "/events?all=1",
        "/search?q=a",
        run.as_str(),
    ] {
        let page = hub.client.get(path, &cookie).await;
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        assert!(page.body.len() < MOST_PAGE, "{path} has {} bytes", page.body.len());
        for bad in ["<script>alert", "\u{1b}", "\u{202e}", "\r", "\u{0}", "NaN", ">inf"] {
            assert!(!page.body.contains(bad), "{path} has {bad:?}");
        }
        let longest = page.body.split(['<', '>', ' ', '\n']).map(str::len).max();
        assert!(longest < Some(200_000), "{path} has a word of {longest:?} bytes");
        shown += usize::from(page.body.contains("&lt;script&gt;alert(1)"));
    }
    assert!(shown >= 5, "the script is shown as text on {shown} pages");
    let host = hub.client.get("/hosts/a?first=32&from=now-10m&to=now", &cookie).await.body;
    for shown in
        ["203.0.113.9:65535", "Queue of eth0", "TCP retransmits", "core 4294967295 100.0 %"]
    {
        assert!(host.contains(shown), "the page of the host has {shown}");
    }
    let parts = hub.client.get("/hosts/a?first=16", &cookie).await.body;
    assert!(parts.contains("17 to 32") && parts.contains("33 to 40"), "40 interfaces");
    assert_eq!(parts.matches("<h3>").count(), 16, "a part of them");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stolen_key_holds_one_long_poll() {
    let hub = hub_with(|_| {}).await;
    let client = hub.client.clone();
    let admin = client.bearer("admin", &hub.password).await;
    let mut agent = enrolled(&client, &admin, "a", 1).await;
    let (path, body) = ("/agent/v1/sync?wait=25", upload().to_string());
    let mut polls = tokio::task::JoinSet::new();
    for _ in 0..20 {
        agent.counter += 1;
        let headers = agent.headers(agent.counter, path, body.as_bytes());
        let (client, body) = (client.clone(), body.clone());
        polls.spawn(async move { client.send("POST", path, &headers, body.as_bytes()).await });
        // The hub accepts the counters in their order.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let begun = std::time::Instant::now();
    for _ in 0..19 {
        let answer = polls.join_next().await.unwrap().unwrap();
        assert!([200, 409].contains(&answer.status), "{answer:?}");
    }
    assert!(begun.elapsed().as_secs() < 15, "earlier polls end: {:?}", begun.elapsed());
}
