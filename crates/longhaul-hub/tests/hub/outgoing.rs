//! Notifications by mail, the independence of the channels, and remote write.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longhaul_hub::{Channel, MailServer, start};
use serde_json::{Value as Json, json};

use crate::agents::{enrolled, now, upload};
use crate::client::Client;
use crate::receiver::{Certificate, HookReceiver, MailReceiver, Sample, Silent, WriteReceiver};
use crate::server::{Hub, hub_with};

/// Waits for a condition.
async fn wait_for(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(90);
    while !condition().await {
        assert!(Instant::now() < deadline, "{what} in time");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Fails a login of a user, which is an event with the user's name.
async fn fail_login(client: &Client, user: &str) {
    let body = json!({"user": user, "password": "wrong password", "label": ""});
    assert_eq!(client.post("/api/v1/login", &[], &body).await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_arrives_although_another_channel_is_silent() {
    let certificate = Certificate::new();
    let (server, silent) = (MailReceiver::start(&certificate).await, Silent::start().await);
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), &certificate.pem).unwrap();
    let url = format!("smtp+starttls://hub@localhost:{}", server.port);
    let mail = |to: &str| {
        let server = MailServer::parse(&url).unwrap().with_password("secret".to_owned());
        Channel::mail(server, "hub@example.net", to).unwrap()
    };
    let hub = hub_with(|config| {
        let hook = format!("https://localhost:{}/hook", silent.port);
        config.channels = vec![
            Channel::webhook(&hook).unwrap(),
            mail("ops@example.net"),
            mail("nobody@example.net"),
        ];
        config.outgoing_ca = Some(ca.path().to_owned());
    })
    .await;
    let admin = hub.client.bearer("admin", &hub.password).await;
    fail_login(&hub.client, "eve\r\nBcc: <all@example.net>\r\n\r\n.\r\nQUIT").await;
    wait_for("the mail", async || !server.mails().is_empty()).await;
    wait_for("the silent channel", async || silent.waiting.load(Ordering::Relaxed)).await;
    assert!(!silent.left.load(Ordering::Relaxed), "the mail did not wait for the silent channel");

    let mails = server.mails();
    assert_eq!(mails.len(), 1, "{mails:?}");
    let mail = &mails[0];
    assert!(mail.encrypted);
    let login = STANDARD.encode("\0hub\0secret");
    for command in [
        format!("AUTH PLAIN {login}"),
        "MAIL FROM:<hub@example.net>".to_owned(),
        "RCPT TO:<ops@example.net>".to_owned(),
    ] {
        assert!(mail.commands.contains(&command), "{command} {mail:?}");
    }
    let (head, body) = mail.text.split_once("\r\n\r\n").unwrap();
    assert_eq!(head.lines().count(), 9, "{head}");
    assert!(!head.to_lowercase().contains("\nbcc"), "{head}");
    assert!(head.contains("Subject: [longhaul] warning: a login of user 'eve%0D%0ABcc"), "{head}");
    let text = STANDARD.decode(body.replace("\r\n", "")).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("Kind:     login_failed\r\n"), "{text}");
    assert_eq!(text.lines().count(), 6, "{text}");

    let path = "/api/v1/events?kind=notification_dropped";
    let dropped = async || hub.client.get(path, &admin).await.json()["events"].clone();
    wait_for("the refused receiver", async || dropped().await[0].is_object()).await;
    let dropped = dropped().await;
    assert_eq!(dropped[0]["subject"], "mail:nobody@example.net");
    assert!(dropped[0]["message"].as_str().unwrap().contains("550 no such user"), "{dropped}");
    assert_eq!(server.mails().len(), 1, "a lost notification is not notified");
    wait_for("the limit on the silent channel", async || silent.left.load(Ordering::Relaxed)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_and_programs_get_the_event() {
    let certificate = Certificate::new();
    let hook = HookReceiver::start(&certificate).await;
    let dir = tempfile::tempdir().unwrap();
    let (ca, program, out) =
        (dir.path().join("ca"), dir.path().join("program"), dir.path().join("out"));
    std::fs::write(&ca, &certificate.pem).unwrap();
    let script = format!("#!/bin/sh\ncat > '{0}.new' && mv '{0}.new' '{0}'\n", out.display());
    // Another process writes it: a fork of a parallel test would keep it open for writing.
    let written = std::process::Command::new("sh")
        .args(["-c", "printf %s \"$1\" > \"$0\" && chmod 700 \"$0\""])
        .arg(&program)
        .arg(&script)
        .status();
    assert!(written.unwrap().success());
    let hub = hub_with(|config| {
        let url = |path: &str| format!("https://localhost:{}/{path}", hook.port);
        config.channels = vec![
            Channel::webhook(&url("hook")).unwrap(),
            Channel::webhook(&url("gone/secret-token")).unwrap(),
            Channel::Exec { program: program.clone() },
        ];
        config.outgoing_ca = Some(ca.clone());
    })
    .await;
    let admin = hub.client.bearer("admin", &hub.password).await;
    fail_login(&hub.client, "eve\"}\n").await;
    wait_for("the program", async || out.exists()).await;
    let event: Json = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    assert_eq!((&event["kind"], &event["severity"]), (&json!("login_failed"), &json!("warning")));
    assert!(event["message"].as_str().unwrap().contains("eve\"}\n"), "{event}");
    // The receiver was away at the first attempt.
    let known = || {
        let all = hook.requests();
        all.into_iter().filter(|(head, _)| head.starts_with("post /hook ")).collect::<Vec<_>>()
    };
    wait_for("the second attempt", async || known().len() == 2).await;
    for (head, body) in known() {
        assert!(head.contains("content-type: application/json\r\n"), "{head}");
        assert_eq!(serde_json::from_str::<Json>(&body).unwrap(), event);
    }
    let path = "/api/v1/events?kind=notification_dropped";
    let dropped = async || hub.client.get(path, &admin).await.json()["events"].clone();
    wait_for("the refused webhook", async || dropped().await[0].is_object()).await;
    let message = dropped().await[0]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("404 Not Found") && message.len() < 600, "{message}");
    assert!(!dropped().await.to_string().contains("secret-token"), "viewers read events");
}

/// Uploads samples of an interface at given seconds of `start`.
async fn samples(client: &Client, agent: &mut crate::client::Agent, names: &[&str], at_ms: i64) {
    let mut body = upload();
    let one = |(id, name): (usize, &&str)| {
        let rows: Vec<Json> = (0..5)
            .map(|i| json!([at_ms + i * 1000, 1000, 125_000_000, 1000, 9, 9, 0, 0, 0, 0]))
            .collect();
        json!({"id": id + 1, "interface": name, "speed_bps": 10_000_000_000u64, "rows": rows})
    };
    body["samples"] = names.iter().enumerate().map(one).collect();
    let answer = agent.sync(client, 0, &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_write_sends_each_sample_once_over_failures_and_a_restart() {
    let receiver = WriteReceiver::start().await;
    let url = format!("http://{}/api/v1/write", receiver.address);
    let hub = hub_with(|config| config.remote_write = Some(url)).await;
    let admin = hub.client.bearer("admin", &hub.password).await;
    let mut agent = enrolled(&hub.client, &admin, "a", 1).await;
    let (first, second) = (now() / 1000 * 1000 - 60_000, now() / 1000 * 1000 - 30_000);
    let received = |at_ms: i64| -> Vec<Sample> {
        let of_metric = |sample: &Sample| {
            sample.label("__name__") == "longhaul_interface_receive_bits_per_second"
                && (at_ms..at_ms + 5000).contains(&sample.at_ms)
        };
        receiver.samples().into_iter().filter(of_metric).collect()
    };
    samples(&hub.client, &mut agent, &["eth0", "bad", "eth1"], first).await;
    wait_for("the first samples", async || received(first).len() >= 10).await;
    let found = received(first);
    assert_eq!(found.len(), 10, "two interfaces with five samples each: {found:?}");
    assert_eq!((found[0].value, found[0].at_ms), (1e9, first));
    assert_eq!((found[0].label("host"), found[0].label("interface")), ("a", "eth0"));
    let heads = receiver.heads();
    for header in [
        "post /api/v1/write http/1.1",
        "content-encoding: snappy",
        "content-type: application/x-protobuf",
        "x-prometheus-remote-write-version: 0.1.0",
    ] {
        assert!(heads.iter().all(|head| head.contains(header)), "{header} {heads:?}");
    }
    let path = "/api/v1/events?kind=remote_write_refused";
    let refused = async || hub.client.get(path, &admin).await.json()["events"].clone();
    wait_for("the refused series", async || refused().await[0].is_object()).await;

    let Hub { config, tasks, _dir, .. } = hub;
    drop(tasks);
    let (started, _tasks) = start(&config).await.unwrap();
    let client = Client::new(started.addresses[0], &started.pin);
    samples(&client, &mut agent, &["eth0"], second).await;
    wait_for("the later samples", async || received(second).len() >= 5).await;
    assert_eq!((received(first).len(), received(second).len()), (10, 5));
}
