//! The limits on an enrolled agent, and the failures of the database.

use std::sync::Mutex;

use longhaul_hub::records::intake::{self, Intake};
use longhaul_hub::store::Sql;
use serde_json::json;

use crate::agents::{MESH, enrolled, leased, now, pair, upload};
use crate::client::Client;
use crate::server::hub_with;

#[tokio::test(flavor = "multi_thread")]
async fn series_and_facts_of_an_agent_are_bounded() {
    let hub = hub_with(|_| {}).await;
    let client = &hub.client;
    let admin = client.bearer("admin", &hub.password).await;
    let mut agent = enrolled(client, &admin, "a", 1).await;
    let mut body = upload();
    let row = json!([now(), 1000, 1, 1, 1, 1, 0, 0, 0, 0]);
    let sample = |at: u64| json!({"id": at, "interface": format!("v{at}"), "speed_bps": null, "rows": [row]});
    body["samples"] = (1..=1100).map(sample).collect();
    body["facts"] = json!({"findings": [], "padding": "x".repeat(600 << 10)});
    let answer = agent.sync(client, 0, &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    // The agent must not send them for ever.
    assert_eq!(answer["acknowledged"].as_array().unwrap().len(), 1100);
    assert_eq!(answer["facts_stored"], true);
    for at in 0..210 {
        let mut body = upload();
        body["facts"] = json!({"findings": [], "number": at});
        assert_eq!(agent.sync(client, 0, &body).await.status, 200);
    }
    let store = hub.store().await;
    let counts = store
        .read(|sql| {
            let mut count = |query: &str| sql.query(query, &[])?[0].int(0);
            Ok((count("SELECT count(*) FROM series")?, count("SELECT count(*) FROM fact")?))
        })
        .await
        .unwrap();
    assert_eq!(counts.0, 1024);
    assert!((1..=200).contains(&counts.1), "{counts:?}");
    for kind in ["too_many_series", "facts_too_large"] {
        let events = client.get(&format!("/api/v1/events?kind={kind}"), &admin).await.json();
        assert_eq!(events["events"][0]["subject"], "a", "{events}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_and_times_of_an_agent_are_bounded() {
    let hub = hub_with(|_| {}).await;
    let client = &hub.client;
    let admin = client.bearer("admin", &hub.password).await;
    let [mut agent, _] = pair(client, &admin, MESH).await;
    let lease = leased(client, &mut agent, "source").await;
    let mut body = upload();
    body["results"] = json!([{"id": 1, "run": lease["run"], "fencing": lease["fencing"],
        "role": "source", "outcome": "failed", "started_ms": i64::MIN, "ended_ms": i64::MAX}]);
    assert_eq!(agent.sync(client, 0, &body).await.json()["acknowledged"], json!([1]));
    let run = lease["run"].as_str().unwrap();
    let run = client.get(&format!("/api/v1/runs/{run}"), &admin).await.json();
    let hour = now() - 3_600_000..now() + 3_660_000;
    assert!(hour.contains(&run["ended_ms"].as_i64().unwrap()), "{run}");
    for path in ["/api/v1/runs?format=pscheduler", "/api/v1/runs?format=csv", "/api/v1/status"] {
        assert_eq!(client.get(path, &admin).await.status, 200, "{path}");
    }

    for batch in 0..5u64 {
        let mut body = upload();
        let event = |at: u64| {
            json!({"id": 10 + batch * 250 + at, "at_ms": i64::MAX,
            "severity": "warning", "kind": "noise", "message": "again"})
        };
        body["events"] = (0..250).map(event).collect();
        let answer = agent.sync(client, 0, &body).await.json();
        // The agent must not send them for ever.
        assert_eq!(answer["acknowledged"].as_array().unwrap().len(), 250);
    }
    let store = hub.store().await;
    let count = "SELECT count(*), max(at_ms) FROM event WHERE kind = 'noise'";
    let (count, latest) = store
        .read(|sql| {
            let rows = sql.query(count, &[])?;
            Ok((rows[0].int(0)?, rows[0].int(1)?))
        })
        .await
        .unwrap();
    assert!((900..=1000).contains(&count), "{count}");
    assert!(hour.contains(&latest), "{latest}");
    let events = client.get("/api/v1/events?kind=too_many_events", &admin).await.json();
    assert_eq!(events["events"][0]["subject"], "a", "{events}");
    let login = client.form("/login", "", &format!("user=admin&password={}", hub.password)).await;
    let cookie = format!("cookie: {}", login.cookie());
    let page = client.get("/events?subject=a&all=1", &cookie).await.body;
    assert!(page.contains("&amp;all=1&amp;subject=a\">Earlier events"), "{page}");
}

/// Returns the message of the only event of a kind.
async fn only_event(client: &Client, admin: &str, kind: &str) -> String {
    let events = client.get(&format!("/api/v1/events?kind={kind}"), admin).await.json();
    let events = events["events"].as_array().unwrap();
    assert_eq!(events.len(), 1, "{kind}: {events:?}");
    assert_eq!(events[0]["subject"], "a");
    events[0]["message"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_of_an_agent_are_bounded_in_age_and_bytes() {
    let hub = hub_with(|config| config.public = true).await;
    let client = &hub.client;
    let admin = client.bearer("admin", &hub.password).await;
    let mut agent = enrolled(client, &admin, "a", 1).await;
    let store = hub.store().await;
    let stored = async || {
        let count = "SELECT count(*) FROM chunk";
        store.read(move |sql| sql.query(count, &[])?[0].int(0)).await.unwrap()
    };
    let day = 86_400_000;
    let samples = |ends: &[i64]| {
        let mut body = upload();
        let rows: Vec<_> =
            ends.iter().map(|end| json!([end, 1000, 1, 1, 1, 1, 0, 0, 0, 0])).collect();
        body["samples"] = json!([{"id": 1, "interface": "eth0", "speed_bps": null, "rows": rows}]);
        body
    };
    let answer = agent.sync(client, 0, &samples(&[now() - 30 * day, now()])).await.json();
    assert_eq!(answer["acknowledged"], json!([1]));
    assert_eq!(stored().await, 2);
    let late = client.get("/api/v1/events?kind=samples_out_of_time", &admin).await.json();
    assert_eq!(late["events"], json!([]));
    let answer = agent.sync(client, 0, &samples(&[now() - 32 * day, now() + day])).await.json();
    // The agent must not send them for ever.
    assert_eq!(answer["acknowledged"], json!([1]));
    assert_eq!(stored().await, 2);
    only_event(client, &admin, "samples_out_of_time").await;

    let (id, most) = (agent.id.clone(), Intake::Samples.most_bytes());
    let room = move |sql: &mut dyn Sql| intake::remaining_bytes(sql, &id, Intake::Samples, now());
    let before = store.read(room).await.unwrap();
    assert!((100..1000).contains(&(most - before)), "{before}");
    let id = agent.id.clone();
    store
        .write(move |sql| intake::add_bytes(sql, (&id, Intake::Samples), most, now()))
        .await
        .unwrap();
    let answer = agent.sync(client, 0, &samples(&[now()])).await.json();
    assert_eq!(answer["acknowledged"], json!([1]));
    let message = only_event(client, &admin, "too_many_samples").await;
    assert!(message.contains("the hub keeps at most 768 MiB of samples per day"), "{message}");
    assert_eq!(stored().await, 2);
    let page = client.get("/events", "x: y").await.body;
    assert!(page.contains(&message), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_and_events_of_an_agent_are_bounded_in_bytes() {
    let hub = hub_with(|_| {}).await;
    let client = &hub.client;
    let admin = client.bearer("admin", &hub.password).await;
    let [mut agent, _] = pair(client, &admin, MESH).await;
    let lease = leased(client, &mut agent, "source").await;
    let store = hub.store().await;
    let id = agent.id.clone();
    let fill = move |sql: &mut dyn Sql| {
        intake::add_bytes(sql, (&id, Intake::Documents), Intake::Documents.most_bytes(), now())?;
        intake::add_bytes(sql, (&id, Intake::Events), Intake::Events.most_bytes() - 600, now())
    };
    store.write(fill).await.unwrap();
    let mut body = upload();
    body["results"] = json!([{"id": 1, "run": lease["run"], "fencing": lease["fencing"],
        "role": "source", "outcome": "finished", "started_ms": now(), "ended_ms": now(),
        "document": {"schema": "longhaul.test/1", "summary": {"throughput_bps": 5_000_000}}}]);
    let event = |id: u64| json!({"id": id, "at_ms": now(), "severity": "info", "kind": "noise", "message": "again"});
    body["events"] = json!([event(2), event(3), event(4)]);
    assert_eq!(agent.sync(client, 0, &body).await.json()["acknowledged"], json!([1, 2, 3, 4]));
    let run = lease["run"].as_str().unwrap();
    let run = client.get(&format!("/api/v1/runs/{run}"), &admin).await.json();
    // The figures of the document are stored.
    assert_eq!((&run["state"], &run["throughput_bps"]), (&json!("finished"), &json!(5_000_000)));
    assert!(run["document"].is_null(), "{run}");
    let message = only_event(client, &admin, "too_many_documents").await;
    assert!(message.contains("at most 128 MiB of documents of runs per day"), "{message}");
    only_event(client, &admin, "too_many_events").await;
    let kept = client.get("/api/v1/events?kind=noise", &admin).await.json();
    assert_eq!(kept["events"].as_array().unwrap().len(), 2, "{kept}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_login_is_refused() {
    let hub = hub_with(|_| {}).await;
    let login = json!({"user": "admin", "password": "x".repeat(40_000), "label": "l"});
    assert_eq!(hub.client.post("/api/v1/login", &[], &login).await.status, 413);
}

static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_of_the_database_is_logged_and_not_shown() {
    let hub = hub_with(|config| {
        config.public = true;
        config.log = |line| LOG.lock().unwrap().push(line.to_owned());
    })
    .await;
    let store = hub.store().await;
    store.write(|sql| sql.execute("DROP TABLE event", &[])).await.unwrap();
    for path in ["/api/v1/events", "/events"] {
        let answer = hub.client.get(path, "x: y").await;
        assert_eq!(answer.status, 503, "{answer:?}");
        for secret in ["SQLite", "no such table", "event:"] {
            assert!(!answer.body.contains(secret), "{answer:?}");
        }
    }
    let log = LOG.lock().unwrap().clone();
    assert!(log.iter().any(|line| line.contains("no such table: event")), "{log:?}");
}
