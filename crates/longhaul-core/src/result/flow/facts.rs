use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::math::{percent, rate, sum};
use super::{FlowSample, Shares, Steady, StreamResult};
use crate::plan::FlowPlan;
use crate::result::{End, HostLimits, HostSample, TcpSample, ThreadSample, UdpResult};
use crate::units::{Bytes, Rate};

/// What the reason for a rate is told from: the numbers that back its sentence.
///
/// They are those of the steady part of the test, if it has one that holds whole intervals;
/// otherwise of all that counts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FlowFacts {
    /// From when the numbers are, on the receiver's clock.
    pub from_seconds: f64,
    /// Over how long they are.
    #[serde(default)]
    pub seconds: f64,
    /// Goodput, the mean.
    pub throughput_bps: Rate,
    /// Goodput of the steady part, the median.
    #[serde(default)]
    pub steady_bps: Option<Rate>,
    /// Where the time of the connections went; all zero over UDP.
    pub shares: Shares,
    /// The datagrams, in a test over UDP.
    pub udp: Option<UdpResult>,
    /// Connections.
    pub streams: u32,
    /// The sender's congestion control.
    pub congestion: String,
    /// Pacing asked for, over all streams.
    pub requested_bps: Option<Rate>,
    /// Socket buffers were asked for (`-w`).
    pub window_asked: bool,
    /// Mean of the smoothed round-trip times.
    pub rtt_ms: f64,
    /// The least round-trip time.
    pub rtt_min_ms: f64,
    /// Congestion window, mean over time, sum over the streams.
    pub cwnd_bytes: Bytes,
    /// The window that the receiver advertised, mean over time, sum over the streams.
    pub receiver_window_bytes: Bytes,
    /// Segments sent again, in percent of those sent; of the whole test.
    pub loss_percent: f64,
    /// How many that were.
    pub retransmits: u64,
    /// Acknowledgements that told of congestion (ECN), in percent of the segments sent.
    pub marked_percent: f64,
    /// The test has a steady part.
    pub settled: bool,
    /// The distance of its quartiles, in percent of its rate.
    pub spread_percent: Option<f64>,
    /// The rate that windows are measured against: `requested_bps`; else that of the slower of
    /// the two ends' fastest interfaces; else 10 Gb/s, or 100 Gb/s where 10 are near.
    pub reference_bps: Rate,
    /// What is in flight when that rate fills the path: `reference_bps` x `rtt_min_ms`.
    pub bandwidth_delay_bytes: Bytes,
    /// The end that sends.
    pub sender: EndFacts,
    /// The end that receives.
    pub receiver: EndFacts,
}

/// One end's share of [`FlowFacts`]. What concerns a thread is the mean over the streams.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndFacts {
    /// The stream's thread ran.
    pub running_percent: f64,
    /// It could have run and waited for a core.
    pub waiting_percent: f64,
    /// The core of the busiest stream's thread.
    pub core: u32,
    /// What that core did for anyone.
    pub core_busy_percent: f64,
    /// Of that core, interrupts.
    pub core_interrupts_percent: f64,
    /// Of that core, what the hypervisor took.
    pub core_stolen_percent: f64,
    /// Of that core, what was neither this test's threads' nor the hypervisor's.
    pub core_others_percent: f64,
    /// All cores of the host together.
    pub cores_busy_percent: f64,
    /// The core with most interrupts.
    pub interrupts_core: u32,
    /// Its interrupts.
    pub interrupts_percent: f64,
    /// The largest socket buffer of a stream, in the kernel's own bytes.
    pub buffer_bytes: Bytes,
    /// How full the buffers were.
    pub buffer_full_percent: f64,
    /// What the kernel allows.
    pub limits: HostLimits,
    /// The kernel's memory for TCP, at its most.
    pub tcp_memory_bytes: Bytes,
    /// Where pressure begins; 0 when it is not told.
    pub tcp_memory_pressure_bytes: Bytes,
    /// Time under pressure.
    pub tcp_memory_pressure_percent: f64,
    /// Packets that sockets of the test, TCP or the interfaces threw away.
    pub drops: u64,
}

impl EndFacts {
    /// Running or waiting for a core: a thread near 100 is limited by the CPU.
    pub fn load_percent(&self) -> f64 {
        self.running_percent + self.waiting_percent
    }
}

/// The rate to measure windows against when nothing tells a better one.
const REFERENCE_BPS: [u64; 3] = [10_000_000_000, 100_000_000_000, 1_000_000_000_000];

impl FlowFacts {
    /// Gathers the facts of a test. `limits` are those of the sender and of the receiver.
    pub(super) fn gather(
        plan: &FlowPlan,
        intervals: &[FlowSample],
        streams: &[StreamResult],
        steady: Option<&Steady>,
        limits: [Option<&HostLimits>; 2],
    ) -> Option<Self> {
        let counted = |sample: &&FlowSample| !sample.omitted && sample.sender_host.is_some();
        let from = steady.map_or(0.0, |steady| steady.ramp_up_seconds);
        let mut part: Vec<_> =
            intervals.iter().filter(counted).filter(|s| s.start_seconds >= from).collect();
        if part.is_empty() {
            part = intervals.iter().filter(counted).collect();
        }
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
        // A mean over time of what is summed over the streams.
        let level = |of: fn(&TcpSample) -> Bytes| {
            let weighed: f64 = tcp().map(|(t, seconds)| of(t).get() as f64 * seconds).sum();
            Bytes::new((weighed / seconds.max(f64::MIN_POSITIVE)) as u64)
        };
        // Loss early in a test keeps the window small long after.
        let whole = |of: fn(&TcpSample) -> u64| {
            let all = intervals.iter().filter(counted).flat_map(|sample| &sample.streams);
            sum(all.filter_map(|stream| stream.sender.as_ref()).map(of))
        };
        let (segments, retransmits) = (whole(|t| t.segments), whole(|t| t.retransmits));
        let rtt_ms = over_time(tcp().map(|(t, seconds)| (t.rtt_mean_ms, seconds)));
        let rtt_min_ms = streams.iter().map(|s| s.rtt_min_ms).reduce(f64::min).unwrap_or(0.0);
        let [sender_limits, receiver_limits] = limits;
        let interfaces = limits.iter().filter_map(|limits| limits.as_ref()?.interface_bps).min();
        let reference_bps =
            plan.rate_bps.or(interfaces).unwrap_or_else(|| reference(throughput_bps));
        let rtt_min = Duration::try_from_secs_f64(rtt_min_ms / 1e3).unwrap_or_default();
        Some(FlowFacts {
            from_seconds,
            seconds,
            throughput_bps,
            steady_bps: steady.map(|steady| steady.throughput_bps),
            shares: Shares::of(tcp()).unwrap_or_default(),
            udp: UdpResult::sum(part.iter().filter_map(|sample| sample.udp)),
            streams: streams.len() as u32,
            congestion: streams.first().map(|s| s.congestion.clone()).unwrap_or_default(),
            requested_bps: plan.rate_bps,
            window_asked: plan.window_bytes.is_some(),
            rtt_ms,
            rtt_min_ms,
            cwnd_bytes: level(|t| t.cwnd_bytes),
            receiver_window_bytes: level(|t| t.peer_window_bytes),
            loss_percent: percent(retransmits as f64, segments as f64),
            retransmits,
            marked_percent: percent(whole(|t| t.marked_segments) as f64, segments as f64),
            settled: steady.is_some(),
            spread_percent: steady.map(Steady::spread_percent),
            reference_bps,
            bandwidth_delay_bytes: reference_bps.bdp(rtt_min),
            sender: EndFacts::gather(End::Sender, &part, sender_limits),
            receiver: EndFacts::gather(End::Receiver, &part, receiver_limits),
        })
    }

    /// The facts of one end.
    pub fn end(&self, end: End) -> &EndFacts {
        match end {
            End::Sender => &self.sender,
            End::Receiver => &self.receiver,
        }
    }

    /// How much the round-trip time is longer than it need be: what waits in queues.
    pub fn queue_ms(&self) -> f64 {
        (self.rtt_ms - self.rtt_min_ms).max(0.0)
    }
}

fn reference(throughput: Rate) -> Rate {
    let near = |bps: &&u64| throughput.bps() < **bps / 10 * 9;
    Rate::from_bps(REFERENCE_BPS.iter().find(near).copied().unwrap_or(throughput.bps()))
}

/// The mean of values that each held for some seconds.
fn over_time(values: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (total, seconds) = values.fold((0.0, 0.0), |(sum, whole), (value, seconds)| {
        (sum + value * seconds, whole + seconds)
    });
    if seconds > 0.0 { total / seconds } else { 0.0 }
}

impl EndFacts {
    fn gather(end: End, part: &[&FlowSample], limits: Option<&HostLimits>) -> Self {
        let threads: Vec<(&ThreadSample, f64)> = part
            .iter()
            .flat_map(|sample| sample.streams.iter().map(|stream| (stream, sample.seconds())))
            .filter_map(|(stream, seconds)| match end {
                End::Sender => Some((stream.sender_thread.as_ref()?, seconds)),
                End::Receiver => Some((stream.receiver_thread.as_ref()?, seconds)),
            })
            .collect();
        let hosts: Vec<(&HostSample, f64)> = part
            .iter()
            .filter_map(|sample| match end {
                End::Sender => Some((sample.sender_host.as_ref()?, sample.seconds())),
                End::Receiver => Some((sample.receiver_host.as_ref()?, sample.seconds())),
            })
            .collect();
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
        // All streams whose thread ran there; the core's own figure is the same for each of them.
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

impl ThreadSample {
    fn load_percent(&self) -> f64 {
        self.running_percent + self.waiting_percent.unwrap_or(0.0)
    }
}
