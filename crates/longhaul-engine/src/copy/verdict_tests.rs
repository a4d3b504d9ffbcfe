//! Tests of the limits of copies.

use longhaul_core::result::{BusyThread, PathBefore, ThreadRole};
use longhaul_core::units::Bytes;

use super::*;

fn source(read: f64, seal: f64, send: f64) -> EndReport {
    let stages = StageTimes {
        read: Some(read),
        seal: Some(seal),
        send: Some(send),
        ..StageTimes::default()
    };
    EndReport { end: TransferEnd { cpu_percent: 50.0, ..TransferEnd::default() }, stages }
}

fn sink(receive: f64, write: f64) -> EndReport {
    let stages = StageTimes { receive: Some(receive), write: Some(write), ..StageTimes::default() };
    EndReport { end: TransferEnd { cpu_percent: 50.0, ..TransferEnd::default() }, stages }
}

fn summary(gbps: u64) -> CopySummary {
    CopySummary {
        throughput_bps: Rate::from_bps(gbps * 1_000_000_000),
        bytes: Bytes::new(gbps * 125_000_000),
        resumed_bytes: Bytes::new(0),
        files: 1,
        seconds: 1.0,
        verified: true,
        verification: None,
        encrypted: true,
        durable: true,
        streams: 2,
        reconnects: 0,
        outage_seconds: 0.0,
        resent_blocks: 0,
        retransmits: None,
        rtt_ms: None,
        dry_run: false,
        unchanged_files: 0,
        deleted: 0,
        manifest: None,
    }
}

#[test]
fn the_stage_that_never_waits_is_the_limit() {
    let path = CopyPathReport::default();
    // Written and synced alternately.
    let mut slow_sink = sink(0.47, 0.55);
    slow_sink.stages.sync = Some(0.33);
    for (source, sink, expected) in [
        (source(0.3, 0.1, 0.95), sink(0.5, 0.97), Some(CopyLimit::SinkDisk)),
        (source(0.99, 0.1, 0.2), sink(0.9, 0.2), Some(CopyLimit::SourceDisk)),
        (source(0.2, 0.9, 0.99), sink(0.9, 0.2), Some(CopyLimit::Sealing)),
        (source(0.1, 0.1, 0.99), sink(0.99, 0.1), Some(CopyLimit::Path)),
        (source(0.1, 0.1, 0.6), sink(0.9, 0.1), Some(CopyLimit::Path)),
        (source(0.5, 0.1, 0.6), sink(0.9, 0.1), None),
        (source(0.1, 0.1, 0.1), sink(0.1, 0.8), Some(CopyLimit::SinkDisk)),
        (source(0.1, 0.1, 0.6), sink(0.9, 0.8), None),
        (source(0.83, 0.0, 0.1), sink(0.9, 0.0), Some(CopyLimit::SourceDisk)),
        (source(0.0, 0.0, 0.44), slow_sink, Some(CopyLimit::SinkDisk)),
        (source(0.2, 0.1, 0.2), sink(0.2, 0.2), None),
    ] {
        let reports = TransferReports { source, sink, path: path.clone() };
        assert_eq!(limit(&summary(1), &reports, &CopyFacts::default()), expected);
    }
}

#[test]
fn a_slow_path_has_a_reason() {
    let found = |path: CopyPathReport| {
        let (source, sink) = (source(0.1, 0.1, 0.99), sink(0.99, 0.1));
        let reports = TransferReports { source, sink, path };
        limit(&summary(1), &reports, &CopyFacts::default())
    };
    let lossy = CopyPathReport { loss: 1e-4, ..CopyPathReport::default() };
    assert_eq!(found(lossy.clone()), Some(CopyLimit::Loss));
    let bbr = |loss| CopyPathReport { loss, congestion: Some("bbr".to_owned()), ..lossy.clone() };
    assert_eq!(found(bbr(1e-4)), Some(CopyLimit::Path));
    assert_eq!(found(bbr(0.05)), Some(CopyLimit::Loss));
    let moved = 8.0 * summary(1).bytes.get() as f64 / summary(1).seconds;
    let overflowing = |share: f64| CopyPathReport {
        queue_overflows_at_bps: Some(Rate::from_bps((moved / share) as u64)),
        ..lossy.clone()
    };
    assert_eq!(found(overflowing(0.8)), Some(CopyLimit::Path), "its own losses in a full queue");
    assert_eq!(found(overflowing(0.3)), Some(CopyLimit::Loss), "the losses slow it down");
    let drops_at_bps = Some(Rate::from_bps(500_000_000));
    let policed = CopyPathReport { drops_at_bps, ..bbr(0.02) };
    assert_eq!(found(policed), Some(CopyLimit::ShallowQueue));
    let window = CopyPathReport { receive_window_limited: 0.7, ..lossy };
    assert_eq!(found(window.clone()), Some(CopyLimit::ReceiveWindow));
    let mut busy = sink(0.99, 0.1);
    busy.stages.verify = Some(0.8);
    let reports = reports(&source(0.1, 0.1, 0.99), &busy, &window);
    let named = limit(&summary(1), &reports, &CopyFacts::default());
    assert_eq!(named, Some(CopyLimit::SinkCpu), "the sink does not keep up");
    let buffer = CopyPathReport { send_buffer_limited: 0.7, ..CopyPathReport::default() };
    assert_eq!(found(buffer), Some(CopyLimit::SendWindow));
}

#[test]
fn processors_and_the_limit_asked_for_are_named() {
    let busy = |mut end: EndReport| {
        end.end.host_busy = Some(0.99);
        end
    };
    let (near, far) = (source(0.1, 0.1, 0.99), sink(0.99, 0.1));
    let limit = |near: &EndReport, far: &EndReport, cores, rate_limit| {
        let (source, sink) = (near.clone(), far.clone());
        let reports = TransferReports { source, sink, path: CopyPathReport::default() };
        let found = CopyFacts { cores, rate_limit, ..CopyFacts::default() };
        super::limit(&summary(1), &reports, &found)
    };
    assert_eq!(limit(&busy(near.clone()), &far, None, None), Some(CopyLimit::SourceCpu));
    assert_eq!(limit(&near, &busy(far.clone()), None, None), Some(CopyLimit::SinkCpu));
    assert_eq!(limit(&busy(near.clone()), &far, Some(2.0), None), Some(CopyLimit::Cpu));
    assert_eq!(limit(&near, &far, Some(1.0), None), Some(CopyLimit::Cpu), "100 % of one core");
    let requested = Some(Rate::from_bps(1_050_000_000));
    assert_eq!(limit(&near, &far, None, requested), Some(CopyLimit::Rate));
}

#[test]
fn a_busy_host_is_no_limit_for_a_copy_that_sleeps() {
    let mut near = source(0.1, 0.1, 0.99);
    near.end.host_busy = Some(0.99);
    let busiest = |percent| {
        let (role, waiting_percent) = (ThreadRole::Send, 0.0);
        Some(BusyThread { role, running_percent: percent, waiting_percent })
    };
    for (percent, expected) in [(2.0, CopyLimit::Path), (95.0, CopyLimit::SourceCpu)] {
        near.end.busiest = busiest(percent);
        let reports = reports(&near, &sink(0.99, 0.1), &CopyPathReport::default());
        let found = limit(&summary(1), &reports, &CopyFacts::default());
        assert_eq!(found, Some(expected), "{percent} %");
    }
}

#[test]
fn the_end_that_a_quota_throttles_is_the_limit() {
    let throttled = |mut end: EndReport, share| {
        end.end.throttled = Some(share);
        end
    };
    let (near, far) = (source(0.1, 0.9, 0.5), sink(0.9, 0.1));
    for (at_source, at_sink, cores, expected) in [
        (0.6, 0.0, None, CopyLimit::SourceCpu),
        (0.1, 0.4, None, CopyLimit::SinkCpu),
        (0.6, 0.6, Some(2.0), CopyLimit::Cpu),
        (0.1, 0.1, None, CopyLimit::Sealing),
    ] {
        let (near, far) = (throttled(near.clone(), at_source), throttled(far.clone(), at_sink));
        let reports = reports(&near, &far, &CopyPathReport::default());
        let facts = CopyFacts { cores, ..CopyFacts::default() };
        assert_eq!(limit(&summary(1), &reports, &facts), Some(expected));
    }
}

#[test]
fn of_two_full_hosts_the_one_with_the_busier_thread_is_the_limit() {
    let loaded = |mut end: EndReport, waiting_percent| {
        let role = ThreadRole::Send;
        end.end.host_busy = Some(1.0);
        end.end.busiest = Some(BusyThread { role, running_percent: 3.0, waiting_percent });
        end
    };
    for (at_source, at_sink, expected) in
        [(96.0, 80.0, CopyLimit::SourceCpu), (75.0, 90.0, CopyLimit::SinkCpu)]
    {
        let near = loaded(source(0.1, 0.1, 0.99), at_source);
        let far = loaded(sink(0.99, 0.1), at_sink);
        let reports = reports(&near, &far, &CopyPathReport::default());
        let found = limit(&summary(1), &reports, &CopyFacts::default());
        assert_eq!(found, Some(expected));
    }
}

fn reports(source: &EndReport, sink: &EndReport, path: &CopyPathReport) -> TransferReports {
    TransferReports { source: source.clone(), sink: sink.clone(), path: path.clone() }
}

#[test]
fn short_and_interrupted_copies_have_their_own_limits() {
    let (near, far) = (source(0.1, 0.1, 0.99), sink(0.99, 0.1));
    let before = Some(PathBefore { rtt_ms: 90.0, ..PathBefore::default() });
    let long = CopyPathReport { before, ..CopyPathReport::default() };
    let found = |summary: CopySummary, path: &CopyPathReport, outage: u64| {
        let outage = Duration::from_secs(outage);
        let facts = CopyFacts { outage, ..CopyFacts::default() };
        limit(&summary, &reports(&near, &far, path), &facts)
    };
    let lasting = |seconds| CopySummary { seconds, ..summary(1) };
    let short = CopyPathReport::default();
    assert_eq!(found(lasting(0.1), &short, 0), Some(CopyLimit::TooShort));
    assert_eq!(found(lasting(1.0), &short, 0), Some(CopyLimit::Path));
    assert_eq!(found(lasting(1.0), &long, 0), Some(CopyLimit::RampUp));
    assert_eq!(found(lasting(9.0), &long, 0), Some(CopyLimit::Path));
    assert_eq!(found(lasting(9.0), &long, 3), Some(CopyLimit::Outage));
    let little = CopySummary { bytes: Bytes::new(3), ..lasting(1.0) };
    let mut idle = reports(&source(0.0, 0.0, 0.0), &sink(0.2, 0.0), &short);
    idle.source.end.host_busy = Some(1.0);
    let over_ssh = limit(&little, &idle, &CopyFacts::default());
    assert_eq!(over_ssh, Some(CopyLimit::TooShort), "a busy host and idle threads");
    let connecting = Duration::from_millis(900);
    let facts = CopyFacts { connecting, ..CopyFacts::default() };
    let over_ssh = limit(&lasting(1.0), &reports(&near, &far, &short), &facts);
    assert_eq!(over_ssh, Some(CopyLimit::TooShort), "the session took the time");
    let nothing = CopySummary { bytes: Bytes::new(0), ..lasting(9.0) };
    assert_eq!(found(nothing, &long, 3), None);
    let resumed = CopySummary { resumed_bytes: Bytes::new(125_000_000), ..lasting(9.0) };
    assert_eq!(found(resumed, &long, 0), None);
}

#[test]
fn the_requested_rate_is_compared_with_the_time_of_the_session() {
    let (near, far) = (source(0.1, 0.1, 0.99), sink(0.99, 0.1));
    let rate_limit = Some(Rate::from_bps(1_050_000_000));
    let found = |connecting| {
        let connecting = Duration::from_millis(connecting);
        let facts = CopyFacts { rate_limit, connecting, ..CopyFacts::default() };
        let summary = CopySummary { seconds: 1.5, ..summary(1) };
        limit(&summary, &reports(&near, &far, &CopyPathReport::default()), &facts)
    };
    let idle = limit(
        &CopySummary { seconds: 1.5, ..summary(1) },
        &reports(&source(0.1, 0.1, 0.2), &sink(0.7, 0.1), &CopyPathReport::default()),
        &CopyFacts { rate_limit, ..CopyFacts::default() },
    );
    assert_eq!(idle, Some(CopyLimit::Rate), "nothing else is busy");
    assert_eq!(found(500), Some(CopyLimit::Rate));
    assert_eq!(found(100), Some(CopyLimit::Path));
}
