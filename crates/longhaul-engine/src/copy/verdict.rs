//! The stage or resource that limited a copy.

use longhaul_core::result::{CopyLimit, CopyPathReport, CopySummary, EndReport, StageTimes};
use longhaul_core::units::Rate;

/// From this share of its time on, a stage counts as never idle.
const SATURATED: f64 = 0.85;
/// Share of a host's processor time from which on it counts as used up.
const CPU_SATURATED: f64 = 0.95;
/// CPU seconds per second and core from which on the copy saturates a host.
const OWN_CPU_SATURATED: f64 = 0.85;
/// The share of the time with data to send from which on a window is the limit.
const WINDOW_LIMITED: f64 = 0.5;
/// Bytes sent again for each delivered from which on loss keeps a loss-based window below 200
/// segments (RFC 3649, section 2).
const LOSSY: f64 = 5e-5;
/// The share of the requested rate from which on that rate is the limit.
const AT_THE_LIMIT: f64 = 0.9;

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
    } else if saturated(source.send) {
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

/// The limit of a copy. `cores` are those of the host that both ends are on, `rate_limit` is the
/// requested rate.
pub(super) fn limit(
    summary: &CopySummary,
    reports: &TransferReports,
    cores: Option<f64>,
    rate_limit: Option<Rate>,
) -> Option<CopyLimit> {
    let TransferReports { source, sink, path } = reports;
    if let Some(limit) = rate_limit
        && summary.throughput_bps.bps() as f64 >= AT_THE_LIMIT * limit.bps() as f64
    {
        return Some(CopyLimit::Rate);
    }
    let stage = slowest_stage(&source.stages, &sink.stages);
    if matches!(stage, Some(CopyLimit::SinkDisk | CopyLimit::SourceDisk | CopyLimit::Sealing)) {
        return stage;
    }
    let full = |end: &EndReport| end.end.host_busy.is_some_and(|busy| busy >= CPU_SATURATED);
    match cores {
        Some(cores) => {
            let own = (source.end.cpu_percent + sink.end.cpu_percent) / 100.0;
            if full(source) || own >= OWN_CPU_SATURATED * cores {
                return Some(CopyLimit::Cpu);
            }
        }
        None if full(source) => return Some(CopyLimit::SourceCpu),
        None if full(sink) => return Some(CopyLimit::SinkCpu),
        None => {}
    }
    match stage {
        Some(CopyLimit::Path) if path.receive_window_limited >= WINDOW_LIMITED => {
            Some(CopyLimit::ReceiveWindow)
        }
        Some(CopyLimit::Path) if path.send_buffer_limited >= WINDOW_LIMITED => {
            Some(CopyLimit::SendWindow)
        }
        Some(CopyLimit::Path) if path.loss >= LOSSY => Some(CopyLimit::Loss),
        stage => stage,
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::result::TransferEnd;
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
            bytes: Bytes::new(1),
            resumed_bytes: Bytes::new(0),
            files: 1,
            seconds: 1.0,
            verified: true,
            verification: None,
            encrypted: true,
            durable: true,
            streams: 2,
            reconnects: 0,
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
            (source(0.2, 0.1, 0.2), sink(0.2, 0.2), None),
        ] {
            let reports = TransferReports { source, sink, path: path.clone() };
            assert_eq!(limit(&summary(1), &reports, None, None), expected);
        }
    }

    #[test]
    fn a_slow_path_has_a_reason() {
        let found = |path: CopyPathReport| {
            let (source, sink) = (source(0.1, 0.1, 0.99), sink(0.99, 0.1));
            limit(&summary(1), &TransferReports { source, sink, path }, None, None)
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
        let limit = |near: &EndReport, far: &EndReport, cores, rate| {
            let (source, sink) = (near.clone(), far.clone());
            let reports = TransferReports { source, sink, path: CopyPathReport::default() };
            super::limit(&summary(1), &reports, cores, rate)
        };
        assert_eq!(limit(&busy(near.clone()), &far, None, None), Some(CopyLimit::SourceCpu));
        assert_eq!(limit(&near, &busy(far.clone()), None, None), Some(CopyLimit::SinkCpu));
        assert_eq!(limit(&busy(near.clone()), &far, Some(2.0), None), Some(CopyLimit::Cpu));
        assert_eq!(limit(&near, &far, Some(1.0), None), Some(CopyLimit::Cpu), "100 % of one core");
        let requested = Some(Rate::from_bps(1_050_000_000));
        assert_eq!(limit(&near, &far, None, requested), Some(CopyLimit::Rate));
    }
}
