//! Combines the samples and the results of both ends of a test.

use super::spoiled::warnings;
use super::{
    LinkSummary, Reason, Shares, SideReport, SideStreamReport, SideSummary, Steady, StreamResult,
    StreamSample, TEST_SCHEMA, TestEnd, TestFacts, TestHalf, TestResult, TestSample, TestSummary,
};
use crate::plan::{Direction, Protocol, TestLink, TestPlan};
use crate::result::{End, SideSample, UdpResult, Warning};
use crate::stats::{mean, percent, rate, sum, sum_known};
use crate::units::{Bytes, Rate};

impl TestSample {
    /// Combines the samples of both ends for one interval.
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
                sender_thread: sent(number).and_then(|s| s.thread.clone()),
                receiver_thread: stream.thread.clone(),
                udp: stream
                    .udp
                    .map(|to| UdpResult::join(sent(number).and_then(|s| s.udp.as_ref()), &to)),
            })
            .collect();
        let tcp: Vec<_> = streams.iter().filter_map(|s| s.sender.as_ref()).collect();
        let bytes = Bytes::new(sum(streams.iter().map(|s| s.bytes.get())));
        // The sender's times refer to the sender's interval.
        let shares = sender.and_then(|sender| {
            let seconds = sender.end_seconds - sender.start_seconds;
            Shares::of(tcp.iter().map(|tcp| (*tcp, seconds)))
        });
        TestSample {
            index: receiver.index,
            omitted: receiver.omitted,
            reverse: receiver.reverse,
            counted_by: None,
            start_seconds: receiver.start_seconds,
            end_seconds: receiver.end_seconds,
            bytes,
            throughput_bps: rate(bytes, seconds),
            retransmits: sender.map(|_| sum(tcp.iter().map(|t| t.retransmits))),
            rtt_ms: mean(tcp.iter().map(|t| t.rtt_ms)),
            sender_cpu_percent: sender
                .map(|s| percent(s.cpu_seconds, s.end_seconds - s.start_seconds)),
            receiver_cpu_percent: Some(percent(receiver.cpu_seconds, seconds)),
            shares,
            sent_bps: sender.and_then(sent_bps),
            udp: UdpResult::sum(streams.iter().filter_map(|s| s.udp)),
            streams,
            sender_host: sender.and_then(|s| s.host.clone()),
            receiver_host: receiver.host.clone(),
        }
    }

    /// Returns the sample of an interval of which only the sender is known. Its bytes are those
    /// sent.
    pub fn of_sender(sender: &SideSample) -> Self {
        // The receiver's fields come from a copy of the sender without a thread and a host.
        let mut receiver = SideSample { host: None, ..sender.clone() };
        for stream in &mut receiver.streams {
            (stream.thread, stream.udp) = (None, None);
        }
        TestSample {
            counted_by: Some(End::Sender),
            receiver_cpu_percent: None,
            ..TestSample::join(&receiver, Some(sender))
        }
    }

    /// Returns the length of the interval in seconds, on the receiver's clock.
    pub fn seconds(&self) -> f64 {
        self.end_seconds - self.start_seconds
    }
}

/// Returns the rate of the datagrams that a sender sent in an interval; `None` over TCP.
fn sent_bps(sender: &SideSample) -> Option<Rate> {
    let datagrams = sender.streams.iter().all(|stream| stream.udp.is_some());
    let bytes = Bytes::new(sum(sender.streams.iter().map(|stream| stream.bytes.get())));
    let seconds = sender.end_seconds - sender.start_seconds;
    (datagrams && !sender.streams.is_empty()).then(|| rate(bytes, seconds))
}

impl SideSummary {
    fn fold(side: &SideReport) -> Self {
        let streams = &side.streams;
        // An end that sent no report, or that had no sample, has an RTT of zero.
        let rtts = |of: fn(&SideStreamReport) -> Option<f64>| -> Option<Vec<f64>> {
            streams.iter().map(|stream| of(stream).filter(|rtt| *rtt > 0.0)).collect()
        };
        SideSummary {
            bytes: Bytes::new(sum(streams.iter().map(|s| s.bytes.get()))),
            total_bytes: sum_known(streams.iter().map(|s| Some(s.total_bytes?.get())))
                .map(Bytes::new),
            seconds: side.seconds,
            cpu_percent: side.cpu_percent,
            retransmits: sum_known(streams.iter().map(|s| s.retransmits)),
            rtt_ms: rtts(|s| s.rtt_ms).and_then(|rtts| mean(rtts.into_iter())),
            rtt_min_ms: rtts(|s| s.rtt_min_ms).and_then(|rtts| rtts.into_iter().reduce(f64::min)),
        }
    }
}

/// The measurements of one direction of a test at its two ends.
#[derive(Debug)]
pub struct MeasuredHalf {
    /// The intervals with the samples of both ends.
    pub intervals: Vec<TestSample>,
    /// The report on the sending end.
    pub sender: SideReport,
    /// The report on the receiving end.
    pub receiver: SideReport,
}

impl TestHalf {
    /// Combines the results of both ends for one direction, and returns them with the warnings.
    fn fold(plan: &TestPlan, end: &TestEnd, measured: MeasuredHalf) -> (Self, Vec<Warning>) {
        let MeasuredHalf { intervals, sender, receiver } = measured;
        let (sender, receiver) = (&sender, &receiver);
        let streams = join_streams(plan, sender, receiver);
        let agree = || {
            let totals = |end: &SideReport| -> Option<Vec<Bytes>> {
                end.streams.iter().map(|s| s.total_bytes).collect()
            };
            Some(totals(sender)? == totals(receiver)?)
        };
        let totals_agree = match end {
            // Datagrams may be lost; their counters record the losses.
            _ if plan.protocol == Protocol::Udp => None,
            TestEnd::Cut { .. } => None,
            TestEnd::Completed | TestEnd::Interrupted => agree(),
        };
        let steady = receiver.curve.as_ref().and_then(|curve| {
            let rtts = sender.streams.iter().filter_map(|s| s.rtt_ms);
            let rtt_ms = rtts.reduce(f64::max).unwrap_or(0.0);
            Steady::find(curve, rtt_ms / 1e3, plan.omit.as_secs_f64())
        });
        let limits = [sender.limits.as_ref(), receiver.limits.as_ref()];
        let facts = TestFacts::gather(plan, &intervals, &streams, steady.as_ref(), limits);
        let (sender, receiver) = (SideSummary::fold(sender), SideSummary::fold(receiver));
        let summary = TestSummary {
            throughput_bps: rate(receiver.bytes, receiver.seconds),
            totals_agree,
            udp: UdpResult::sum(streams.iter().filter_map(|s| s.udp)),
            links: links(plan, &streams, receiver.seconds),
            steady,
            reason: facts.map(Reason::derive),
            sender,
            receiver,
        };
        let warnings = warnings(plan, end, &summary, &streams, &intervals);
        let warnings = warnings.into_iter().map(Warning::from).collect();
        (TestHalf { summary, streams, intervals }, warnings)
    }
}

/// Joins the reports of both ends per stream.
fn join_streams(plan: &TestPlan, sender: &SideReport, receiver: &SideReport) -> Vec<StreamResult> {
    let join =
        |(number, (from, to)): (usize, (&SideStreamReport, &SideStreamReport))| StreamResult {
            stream: number as u32,
            throughput_bps: rate(to.bytes, to.seconds),
            bytes: to.bytes,
            seconds: to.seconds,
            retransmits: from.retransmits,
            rtt_ms: from.rtt_ms,
            rtt_min_ms: from.rtt_min_ms,
            sender_cpu_percent: from.cpu_percent,
            receiver_cpu_percent: to.cpu_percent,
            congestion: from.congestion.clone(),
            mss: from.mss,
            send_buffer_bytes: from.buffer_bytes,
            receive_buffer_bytes: to.buffer_bytes,
            udp: to.udp.map(|to| UdpResult::join_reports(from.udp.as_ref(), &to)),
            link: plan.link_of(number as u32).map(|(link, _)| link as u32),
            sender_address: from.address.clone(),
            receiver_address: to.address.clone(),
            sender_cpus: from.cpus.clone(),
            receiver_cpus: to.cpus.clone(),
            multipath: from.multipath,
            failure: from.failure.clone().or_else(|| to.failure.clone()),
        };
    sender.streams.iter().zip(&receiver.streams).enumerate().map(join).collect()
}

fn links(plan: &TestPlan, streams: &[StreamResult], seconds: f64) -> Vec<LinkSummary> {
    let link = |(number, link): (usize, &TestLink)| {
        let of: Vec<_> = streams.iter().filter(|s| s.link == Some(number as u32)).collect();
        let bytes = Bytes::new(sum(of.iter().map(|s| s.bytes.get())));
        LinkSummary {
            link: number as u32,
            client: link.client.as_ref().map(ToString::to_string),
            server: link.server.as_ref().map(ToString::to_string),
            streams: of.len() as u32,
            bytes,
            throughput_bps: rate(bytes, seconds),
            retransmits: sum_known(of.iter().map(|s| s.retransmits)),
        }
    };
    plan.links.iter().enumerate().map(link).collect()
}

impl TestResult {
    /// Combines the results of both ends for a whole test; of a bidirectional test for the
    /// direction from client to server.
    pub fn fold(target: String, plan: TestPlan, end: TestEnd, measured: MeasuredHalf) -> Self {
        let (half, warnings) = TestHalf::fold(&plan, &end, measured);
        TestResult {
            schema: TEST_SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            target,
            third_party: None,
            peer: None,
            invocation: None,
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

    /// Adds the direction from server to client.
    #[must_use]
    pub fn with_reverse(mut self, measured: MeasuredHalf) -> Self {
        let (half, warnings) = TestHalf::fold(&self.plan, &self.end, measured);
        self.reverse = Some(Box::new(half));
        for warning in warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        self
    }

    /// Returns the client's end and the server's end, in this order. Which of them is the sender
    /// depends on the direction.
    pub fn client_and_server(&self) -> (&SideSummary, &SideSummary) {
        match self.plan.direction {
            Direction::Forward | Direction::Both => (&self.summary.sender, &self.summary.receiver),
            Direction::Reverse => (&self.summary.receiver, &self.summary.sender),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::result::{SideResult, SideStream, SideStreamSample, TcpSample, WarningKind};

    pub(in super::super) fn side(totals: &[u64]) -> SideResult {
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
            ..SideStream::default()
        };
        let streams = totals.iter().map(stream).collect();
        SideResult { seconds: 2.0, cpu_seconds: 2.0, streams, ..SideResult::default() }
    }

    fn fold(plan: TestPlan, end: TestEnd, sent: &[u64], received: &[u64]) -> TestResult {
        let (sender, receiver) = (&side(sent), &side(received));
        let measured =
            MeasuredHalf { intervals: vec![], sender: sender.into(), receiver: receiver.into() };
        TestResult::fold("far".to_owned(), plan, end, measured)
    }

    #[test]
    fn goodput_is_the_receivers() {
        let plan = TestPlan { streams: 2, ..TestPlan::new() };
        let result = fold(plan, TestEnd::Completed, &[1000, 2000], &[1000, 2000]);
        assert_eq!(result.summary.throughput_bps, Rate::from_bps(12_000));
        assert_eq!(result.summary.totals_agree, Some(true));
        assert_eq!(result.summary.sender.retransmits, Some(6));
        assert_eq!(result.summary.receiver.cpu_percent, Some(100.0));
        assert_eq!(result.warnings, []);
        let text = serde_json::to_string(&result).unwrap();
        assert!(text.starts_with(r#"{"schema":"longhaul.test/1","#), "{text}");
        assert_eq!(serde_json::from_str::<TestResult>(&text).unwrap(), result);
    }

    #[test]
    fn totals_are_compared_stream_by_stream() {
        let plan = TestPlan { streams: 2, ..TestPlan::new() };
        let result = fold(plan.clone(), TestEnd::Completed, &[10, 20], &[20, 10]);
        assert_eq!(result.summary.totals_agree, Some(false));
        assert!(matches!(result.warnings[0].kind, WarningKind::TotalsDisagree { .. }));
        let cut = TestEnd::Cut { reason: "gone".to_owned() };
        assert_eq!(fold(plan, cut, &[10, 20], &[10, 15]).summary.totals_agree, None);
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
            ..TcpSample::default()
        };
        let sample = |bytes, tcp: Option<&TcpSample>| SideSample {
            index: 4,
            omitted: false,
            start_seconds: 4.0,
            end_seconds: 5.0,
            cpu_seconds: 0.25,
            streams: vec![
                SideStreamSample {
                    bytes: Bytes::new(bytes),
                    tcp: tcp.cloned(),
                    ..SideStreamSample::default()
                };
                2
            ],
            ..SideSample::default()
        };
        let (sender, receiver) = (sample(5000, Some(&tcp)), sample(4000, None));
        let joined = TestSample::join(&receiver, Some(&sender));
        assert_eq!(joined.bytes, Bytes::new(8000));
        assert_eq!(joined.throughput_bps, Rate::from_bps(64_000));
        assert_eq!((joined.retransmits, joined.rtt_ms), (Some(4), Some(90.0)));
        assert_eq!(joined.sender_cpu_percent, Some(25.0));
        assert_eq!(joined.streams[1].sender, Some(tcp));
        let alone = TestSample::join(&receiver, None);
        assert_eq!((alone.retransmits, alone.rtt_ms, alone.sender_cpu_percent), (None, None, None));
    }
}
