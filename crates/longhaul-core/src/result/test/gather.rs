//! Collects the facts of a test from its samples.

use std::time::Duration;

use super::facts::{EndFacts, LEAST_SECONDS, TestFacts};
use super::{Shares, Steady, StreamResult, TestSample};
use crate::plan::TestPlan;
use crate::result::{End, HostLimits, HostSample, TcpSample, ThreadSample, UdpResult};
use crate::stats::{percent, rate, sum};
use crate::units::{Bytes, Rate};

/// The reference rates for windows, used if neither a requested nor an interface rate is known.
const REFERENCE_BPS: [u64; 3] = [10_000_000_000, 100_000_000_000, 1_000_000_000_000];

impl TestFacts {
    /// Collects the facts of a test. `limits` are those of the sender and of the receiver.
    pub(super) fn gather(
        plan: &TestPlan,
        intervals: &[TestSample],
        streams: &[StreamResult],
        steady: Option<&Steady>,
        limits: [Option<&HostLimits>; 2],
    ) -> Option<Self> {
        let counted = counted(intervals);
        let part = steady_part(&counted, steady);
        let from_seconds = part.first()?.start_seconds;
        let seconds: f64 = part.iter().map(|s| s.seconds()).sum();
        let tcp = || {
            part.iter().flat_map(|sample| {
                let seconds = sample.seconds();
                sample.streams.iter().filter_map(move |s| Some((s.sender.as_ref()?, seconds)))
            })
        };
        let bytes = sum(part.iter().map(|sample| sample.bytes.get()));
        let throughput_bps = rate(Bytes::new(bytes), seconds);
        // The mean over time of the sum over the streams.
        let level = |of: fn(&TcpSample) -> Bytes| {
            let weighed: f64 = tcp().map(|(t, seconds)| of(t).get() as f64 * seconds).sum();
            Bytes::new((weighed / seconds.max(f64::MIN_POSITIVE)) as u64)
        };
        let sent = SegmentTotals::of(&counted);
        let rtt_ms = over_time(tcp().map(|(t, seconds)| (t.rtt_mean_ms, seconds)));
        let rtt_min_ms =
            streams.iter().filter_map(|s| s.rtt_min_ms).reduce(f64::min).unwrap_or(0.0);
        let [sender_limits, receiver_limits] = limits;
        let reference_bps = reference(plan, limits, throughput_bps);
        let rtt_min = Duration::try_from_secs_f64(rtt_min_ms / 1e3).unwrap_or_default();
        Some(TestFacts {
            from_seconds,
            seconds,
            throughput_bps,
            steady_bps: steady.map(|steady| steady.throughput_bps),
            shares: Shares::of(tcp()).unwrap_or_default(),
            udp: UdpResult::sum(part.iter().filter_map(|sample| sample.udp))
                .or_else(|| UdpResult::sum(streams.iter().filter_map(|stream| stream.udp))),
            streams: streams.len() as u32,
            segment_bytes: streams.iter().filter_map(|s| s.mss).max().unwrap_or(0),
            congestion: streams.first().map(|s| s.congestion.clone()).unwrap_or_default(),
            requested_bps: plan.rate_bps,
            window_asked: plan.window_bytes.is_some(),
            rtt_ms,
            rtt_min_ms,
            cwnd_bytes: level(|t| t.cwnd_bytes),
            receiver_window_bytes: level(|t| t.peer_window_bytes),
            loss_percent: percent(sent.retransmits as f64, sent.segments as f64),
            retransmits: sent.retransmits,
            burst_percent: percent(sent.burst_retransmits as f64, sent.retransmits as f64),
            marked_percent: percent(sent.marked as f64, sent.segments as f64),
            settled: steady.is_some(),
            spread_percent: steady.map(Steady::spread_percent),
            reference_bps,
            bandwidth_delay_bytes: reference_bps.bdp(rtt_min),
            sender: EndFacts::gather(End::Sender, &part, sender_limits),
            receiver: EndFacts::gather(End::Receiver, &part, receiver_limits),
        })
    }
}

/// Returns the intervals that count. The last interval of the receiver may have no counterpart. If one
/// end is another program, no interval has one.
fn counted(intervals: &[TestSample]) -> Vec<&TestSample> {
    let paired = |s: &TestSample| s.sender_host.is_some() && s.receiver_host.is_some();
    let any_paired = intervals.iter().any(paired);
    let counts = |sample: &&TestSample| !sample.omitted && (paired(sample) || !any_paired);
    intervals.iter().filter(counts).collect()
}

/// Returns the intervals of the steady part, or all if those are too short to derive a reason.
fn steady_part<'a>(counted: &[&'a TestSample], steady: Option<&Steady>) -> Vec<&'a TestSample> {
    let from = steady.map_or(0.0, |steady| steady.ramp_up_seconds);
    let part: Vec<_> = counted.iter().copied().filter(|s| s.start_seconds >= from).collect();
    let seconds: f64 = part.iter().map(|sample| sample.seconds()).sum();
    if seconds < LEAST_SECONDS { counted.to_vec() } else { part }
}

/// The segments of all connections in the whole test: a loss early in a test keeps the window small
/// for a long time.
struct SegmentTotals {
    segments: u64,
    retransmits: u64,
    burst_retransmits: u64,
    marked: u64,
}

impl SegmentTotals {
    fn of(counted: &[&TestSample]) -> Self {
        let total = |of: fn(&TcpSample) -> u64| {
            let streams = counted.iter().flat_map(|sample| &sample.streams);
            sum(streams.filter_map(|stream| stream.sender.as_ref()).map(of))
        };
        SegmentTotals {
            segments: total(|t| t.segments),
            retransmits: total(|t| t.retransmits),
            burst_retransmits: total(|t| t.burst_retransmits),
            marked: total(|t| t.marked_segments),
        }
    }
}

/// Returns the rate with which windows are compared.
fn reference(plan: &TestPlan, limits: [Option<&HostLimits>; 2], throughput: Rate) -> Rate {
    let interfaces = limits.iter().filter_map(|limits| limits.as_ref()?.interface_bps).min();
    if let Some(rate) = plan.rate_bps.or(interfaces) {
        return rate;
    }
    let near = |bps: &&u64| throughput.bps() < **bps / 10 * 9;
    Rate::from_bps(REFERENCE_BPS.iter().find(near).copied().unwrap_or(throughput.bps()))
}

/// Returns the mean of values weighted by their seconds.
fn over_time(values: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (total, seconds) = values.fold((0.0, 0.0), |(sum, total), (value, seconds)| {
        (sum + value * seconds, total + seconds)
    });
    if seconds > 0.0 { total / seconds } else { 0.0 }
}

impl EndFacts {
    fn gather(end: End, part: &[&TestSample], limits: Option<&HostLimits>) -> Self {
        let (threads, hosts) = (threads_of(end, part), hosts_of(end, part));
        let thread =
            |of: fn(&ThreadSample) -> f64| over_time(threads.iter().map(|(t, s)| (of(t), *s)));
        let host = |of: fn(&HostSample) -> f64| over_time(hosts.iter().map(|(h, s)| (of(h), *s)));
        let core = threads
            .iter()
            .max_by(|(one, _), (other, _)| one.load_percent().total_cmp(&other.load_percent()))
            .map_or(0, |(t, _)| t.core);
        let there: Vec<_> = threads.iter().filter(|(t, _)| t.core == core).collect();
        let on_core =
            |of: fn(&ThreadSample) -> f64| over_time(there.iter().map(|(t, s)| (of(t), *s)));
        // The sum is over the streams whose thread ran on this core; the core's own figure is the
        // same for all of them.
        let seconds: f64 = part.iter().map(|sample| sample.seconds()).sum();
        let ours = percent(there.iter().map(|(t, s)| t.running_percent * s).sum(), seconds) / 100.0;
        let (core_busy_percent, core_stolen_percent) =
            (on_core(|t| t.core_busy_percent), on_core(|t| t.core_stolen_percent));
        let interrupts = hosts.iter().max_by(|(one, _), (other, _)| {
            one.interrupts_percent.total_cmp(&other.interrupts_percent)
        });
        EndFacts {
            running_percent: thread(|t| t.running_percent),
            waiting_percent: thread(|t| t.waiting_percent.unwrap_or(0.0)),
            core,
            core_busy_percent,
            core_interrupts_percent: on_core(|t| t.core_interrupts_percent),
            core_stolen_percent,
            core_others_percent: (core_busy_percent - core_stolen_percent - ours).max(0.0),
            cores_busy_percent: host(|h| h.cores_busy_percent),
            interrupts_core: interrupts.map_or(0, |(h, _)| h.interrupts_core),
            interrupts_percent: host(|h| h.interrupts_percent),
            buffer_bytes: threads.iter().map(|(t, _)| t.buffer_bytes).max().unwrap_or_default(),
            buffer_full_percent: thread(|t| t.buffer_full_percent),
            limits: limits.cloned().unwrap_or_default(),
            tcp_memory_bytes: hosts
                .iter()
                .map(|(h, _)| h.tcp_memory_bytes)
                .max()
                .unwrap_or_default(),
            tcp_memory_pressure_bytes: hosts
                .first()
                .map(|(h, _)| h.tcp_memory_pressure_bytes)
                .unwrap_or_default(),
            tcp_memory_pressure_percent: host(|h| h.tcp_memory_pressure_percent),
            drops: sum(hosts
                .iter()
                .flat_map(|(h, _)| [h.tcp_drops, h.udp_drops, h.interface_drops])
                .chain(threads.iter().map(|(t, _)| t.drops))),
        }
    }
}

/// Returns the samples of the threads of `end`, with the seconds that they cover.
fn threads_of<'a>(end: End, part: &[&'a TestSample]) -> Vec<(&'a ThreadSample, f64)> {
    part.iter()
        .flat_map(|sample| sample.streams.iter().map(|stream| (stream, sample.seconds())))
        .filter_map(|(stream, seconds)| match end {
            End::Sender => Some((stream.sender_thread.as_ref()?, seconds)),
            End::Receiver => Some((stream.receiver_thread.as_ref()?, seconds)),
        })
        .collect()
}

/// Returns the samples of the host of `end`, with the seconds that they cover.
fn hosts_of<'a>(end: End, part: &[&'a TestSample]) -> Vec<(&'a HostSample, f64)> {
    part.iter()
        .filter_map(|sample| match end {
            End::Sender => Some((sample.sender_host.as_ref()?, sample.seconds())),
            End::Receiver => Some((sample.receiver_host.as_ref()?, sample.seconds())),
        })
        .collect()
}

impl ThreadSample {
    fn load_percent(&self) -> f64 {
        self.running_percent + self.waiting_percent.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(start_seconds: f64, end_seconds: f64) -> TestSample {
        TestSample {
            index: 0,
            omitted: false,
            reverse: false,
            start_seconds,
            end_seconds,
            counted_by: None,
            bytes: Bytes::new(0),
            throughput_bps: Rate::from_bps(0),
            sent_bps: None,
            retransmits: None,
            rtt_ms: None,
            shares: None,
            sender_cpu_percent: None,
            receiver_cpu_percent: None,
            udp: None,
            streams: Vec::new(),
            sender_host: None,
            receiver_host: None,
        }
    }

    #[test]
    fn a_short_rest_after_the_interval_of_the_ramp_up_does_not_decide_alone() {
        let rate = Rate::from_bps(1);
        let steady = Steady {
            ramp_up_seconds: 0.48,
            throughput_bps: rate,
            lower_quartile_bps: rate,
            upper_quartile_bps: rate,
        };
        let count = |end_seconds| {
            let intervals = [sample(0.0, 1.0), sample(1.0, end_seconds)];
            steady_part(&intervals.iter().collect::<Vec<_>>(), Some(&steady)).len()
        };
        assert_eq!(count(1.001), 2);
        assert_eq!(count(1.5), 1);
    }
}
