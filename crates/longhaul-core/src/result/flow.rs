//! `longhaul.test/1`: a memory-to-memory test as its two ends saw it, put together.

use serde::{Deserialize, Serialize};

use super::{
    End, LatencyResult, SideResult, SideSample, TcpSample, UdpResult, Warning, WarningKind,
};
use crate::plan::{CpuList, Direction, FlowPlan, Link, Protocol};
use crate::units::{Bytes, Rate};

/// The schema of [`FlowResult`].
pub const FLOW_SCHEMA: &str = "longhaul.test/1";

/// A thread this busy has no more of its core to give, in percent.
const CPU_BOUND_PERCENT: f64 = 97.0;
/// A paced test below this part of the rate it was given has missed it; headers take up to 4 %
/// of a rate that the kernel counts with them.
const PACED_PART: f64 = 0.9;

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "how")]
pub enum FlowEnd {
    /// It ran to the end of its plan.
    Completed,
    /// The user stopped it; what was measured until then is complete.
    Interrupted,
    /// It broke off.
    Cut {
        /// One sentence.
        reason: String,
    },
}

/// A whole test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowResult {
    /// [`FLOW_SCHEMA`].
    pub schema: String,
    /// The version of the client.
    pub version: String,
    /// The server, as the user named it.
    pub target: String,
    /// The server that was its client, in a test between two servers.
    #[serde(default)]
    pub third_party: Option<String>,
    /// What was run.
    pub plan: FlowPlan,
    /// How it ended.
    pub end: FlowEnd,
    /// The figures over all streams.
    pub summary: FlowSummary,
    /// The streams, in order of their number.
    pub streams: Vec<StreamResult>,
    /// The intervals, in order of time.
    pub intervals: Vec<FlowSample>,
    /// The half from the server to the client, in a test of both directions; what stands beside
    /// it is then the other half.
    #[serde(default)]
    pub reverse: Option<Box<FlowHalf>>,
    /// Round-trip times of small requests beside the test, where they were asked for.
    #[serde(default)]
    pub latency: Option<LatencyResult>,
    /// What makes the result less than it seems.
    pub warnings: Vec<Warning>,
}

/// One direction of a test of both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowHalf {
    /// The figures over its streams.
    pub summary: FlowSummary,
    /// Its streams, in order of their number.
    pub streams: Vec<StreamResult>,
    /// Its intervals, in order of time.
    pub intervals: Vec<FlowSample>,
}

/// The figures over all streams, without the omitted time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowSummary {
    /// Goodput: payload bytes counted at the receiver, over the receiver's time.
    pub throughput_bps: Rate,
    /// The end that gave the bytes.
    pub sender: SideSummary,
    /// The end that took them.
    pub receiver: SideSummary,
    /// Both ends counted the same bytes on every stream, omitted time included; `None` for a test
    /// that was cut.
    pub totals_agree: Option<bool>,
    /// The datagrams, in a test over UDP.
    #[serde(default)]
    pub udp: Option<UdpResult>,
    /// The links that the streams were spread over, in the order of the plan.
    #[serde(default)]
    pub links: Vec<LinkSummary>,
}

/// One of the links that a test was spread over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkSummary {
    /// Its number, from 0.
    pub link: u32,
    /// The client's address; `None` where the routing table chose it.
    pub client: Option<String>,
    /// The server's address; `None` where it is that of the control channel.
    pub server: Option<String>,
    /// How many streams used it.
    pub streams: u32,
    /// Bytes at the receiver after the omitted time.
    pub bytes: Bytes,
    /// Goodput of its streams together, at the receiver.
    pub throughput_bps: Rate,
    /// Segments its senders retransmitted.
    pub retransmits: u64,
}

/// One end over all streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SideSummary {
    /// Bytes after the omitted time.
    pub bytes: Bytes,
    /// Bytes with the omitted time.
    pub total_bytes: Bytes,
    /// From the end of the omitted time to the last byte.
    pub seconds: f64,
    /// CPU time over time, in percent of one core.
    pub cpu_percent: f64,
    /// Segments this end retransmitted.
    pub retransmits: u64,
    /// Round-trip time by this end's kernel: the mean of the sender's samples; the receiver, who
    /// sends nothing, knows that of the handshake.
    pub rtt_ms: f64,
    /// The least round-trip time this end's kernel saw.
    pub rtt_min_ms: f64,
}

/// One stream of a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamResult {
    /// Its number, from 0.
    pub stream: u32,
    /// Goodput of this stream at the receiver.
    pub throughput_bps: Rate,
    /// Bytes at the receiver after the omitted time.
    pub bytes: Bytes,
    /// The receiver's time.
    pub seconds: f64,
    /// Segments the sender retransmitted.
    pub retransmits: u64,
    /// Mean of the sender's round-trip times.
    pub rtt_ms: f64,
    /// The least of them that the kernel saw.
    pub rtt_min_ms: f64,
    /// CPU time of the sender's thread, in percent of one core.
    pub sender_cpu_percent: f64,
    /// CPU time of the receiver's thread, in percent of one core.
    pub receiver_cpu_percent: f64,
    /// The sender's congestion control.
    pub congestion: String,
    /// The sender's segment size.
    pub mss: u32,
    /// The sender's send buffer when the test began.
    pub send_buffer_bytes: Bytes,
    /// The receiver's receive buffer when the test began.
    pub receive_buffer_bytes: Bytes,
    /// The datagrams, in a test over UDP.
    #[serde(default)]
    pub udp: Option<UdpResult>,
    /// The link that it used, in a test over several.
    #[serde(default)]
    pub link: Option<u32>,
    /// The sender's address and port.
    #[serde(default)]
    pub sender_address: Option<String>,
    /// The receiver's address and port.
    #[serde(default)]
    pub receiver_address: Option<String>,
    /// The CPUs that the sender's thread was bound to.
    #[serde(default)]
    pub sender_cpus: Option<CpuList>,
    /// The CPUs that the receiver's thread was bound to.
    #[serde(default)]
    pub receiver_cpus: Option<CpuList>,
    /// Whether it was multipath to its end, in a test over MPTCP.
    #[serde(default)]
    pub multipath: Option<bool>,
    /// Why the stream broke off; `None` when it ran to its end.
    pub failure: Option<String>,
}

/// One interval of a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowSample {
    /// Counts intervals from 0.
    pub index: u32,
    /// The interval lies in the omitted time.
    pub omitted: bool,
    /// It is of the half from the server to the client, in a test of both directions.
    #[serde(default)]
    pub reverse: bool,
    /// From when, on the receiver's clock, which starts with the first byte.
    pub start_seconds: f64,
    /// Until when.
    pub end_seconds: f64,
    /// Bytes at the receiver.
    pub bytes: Bytes,
    /// Goodput at the receiver.
    pub throughput_bps: Rate,
    /// Segments retransmitted; `None` without the sender's account of this interval, which
    /// happens to the last one only.
    pub retransmits: Option<u64>,
    /// Mean over the streams of the sender's smoothed round-trip times.
    pub rtt_ms: Option<f64>,
    /// The sender's CPU time, in percent of one core.
    pub sender_cpu_percent: Option<f64>,
    /// The receiver's CPU time, in percent of one core.
    pub receiver_cpu_percent: f64,
    /// The datagrams, in a test over UDP.
    #[serde(default)]
    pub udp: Option<UdpResult>,
    /// The streams, in order of their number.
    pub streams: Vec<StreamSample>,
}

/// One stream in one interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamSample {
    /// Its number, from 0.
    pub stream: u32,
    /// Bytes at the receiver.
    pub bytes: Bytes,
    /// Goodput at the receiver.
    pub throughput_bps: Rate,
    /// The sender's connection.
    pub sender: Option<TcpSample>,
    /// The datagrams, in a test over UDP.
    #[serde(default)]
    pub udp: Option<UdpResult>,
}

fn rate(bytes: Bytes, seconds: f64) -> Rate {
    Rate::from_bps(if seconds > 0.0 { (bytes.get() as f64 * 8.0 / seconds) as u64 } else { 0 })
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> Option<f64> {
    let count = values.len();
    (count > 0).then(|| values.sum::<f64>() / count as f64)
}

impl FlowSample {
    /// Puts the two ends' accounts of one interval together.
    pub fn join(receiver: &SideSample, sender: Option<&SideSample>) -> Self {
        let seconds = receiver.end_seconds - receiver.start_seconds;
        let sent = |stream: usize| sender.and_then(|s| s.streams.get(stream));
        let streams: Vec<_> = receiver
            .streams
            .iter()
            .enumerate()
            .map(|(number, stream)| StreamSample {
                stream: number as u32,
                bytes: stream.bytes,
                throughput_bps: rate(stream.bytes, seconds),
                sender: sent(number).and_then(|s| s.tcp.clone()),
                udp: stream
                    .udp
                    .map(|to| UdpResult::join(sent(number).and_then(|s| s.udp.as_ref()), &to)),
            })
            .collect();
        let tcp: Vec<_> = streams.iter().filter_map(|s| s.sender.as_ref()).collect();
        let bytes = Bytes::new(streams.iter().map(|s| s.bytes.get()).sum());
        FlowSample {
            index: receiver.index,
            omitted: receiver.omitted,
            reverse: receiver.reverse,
            start_seconds: receiver.start_seconds,
            end_seconds: receiver.end_seconds,
            bytes,
            throughput_bps: rate(bytes, seconds),
            retransmits: sender.map(|_| tcp.iter().map(|t| t.retransmits).sum()),
            rtt_ms: mean(tcp.iter().map(|t| t.rtt_ms)),
            sender_cpu_percent: sender
                .map(|s| percent(s.cpu_seconds, s.end_seconds - s.start_seconds)),
            receiver_cpu_percent: percent(receiver.cpu_seconds, seconds),
            udp: UdpResult::sum(streams.iter().filter_map(|s| s.udp)),
            streams,
        }
    }
}

impl SideSummary {
    fn fold(side: &SideResult) -> Self {
        let sum = |of: fn(&super::SideStream) -> u64| side.streams.iter().map(of).sum::<u64>();
        SideSummary {
            bytes: Bytes::new(sum(|s| s.bytes.get())),
            total_bytes: Bytes::new(sum(|s| s.total_bytes.get())),
            seconds: side.seconds,
            cpu_percent: percent(side.cpu_seconds, side.seconds),
            retransmits: sum(|s| s.retransmits),
            rtt_ms: mean(side.streams.iter().map(|s| s.rtt_ms)).unwrap_or(0.0),
            rtt_min_ms: side.streams.iter().map(|s| s.rtt_min_ms).reduce(f64::min).unwrap_or(0.0),
        }
    }
}

impl FlowHalf {
    /// Puts the two ends' accounts of one direction together. Returns what is wrong with it, too.
    fn fold(
        plan: &FlowPlan,
        end: &FlowEnd,
        intervals: Vec<FlowSample>,
        sender: &SideResult,
        receiver: &SideResult,
    ) -> (Self, Vec<Warning>) {
        let streams: Vec<_> = sender
            .streams
            .iter()
            .zip(&receiver.streams)
            .enumerate()
            .map(|(number, (from, to))| StreamResult {
                stream: number as u32,
                throughput_bps: rate(to.bytes, to.seconds),
                bytes: to.bytes,
                seconds: to.seconds,
                retransmits: from.retransmits,
                rtt_ms: from.rtt_ms,
                rtt_min_ms: from.rtt_min_ms,
                sender_cpu_percent: percent(from.cpu_seconds, from.seconds),
                receiver_cpu_percent: percent(to.cpu_seconds, to.seconds),
                congestion: from.congestion.clone(),
                mss: from.mss,
                send_buffer_bytes: from.buffer_bytes,
                receive_buffer_bytes: to.buffer_bytes,
                udp: to.udp.map(|to| UdpResult::join(from.udp.as_ref(), &to)),
                link: plan.link_of(number as u32).map(|(link, _)| link as u32),
                sender_address: from.address.clone(),
                receiver_address: to.address.clone(),
                sender_cpus: from.cpus.clone(),
                receiver_cpus: to.cpus.clone(),
                multipath: from.multipath,
                failure: from.failure.clone().or_else(|| to.failure.clone()),
            })
            .collect();
        let agree = || {
            let ours = sender.streams.iter().map(|s| s.total_bytes);
            ours.eq(receiver.streams.iter().map(|s| s.total_bytes))
        };
        let totals_agree = match end {
            // Datagrams may be lost: their counts say which were.
            _ if plan.protocol == Protocol::Udp => None,
            FlowEnd::Cut { .. } => None,
            FlowEnd::Completed | FlowEnd::Interrupted => Some(agree()),
        };
        let (sender, receiver) = (SideSummary::fold(sender), SideSummary::fold(receiver));
        let summary = FlowSummary {
            throughput_bps: rate(receiver.bytes, receiver.seconds),
            totals_agree,
            udp: UdpResult::sum(streams.iter().filter_map(|s| s.udp)),
            links: links(plan, &streams, receiver.seconds),
            sender,
            receiver,
        };
        let warnings = warnings(plan, end, &summary, &streams);
        let warnings = warnings.into_iter().map(Warning::from).collect();
        (FlowHalf { summary, streams, intervals }, warnings)
    }
}

fn links(plan: &FlowPlan, streams: &[StreamResult], seconds: f64) -> Vec<LinkSummary> {
    let link = |(number, link): (usize, &Link)| {
        let of: Vec<_> = streams.iter().filter(|s| s.link == Some(number as u32)).collect();
        let bytes = Bytes::new(of.iter().map(|s| s.bytes.get()).sum());
        LinkSummary {
            link: number as u32,
            client: link.client.as_ref().map(ToString::to_string),
            server: link.server.as_ref().map(ToString::to_string),
            streams: of.len() as u32,
            bytes,
            throughput_bps: rate(bytes, seconds),
            retransmits: of.iter().map(|s| s.retransmits).sum(),
        }
    };
    plan.links.iter().enumerate().map(link).collect()
}

impl FlowResult {
    /// Puts the two ends' accounts of a whole test together; of the half from the client to the
    /// server, in a test of both directions.
    pub fn fold(
        target: String,
        plan: FlowPlan,
        end: FlowEnd,
        intervals: Vec<FlowSample>,
        sender: &SideResult,
        receiver: &SideResult,
    ) -> Self {
        let (half, warnings) = FlowHalf::fold(&plan, &end, intervals, sender, receiver);
        FlowResult {
            schema: FLOW_SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            target,
            third_party: None,
            plan,
            end,
            summary: half.summary,
            streams: half.streams,
            intervals: half.intervals,
            reverse: None,
            latency: None,
            warnings,
        }
    }

    /// Adds the half from the server to the client.
    #[must_use]
    pub fn with_reverse(
        mut self,
        intervals: Vec<FlowSample>,
        sender: &SideResult,
        receiver: &SideResult,
    ) -> Self {
        let (half, warnings) = FlowHalf::fold(&self.plan, &self.end, intervals, sender, receiver);
        self.reverse = Some(Box::new(half));
        for warning in warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        self
    }

    /// The client's end and the server's, in this order: which of the two is the sender depends
    /// on the direction.
    pub fn client_and_server(&self) -> (&SideSummary, &SideSummary) {
        match self.plan.direction {
            Direction::Forward | Direction::Both => (&self.summary.sender, &self.summary.receiver),
            Direction::Reverse => (&self.summary.receiver, &self.summary.sender),
        }
    }
}

fn warnings(
    plan: &FlowPlan,
    end: &FlowEnd,
    summary: &FlowSummary,
    streams: &[StreamResult],
) -> Vec<WarningKind> {
    let mut found = Vec::new();
    if let Some(requested_bytes) = plan.window_bytes {
        let mut clipped = |end, of: fn(&StreamResult) -> Bytes| {
            let granted = streams.iter().map(of).min();
            // The kernel keeps whole units of its own; a few bytes short is not clipped.
            if let Some(granted_bytes) = granted.filter(|g| g.get() + 4096 < requested_bytes.get())
            {
                found.push(WarningKind::WindowClipped { end, requested_bytes, granted_bytes });
            }
        };
        clipped(End::Sender, |s| s.send_buffer_bytes);
        clipped(End::Receiver, |s| s.receive_buffer_bytes);
    }
    let mut busy = |end, of: fn(&StreamResult) -> f64| {
        let most = streams.iter().map(of).fold(0.0, f64::max);
        if most >= CPU_BOUND_PERCENT {
            found.push(WarningKind::CpuBound { end, cpu_percent: most });
        }
    };
    busy(End::Sender, |s| s.sender_cpu_percent);
    busy(End::Receiver, |s| s.receiver_cpu_percent);
    if summary.totals_agree == Some(false) {
        found.push(WarningKind::TotalsDisagree {
            sent_bytes: summary.sender.total_bytes,
            received_bytes: summary.receiver.total_bytes,
        });
    }
    let throughput_bps = summary.throughput_bps;
    if let Some(requested_bps) = plan.rate_bps
        && *end == FlowEnd::Completed
        && (throughput_bps.bps() as f64) < PACED_PART * requested_bps.bps() as f64
    {
        found.push(WarningKind::PacingMissed { requested_bps, throughput_bps });
    }
    if plan.skip_receive_copy {
        found.push(WarningKind::ReceiveNotCopied);
    }
    if let Some(udp) = &summary.udp {
        for (end, datagrams) in
            [(End::Sender, udp.sender_dropped), (End::Receiver, udp.receiver_dropped)]
        {
            if datagrams > 0 {
                found.push(WarningKind::HostDropped { end, datagrams });
            }
        }
    }
    if streams.iter().any(|s| s.multipath == Some(false)) {
        found.push(WarningKind::NotMultipath);
    }
    if !plan.omit.is_zero() && summary.receiver.seconds <= 0.0 {
        found.push(WarningKind::AllOmitted);
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::result::{SideStream, SideStreamSample};

    fn side(totals: &[u64]) -> SideResult {
        let stream = |total: &u64| SideStream {
            bytes: Bytes::new(*total),
            total_bytes: Bytes::new(*total),
            seconds: 2.0,
            cpu_seconds: 1.0,
            retransmits: 3,
            rtt_ms: 90.0,
            rtt_min_ms: 89.5,
            congestion: "bbr".to_owned(),
            mss: 8948,
            buffer_bytes: Bytes::mib(4),
            udp: None,
            address: None,
            cpus: None,
            multipath: None,
            failure: None,
        };
        let streams = totals.iter().map(stream).collect();
        SideResult { seconds: 2.0, cpu_seconds: 2.0, cut: None, reverse: false, streams }
    }

    fn fold(plan: FlowPlan, end: FlowEnd, sent: &[u64], received: &[u64]) -> FlowResult {
        FlowResult::fold("far".to_owned(), plan, end, vec![], &side(sent), &side(received))
    }

    #[test]
    fn goodput_is_the_receivers() {
        let plan = FlowPlan { streams: 2, ..FlowPlan::new() };
        let result = fold(plan, FlowEnd::Completed, &[1000, 2000], &[1000, 2000]);
        assert_eq!(result.summary.throughput_bps, Rate::from_bps(12_000));
        assert_eq!(result.summary.totals_agree, Some(true));
        assert_eq!(result.summary.sender.retransmits, 6);
        assert_eq!(result.summary.receiver.cpu_percent, 100.0);
        assert_eq!(result.warnings, []);
        let text = serde_json::to_string(&result).unwrap();
        assert!(text.starts_with(r#"{"schema":"longhaul.test/1","#), "{text}");
        assert_eq!(serde_json::from_str::<FlowResult>(&text).unwrap(), result);
    }

    #[test]
    fn totals_are_compared_stream_by_stream() {
        let plan = FlowPlan { streams: 2, ..FlowPlan::new() };
        let result = fold(plan.clone(), FlowEnd::Completed, &[10, 20], &[20, 10]);
        assert_eq!(result.summary.totals_agree, Some(false));
        assert!(matches!(result.warnings[0].kind, WarningKind::TotalsDisagree { .. }));
        let cut = FlowEnd::Cut { reason: "gone".to_owned() };
        assert_eq!(fold(plan, cut, &[10, 20], &[10, 15]).summary.totals_agree, None);
    }

    #[test]
    fn what_spoils_a_result_is_named() {
        let kinds = |plan, sent: &SideResult| -> Vec<_> {
            let received = side(&[1000]);
            let end = FlowEnd::Completed;
            FlowResult::fold("far".into(), plan, end, vec![], sent, &received)
                .warnings
                .into_iter()
                .map(|w| w.kind)
                .collect()
        };
        let clipped = FlowPlan { window_bytes: Some(Bytes::mib(64)), ..FlowPlan::new() };
        let found = kinds(clipped, &side(&[1000]));
        assert!(matches!(found[0], WarningKind::WindowClipped { end: End::Sender, .. }));
        assert!(matches!(found[1], WarningKind::WindowClipped { end: End::Receiver, .. }));

        let paced = FlowPlan { rate_bps: Some(Rate::from_bps(10_000)), ..FlowPlan::new() };
        assert!(matches!(kinds(paced, &side(&[1000]))[..], [WarningKind::PacingMissed { .. }]));

        let mut busy = side(&[1000]);
        busy.streams[0].cpu_seconds = 1.96;
        let found = kinds(FlowPlan::new(), &busy);
        assert!(matches!(found[..], [WarningKind::CpuBound { end: End::Sender, .. }]));

        let mut early = side(&[0]);
        early.seconds = 0.0;
        let plan = FlowPlan { omit: Duration::from_secs(4), ..FlowPlan::new() };
        let end = FlowEnd::Interrupted;
        let result = FlowResult::fold("far".into(), plan, end, vec![], &early, &early);
        assert_eq!(result.warnings[0].kind, WarningKind::AllOmitted);
        assert_eq!(result.summary.throughput_bps, Rate::from_bps(0));
    }

    #[test]
    fn an_interval_has_the_receivers_bytes_and_the_senders_reasons() {
        let tcp = TcpSample {
            rtt_ms: 90.0,
            rtt_variation_ms: 1.0,
            cwnd_bytes: Bytes::mib(1),
            peer_window_bytes: Bytes::mib(3),
            retransmits: 2,
            delivery_rate_bps: Rate::from_bps(1_000_000),
            app_limited: false,
            notsent_bytes: Bytes::new(0),
            busy_ms: 1000.0,
            rwnd_limited_ms: 10.0,
            sndbuf_limited_ms: 0.0,
        };
        let sample = |bytes, tcp: Option<&TcpSample>| SideSample {
            index: 4,
            omitted: false,
            start_seconds: 4.0,
            end_seconds: 5.0,
            cpu_seconds: 0.25,
            reverse: false,
            streams: vec![
                SideStreamSample { bytes: Bytes::new(bytes), tcp: tcp.cloned(), udp: None },
                SideStreamSample { bytes: Bytes::new(bytes), tcp: tcp.cloned(), udp: None },
            ],
        };
        let (sender, receiver) = (sample(5000, Some(&tcp)), sample(4000, None));
        let joined = FlowSample::join(&receiver, Some(&sender));
        assert_eq!(joined.bytes, Bytes::new(8000));
        assert_eq!(joined.throughput_bps, Rate::from_bps(64_000));
        assert_eq!((joined.retransmits, joined.rtt_ms), (Some(4), Some(90.0)));
        assert_eq!(joined.sender_cpu_percent, Some(25.0));
        assert_eq!(joined.streams[1].sender, Some(tcp));
        let alone = FlowSample::join(&receiver, None);
        assert_eq!((alone.retransmits, alone.rtt_ms, alone.sender_cpu_percent), (None, None, None));
    }
}
