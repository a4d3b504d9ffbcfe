//! The samples of hosts and queues, and the latest connections of a host, from an upload to the pages and the API.

use serde_json::{Value as Json, json};

use crate::agents::{enrolled, with_load};
use crate::server::hub_with;

#[tokio::test(flavor = "multi_thread")]
async fn the_load_of_a_host_is_stored_and_shown() {
    let hub = hub_with(|config| config.public = true).await;
    let client = &hub.client;
    let admin = client.bearer("admin", &hub.password).await;
    let mut agent = enrolled(client, &admin, "a", 1).await;
    assert_eq!(client.get("/api/v1/hosts/a/snapshot", &admin).await.status, 404);
    let body = with_load();
    for _ in 0..2 {
        // The second upload repeats the first, as after a lost answer.
        let answer = agent.sync(client, 0, &body).await.json();
        assert_eq!(answer["acknowledged"], json!([1, 2, 3]));
    }
    let series = async |query: &str| {
        let path = format!("/api/v1/series?host=a&from=now-10m&step=1&{query}");
        client.get(&path, &admin).await
    };
    let host = series("kind=host").await.json();
    assert_eq!(host["rows"].as_array().unwrap().len(), 2, "{host}");
    assert_eq!(host["metrics"][1], "tcp_retransmits_ps");
    let values = &host["rows"][0]["values"];
    assert_eq!((&values[1], &values[4]), (&json!([20.0, 20.0, 20.0]), &json!([0.5, 0.5, 0.5])));
    assert_eq!(values[7], Json::Null, "the share of the hypervisor was not measured");
    let queue = series("kind=queue&name=eth0").await.json();
    assert_eq!(queue["rows"][1]["values"][0], json!([6144.0, 6144.0, 6144.0]), "{queue}");
    assert_eq!(series("kind=queue&name=eth1").await.status, 404, "eth1 has no queue");
    let csv = series("kind=host&format=csv").await.body;
    assert!(csv.contains("tcp_retransmits_ps_average,tcp_retransmits_ps_min"), "{csv}");

    let snapshot = client.get("/api/v1/hosts/a/snapshot", &admin).await.json();
    assert_eq!(snapshot["schema"], "longhaul.fleet-snapshot/1");
    assert_eq!(snapshot["snapshot"]["flows"], body["snapshot"]["flows"]);
    let login = client.form("/login", "", &format!("user=admin&password={}", hub.password)).await;
    let cookie = format!("cookie: {}", login.cookie());
    let path = "/hosts/a?from=now-10m&to=now";
    let page = client.get(path, &cookie).await.body;
    for shown in [
        "198.51.100.7:40000",
        "9.40 Gb/s",
        "12.5 ms",
        "core 1 41.0 % (busy 90.0 %)",
        "20.00 /s",
        "Queue of eth0",
        "6.0 KiB",
        "Drops by the queue of eth0",
    ] {
        assert!(page.contains(shown), "'{shown}' is not in the page: {page}");
    }
    assert!(!page.contains("Queue of eth1"));

    // Everybody reads the public pages, but nobody without login the addresses of peers.
    let public = client.get(path, "x: y").await.body;
    assert!(public.contains("Log in to see the connections.") && public.contains("Queue of eth0"));
    assert!(!public.contains("198.51.100.7"), "{public}");
    assert_eq!(client.get("/api/v1/hosts/a/snapshot", "x: y").await.status, 403);
}
