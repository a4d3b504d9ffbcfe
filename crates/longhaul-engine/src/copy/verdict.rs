//! The stage or resource that limited a copy.

use std::time::Duration;

use longhaul_core::result::{
    CopyLimit, CopyPathReport, CopySummary, EndReport, StageTimes, TransferEnd,
};
use longhaul_core::units::Rate;

/// The share of its time above which a stage counts as never idle.
const SATURATED: f64 = 0.85;
/// The share of its time above which the only busy stage counts as the limit.
const MOSTLY: f64 = 0.5;
/// The share of a host's CPU time above which its processors count as full.
const CPU_SATURATED: f64 = 0.95;
/// The CPU seconds per second and core above which the copy saturates a host.
const OWN_CPU_SATURATED: f64 = 0.85;
/// The share of the time with data to send above which a window is the limit. With BBR the kernel
/// counted 42 % over a path on which a window of 256 KiB was the only limit.
const WINDOW_LIMITED: f64 = 0.3;
/// The ratio of retransmitted to delivered bytes above which loss keeps a loss-based window below
/// 200 segments (RFC 3649, section 2).
const LOSSY: f64 = 5e-5;
/// The same for BBR, which does not reduce its rate at a loss below 2 % in a round (draft-ietf-ccwg-bbr,
/// BBR.LossThresh).
const LOSSY_FOR_BBR: f64 = 1e-2;
/// The share of the requested rate above which that rate is the limit.
const AT_THE_LIMIT: f64 = 0.85;
/// The bytes per connection below which the connections of a copy have unequal shares. Each is paced
/// at its part of the rate, and a block is 1 MiB with a limit of 1 Gb/s or less.
const FEW_BYTES: u64 = 2 << 20;
/// The time of the first request and of the last confirmation.
const ENDS_SECONDS: f64 = 0.1;
const ENDS_ROUNDS: f64 = 5.0;
/// The share of the rate at which the queue of the path overflowed, above which the copy fills the
/// path. Its losses are then those of this queue.
const FILLS_THE_PATH: f64 = 0.6;
/// The share of the time above which outages are the limit.
const MOSTLY_OUT: f64 = 0.25;
/// The seconds below which the shares of the stages are meaningless: the threads start, and each
/// stage handles a few blocks.
const SHORT: f64 = 0.2;
/// The bytes and files below which the set-up of the session takes most of the time.
const LITTLE: u64 = 1 << 20;
const FEW_FILES: u64 = 100;
/// The round-trip time above which a copy has a noticeable ramp-up.
const LONG_RTT_MS: f64 = 2.0;
/// The round trips that a copy spends mostly on its ramp-up: ten doublings of the first window of
/// four connections reach 1 Gb/s at 90 ms, and as many at that rate follow.
const RAMP_UP_ROUNDS: f64 = 24.0;
/// The share of the time above which throttling by a CPU quota is the limit.
const THROTTLED: f64 = 0.2;
/// The share of time in which a thread runs or waits for a core, above which a busy host slows the
/// copy down.
const STARVED_PERCENT: f64 = 70.0;

/// Returns the stage that never waits for another, if there is one.
///
/// Sending includes the wait for the socket; if that is saturated, the path between the ends is the
/// limit. Receiving shows nothing separately, because it waits for a slow source as for a slow
/// path.
pub(super) fn slowest_stage(source: &StageTimes, sink: &StageTimes) -> Option<CopyLimit> {
    let saturated = |share: Option<f64>| share.is_some_and(|share| share >= SATURATED);
    if saturated(sink.write) || saturated(sink.sync) {
        Some(CopyLimit::SinkDisk)
    } else if saturated(source.seal) {
        Some(CopyLimit::Sealing)
    } else if saturated(source.read) && !saturated(source.send) {
        Some(CopyLimit::SourceDisk)
    } else if waits_for_the_sink_disk(source, sink) {
        Some(CopyLimit::SinkDisk)
    } else if waits_for_the_source_disk(source, sink) {
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

/// Returns whether the source waited for the socket for most of the time and no other stage was
/// busy. The socket buffers hold the last blocks of a copy after sending has ended.
fn waits_for_the_path(source: &StageTimes, sink: &StageTimes) -> bool {
    let Some(send) = source.send.filter(|send| *send >= MOSTLY) else { return false };
    let others = [source.read, source.seal, sink.verify, sink.write, sink.sync];
    others.into_iter().flatten().all(|share| share <= send / 2.0)
}

/// True if the sink wrote and synced for most of the time and no other stage was busy. A thread that
/// writes also waits for the next block, and a slow sink slows the sending down.
fn waits_for_the_sink_disk(source: &StageTimes, sink: &StageTimes) -> bool {
    let (write, send) = (sink.write.unwrap_or(0.0), source.send.unwrap_or(0.0));
    let both = write + sink.sync.unwrap_or(0.0);
    let idle = |share: f64| {
        [source.read, source.seal, sink.verify].into_iter().flatten().all(|other| other <= share)
    };
    let writes_only = write >= MOSTLY && send <= write / 2.0 && idle(write / 2.0);
    writes_only || both >= SATURATED && send < SATURATED && idle(both / 2.0)
}

/// True if the source read for most of the time and no other stage was busy.
fn waits_for_the_source_disk(source: &StageTimes, sink: &StageTimes) -> bool {
    let Some(read) = source.read.filter(|read| *read >= MOSTLY) else { return false };
    let others = [source.seal, source.send, sink.verify, sink.write, sink.sync];
    others.into_iter().flatten().all(|share| share <= read / 2.0)
}

/// The loss from which on the congestion control of the copy slows down.
fn least_loss(path: &CopyPathReport) -> f64 {
    let is_bbr = path.congestion.as_deref().is_some_and(|name| name.starts_with("bbr"));
    if is_bbr { LOSSY_FOR_BBR } else { LOSSY }
}

/// The facts about a copy that neither end reports.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CopyFacts {
    /// The cores of the host that both ends are on.
    pub(super) cores: Option<f64>,
    /// The requested rate.
    pub(super) rate_limit: Option<Rate>,
    /// The time until the first session was open.
    pub(super) connecting: Duration,
    /// The time of all outages.
    pub(super) outage: Duration,
}

impl CopyFacts {
    /// Returns the seconds in which a session was open and answered.
    fn active(&self, summary: &CopySummary) -> f64 {
        let idle = self.connecting + self.outage;
        (summary.seconds - idle.as_secs_f64()).max(1e-3)
    }

    /// Returns whether losses slowed the copy down. Those of a queue that the copy fills do not: the
    /// copy moves its data at about the rate at which the queue overflowed.
    fn is_slowed_by_loss(&self, path: &CopyPathReport, summary: &CopySummary, moved: u64) -> bool {
        let rate = 8.0 * moved as f64 / self.active(summary);
        let overflow = path.queue_overflows_at_bps.map(|rate| rate.bps() as f64);
        let fills = overflow.is_some_and(|overflow| rate >= FILLS_THE_PATH * overflow);
        path.loss >= least_loss(path) && !fills
    }

    /// Returns whether the copy moved data at `share` of the requested rate while it could. The
    /// first and last round trips and the syncs do not count, because a short copy has as many as a
    /// long one.
    fn reached(&self, share: f64, summary: &CopySummary, moved: u64, rtt_ms: f64) -> bool {
        let active = self.active(summary);
        let moving = active - ENDS_SECONDS - ENDS_ROUNDS * rtt_ms / 1e3;
        let rate = 8.0 * moved as f64 / moving.max(active / 2.0);
        self.rate_limit.is_some_and(|limit| rate >= share * limit.bps() as f64)
    }
}

/// Returns the limit of a copy between `source` and `sink`; `None` if there is no clear one or
/// nothing was copied.
pub(super) fn limit(
    summary: &CopySummary,
    reports: &TransferReports,
    circumstances: &CopyFacts,
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
    if circumstances.active(summary) < SHORT {
        return Some(CopyLimit::TooShort);
    }
    if let Some(cpu) = throttled_cpu(&source.end, &sink.end, circumstances.cores.is_some()) {
        return Some(cpu);
    }
    let stage = slowest_stage(&source.stages, &sink.stages);
    if matches!(stage, Some(CopyLimit::SinkDisk | CopyLimit::SourceDisk | CopyLimit::Sealing)) {
        return stage;
    }
    let near = near_the_limit(summary, moved);
    let near_rate = stage.is_none() && circumstances.reached(near, summary, moved, rtt_ms);
    if stage.is_none() && !near_rate && moved < LITTLE && summary.files < FEW_FILES {
        return Some(CopyLimit::TooShort);
    }
    if let Some(cpu) = full_cpu(&source.end, &sink.end, circumstances.cores) {
        return Some(cpu);
    }
    let ramps_up =
        rtt_ms >= LONG_RTT_MS && circumstances.active(summary) < RAMP_UP_ROUNDS * rtt_ms / 1e3;
    match stage {
        Some(CopyLimit::Path) if path.receive_window_limited >= WINDOW_LIMITED => {
            // The window also closes if the threads of the sink do not keep up.
            let behind = sink.stages.verify.is_some_and(|verify| verify >= MOSTLY);
            Some(match (behind, circumstances.cores) {
                (true, None) => CopyLimit::SinkCpu,
                (true, Some(_)) => CopyLimit::Cpu,
                (false, _) => CopyLimit::ReceiveWindow,
            })
        }
        Some(CopyLimit::Path) if path.send_buffer_limited >= WINDOW_LIMITED => {
            Some(CopyLimit::SendWindow)
        }
        None if near_rate => Some(CopyLimit::Rate),
        Some(CopyLimit::Path) | None if ramps_up => Some(CopyLimit::RampUp),
        Some(CopyLimit::Path) if path.drops_at_bps.is_some() => Some(CopyLimit::ShallowQueue),
        Some(CopyLimit::Path) if circumstances.is_slowed_by_loss(path, summary, moved) => {
            Some(CopyLimit::Loss)
        }
        stage => stage,
    }
}

/// Returns the share of the requested rate above which that rate is the limit, if nothing else is
/// busy. In a short copy one connection sends the last block while the others have ended.
fn near_the_limit(summary: &CopySummary, moved: u64) -> f64 {
    if moved < FEW_BYTES * u64::from(summary.streams) { 0.2 } else { 0.5 }
}

/// Returns the end whose CPU quota is used up; `same_host` if both ends are on one host.
fn throttled_cpu(source: &TransferEnd, sink: &TransferEnd, same_host: bool) -> Option<CopyLimit> {
    let share = |end: &TransferEnd| end.throttled.unwrap_or(0.0);
    let (source, sink) = (share(source), share(sink));
    if source.max(sink) < THROTTLED {
        None
    } else if same_host {
        Some(CopyLimit::Cpu)
    } else if source >= sink {
        Some(CopyLimit::SourceCpu)
    } else {
        Some(CopyLimit::SinkCpu)
    }
}

/// Returns the host whose processors are full, if they slowed the copy.
fn full_cpu(source: &TransferEnd, sink: &TransferEnd, cores: Option<f64>) -> Option<CopyLimit> {
    let full = |end: &TransferEnd| {
        let starved = end.busiest.is_none_or(|thread| thread.load_percent() >= STARVED_PERCENT);
        starved && end.host_busy.is_some_and(|busy| busy >= CPU_SATURATED)
    };
    let load = |end: &TransferEnd| end.busiest.map_or(0.0, |thread| thread.load_percent());
    match cores {
        Some(cores) => {
            let own = (source.cpu_percent + sink.cpu_percent) / 100.0;
            (full(source) || own >= OWN_CPU_SATURATED * cores).then_some(CopyLimit::Cpu)
        }
        None => match (full(source), full(sink)) {
            (true, true) if load(sink) > load(source) => Some(CopyLimit::SinkCpu),
            (true, _) => Some(CopyLimit::SourceCpu),
            (false, true) => Some(CopyLimit::SinkCpu),
            (false, false) => None,
        },
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
