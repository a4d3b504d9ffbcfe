//! A day of a measurement without an end, in virtual time, in bounded memory. The test has a
//! separate process, because it measures the memory of the process.

mod network;

use std::time::Duration;

use longhaul_core::plan::StampPlan;
use network::{Direction, Network};

/// Returns a value of /proc/self/status in KiB.
fn status_kib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).expect("the kernel states it");
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_day_at_ten_packets_per_second_needs_less_than_20_mib() {
    let bad =
        Direction { delay: Duration::from_millis(45), loss: 1e-3, duplicate: 1e-3, reorder: 1e-3 };
    let network = Network { directions: [bad; 2], ..Network::default() };
    let plan = StampPlan {
        packets: None,
        interval: Duration::from_millis(100),
        record: Duration::from_secs(60),
        ..StampPlan::new()
    };
    let (mut records, mut sent, mut lost, mut longest) = (0, 0, [0, 0], 0);
    let day = Duration::from_secs(24 * 3600);
    let outcome = network.run_with(plan, day, |record| {
        records += 1;
        sent += record.figures.sent;
        lost[0] += record.figures.forward.lost.map_or(0, |lost| lost.count);
        lost[1] += record.figures.reverse.lost.map_or(0, |lost| lost.count);
        longest = longest.max(record.histograms.rtt.len());
    });
    // The last packets wait for their replies when the day ends.
    assert_eq!((records, sent), (1439, 863_400));
    let tail = outcome.last().figures.clone();
    lost[0] += tail.forward.lost.unwrap().count;
    lost[1] += tail.reverse.lost.unwrap().count;
    for (found, counts) in lost.iter().zip(outcome.counts) {
        // Packets in flight at the end, and gaps with both a loss and a duplicate.
        assert!(found.abs_diff(counts.lost) <= counts.lost / 100 + 5, "{found} of {counts:?}");
    }
    assert!(longest <= 64, "a histogram has {longest} intervals");
    let peak = status_kib("VmHWM:");
    assert!(peak < 20 * 1024, "the process needed {peak} KiB");
}
