//! The impairments of `longhaul wan run`, measured with the probe of the self-test and with tools
//! such as ping, iperf3 and tcpdump over the kernel's network stack.
//!
//! Bounds of random counts are at least six standard deviations wide, and seeds are fixed. No
//! test depends on the speed of the machine.

use std::fs;
use std::process::{Command, Output, Stdio};

use crate::capture::Capture;
use longhaul_core::result::{Impairments, LinkReport};
use longhaul_emu::selftest::probe::{ProbePlan, ProbeReport, ReceivePlan, SendPlan};

const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul");

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn wan_run(options: &[&str], far: &str, near: &str) -> Output {
    Command::new(PROGRAM)
        .args(["wan", "run"])
        .args(options)
        .args(["--far", far, "--", "sh", "-c", near])
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Returns a plan of datagrams of 100 bytes in super-packets of 20, at a rate that a debug build
/// can count.
fn plan(datagrams: u64) -> SendPlan {
    SendPlan {
        to: "far".to_owned(),
        port: 5211,
        ipv6: false,
        datagrams,
        payload_bytes: 100,
        together: 20,
        interval_seconds: std::time::Duration::from_micros(500),
        ecn_capable: false,
        verify: true,
        threads: 1,
    }
}

/// Sends `plan` over a link with `options`. Returns the counts of the probe and of the emulator.
#[track_caller]
fn probe(options: &[&str], plan: SendPlan) -> (ProbeReport, LinkReport) {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (sent, seen, link) = (path("sent"), path("seen"), path("link.json"));
    let bind = if plan.ipv6 { "[::]:5211" } else { "0.0.0.0:5211" }.parse().unwrap();
    let drain_seconds = std::time::Duration::from_millis(300);
    let receive = ProbePlan::Receive(ReceivePlan { bind, drain_seconds, verify: true }).to_json();
    let send = ProbePlan::Send(plan).to_json();
    // The report of the sender reaches the receiver through a FIFO outside the link. The receiver
    // opens the FIFO for reading and writing, which does not block, and listens before the near end
    // starts. The near end remains until the receiver has printed its report.
    assert!(Command::new("mkfifo").arg(&sent).status().unwrap().success());
    let far =
        format!("{PROGRAM} wan probe '{receive}' 0<>'{sent}' >'{seen}'; mv '{seen}' '{seen}.done'");
    let near = format!(
        "{PROGRAM} wan probe '{send}' >'{sent}' || exit 1; \
         for i in $(seq 100); do [ -e '{seen}.done' ] && exit 0; sleep 0.1; done; exit 1"
    );
    let options = [options, &["--json-report", &link]].concat();
    let output = wan_run(&options, &far, &near);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let seen = fs::read_to_string(format!("{seen}.done")).unwrap();
    let report: ProbeReport = serde_json::from_str(seen.lines().last().unwrap()).unwrap();
    assert_eq!(report.socket_drops, 0, "the machine was too slow for this test: {report:?}");
    let link: LinkReport = serde_json::from_slice(&fs::read(link).unwrap()).unwrap();
    assert_eq!(link.up.interface_drops, 0, "the machine was too slow for this test");
    assert!(link.up.is_conserved() && link.down.is_conserved(), "{link:?}");
    (report, link)
}

/// Asserts that a count of `of` events with probability `p` is within six standard deviations.
#[track_caller]
fn assert_share(count: u64, of: u64, p: f64) {
    let mean = of as f64 * p;
    let deviation = (mean * (1.0 - p)).sqrt();
    assert!((count as f64 - mean).abs() < 6.0 * deviation + 2.0, "{count} of {of} for {p}");
}

/// Asserts that the emulator's count equals the probe's, except for a few packets of the kernel.
#[track_caller]
fn assert_same(probe: u64, emulator: u64) {
    assert!(probe.abs_diff(emulator) <= 5, "the probe saw {probe}, the emulator {emulator}");
}

#[test]
fn a_clean_link_changes_nothing() {
    for ipv6 in [false, true] {
        let (report, _) = probe(&[], SendPlan { ipv6, ecn_capable: true, ..plan(20_000) });
        assert_eq!((report.received, report.arrivals), (20_000, 20_000), "{report:?}");
        assert_eq!((report.changed, report.reordered, report.marked), (0, 0, 0));
        assert_eq!(report.ecn_capable, 20_000);
    }
}

#[test]
fn loss_is_decided_for_each_segment_of_a_super_packet() {
    for ipv6 in [false, true] {
        let options = ["--up-loss", "0.05", "--seed", "5"];
        let (report, link) = probe(&options, SendPlan { ipv6, ..plan(40_000) });
        assert_share(report.lost, 40_000, 0.05);
        assert_same(report.lost, link.up.impairments.lost.segments);
        assert_eq!((report.changed, report.reordered, report.duplicates), (0, 0, 0));
        // 95 % of independent losses are isolated; lost super-packets would be runs of 20.
        let alone = report.loss_runs[&1];
        assert!(alone * 10 > report.lost * 8, "{:?}", report.loss_runs);
    }
}

#[test]
fn loss_bursts_lose_adjacent_segments() {
    let options = ["--up-loss", "0.05", "--up-loss-burst", "10", "--seed", "5"];
    let (report, _) = probe(&options, plan(60_000));
    let (runs, mean) = report.mean_loss_run().unwrap();
    assert!(runs > 150, "{runs}");
    // With about 300 runs the standard deviation of the mean is 9.5 / sqrt(300).
    assert!((6.0..14.0).contains(&mean), "{mean} over {runs}");
}

#[test]
fn a_pattern_loses_exactly_its_segments() {
    let (report, _) = probe(&["--up-loss-pattern", "2/10", "--seed", "1"], plan(1000));
    assert_eq!(report.lost, 100);
    let first = report.first_lost[0];
    let every_tenth: Vec<u64> = (0..100).map(|n| first + n * 10).collect();
    assert_eq!(report.first_lost, every_tenth);
}

#[test]
fn detected_damage_is_dropped_by_the_receiver() {
    let (report, link) = probe(&["--up-corrupt", "0.05", "--seed", "5"], plan(20_000));
    assert_share(report.lost, 20_000, 0.05);
    assert_eq!((report.lost, report.changed), (report.checksum_errors, 0), "{report:?}");
    assert_same(report.lost, link.up.impairments.corrupted.segments);
}

#[test]
fn silent_damage_reaches_the_application() {
    for ipv6 in [false, true] {
        let options = ["--up-corrupt-silent", "0.05", "--seed", "5"];
        let (report, link) = probe(&options, SendPlan { ipv6, ..plan(20_000) });
        assert_share(report.changed, 20_000, 0.05);
        assert_eq!((report.lost, report.checksum_errors), (0, 0), "{report:?}");
        assert_same(report.changed, link.up.impairments.corrupted_silent.segments);
    }
}

#[test]
fn duplicates_are_delivered_and_counted() {
    let (report, link) = probe(&["--up-duplicate", "0.05", "--seed", "5"], plan(20_000));
    assert_share(report.duplicates, 20_000, 0.05);
    assert_eq!((report.lost, report.changed), (0, 0));
    assert_same(report.duplicates, link.up.impairments.duplicated.segments);
}

#[test]
fn reordering_delays_segments_by_its_extent() {
    let (report, link) = probe(&["--up-reorder", "0.02:7", "--seed", "5"], plan(20_000));
    assert_share(report.reordered, 20_000, 0.02);
    assert_same(report.reordered, link.up.impairments.reordered.segments);
    assert_eq!(report.lost, 0);
    let (least, most) =
        (report.extents.keys().next().unwrap(), report.extents.keys().next_back().unwrap());
    assert!(*least >= 7 && *most <= 10, "{:?}", report.extents);
}

#[test]
fn jitter_keeps_the_order_by_default() {
    let spread = "--up-delay 20ms --up-jitter";
    let words = |jitter| format!("{spread} {jitter} --seed 5");
    for (jitter, reorders) in [("5ms:uniform", false), ("5ms:uniform:reorder", true)] {
        let options = words(jitter);
        let options: Vec<&str> = options.split(' ').collect();
        let (report, _) = probe(&options, SendPlan { together: 1, ..plan(4000) });
        assert_eq!((report.lost, report.received), (0, 4000));
        assert_eq!(report.reordered > 0, reorders, "{jitter}: {} reordered", report.reordered);
        let delay = report.delay.unwrap();
        // No packet is early. The load of the machine affects the lateness, but hardly its median.
        assert!(delay.quantile_ms(0.0) >= 14.9, "{}", delay.quantile_ms(0.0));
        if reorders {
            assert!((17.0..35.0).contains(&delay.quantile_ms(0.5)), "{}", delay.quantile_ms(0.5));
        }
    }
}

#[test]
fn only_ecn_capable_packets_are_marked() {
    let options = ["--up-mark", "0.05", "--seed", "5"];
    for ipv6 in [false, true] {
        let (report, link) = probe(&options, SendPlan { ipv6, ecn_capable: true, ..plan(20_000) });
        assert_share(report.marked, 20_000, 0.05);
        assert_same(report.marked, link.up.impairments.marked_ce.segments);
        assert_eq!((report.lost, report.changed), (0, 0));
    }
    let (report, _) = probe(&options, plan(5000));
    assert_eq!((report.marked, report.received), (0, 5000));
}

#[test]
fn a_full_queue_drops_segments() {
    // A datagram has 128 bytes, so 2 Mb/s are 1953 per second. The probe sends 40,000 per second
    // for 0.25 s.
    let options = ["--up-rate", "2M", "--up-queue", "16KiB"];
    let (report, link) = probe(&options, plan(10_000));
    assert!(report.lost > 5000, "{report:?}");
    assert_same(report.lost, link.up.impairments.queue_full.segments);
    assert!(report.rate_bps < 2.02e6, "{}", report.rate_bps);
    assert_eq!((report.changed, report.reordered), (0, 0));
}

#[test]
fn an_outage_loses_all_packets_and_ends() {
    // The link is down for the first half second of two.
    let (report, link) = probe(
        &["--up-outage", "0s+500ms"],
        SendPlan {
            together: 1,
            interval_seconds: std::time::Duration::from_millis(2),
            ..plan(1000)
        },
    );
    assert_same(report.lost, link.up.impairments.outage.segments);
    assert!(report.received > 0, "it came back");
    assert_eq!(report.reordered, 0);
}

#[test]
fn equal_seeds_lose_the_same_segments() {
    // Without the kernel's own IPv6 packets, which are sent at any time, the link carries only the
    // probe.
    let lost = |seed| {
        let options = ["--up-loss", "0.02", "--seed", seed];
        probe(&options, plan(5000)).0.first_lost
    };
    let runs = [lost("7"), lost("7"), lost("8")];
    assert!(!runs[0].is_empty());
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}

#[test]
fn a_link_without_a_seed_reports_a_random_one() {
    let seed = || probe(&["--up-loss", "0.02"], plan(100)).1.plan.seed;
    let (one, other) = (seed(), seed());
    assert!(one.is_some() && one != other, "{one:?} and {other:?}");
}

#[test]
fn an_invalid_option_is_an_error_before_anything_is_created() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("bad.trace");
    fs::write(&trace, "not a trace\n").unwrap();
    let trace = trace.to_str().unwrap();
    let mark = directory.path().join("mark");
    for (options, expected) in [
        (vec!["--loss", "1.5"], "--loss"),
        (vec!["--loss=-1"], "--loss"),
        (vec!["--loss", "NaN"], "--loss"),
        (vec!["--corrupt", "2"], "--corrupt"),
        (vec!["--rate", "0"], "--rate"),
        (vec!["--rtt", "1ms", "--delay", "1ms"], "--delay"),
        (vec!["--loss-burst", "0.5", "--loss", "0.1"], "--loss-burst"),
        (vec!["--queue", "1MiB"], "--rate"),
        (vec!["--jitter", "1ms:zipf"], "--jitter"),
        (vec!["--rate-trace", "/nonexistent/trace"], "/nonexistent/trace"),
        (vec!["--rate-trace", trace], "line 1"),
        (vec!["--outage", "soon"], "--outage"),
        (vec!["--seed=-3"], "--seed"),
    ] {
        let report = directory.path().join("link.json");
        let output = Command::new(PROGRAM)
            .args(["wan", "run"])
            .args(&options)
            .args(["--json-report", report.to_str().unwrap(), "--", "touch"])
            .arg(&mark)
            .output()
            .unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {text}");
        assert!(text.contains(expected.trim_start_matches('-')), "{options:?}: {text}");
        assert!(!report.exists() && !mark.exists(), "{options:?} made something");
    }
}

/// Runs iperf3 over a link. Returns the received bytes and the report of the link.
#[track_caller]
fn iperf3(options: &[&str], arguments: &str) -> (serde_json::Value, LinkReport) {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("link.json");
    let options = [options, &["--json-report", link.to_str().unwrap()]].concat();
    let output = wan_run(&options, "iperf3 -s -1 >/dev/null", &format!("iperf3 -J {arguments}"));
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    let link: LinkReport = serde_json::from_slice(&fs::read(link).unwrap()).unwrap();
    assert!(link.up.is_conserved() && link.down.is_conserved(), "{link:?}");
    (serde_json::from_slice(&output.stdout).unwrap(), link)
}

#[test]
fn iperf3_works_over_tcp_udp_and_ipv6() {
    for family in ["-4", "-6"] {
        let (result, link) = iperf3(&["--rtt", "4ms"], &format!("{family} -c far -n 64M"));
        // iperf3 ends when it has written this many bytes, even if not all have arrived.
        let bytes = result["end"]["sum_received"]["bytes"].as_u64().unwrap();
        assert!(bytes > 0 && bytes < link.up.delivered.bytes, "{family}: {bytes}");
        let arguments = format!("{family} -c far -u -b 20M -l 1200 -t 1");
        let (result, link) = iperf3(&["--up-loss", "0.1", "--seed", "5"], &arguments);
        let sum = &result["end"]["sum"];
        let (lost, sent) = (sum["lost_packets"].as_u64(), sum["packets"].as_u64());
        assert_share(lost.unwrap(), sent.unwrap(), 0.1);
        assert!(link.up.impairments.lost.segments >= lost.unwrap());
    }
}

#[test]
fn ping_and_tracepath_see_delay_and_mtu() {
    for family in ["-4", "-6"] {
        let near = format!("ping {family} -c 20 -i 0.01 -q far && tracepath {family} -n far");
        let output = wan_run(&["--rtt", "10ms", "--mtu", "1400"], "sleep 100", &near);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
        assert!(text.contains("20 received, 0% packet loss"), "{text}");
        assert!(text.contains("pmtu 1400") && text.contains("reached"), "{text}");
    }
}

/// The minimum number of bytes expected of 16 MiB: iperf3 ends when it has written them, and up to
/// a window may not have arrived.
const LEAST_CAPTURED: u64 = 1 << 20;

/// Captures an iperf3 transfer at the far end. Returns the capture and the report of the link.
#[track_caller]
fn capture(options: &[&str], family: &str) -> (Capture, LinkReport) {
    let directory = tempfile::tempdir().unwrap();
    let (file, link) = (directory.path().join("far.pcap"), directory.path().join("link.json"));
    // Cooked headers have the same length for every device; -Q excludes packets that the far end
    // sends.
    let far = format!(
        "tcpdump -i any -y LINUX_SLL -Q in -s 0 -B 65536 -w '{0}' 'tcp dst port 5201' 2>'{0}.log' & \
         until grep -q listening '{0}.log'; do sleep 0.05; done; \
         iperf3 -s -1 >/dev/null; sleep 0.5; kill $!; wait; touch '{0}.done'",
        file.display()
    );
    let near = format!(
        "iperf3 {family} -c far -n 16M >/dev/null || exit 1; \
         for i in $(seq 100); do [ -e '{}.done' ] && exit 0; sleep 0.1; done; exit 1",
        file.display()
    );
    let options = [options, &["--json-report", link.to_str().unwrap()]].concat();
    let output = wan_run(&options, &far, &near);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let link: LinkReport = serde_json::from_slice(&fs::read(link).unwrap()).unwrap();
    (Capture::read(&file), link)
}

#[test]
fn a_captured_transfer_has_right_checksums_and_no_gaps() {
    for family in ["-4", "-6"] {
        let (capture, link) = capture(&["--rtt", "2ms", "--mtu", "1500"], family);
        assert!(capture.largest_payload > 2000, "super-packets arrive whole");
        assert_eq!(capture.bad_checksums, 0);
        assert_eq!(capture.gaps, Vec::<u64>::new(), "{link:?}");
        assert!(capture.covered > LEAST_CAPTURED, "{}", capture.covered);
    }
}

#[test]
fn a_captured_transfer_lacks_only_the_lost_segments() {
    for family in ["-4", "-6"] {
        let options = ["--rtt", "2ms", "--mtu", "1500", "--up-loss", "0.003", "--seed", "3"];
        let (capture, link) = capture(&options, family);
        assert_eq!(capture.bad_checksums, 0, "cut super-packets too have right checksums");
        assert!(capture.covered > LEAST_CAPTURED, "so much came at least: {}", capture.covered);
        // The gaps are losses at the first transmission; a lost retransmission adds no gap.
        let mss = if family == "-4" { 1448 } else { 1428 };
        let segments: u64 = capture.gaps.iter().map(|gap| gap.div_ceil(mss)).sum();
        let lost = link.up.impairments.lost.segments;
        assert!((1..=lost).contains(&segments), "{segments} missing and {lost} lost");
        assert!(lost - segments <= 5 + lost / 2, "{segments} missing and {lost} lost");
        let whole = capture.gaps.iter().filter(|gap| **gap % mss == 0).count();
        // A sender that runs out of data ends a super-packet with a segment below the MSS.
        assert!(whole * 2 >= capture.gaps.len(), "torn within a segment: {:?}", capture.gaps);
    }
}

#[test]
fn chains_bit_errors_and_policers_lose_the_segments_that_they_count() {
    type Count = fn(&Impairments) -> u64;
    let (lost, bits, policed): (Count, Count, Count) =
        (|i| i.lost.segments, |i| i.bit_errors.segments, |i| i.policed.segments);
    // A datagram has 128 bytes. The probe sends 10,000 in 0.25 s: 1.28 MB, of which the policer passes
    // 200 kB and 8 kB per 10 ms.
    for (option, value, count, least, most) in [
        ("--up-loss-ge", "0.05:0.2:0.5:0.02", lost, 900, 1450),
        ("--up-loss-state", "0.02:0.3:0.1:0.5:0.01", lost, 350, 1500),
        ("--up-loss-correlation", "0.25", lost, 80, 350),
        ("--up-ber", "1e-4", bits, 800, 1150),
        ("--up-police", "6400k:200000", policed, 6000, 8450),
    ] {
        let mut options = vec![option, value, "--seed", "3"];
        if option == "--up-loss-correlation" {
            options.extend(["--up-loss", "0.1"]);
        }
        let (report, link) = probe(&options, plan(10_000));
        assert_same(report.lost, count(&link.up.impairments));
        assert!((least..=most).contains(&report.lost), "{option}: {}", report.lost);
        assert_eq!((report.changed, report.reordered, report.duplicates), (0, 0, 0), "{option}");
    }
}

#[test]
fn slots_and_a_queue_of_packets_apply_to_real_packets() {
    // 2000 datagrams in 50 ms, of which a slot of 10 ms carries 100.
    let (report, _) = probe(&["--up-slot", "10ms:100"], plan(2000));
    assert_eq!((report.received, report.reordered), (2000, 0));
    let delay = report.delay.unwrap();
    assert!((130.0..300.0).contains(&delay.quantile_ms(1.0)), "{delay:?}");
    let (report, link) = probe(&["--up-rate", "1M", "--up-queue", "50p"], plan(2000));
    assert_same(report.lost, link.up.impairments.queue_full.segments);
    // 50 wait, and the rate sends 977 per second for 50 ms.
    assert!((90..160).contains(&report.received), "{}", report.received);
}
