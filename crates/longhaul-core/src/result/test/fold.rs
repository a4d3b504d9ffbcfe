//! Combines the results of both ends of a test.

use super::math::{mean, percent, rate, sum};
use super::spoiled::warnings;
use super::{
    LinkSummary, Reason, SideSummary, Steady, StreamResult, TEST_SCHEMA, TestEnd, TestFacts,
    TestHalf, TestResult, TestSample, TestSummary,
};
use crate::plan::{Direction, Protocol, TestLink, TestPlan};
use crate::result::{SideResult, SideStream, UdpResult, Warning};
use crate::units::Bytes;

impl SideSummary {
    fn fold(side: &SideResult) -> Self {
        let sum = |of: fn(&SideStream) -> u64| sum(side.streams.iter().map(of));
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

/// The measurements of one direction of a test at its two ends.
#[derive(Debug)]
pub struct MeasuredHalf<'a> {
    /// The intervals with the samples of both ends.
    pub intervals: Vec<TestSample>,
    /// The result of the sending end.
    pub sender: &'a SideResult,
    /// The result of the receiving end.
    pub receiver: &'a SideResult,
}

impl TestHalf {
    /// Combines the results of both ends for one direction, and returns them with the warnings.
    fn fold(plan: &TestPlan, end: &TestEnd, measured: MeasuredHalf<'_>) -> (Self, Vec<Warning>) {
        let MeasuredHalf { intervals, sender, receiver } = measured;
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
            // Datagrams may be lost; their counters record the losses.
            _ if plan.protocol == Protocol::Udp => None,
            TestEnd::Cut { .. } => None,
            TestEnd::Completed | TestEnd::Interrupted => Some(agree()),
        };
        let steady = receiver.curve.as_ref().and_then(|curve| {
            let rtt_ms = sender.streams.iter().map(|s| s.rtt_ms).reduce(f64::max).unwrap_or(0.0);
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
        let warnings = warnings(plan, end, &summary, &streams);
        let warnings = warnings.into_iter().map(Warning::from).collect();
        (TestHalf { summary, streams, intervals }, warnings)
    }
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
            retransmits: sum(of.iter().map(|s| s.retransmits)),
        }
    };
    plan.links.iter().enumerate().map(link).collect()
}

impl TestResult {
    /// Combines the results of both ends for a whole test; of a bidirectional test for the
    /// direction from client to server.
    pub fn fold(target: String, plan: TestPlan, end: TestEnd, measured: MeasuredHalf<'_>) -> Self {
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
    pub fn with_reverse(mut self, measured: MeasuredHalf<'_>) -> Self {
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
    use crate::result::WarningKind;
    use crate::units::Rate;

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
        let measured = MeasuredHalf { intervals: vec![], sender, receiver };
        TestResult::fold("far".to_owned(), plan, end, measured)
    }

    #[test]
    fn goodput_is_the_receivers() {
        let plan = TestPlan { streams: 2, ..TestPlan::new() };
        let result = fold(plan, TestEnd::Completed, &[1000, 2000], &[1000, 2000]);
        assert_eq!(result.summary.throughput_bps, Rate::from_bps(12_000));
        assert_eq!(result.summary.totals_agree, Some(true));
        assert_eq!(result.summary.sender.retransmits, 6);
        assert_eq!(result.summary.receiver.cpu_percent, 100.0);
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
}
