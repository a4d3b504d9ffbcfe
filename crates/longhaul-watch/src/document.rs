//! The JSON document of a sample, `longhaul.watch/1`.

use longhaul_core::units::Rate;
use longhaul_sys::traffic::LinkCounters;
use serde::Serialize;

use crate::sample::{CoreSample, FlowSample, InterfaceSample, Sample};
use crate::series::{Quantity, TrafficInterval};

/// A sample as a document. A value is `null` if it is unknown; rates and changes are `null` in a gap.
#[derive(Debug, Clone, Serialize)]
pub struct WatchDocument {
    schema: &'static str,
    /// The time of the sample in Unix milliseconds.
    time_ms: i64,
    /// The time since the previous sample; `null` in the first sample and after a gap.
    span_seconds: Option<f64>,
    interfaces: Vec<InterfaceDocument>,
    tcp: TcpDocument,
    cores: Vec<CoreDocument>,
    /// The fastest TCP connections; `null` if the kernel cannot list them.
    flows: Option<Vec<FlowDocument>>,
}

#[derive(Debug, Clone, Serialize)]
struct InterfaceDocument {
    name: String,
    index: u32,
    running: bool,
    speed_bps: Option<Rate>,
    in_bps: Option<f64>,
    out_bps: Option<f64>,
    in_packets_per_second: Option<f64>,
    out_packets_per_second: Option<f64>,
    /// The increase of the counters since the previous sample.
    change: Option<CountersDocument>,
    totals: CountersDocument,
    queue_bytes: Option<u32>,
    queue_packets: Option<u32>,
    queue_drops: Option<u32>,
}

#[derive(Debug, Clone, Serialize)]
struct CountersDocument {
    in_bytes: u64,
    out_bytes: u64,
    in_packets: u64,
    out_packets: u64,
    in_drops: u64,
    out_drops: u64,
    in_errors: u64,
    out_errors: u64,
}

#[derive(Debug, Clone, Serialize)]
struct TcpDocument {
    established: u64,
    segments_sent: Option<u64>,
    retransmits: Option<u64>,
}

#[derive(Debug, Clone, Serialize)]
struct CoreDocument {
    core: u32,
    busy_share: Option<f64>,
    softirq_share: Option<f64>,
    steal_share: Option<f64>,
}

#[derive(Debug, Clone, Serialize)]
struct FlowDocument {
    local: String,
    peer: String,
    user_id: u32,
    congestion: String,
    in_bps: Rate,
    out_bps: Rate,
    delivery_bps: Rate,
    delivery_app_limited: bool,
    rtt_ms: f64,
    min_rtt_ms: Option<f64>,
    congestion_window_segments: u32,
    congestion_window_bytes: u64,
    retransmits: u64,
    queued_bytes: u32,
    unread_bytes: u32,
}

impl WatchDocument {
    /// The name and version of the schema.
    pub const SCHEMA: &str = "longhaul.watch/1";

    /// Creates the document of a sample.
    pub fn new(sample: &Sample) -> Self {
        WatchDocument {
            schema: Self::SCHEMA,
            time_ms: sample.time_ms,
            span_seconds: sample.span.map(|span| span.as_secs_f64()),
            interfaces: sample.interfaces.iter().map(|one| interface(sample, one)).collect(),
            tcp: TcpDocument {
                established: sample.tcp.totals.established,
                segments_sent: sample.tcp.sent,
                retransmits: sample.tcp.retransmits,
            },
            cores: sample.cores.iter().map(core).collect(),
            flows: sample.flows.as_ref().map(|flows| flows.iter().map(flow).collect()),
        }
    }
}

fn interface(sample: &Sample, one: &InterfaceSample) -> InterfaceDocument {
    let interval = sample.interval(one);
    let rate = |channel| interval.as_ref().map(|interval: &TrafficInterval| interval.rate(channel));
    InterfaceDocument {
        name: one.name.clone(),
        index: one.index,
        running: one.running,
        speed_bps: one.speed,
        in_bps: rate(Quantity::InBits),
        out_bps: rate(Quantity::OutBits),
        in_packets_per_second: rate(Quantity::InPackets),
        out_packets_per_second: rate(Quantity::OutPackets),
        change: one.change.as_ref().map(counters),
        totals: counters(&one.totals),
        queue_bytes: one.queue.map(|queue| queue.bytes),
        queue_packets: one.queue.map(|queue| queue.packets),
        queue_drops: one.queue_drops,
    }
}

fn counters(counters: &LinkCounters) -> CountersDocument {
    let LinkCounters {
        in_bytes,
        out_bytes,
        in_packets,
        out_packets,
        in_drops,
        out_drops,
        in_errors,
        out_errors,
    } = *counters;
    CountersDocument {
        in_bytes,
        out_bytes,
        in_packets,
        out_packets,
        in_drops,
        out_drops,
        in_errors,
        out_errors,
    }
}

fn core(core: &CoreSample) -> CoreDocument {
    CoreDocument {
        core: core.core,
        busy_share: core.busy,
        softirq_share: core.softirq,
        steal_share: core.stolen,
    }
}

fn flow(flow: &FlowSample) -> FlowDocument {
    let ms = |span: std::time::Duration| span.as_secs_f64() * 1000.0;
    FlowDocument {
        local: flow.local.to_string(),
        peer: flow.peer.to_string(),
        user_id: flow.user,
        congestion: flow.congestion.clone(),
        in_bps: flow.in_rate,
        out_bps: flow.out_rate,
        delivery_bps: flow.delivery_rate,
        delivery_app_limited: flow.delivery_app_limited,
        rtt_ms: ms(flow.rtt),
        min_rtt_ms: flow.min_rtt.map(ms),
        congestion_window_segments: flow.window_segments,
        congestion_window_bytes: flow.window_bytes,
        retransmits: flow.retransmits,
        queued_bytes: flow.queued_bytes,
        unread_bytes: flow.unread_bytes,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Sampler, SamplerOptions};

    #[test]
    fn a_gap_is_null_and_no_zero() {
        let options =
            SamplerOptions { interval: Duration::from_secs(60), ..SamplerOptions::default() };
        let mut sampler = Sampler::new(options).unwrap();
        let document = |sample: &Sample| serde_json::to_value(WatchDocument::new(sample)).unwrap();
        let first = document(&sampler.sample().unwrap());
        assert_eq!(first["schema"], "longhaul.watch/1");
        let loopback = |document: &serde_json::Value| {
            let all = document["interfaces"].as_array().unwrap();
            all.iter().find(|one| one["name"] == "lo").unwrap().clone()
        };
        assert!(first["span_seconds"].is_null() && loopback(&first)["in_bps"].is_null());
        assert!(
            loopback(&first)["change"].is_null() && loopback(&first)["totals"]["in_bytes"].is_u64()
        );
        let second = document(&sampler.sample().unwrap());
        assert!(second["span_seconds"].is_f64() && loopback(&second)["in_bps"].is_f64());
        assert!(second["tcp"]["retransmits"].is_u64() && second["cores"][0]["core"].is_u64());
        assert!(second["flows"].is_array());
    }
}
