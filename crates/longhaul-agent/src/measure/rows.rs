//! From a sample of the host to the rows and the snapshot that the hub stores. Pure.

use longhaul_fleet::protocol::{
    CoreLoad, Flow, HostRow, HostSnapshot, InterfaceRow, MAX_CORES, MAX_FLOWS,
    MAX_SHORT_NAME_BYTES, QueueRow,
};
use longhaul_watch::{CoreSample, FlowSample, InterfaceSample, Sample};

/// Returns the counters of an interface; `None` in a gap.
pub(super) fn interface_row(
    sample: &Sample,
    interface: &InterfaceSample,
    end_ms: i64,
) -> Option<InterfaceRow> {
    let interval = sample.interval(interface)?;
    let counts = interval.counts;
    Some(InterfaceRow {
        end_ms,
        span_ms: interval.span_ms,
        in_bytes: counts.in_bytes,
        out_bytes: counts.out_bytes,
        in_packets: counts.in_packets,
        out_packets: counts.out_packets,
        in_drops: counts.in_drops,
        out_drops: counts.out_drops,
        in_errors: counts.in_errors,
        out_errors: counts.out_errors,
    })
}

/// Returns the queue of an interface; `None` in a gap, and without queueing discipline.
pub(super) fn queue_row(
    sample: &Sample,
    interface: &InterfaceSample,
    end_ms: i64,
) -> Option<QueueRow> {
    let queue = interface.queue?;
    Some(QueueRow {
        end_ms,
        span_ms: sample.span_ms()?,
        bytes: queue.bytes.into(),
        packets: queue.packets.into(),
        drops: interface.queue_drops.map(u64::from),
    })
}

/// Returns the TCP counters and the cores; `None` in a gap.
pub(super) fn host_row(sample: &Sample, end_ms: i64) -> Option<HostRow> {
    let (busy, softirq) =
        (shares(&sample.cores, |core| core.busy), shares(&sample.cores, |core| core.softirq));
    Some(HostRow {
        end_ms,
        span_ms: sample.span_ms()?,
        segments: sample.tcp.sent,
        retransmits: sample.tcp.retransmits,
        connections: Some(sample.tcp.totals.established),
        busy_ppm: busy.map(|share| ppm(share.mean)),
        max_busy_ppm: busy.map(|share| ppm(share.max)),
        softirq_ppm: softirq.map(|share| ppm(share.mean)),
        max_softirq_ppm: softirq.map(|share| ppm(share.max)),
        steal_ppm: shares(&sample.cores, |core| core.stolen).map(|share| ppm(share.mean)),
    })
}

/// Returns the snapshot of a sample. A sampler that does not list connections hides them from the hub.
pub(super) fn snapshot(sample: &Sample, at_ms: i64) -> HostSnapshot {
    let known = |core: &CoreSample| {
        Some(CoreLoad {
            core: core.core,
            busy_ppm: ppm(core.busy?),
            softirq_ppm: ppm(core.softirq?),
        })
    };
    let mut cores: Vec<CoreLoad> = sample.cores.iter().filter_map(known).collect();
    cores.sort_by_key(|core| std::cmp::Reverse((core.softirq_ppm, core.busy_ppm)));
    cores.truncate(MAX_CORES);
    let flows = sample.flows.as_ref().map(|flows| flows.iter().take(MAX_FLOWS).map(flow).collect());
    HostSnapshot { at_ms, flows, cores }
}

fn flow(flow: &FlowSample) -> Flow {
    let ns = |span: std::time::Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    Flow {
        local: flow.local,
        peer: flow.peer,
        program: flow.program.as_deref().map(short),
        user_id: flow.user,
        congestion: short(&flow.congestion),
        in_bps: flow.in_rate.bps(),
        out_bps: flow.out_rate.bps(),
        delivery_bps: flow.delivery_rate.bps(),
        rtt_ns: ns(flow.rtt),
        min_rtt_ns: flow.min_rtt.map(ns),
        congestion_window_bytes: flow.window_bytes,
        retransmits: flow.retransmits,
        queued_bytes: flow.queued_bytes.into(),
    }
}

/// Returns the start of a name with at most [`MAX_SHORT_NAME_BYTES`]: a replaced byte of another encoding
/// has three.
fn short(name: &str) -> String {
    name[..name.floor_char_boundary(MAX_SHORT_NAME_BYTES)].to_owned()
}

/// The shares of time of the cores.
#[derive(Debug, Clone, Copy)]
struct Shares {
    mean: f64,
    max: f64,
}

/// Returns the shares of the cores that were online during the whole interval; `None` without such cores.
fn shares(cores: &[CoreSample], value: fn(&CoreSample) -> Option<f64>) -> Option<Shares> {
    let known: Vec<f64> = cores.iter().filter_map(value).collect();
    let max = known.iter().copied().reduce(f64::max)?;
    Some(Shares { mean: known.iter().sum::<f64>() / known.len() as f64, max })
}

/// Returns a share in millionths.
fn ppm(share: f64) -> u64 {
    (share.clamp(0.0, 1.0) * 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_watch::TcpTotals;

    use super::*;

    fn core(core: u32, busy: Option<f64>, softirq: Option<f64>) -> CoreSample {
        CoreSample { core, totals: Default::default(), busy, softirq, stolen: Some(0.0) }
    }

    fn sample(cores: Vec<CoreSample>) -> Sample {
        let tcp = TcpTotals { totals: Default::default(), sent: Some(1000), retransmits: None };
        let span = Some(Duration::from_millis(1003));
        Sample { time_ms: 5, span, interfaces: Vec::new(), tcp, cores, flows: Some(Vec::new()) }
    }

    #[test]
    fn a_row_of_the_host_has_the_mean_and_the_maximum_of_its_cores() {
        let cores =
            vec![core(0, Some(0.5), Some(0.1)), core(1, Some(0.1), Some(0.0)), core(2, None, None)];
        let row = host_row(&sample(cores), 77).unwrap();
        assert_eq!((row.end_ms, row.span_ms), (77, 1003));
        assert_eq!((row.busy_ppm, row.max_busy_ppm), (Some(300_000), Some(500_000)));
        assert_eq!((row.softirq_ppm, row.max_softirq_ppm), (Some(50_000), Some(100_000)));
        assert_eq!((row.segments, row.retransmits), (Some(1000), None), "a reset is a gap");
        let row = host_row(&sample(Vec::new()), 77).unwrap();
        assert_eq!((row.busy_ppm, row.steal_ppm), (None, None));
        assert_eq!(host_row(&Sample { span: None, ..sample(Vec::new()) }, 77), None);
    }

    #[test]
    fn a_snapshot_has_the_cores_with_the_most_softirq_time() {
        let many = |at: u32| core(at, Some(0.9), Some(f64::from(at) / 100.0));
        let found = snapshot(&sample((0..20).map(many).collect()), 9);
        let cores: Vec<u32> = found.cores.iter().map(|core| core.core).collect();
        assert_eq!(cores, [19, 18, 17, 16, 15, 14, 13, 12]);
        assert_eq!(found.flows, Some(Vec::new()));
        let hidden = Sample { flows: None, ..sample(Vec::new()) };
        assert_eq!(snapshot(&hidden, 9).flows, None);
    }

    #[test]
    fn a_name_is_cut_between_characters() {
        assert_eq!(short("0123456789abcdefgh"), "0123456789abcdef");
        assert_eq!(short("\u{fffd}".repeat(15).as_str()), "\u{fffd}".repeat(5));
    }
}
