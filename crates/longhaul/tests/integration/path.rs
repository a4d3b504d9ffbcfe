//! `longhaul path` over emulated links and topologies: the results must match the configuration.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use longhaul_core::plan::PathPart;
use longhaul_core::result::{
    AsymmetryVerdict, Hops, MtuLimit, PATH_SCHEMA, PathEnd, PathResult, ProbeFigures, Prober,
    Proportion,
};
use longhaul_core::stats::proportion_interval;

use crate::host::{PROGRAM, TestHost, assert_code, text};
use crate::ssh::Sshd;
use crate::topology::Up;

/// Returns a shell command that measures the path to `far` as soon as a server listens there.
fn once_served(arguments: &str) -> String {
    format!(
        "for i in $(seq 100); do \
           if (exec 3<>/dev/tcp/$LONGHAUL_FAR/5210) 2>/dev/null; then break; fi; sleep 0.1; \
         done; \
         exec {PROGRAM} path far -q {arguments}"
    )
}

/// Measures an emulated link, with a server at its far end.
fn over(host: &TestHost, link: &[&str], arguments: &str) -> Output {
    let serve = format!("{PROGRAM} serve");
    let measure = once_served(arguments);
    let arguments =
        [&["wan", "run"], link, &["--far", &serve, "--", "bash", "-c", &measure]].concat();
    host.run(&arguments)
}

fn document(output: &Output) -> PathResult {
    assert!(!output.stdout.is_empty(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)))
}

/// Repeats the measurement until `good` is true. Load on the machine only increases times and
/// reduces the rates of trains.
#[track_caller]
fn until(measure: impl Fn() -> PathResult, good: impl Fn(&PathResult) -> bool) {
    const TRIES: usize = 5;
    let mut last = None;
    for _ in 0..TRIES {
        let found = measure();
        if good(&found) {
            return;
        }
        last = Some(found.summary);
    }
    panic!("{last:#?}");
}

/// Asserts that a count agrees with a probability. By chance this fails once in a million runs.
#[track_caller]
fn assert_agrees(found: &Proportion, probability: f64) {
    let (low, high) = proportion_interval(found.count, found.of, 0.999_999);
    assert!((low..=high).contains(&probability), "{found:?} is not {probability}");
}

#[track_caller]
fn assert_adds_up(found: &ProbeFigures) {
    let accounted =
        found.received + found.lost.count + found.sender_dropped + found.receiver_dropped;
    assert_eq!(accounted, found.sent, "{found:?}");
    assert_eq!(found.lost.of, found.sent - found.sender_dropped);
}

fn addresses(hops: &Option<Hops>) -> Vec<Vec<IpAddr>> {
    hops.as_ref().unwrap().list.iter().map(|hop| hop.addresses.clone()).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn the_measured_loss_matches_the_link() {
    let host = TestHost::new();
    let link = [
        "--up-delay",
        "15ms",
        "--down-delay",
        "5ms",
        "--rate",
        "50M",
        "--mtu",
        "1437",
        "--loss",
        "2e-2",
        "--duplicate",
        "1e-2",
    ];
    let output = over(&host, &link, "-t 4 --json");
    assert_code(&output, 0);
    let found = document(&output);
    assert_eq!(
        (found.schema.as_str(), found.served, found.end),
        (PATH_SCHEMA, true, PathEnd::Completed)
    );
    for way in [&found.forward, &found.reverse] {
        // The MTU is exact, independent of loss.
        assert_eq!(way.mtu_bytes(), Some(1437));
        assert_eq!(way.mtu[0].limit, MtuLimit::Interface);
        let tcp = way.tcp.unwrap();
        assert!(tcp.proven() && tcp.path_mtu_bytes == 1437, "{tcp:?}");
        let hops = way.hops.as_ref().unwrap();
        assert!(hops.reached && hops.list.len() == 1, "{hops:?}");
        let probes = way.probes.as_ref().unwrap();
        assert_adds_up(probes);
        assert!(probes.sent >= 3900, "{probes:?}");
        assert_agrees(&probes.lost, 2e-2);
        // Lost segments are not duplicated.
        assert_agrees(&probes.duplicated, 1e-2);
        assert_eq!(probes.reordered.count, 0);
    }
    assert!(
        found.forward.mtu.iter().any(|proof| proof.by == Prober::Icmp),
        "{:?}",
        found.forward.mtu
    );
    let rtt = found.rtt.unwrap();
    let (small, full) = (rtt.small.unwrap(), rtt.full.unwrap());
    assert_eq!(full.packet_bytes, 1437);
    // The minimum is 20 ms of delay, plus 2 x 230 us at 50 Mb/s for full-size packets.
    assert!(small.times.min_ms >= 19.9 && full.times.min_ms >= 20.3, "{small:?} {full:?}");
    assert!(small.asked == 100 && small.times.answered <= 100 && small.times.answered > 50);
}

#[test]
fn rtt_and_capacity_match_the_link() {
    let host = TestHost::new();
    let link = ["--up-delay", "15ms", "--down-delay", "5ms", "--rate", "50M", "--mtu", "1500"];
    let measure = || document(&over(&host, &link, "-t 0.2 -c 50 --skip hops --json"));
    until(measure, |found| {
        let asymmetry = found.asymmetry.unwrap();
        let known = asymmetry.same_clock && asymmetry.verdict == AsymmetryVerdict::Known;
        let small = found.rtt.as_ref().unwrap().small.as_ref().unwrap().times.min_ms;
        let rates = [&found.forward, &found.reverse].map(|way| {
            way.capacity.as_ref().unwrap().estimate_bps.map_or(0.0, |rate| rate.bps() as f64 / 50e6)
        });
        known
            && (9.0..11.0).contains(&asymmetry.difference_ms)
            && (19.9..21.0).contains(&small)
            && rates.iter().all(|rate| (0.9..1.1).contains(rate))
    });
}

#[test]
fn reordering_is_counted_with_its_extent() {
    let host = TestHost::new();
    let link = ["--rtt", "10ms", "--up-reorder", "5e-2"];
    let output = over(&host, &link, "-t 4 -c 10 --skip capacity,hops,mtu --json");
    assert_code(&output, 0);
    let found = document(&output);
    let (there, back) = (found.forward.probes.unwrap(), found.reverse.probes.unwrap());
    assert_adds_up(&there);
    assert_agrees(&there.reordered, 5e-2);
    assert!(there.reordering_extent >= 1 && there.reordering_mean_extent >= 1.0, "{there:?}");
    assert!(there.reordering_late_ms > 0.0 && there.three_reordered <= there.reordered.count);
    assert_eq!((there.lost.count, there.duplicated.count), (0, 0));
    assert_eq!((back.reordered.count, back.reordering_extent), (0, 0));
    let printed = found.summary.join("\n");
    assert!(printed.contains(" packets in the reverse direction: below"), "{printed}");
    assert!(printed.contains("were out of order in the forward direction"), "{printed}");
}

#[test]
fn hops_and_mtu_match_the_topology_in_both_directions() {
    let host = TestHost::new();
    let up = Up::row("path");
    let home = host.home().display().to_string();
    let mut server =
        up.start("right", &format!("HOME={home} {PROGRAM} serve >/dev/null 2>&1 & echo on; wait"));
    let measure = |arguments: &str| {
        let script = format!(
            "for i in $(seq 100); do \
               if (exec 3<>/dev/tcp/right/5210) 2>/dev/null; then break; fi; sleep 0.1; \
             done; \
             HOME={home} exec {PROGRAM} path right -q -t 0.1 -c 5 --json {arguments}"
        );
        up.exec("left", &["bash", "-c", &script])
    };
    for (family, middle, left, right) in [
        ("-4", "198.18.0.2", "198.18.0.1", "198.18.0.3"),
        ("-6", "2001:2::2", "2001:2::1", "2001:2::3"),
    ] {
        let output = measure(&format!("--skip capacity,loss {family}"));
        assert_code(&output, 0);
        let found = document(&output);
        assert_eq!(addresses(&found.forward.hops), [[ip(middle)], [ip(right)]]);
        assert_eq!(addresses(&found.reverse.hops), [[ip(middle)], [ip(left)]]);
        let least = |way: &Option<Hops>| way.as_ref().unwrap().list[0].min_ms.unwrap();
        assert!(least(&found.forward.hops) >= 19.9 && least(&found.reverse.hops) >= 9.9);
        // The MTU of the first link is 9000, of the second 1500. In the forward direction a router
        // limits the size, in the reverse direction the interface of the sender does.
        for proof in &found.forward.mtu {
            assert_eq!((proof.bytes, proof.stopped_bytes), (Some(1500), Some(1501)), "{proof:?}");
            assert_eq!(proof.limit, MtuLimit::Router { address: ip(middle) });
        }
        let kinds: Vec<_> = found.forward.mtu.iter().map(|proof| proof.by).collect();
        assert_eq!(kinds, [Prober::Udp, Prober::Icmp]);
        assert_eq!(found.forward.tcp.unwrap().path_mtu_bytes, 1500);
        assert_eq!(found.reverse.mtu[0].bytes, Some(1500));
        assert_eq!(found.reverse.mtu[0].limit, MtuLimit::Interface);

        // Without a server, the forward direction has the same result, and the missing parts are
        // listed.
        let output = measure(&format!("--no-server {family}"));
        assert_code(&output, 7);
        let alone = document(&output);
        assert!(!alone.served && alone.rtt.is_some());
        assert_eq!(addresses(&alone.forward.hops), addresses(&found.forward.hops));
        let kinds: Vec<_> = alone.forward.mtu.iter().map(|proof| (proof.by, proof.bytes)).collect();
        assert_eq!(kinds, [(Prober::Icmp, Some(1500)), (Prober::ClosedPort, Some(1500))]);
        let missing: Vec<_> = alone.unmeasured.iter().map(|one| one.part).collect();
        assert!(missing.contains(&PathPart::Loss) && missing.contains(&PathPart::Capacity));
    }
    let _ = server.kill();
    let _ = server.wait();
}

#[test]
fn a_silent_host_ends_the_measurement_in_time() {
    let host = TestHost::new();
    let measure = format!("exec {PROGRAM} path far -q --json");
    let link = ["wan", "run", "--rtt", "10ms", "--loss", "1", "--", "bash", "-c", &measure];
    let output = host.run(&link);
    assert_code(&output, 3);
    let found = document(&output);
    assert!(found.is_empty() && !found.served);
    assert!(found.seconds < 60.0, "{}", found.seconds);
    assert!(found.summary.concat().contains("Nothing of the path to far could be measured"));
    assert!(found.alone_because.unwrap().contains("cannot connect to far"));
}

#[test]
fn errors_are_one_line_with_a_documented_code() {
    let host = TestHost::new();
    for (arguments, code, words) in [
        ("path nohost.invalid", 3, "nohost.invalid"),
        ("path 127.0.0.1 -c 0", 2, "number of round trips is 0"),
        ("path 127.0.0.1 -l 20", 2, "size of a probe is 20"),
        ("path 127.0.0.1 -i 1ns", 2, "time between probes is 1ns"),
        ("path a:b:0", 3, "a:b:0"),
    ] {
        let split: Vec<_> = arguments.split_whitespace().collect();
        let output = host.run(&split);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments}: {error}");
        assert!(error.contains(words), "{arguments}: {error}");
        assert_eq!(text(&output.stdout), "", "{arguments}");
    }
    let server = host.longhaul(&["serve", "-p", "0", "--max-time", "1", "--key-max-time", "1"]);
    let server = crate::host::Server::start(server);
    let far = format!("127.0.0.1:{}", server.port);
    let output = host.run(&["path", &far, "-q"]);
    assert_code(&output, 4);
    assert!(
        text(&output.stderr).contains("measurements of loss for 1s, not 5 s"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn text_fits_80_columns_and_ends_with_a_summary() {
    let host = TestHost::new();
    let server = host.serve();
    let far = format!("127.0.0.1:{}", server.port);
    let output = host.run(&["path", &far, "-q", "-t", "0.2", "-c", "5"]);
    assert_code(&output, 0);
    let shown = text(&output.stdout);
    assert!(
        shown.starts_with(&format!("path to {far} from 127.0.0.1: both directions")),
        "{shown}"
    );
    for heading in
        ["round trip (UDP)", "hops forward", "hops reverse", "path MTU", "probes", "capacity"]
    {
        assert!(shown.lines().any(|line| line.starts_with(heading)), "{heading}: {shown}");
    }
    assert!(
        shown
            .contains("\nNo loss in 200 packets in the forward direction: below 1.5e-2 at 95 %.\n"),
        "{shown}"
    );
    let wide: Vec<_> = shown.lines().filter(|line| line.chars().count() > 80).collect();
    assert_eq!(wide, [""; 0]);
}

#[test]
fn ctrl_c_prints_the_results_so_far() {
    let host = TestHost::new();
    let server = host.serve();
    let far = format!("127.0.0.1:{}", server.port);
    let mut child = host
        .longhaul(&["path", &far, "-t", "600", "-c", "5", "--skip", "capacity"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut printed = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(printed.any(|line| line.contains("measuring loss")), "it comes to that");
    std::thread::sleep(Duration::from_millis(300));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let shown = text(&output.stdout);
    assert!(shown.contains("The measurement was interrupted"), "{shown}");
    for way in ["forward", "reverse"] {
        assert!(shown.contains(&format!(" packets in the {way} direction: below")), "{shown}");
    }
}

#[test]
fn a_far_end_is_started_by_ssh() {
    let host = TestHost::new();
    let sshd = Sshd::start(&host);
    let output = host.run(&[
        "path",
        "-e",
        &sshd.rsh,
        "--far-longhaul",
        PROGRAM,
        "root@127.0.0.1",
        "-t",
        "0.2",
        "-c",
        "5",
        "--json",
    ]);
    assert_code(&output, 0);
    let found = document(&output);
    assert!(found.served && found.reverse.probes.is_some() && found.reverse.capacity.is_some());
}

#[test]
fn a_copy_reports_the_path_before_the_first_byte() {
    let host = TestHost::new();
    host.file("data", 1 << 20);
    let serve = format!("exec {PROGRAM} serve --root '{}'", host.far("").display());
    let copy = format!(
        "until (exec 3<>/dev/tcp/far/5210) 2>/dev/null; do sleep 0.05; done; \
         exec {PROGRAM} cp --json data lh://far/x"
    );
    let link = ["--rtt", "40ms", "--mtu", "1437"];
    let run = [&["wan", "run"], &link[..], &["--far", &serve, "--", "bash", "-c", &copy]].concat();
    let output = host.run(&run);
    assert_code(&output, 0);
    let found: longhaul_core::result::CopyResult = serde_json::from_slice(&output.stdout).unwrap();
    let before = found.path.before.unwrap();
    assert_eq!(before.mtu_bytes, 1437);
    assert!((1300..1437).contains(&before.segment_bytes), "{before:?}");
    assert!(before.rtt_ms >= 39.9 && before.cwnd_bytes.get() > 0, "{before:?}");
}
