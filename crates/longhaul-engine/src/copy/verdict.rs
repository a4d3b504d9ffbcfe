//! The stage or resource that limited a copy.

use std::time::Duration;

use longhaul_core::result::{
    CopyLimit, CopyPathReport, CopySummary, EndReport, StageTimes, TransferEnd,
};
use longhaul_core::units::Rate;

/// From this share of its time on, a stage counts as never idle.
const SATURATED: f64 = 0.85;
/// From this share of its time on, a stage that is the only busy one counts as the limit.
const MOSTLY: f64 = 0.5;
/// Share of a host's processor time from which on it counts as used up.
const CPU_SATURATED: f64 = 0.95;
/// CPU seconds per second and core from which on the copy saturates a host.
const OWN_CPU_SATURATED: f64 = 0.85;
/// The share of the time with data to send from which on a window is the limit. With BBR the kernel
/// counted 42 % over a path on which a window of 256 KiB was the only limit.
const WINDOW_LIMITED: f64 = 0.3;
/// Bytes sent again for each delivered from which on loss keeps a loss-based window below 200
/// segments (RFC 3649, section 2).
const LOSSY: f64 = 5e-5;
/// The share of the requested rate from which on that rate is the limit.
const AT_THE_LIMIT: f64 = 0.85;
/// The bytes per connection below which the connections of a copy have unequal shares. Each is paced
/// at its part of the rate, and a block is 1 MiB with a limit of 1 Gb/s or less.
const FEW_BYTES: u64 = 2 << 20;
/// The time of the first request and of the last confirmation.
const ENDS_SECONDS: f64 = 0.1;
const ENDS_ROUNDS: f64 = 5.0;
/// The share of the time from which on outages are the limit.
const MOSTLY_OUT: f64 = 0.25;
/// The seconds below which the shares of the stages mean nothing: the threads start, and each stage
/// handles a few blocks.
const SHORT: f64 = 0.2;
/// The round-trip time from which on a copy has a ramp-up that its user notices.
const LONG_RTT_MS: f64 = 2.0;
/// The round trips that a copy spends mostly on its ramp-up: ten doublings of the first window of
/// four connections reach 1 Gb/s at 90 ms, and as many at that rate follow.
const RAMP_UP_ROUNDS: f64 = 24.0;
/// The share of time in which a thread runs or waits for a core, from which on a busy host slows
/// the copy down.
const STARVED_PERCENT: f64 = 70.0;

/// The stage that never waits for another, if there is one.
///
/// Sending includes the wait for the socket: when it is saturated, it is what lies between the
/// ends. Receiving says nothing by itself, since it waits for a slow source as it waits for a slow
/// path.
pub(super) fn slowest_stage(source: &StageTimes, sink: &StageTimes) -> Option<CopyLimit> {
    let saturated = |share: Option<f64>| share.is_some_and(|share| share >= SATURATED);
    if saturated(sink.write) || saturated(sink.sync) {
        Some(CopyLimit::SinkDisk)
    } else if saturated(source.seal) {
        Some(CopyLimit::Sealing)
    } else if saturated(source.read) && !saturated(source.send) {
        Some(CopyLimit::SourceDisk)
    } else if saturated(source.send) || waits_for_the_path(source, sink) {
        Some(CopyLimit::Path)
    } else {
        None
    }
}

/// The reports of both ends and of the path between them.
#[derive(Debug, Clone, Default)]
pub(super) struct TransferReports {
    pub(super) source: EndReport,
    pub(super) sink: EndReport,
    pub(super) path: CopyPathReport,
}

/// True if the source waited for the socket for most of the time and no other stage was busy. The
/// socket buffers hold the last blocks of a copy when sending has ended.
fn waits_for_the_path(source: &StageTimes, sink: &StageTimes) -> bool {
    let Some(send) = source.send.filter(|send| *send >= MOSTLY) else { return false };
    let others = [source.read, source.seal, sink.verify, sink.write, sink.sync];
    others.into_iter().flatten().all(|share| share <= send / 2.0)
}

/// The facts about a copy that neither end reports.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Circumstances {
    /// The cores of the host that both ends are on.
    pub(super) cores: Option<f64>,
    /// The requested rate.
    pub(super) rate_limit: Option<Rate>,
    /// The time until the first session was open.
    pub(super) connecting: Duration,
    /// The time of all outages.
    pub(super) outage: Duration,
}

impl Circumstances {
    /// The seconds in which a session was open and answered.
    fn active(&self, summary: &CopySummary) -> f64 {
        let idle = self.connecting + self.outage;
        (summary.seconds - idle.as_secs_f64()).max(1e-3)
    }

    /// True if the copy moved data at `share` of the requested rate while it could. The first and
    /// the last round trips and the syncs, of which a short copy has as many as a long one, do not
    /// count.
    fn reached(&self, share: f64, summary: &CopySummary, moved: u64, rtt_ms: f64) -> bool {
        let active = self.active(summary);
        let moving = active - ENDS_SECONDS - ENDS_ROUNDS * rtt_ms / 1e3;
        let rate = 8.0 * moved as f64 / moving.max(active / 2.0);
        self.rate_limit.is_some_and(|limit| rate >= share * limit.bps() as f64)
    }
}

/// The limit of a copy between `source` and `sink`; `None` if none stands out or nothing was
/// copied.
pub(super) fn limit(
    summary: &CopySummary,
    reports: &TransferReports,
    circumstances: &Circumstances,
) -> Option<CopyLimit> {
    let TransferReports { source, sink, path } = reports;
    let moved = summary.bytes.get().saturating_sub(summary.resumed_bytes.get());
    if moved == 0 {
        return None;
    }
    let rtt_ms = path.before.map(|before| before.rtt_ms).or(summary.rtt_ms).unwrap_or(0.0);
    if circumstances.outage.as_secs_f64() >= MOSTLY_OUT * summary.seconds {
        return Some(CopyLimit::Outage);
    }
    if circumstances.reached(AT_THE_LIMIT, summary, moved, rtt_ms) {
        return Some(CopyLimit::Rate);
    }
    if summary.seconds < SHORT {
        return Some(CopyLimit::TooShort);
    }
    let stage = slowest_stage(&source.stages, &sink.stages);
    if matches!(stage, Some(CopyLimit::SinkDisk | CopyLimit::SourceDisk | CopyLimit::Sealing)) {
        return stage;
    }
    if let Some(cpu) = full_cpu(&source.end, &sink.end, circumstances.cores) {
        return Some(cpu);
    }
    let ramps_up =
        rtt_ms >= LONG_RTT_MS && circumstances.active(summary) < RAMP_UP_ROUNDS * rtt_ms / 1e3;
    match stage {
        Some(CopyLimit::Path) if path.receive_window_limited >= WINDOW_LIMITED => {
            Some(CopyLimit::ReceiveWindow)
        }
        Some(CopyLimit::Path) if path.send_buffer_limited >= WINDOW_LIMITED => {
            Some(CopyLimit::SendWindow)
        }
        None if circumstances.reached(near_the_limit(summary, moved), summary, moved, rtt_ms) => {
            Some(CopyLimit::Rate)
        }
        Some(CopyLimit::Path) | None if ramps_up => Some(CopyLimit::RampUp),
        Some(CopyLimit::Path) if path.loss >= LOSSY => Some(CopyLimit::Loss),
        stage => stage,
    }
}

/// The share of the requested rate from which on that rate is the limit, if nothing else is busy. In
/// a short copy one connection sends the last block while the others have ended.
fn near_the_limit(summary: &CopySummary, moved: u64) -> f64 {
    if moved < FEW_BYTES * u64::from(summary.streams) { 0.2 } else { 0.5 }
}

/// The host whose processors are used up, if the copy felt it.
fn full_cpu(source: &TransferEnd, sink: &TransferEnd, cores: Option<f64>) -> Option<CopyLimit> {
    let full = |end: &TransferEnd| {
        let starved = end.busiest.is_none_or(|thread| thread.load_percent() >= STARVED_PERCENT);
        starved && end.host_busy.is_some_and(|busy| busy >= CPU_SATURATED)
    };
    match cores {
        Some(cores) => {
            let own = (source.cpu_percent + sink.cpu_percent) / 100.0;
            (full(source) || own >= OWN_CPU_SATURATED * cores).then_some(CopyLimit::Cpu)
        }
        None if full(source) => Some(CopyLimit::SourceCpu),
        None if full(sink) => Some(CopyLimit::SinkCpu),
        None => None,
    }
}

#[cfg(test)]
mod tests {
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
        let stages =
            StageTimes { receive: Some(receive), write: Some(write), ..StageTimes::default() };
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
        for (source, sink, expected) in [
            (source(0.3, 0.1, 0.95), sink(0.5, 0.97), Some(CopyLimit::SinkDisk)),
            (source(0.99, 0.1, 0.2), sink(0.9, 0.2), Some(CopyLimit::SourceDisk)),
            (source(0.2, 0.9, 0.99), sink(0.9, 0.2), Some(CopyLimit::Sealing)),
            (source(0.1, 0.1, 0.99), sink(0.99, 0.1), Some(CopyLimit::Path)),
            (source(0.1, 0.1, 0.6), sink(0.9, 0.1), Some(CopyLimit::Path)),
            (source(0.5, 0.1, 0.6), sink(0.9, 0.1), None),
            (source(0.2, 0.1, 0.2), sink(0.2, 0.2), None),
        ] {
            let reports = TransferReports { source, sink, path: path.clone() };
            assert_eq!(limit(&summary(1), &reports, &Circumstances::default()), expected);
        }
    }

    #[test]
    fn a_slow_path_has_a_reason() {
        let found = |path: CopyPathReport| {
            let (source, sink) = (source(0.1, 0.1, 0.99), sink(0.99, 0.1));
            let reports = TransferReports { source, sink, path };
            limit(&summary(1), &reports, &Circumstances::default())
        };
        let lossy = CopyPathReport { loss: 1e-4, ..CopyPathReport::default() };
        assert_eq!(found(lossy.clone()), Some(CopyLimit::Loss));
        let window = CopyPathReport { receive_window_limited: 0.7, ..lossy };
        assert_eq!(found(window), Some(CopyLimit::ReceiveWindow));
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
            let found = Circumstances { cores, rate_limit, ..Circumstances::default() };
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
            let found = limit(&summary(1), &reports, &Circumstances::default());
            assert_eq!(found, Some(expected), "{percent} %");
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
            let facts = Circumstances { outage, ..Circumstances::default() };
            limit(&summary, &reports(&near, &far, path), &facts)
        };
        let lasting = |seconds| CopySummary { seconds, ..summary(1) };
        let short = CopyPathReport::default();
        assert_eq!(found(lasting(0.1), &short, 0), Some(CopyLimit::TooShort));
        assert_eq!(found(lasting(1.0), &short, 0), Some(CopyLimit::Path));
        assert_eq!(found(lasting(1.0), &long, 0), Some(CopyLimit::RampUp));
        assert_eq!(found(lasting(9.0), &long, 0), Some(CopyLimit::Path));
        assert_eq!(found(lasting(9.0), &long, 3), Some(CopyLimit::Outage));
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
            let facts = Circumstances { rate_limit, connecting, ..Circumstances::default() };
            let summary = CopySummary { seconds: 1.5, ..summary(1) };
            limit(&summary, &reports(&near, &far, &CopyPathReport::default()), &facts)
        };
        let idle = limit(
            &CopySummary { seconds: 1.5, ..summary(1) },
            &reports(&source(0.1, 0.1, 0.2), &sink(0.7, 0.1), &CopyPathReport::default()),
            &Circumstances { rate_limit, ..Circumstances::default() },
        );
        assert_eq!(idle, Some(CopyLimit::Rate), "nothing else is busy");
        assert_eq!(found(500), Some(CopyLimit::Rate));
        assert_eq!(found(100), Some(CopyLimit::Path));
    }
}
