//! People as attackers: a viewer, a forged request, a stored script, a guessed password.

use std::slice;
use std::time::Instant;

use longhaul_fleet::api::UserRole;
use longhaul_hub::store::{Sql, StoreError, Value};
use longhaul_hub::{UserChange, change_users};
use serde_json::{Value as Json, json};

use crate::agents::now;
use crate::client::Client;
use crate::server::{Hub, hub_with};

/// A text that would run a script in a page, leave an attribute, or start a formula.
const SCRIPT: &str = "<script>alert(1)</script>\" onmouseover=\"alert(2)' &amp;";

/// Adds a user and returns its bearer header.
async fn user(hub: &Hub, name: &str, role: UserRole) -> String {
    let (config, name) = (hub.config.clone(), name.to_owned());
    let password = "a long password".to_owned();
    let add = UserChange::Add { name: name.clone(), role, password: password.clone() };
    tokio::task::spawn_blocking(move || change_users(&config, add).unwrap()).await.unwrap();
    hub.client.bearer(&name, &password).await
}

/// Returns the paths of the API with a method, with `x` for each parameter.
async fn paths(client: &Client, method: &str) -> Vec<String> {
    let description = client.get("/api/v1/openapi.json", "x: y").await.json();
    let all = description["paths"].as_object().unwrap().clone();
    let found = all.into_iter().filter(|(_, methods)| methods[method].is_object());
    found.map(|(path, _)| filled(&path)).collect()
}

/// Returns a path with `x` for each parameter.
fn filled(path: &str) -> String {
    let part = |part: &str| if part.starts_with('{') { "x".to_owned() } else { part.to_owned() };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

fn body_of(path: &str) -> Json {
    match path {
        "/api/v1/tokens" => json!({"host": "x", "valid_seconds": 600}),
        "/api/v1/mesh/apply" | "/api/v1/mesh/plan" => json!({"text": "name = 'x'"}),
        _ => json!({}),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_needs_its_role_and_the_secret_of_the_session() {
    let hub = hub_with(|config| config.public = true).await;
    let client = &hub.client;
    let viewer = user(&hub, "eve", UserRole::Viewer).await;
    let operator = user(&hub, "olga", UserRole::Operator).await;
    let login = client.form("/login", "", &format!("user=admin&password={}", hub.password)).await;
    let cookie = login.cookie();
    assert!(login.head.contains("HttpOnly") && login.head.contains("SameSite=Strict"));
    let session = format!("cookie: {cookie}");
    let changing = paths(client, "post").await;
    assert!(changing.len() >= 7, "{changing:?}");
    let refused = async |path: &str, header: &str, code: &str| {
        let answer = client.post(path, &[header.to_owned()], &body_of(path)).await;
        assert_eq!((answer.status, &answer.json()["code"]), (403, &json!(code)), "{path} {header}");
    };
    for path in changing.iter().filter(|path| *path != "/api/v1/login") {
        // A plan changes nothing, so everybody who reads may ask for one.
        if path != "/api/v1/mesh/plan" {
            refused(path, &viewer, "forbidden").await;
            refused(path, "x: y", "forbidden").await;
        }
        refused(path, &session, "csrf").await;
        refused(path, &format!("{session}\r\nx-csrf-token: guess"), "csrf").await;
    }
    for path in ["/api/v1/tokens", "/api/v1/mesh/apply", "/api/v1/agents/x/revoke"] {
        refused(path, &operator, "forbidden").await;
    }
    let unauthorized = client.get("/api/v1/status", "authorization: Bearer guess").await;
    assert_eq!(unauthorized.status, 401);
    forms(client, &cookie).await;
}

/// Checks the forms of the pages: they repeat the secret of the session.
async fn forms(client: &Client, cookie: &str) {
    let session = format!("cookie: {cookie}");
    for path in routes("post").iter().filter(|path| *path != "/login") {
        assert_eq!(client.form(path, cookie, "csrf=guess").await.status, 403, "{path}");
        let anonymous = client.form(path, "", "csrf=guess").await.status;
        assert_eq!(anonymous, 403, "{path}");
    }
    for site in ["cross-site", "same-site"] {
        let kind = "content-type: application/x-www-form-urlencoded".to_owned();
        let headers = [format!("sec-fetch-site: {site}"), kind];
        let forged = client.send("POST", "/login", &headers, b"user=eve&password=x").await;
        assert_eq!(forged.status, 403, "{site}");
    }
    for path in ["/hosts/%ff", "/hosts/x?first=-1", "/?metric=%3Cscript%3E", "/runs?limit=x"] {
        let answer = client.get(path, &session).await;
        assert_eq!(answer.status, 400, "{path}");
        assert!(answer.body.contains("the address or the form is malformed"), "{answer:?}");
    }
    assert_eq!(client.get("/hosts", &session).await.status, 200, "the session still exists");
    let page = client.get("/", &session).await.body;
    let csrf = page.split("name=\"csrf\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(client.form("/logout", cookie, &format!("csrf={csrf}")).await.status, 303);
    let page = client.get("/", &session).await.body;
    assert!(!page.contains("name=\"csrf\""), "the session is over");
}

/// Returns the routes of the pages with a method, from their source, so that none is forgotten.
fn routes(method: &str) -> Vec<String> {
    let source = include_str!("../../src/web/pages/mod.rs");
    let lines = source.lines().filter_map(|line| line.trim().strip_prefix(".route(\""));
    let found = lines.filter_map(|line| line.split_once("\", "));
    found
        .filter(|(_, rest)| rest.contains(&format!("{method}(")))
        .map(|(path, _)| filled(path))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_script_is_text_on_every_page() {
    let hub = hub_with(|_| {}).await;
    let store = hub.store().await;
    store.write(hostile_rows).await.unwrap();
    let form = format!("user=admin&password={}", hub.password);
    let cookie = format!("cookie: {}", hub.client.form("/login", "", &form).await.cookie());
    let name: String = SCRIPT.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let pages = routes("get");
    assert!(pages.len() >= 10, "{pages:?}");
    let mut shown = 0;
    for path in pages.iter().filter(|path| !path.starts_with("/assets/")) {
        let path = path.replace("/x", &format!("/{name}"));
        for query in ["", "?all=1", &format!("?q={name}&host={name}&from=now-7d")] {
            let page = hub.client.get(&format!("{path}{query}"), &cookie).await;
            assert_eq!(page.status, 200, "{path}{query}: {}", page.body);
            for bad in ["<script>alert", "\" onmouseover=\"alert"] {
                assert!(!page.body.contains(bad), "{path}{query} has {bad}: {}", page.body);
            }
            assert!(
                page.head.to_lowercase().contains("content-security-policy: default-src 'none'")
            );
            shown += usize::from(page.body.contains("&lt;script&gt;alert(1)"));
        }
    }
    assert!(shown >= 12, "the script is shown as text {shown} times");
    csv(&hub, &cookie).await;
}

/// Checks that a spreadsheet takes no text for a formula.
async fn csv(hub: &Hub, cookie: &str) {
    let runs = hub.client.get("/api/v1/runs?format=csv", cookie).await.body;
    assert!(runs.contains("\"'=cmd()\""), "{runs}");
    let lines = hub.client.get("/api/v1/runs?format=pscheduler", cookie).await.body;
    let separators = lines.chars().filter(|c| *c == '\u{1e}').count();
    assert_eq!(separators, 1, "{lines}");
}

/// Stores the script wherever a page shows a text.
fn hostile_rows(sql: &mut dyn Sql) -> Result<(), StoreError> {
    let (now, text) = (now(), Value::from(SCRIPT));
    let mut insert = |statement: &str, values: Vec<Value>| sql.execute(statement, &values);
    let state = json!({"version": SCRIPT, "uptime_seconds": 1, "running": [], "accepted": [],
        "disk_free_bytes": 1, "journal_bytes": 1, "backlog": 0, "memory_bytes": 1, "stamp_port": 1});
    insert(
        "INSERT INTO agent (id, host, public_key, enrolled_ms, counter, seen_ms, address, state, present)
         VALUES ($1, $1, 'k', $2, 0, $2, $1, $3, 1)",
        vec![text.clone(), now.into(), Value::from(&state.to_string())],
    )?;
    insert(
        "INSERT INTO run (id, fencing, test, kind, source, destination, state, reason, message, due_ms,
         planned_ms, window_end_ms, port, started_ms, ended_ms, resources, lease, revision,
         source_leased, target_leased, source_done, target_done, throughput_bps)
         VALUES ($1, 1, '=cmd()', 'throughput', $1, $1, 'failed', 'failed', $1, $2, $2, $2, 1, $2, $2,
         $3, '{}', 1, 1, 1, 1, 1, 5)",
        vec![text.clone(), now.into(), Value::from(&json!([SCRIPT]).to_string())],
    )?;
    insert(
        "INSERT INTO event (id, origin, at_ms, severity, kind, subject, message, repeats)
         VALUES ($1, $1, $2, 'warning', $1, $1, $1, 1)",
        vec![text.clone(), now.into()],
    )?;
    for kind in ["interface", "stamp"] {
        insert(
            "INSERT INTO series (id, kind, host, name, last_ms) VALUES ($1, $2, $3, $3, 0)",
            vec![Value::Int(if kind == "stamp" { 98 } else { 99 }), kind.into(), text.clone()],
        )?;
    }
    insert(
        "INSERT INTO cell (source, destination, metric, state, value, since_ms)
         VALUES ($1, $1, 'throughput', 'critical', 5, 0)",
        vec![text],
    )?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_wrong_logins_are_refused_logged_and_bounded() {
    const LOGINS: usize = 10_000;
    const CONNECTIONS: usize = 4;
    let hub = hub_with(|_| {}).await;
    let admin = hub.client.bearer("admin", &hub.password).await;
    let (before, begun) = (memory_kib(), Instant::now());
    let mut attackers = tokio::task::JoinSet::new();
    for at in 0..CONNECTIONS {
        let client = hub.client.clone();
        let body = json!({"user": "admin", "password": format!("guess {at}"), "label": ""});
        attackers.spawn(async move {
            client.post_often("/api/v1/login", &body, LOGINS / CONNECTIONS).await
        });
    }
    let mut counts = std::collections::BTreeMap::<u16, usize>::new();
    while let Some(statuses) = attackers.join_next().await {
        for (status, count) in statuses.unwrap() {
            *counts.entry(status).or_default() += count;
        }
    }
    // The window of five minutes can end once during a slow test.
    let checked = counts[&401];
    assert!((1..=20).contains(&checked), "{counts:?}");
    assert_eq!(counts[&429], LOGINS - checked, "{counts:?}");
    assert!(begun.elapsed().as_secs() < 400, "{:?}", begun.elapsed());
    // Other tests of this process run meanwhile. 10,000 checked passwords would take 190 GiB in turn.
    assert!(memory_kib().saturating_sub(before) < 512 << 10, "{} KiB", memory_kib());
    let events = hub.client.get("/api/v1/events?kind=login_failed", &admin).await.json();
    let events = events["events"].as_array().unwrap().clone();
    assert!((1..=2).contains(&events.len()), "one event per hour: {events:?}");
    let repeats: i64 = events.iter().filter_map(|event| event["repeats"].as_i64()).sum();
    assert_eq!(repeats, i64::try_from(checked).unwrap(), "{events:?}");
    assert_eq!(hub.client.get("/api/v1/status", &admin).await.status, 200, "the token still works");
    let mine = json!({"user": "admin", "password": hub.password, "label": ""});
    let limited =
        hub.client.post("/api/v1/login", slice::from_ref(&"x: y".to_owned()), &mine).await;
    assert_eq!(limited.json()["code"], "too_many_logins");
}

/// Returns the resident memory of this process in KiB.
fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn live_updates_end_with_their_session() {
    let hub = hub_with(|_| {}).await;
    let form = format!("user=admin&password={}", hub.password);
    let cookie = hub.client.form("/login", "", &form).await.cookie();
    let (client, header) = (hub.client.clone(), format!("cookie: {cookie}"));
    // The answer is complete only when the hub ends the stream.
    let stream = tokio::spawn(async move { client.get("/api/v1/events/stream", &header).await });
    let page = hub.client.get("/", &format!("cookie: {cookie}")).await.body;
    let csrf = page.split("name=\"csrf\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(!stream.is_finished());
    hub.client.form("/logout", &cookie, &format!("csrf={csrf}")).await;
    let answer = stream.await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    let again = hub.client.get("/api/v1/events/stream", &format!("cookie: {cookie}")).await;
    assert_eq!(again.status, 401, "{again:?}");
}
