//! The doctor's rules against recorded hosts, each read by the code that reads a living one.

use std::time::Duration;

use longhaul_core::doctor::{HostFacts, Target, examine};
use longhaul_core::result::{Finding, FindingValue, FindingVerdict, Measurement, TargetSource};
use longhaul_core::units::parse_span;
use longhaul_sys::doctor::{FactSource, Query, read_facts};

fn facts(recording: &str, disk: &str) -> HostFacts {
    let source = FactSource::recorded(recording.parse().unwrap());
    read_facts(&source, &Query { disks: vec![disk.to_owned()], ..Query::default() })
}

fn target(rate: &str, rtt: &str) -> Target {
    Target {
        rate: rate.parse().unwrap(),
        rate_from: TargetSource::Asked,
        rtt: parse_span(rtt).unwrap(),
        rtt_from: TargetSource::Asked,
        to: None,
        port: 5210,
    }
}

/// The names of the rules that came to `verdict`, in their order.
fn rules(findings: &[Finding], verdict: FindingVerdict) -> Vec<&str> {
    findings.iter().filter(|f| f.verdict == verdict).map(|f| f.rule.as_str()).collect()
}

#[track_caller]
fn finding<'a>(findings: &'a [Finding], rule: &str) -> &'a Finding {
    findings.iter().find(|finding| finding.rule == rule).unwrap_or_else(|| panic!("no {rule}"))
}

#[track_caller]
fn text<'a>(finding: &'a Finding, value: &str) -> &'a str {
    match finding.values.get(value) {
        Some(FindingValue::Text(text)) => text,
        other => panic!("{value} of {}: {other:?}", finding.rule),
    }
}

#[track_caller]
fn count(finding: &Finding, value: &str) -> u64 {
    match finding.values.get(value) {
        Some(FindingValue::Count(count)) => *count,
        other => panic!("{value} of {}: {other:?}", finding.rule),
    }
}

#[test]
fn a_tuned_data_transfer_node_is_fit_for_100_gigabits() {
    let facts = facts(include_str!("hosts/dtn-100g.host"), "/data");
    let found = examine(&facts, &[], &target("100G", "100ms"));
    // Each of the two drives is on four lanes: no single one could do it.
    assert_eq!(rules(&found, FindingVerdict::Problem), [""; 0], "{found:#?}");
    assert_eq!(finding(&found, "pcie_rate").subject, "ens3f0np0");
    assert_eq!(rules(&found, FindingVerdict::Advice), ["disk_node", "firewall"], "{found:#?}");
    assert_eq!(rules(&found, FindingVerdict::Unseen), [""; 0]);
    assert_eq!(text(finding(&found, "pcie_rate"), "link"), "16 GT/s x16");
    assert!(text(finding(&found, "interrupt_node"), "node_cpus").contains("16-31"));
    assert_eq!(count(finding(&found, "tcp_rmem"), "connections"), 2);
    assert_eq!(finding(&found, "direct_io").verdict, FindingVerdict::Ok);
    let disk = finding(&found, "file_system");
    assert_eq!(
        ["file_system", "mount_point", "device"].map(|v| text(disk, v)),
        ["xfs", "/data", "md0"]
    );
}

#[test]
fn a_default_server_gets_all_findings() {
    let facts = facts(include_str!("hosts/server-untuned.host"), "/srv");
    let found = examine(&facts, &[], &target("100G", "100ms"));
    assert_eq!(
        rules(&found, FindingVerdict::Problem),
        [
            "tcp_rmem",
            "tcp_wmem",
            "tcp_mem",
            "congestion",
            "tcp_timestamps",
            "offloads",
            "pcie_rate",
            "core_drops",
            "governor",
            "file_system",
            "tracked_connections",
        ],
    );
    assert_eq!(
        rules(&found, FindingVerdict::Advice),
        [
            "rmem_max",
            "wmem_max",
            "bbr_available",
            "tcp_slow_start_after_idle",
            "default_qdisc",
            "mtu",
            "queueing",
            "rings",
            "missed",
            "coalescing",
            "pause",
            "pcie_link",
            "pcie_payload",
            "pcie_read_request",
            "iommu",
            "interrupt_node",
            "irqbalance",
            "idle_states",
            "threads_of_cores",
            "frequency",
            "room",
            "scheduler",
            "read_ahead",
            "disk_node",
            "clock",
            "clock_source",
            "open_files",
            "locked_memory",
            "firewall_old",
        ],
    );
    // 256/280 x 128/130 x 8 lanes x 8 GT/s = 57.6 Gb/s.
    assert_eq!(count(finding(&found, "pcie_rate"), "maximum_bps") / 100_000_000, 576);
    assert_eq!(text(finding(&found, "offloads"), "off"), "gro");
    let node = finding(&found, "interrupt_node");
    assert_eq!(["away_cpus", "node_cpus"].map(|v| text(node, v)), ["0-7", "8-15,24-31"]);
    assert_eq!(count(finding(&found, "tcp_rmem"), "wanted_bytes"), 1_250_951_168);
}

#[test]
fn a_laptop_without_rights_reports_unseen_facts() {
    let facts = facts(include_str!("hosts/laptop-wifi.host"), "/home/me");
    let found = examine(&facts, &[], &target("1G", "20ms"));
    assert_eq!(rules(&found, FindingVerdict::Problem), [""; 0], "{found:#?}");
    assert_eq!(
        rules(&found, FindingVerdict::Advice),
        [
            "tcp_wmem",
            "rmem_max",
            "wmem_max",
            "bbr_available",
            "tcp_slow_start_after_idle",
            "speed",
            "offloads",
            "governor",
            "open_files",
        ],
    );
    assert_eq!(
        rules(&found, FindingVerdict::Unseen),
        ["pcie_payload", "firewall", "firewall_old"],
        "{found:#?}"
    );
    // The bus is judged with an assumed payload.
    assert_eq!(count(finding(&found, "pcie_rate"), "assumed_bytes"), 256);
    let bus = finding(&found, "pcie_payload");
    assert!(bus.is_denied() && bus.case == "denied_sys_admin", "{bus:?}");
    let disk = finding(&found, "file_system");
    assert_eq!(
        ["file_system", "mount_point", "device"].map(|v| text(disk, v)),
        ["btrfs", "/home", "dm-0"]
    );
}

#[test]
fn a_virtual_machine_is_not_judged_by_settings_of_its_host() {
    let facts = facts(include_str!("hosts/vm-virtio.host"), "/srv/data");
    let found = examine(&facts, &[], &target("10G", "100ms"));
    assert_eq!(rules(&found, FindingVerdict::Problem), ["tcp_rmem", "tcp_wmem"], "{found:#?}");
    assert_eq!(rules(&found, FindingVerdict::Unseen), ["speed"]);
    let absent = ["rings", "pcie_rate", "governor", "threads_of_cores", "pause"];
    assert!(absent.iter().all(|rule| found.iter().all(|finding| finding.rule != *rule)));
    // Over a short path the same host is fit.
    let near = examine(&facts, &[], &target("10G", "1ms"));
    assert_eq!(rules(&near, FindingVerdict::Problem), [""; 0], "{near:#?}");
}

#[test]
fn measurements_are_judged_by_their_cores_and_disks() {
    let facts = facts(include_str!("hosts/vm-virtio.host"), "/srv/data");
    let one = |name: &str, rate: Option<&str>| Measurement {
        name: name.to_owned(),
        title: name.to_owned(),
        throughput_bps: rate.map(|rate| rate.parse().unwrap()),
        seconds: 0.8,
        note: "a note".to_owned(),
    };
    let measured = [
        one("memory_copy", Some("37G")),
        one("blake3", Some("8G")),
        one("aes_256_gcm", Some("4G")),
        one("disk_write", Some("3.5G")),
        one("disk_read", None),
        one("loopback_tcp", Some("6G")),
    ];
    let found = examine(&facts, &measured, &target("10G", "1ms"));
    let verdict = |rule| finding(&found, rule).verdict;
    assert_eq!(
        (verdict("memory_copy"), verdict("blake3")),
        (FindingVerdict::Ok, FindingVerdict::Advice)
    );
    assert_eq!(
        (verdict("aes_256_gcm"), verdict("disk_write")),
        (FindingVerdict::Problem, FindingVerdict::Problem)
    );
    let cores = &finding(&found, "aes_256_gcm").values["busy_cores"];
    assert_eq!(*cores, FindingValue::Number(2.5));
    assert_eq!(count(finding(&found, "loopback_tcp"), "connections"), 2);
    assert!(found.iter().all(|finding| finding.rule != "disk_read"), "it failed");
}

#[test]
fn a_host_that_tells_nothing_has_findings_and_no_verdicts() {
    let facts = facts("longhaul.host/1\n", "/data");
    let found = examine(&facts, &[], &target("10G", "100ms"));
    assert!(found.iter().all(|finding| finding.verdict == FindingVerdict::Unseen), "{found:#?}");
    assert!(found.len() > 15 && found.iter().all(|finding| finding.values.contains_key("unseen")));
}

#[test]
fn this_host_is_examined_in_time_and_its_recording_is_the_same_host() {
    let query = Query {
        to: Some("127.0.0.1".to_owned()),
        port: 9,
        patience: Duration::from_secs(1),
        interfaces: vec!["lo".to_owned(), "no-such-if".to_owned()],
        disks: vec![env!("CARGO_MANIFEST_DIR").to_owned(), "/no/such/directory".to_owned()],
    };
    let target = target("10G", "10ms");
    let (begun, source) = (std::time::Instant::now(), FactSource::host());
    let found = examine(&read_facts(&source, &query), &[], &target);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let route = finding(&found, "path_route");
    assert_eq!(["address", "interface"].map(|value| text(route, value)), ["127.0.0.1", "lo"]);
    let there = finding(&found, "interface_there");
    assert_eq!((there.verdict, text(there, "interfaces")), (FindingVerdict::Problem, "no-such-if"));
    let missing: Vec<_> = found.iter().filter(|f| f.subject == "/no/such/directory").collect();
    assert_eq!(missing.len(), 1, "{missing:#?}");
    assert_eq!(missing[0].verdict, FindingVerdict::Unseen);

    let recording = source.recording().to_string();
    let again = FactSource::recorded(recording.parse().unwrap());
    assert_eq!(examine(&read_facts(&again, &query), &[], &target), found);
}
