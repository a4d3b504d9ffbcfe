//! The warnings about a test.

use super::{StreamResult, TestEnd, TestSample, TestSummary};
use crate::plan::TestPlan;
use crate::result::{End, MissedTime, WarningKind};
use crate::units::{Bytes, Rate};

/// The percentage of a core above which a thread is fully loaded.
const CPU_BOUND_PERCENT: f64 = 97.0;
/// The share of the requested rate below which a paced test missed it. The requested rate includes
/// headers, which take up to 4 %.
const PACED_PART: f64 = 0.9;

/// The share of the requested rate by which a sender of datagrams may miss it over a second.
const KEPT_PART: f64 = 0.01;
/// The time over which the rate of datagrams is compared, with the inaccuracy of an interval.
const KEPT_SECONDS: f64 = 0.99;
/// The bytes by which a pacing timer may be early or late: a burst at each end of the time, at the
/// default size and the largest one.
const BURST_SECONDS: f64 = 1e-3;
const BURST_BYTES: f64 = 65_536.0;

/// Returns the reasons why the result may be misleading.
pub(super) fn warnings(
    plan: &TestPlan,
    end: &TestEnd,
    summary: &TestSummary,
    streams: &[StreamResult],
    intervals: &[TestSample],
) -> Vec<WarningKind> {
    let mut found = Vec::new();
    if let Some(requested_bytes) = plan.window_bytes {
        found.extend(clipped(End::Sender, requested_bytes, streams));
        found.extend(clipped(End::Receiver, requested_bytes, streams));
    }
    let mut busy = |end, of: fn(&StreamResult) -> Option<f64>| {
        let most = streams.iter().filter_map(of).fold(0.0, f64::max);
        if most >= CPU_BOUND_PERCENT {
            found.push(WarningKind::CpuBound { end, cpu_percent: most });
        }
    };
    busy(End::Sender, |s| s.sender_cpu_percent);
    busy(End::Receiver, |s| s.receiver_cpu_percent);
    let totals = summary.sender.total_bytes.zip(summary.receiver.total_bytes);
    if let (Some(false), Some((sent_bytes, received_bytes))) = (summary.totals_agree, totals) {
        found.push(WarningKind::TotalsDisagree { sent_bytes, received_bytes });
    }
    let throughput_bps = summary.throughput_bps;
    if let Some(requested_bps) = plan.rate_bps.filter(|_| *end == TestEnd::Completed) {
        let sending = missed_time(requested_bps, plan, streams, intervals);
        let arrived = throughput_bps.bps() as f64 / requested_bps.bps().max(1) as f64;
        if sending.is_some() || arrived < PACED_PART {
            found.push(WarningKind::PacingMissed { requested_bps, throughput_bps, sending });
        }
    }
    if plan.skip_receive_copy {
        found.push(WarningKind::ReceiveNotCopied);
    }
    if let Some(udp) = &summary.udp {
        for (end, datagrams) in
            [(End::Sender, udp.sender_dropped), (End::Receiver, udp.receiver_dropped)]
        {
            if let Some(datagrams @ 1..) = datagrams {
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

/// Returns the warning that the kernel of `end` has made the buffers smaller than requested.
fn clipped(end: End, requested_bytes: Bytes, streams: &[StreamResult]) -> Option<WarningKind> {
    let granted = streams.iter().filter_map(|stream| match end {
        End::Sender => stream.send_buffer_bytes,
        End::Receiver => stream.receive_buffer_bytes,
    });
    // The kernel rounds sizes, so a small difference does not mean that it clipped the buffer.
    let is_clipped = |granted: &Bytes| granted.get() + 4096 < requested_bytes.get();
    let granted_bytes = granted.min().filter(is_clipped)?;
    Some(WarningKind::WindowClipped { end, requested_bytes, granted_bytes })
}

/// Returns the time of a second or longer in which a sender of datagrams missed the requested rate most.
fn missed_time(
    requested_bps: Rate,
    plan: &TestPlan,
    streams: &[StreamResult],
    intervals: &[TestSample],
) -> Option<MissedTime> {
    let wanted = requested_bps.bps() as f64 / 8.0;
    let datagram = streams.iter().filter_map(|stream| stream.mss).max().map_or(0.0, f64::from);
    let each = BURST_SECONDS * wanted / streams.len().max(1) as f64;
    let burst = plan.burst_bytes.map_or(each.min(BURST_BYTES), |bytes| bytes.get() as f64);
    let slack = 2.0 * streams.len() as f64 * burst.max(datagram);
    // The last interval ends after the data.
    let (_, whole) = intervals.split_last()?;
    let mut worst: Option<(f64, Kept)> = None;
    let mut part: Option<Kept> = None;
    for sample in whole.iter().filter(|sample| !sample.omitted) {
        let now = Kept::of(sample)?.after(part.take());
        if now.seconds() < KEPT_SECONDS {
            part = Some(now);
            continue;
        }
        let missed = (now.bytes - wanted * now.seconds()).abs() - slack;
        let missed = missed / (wanted * now.seconds());
        if missed > KEPT_PART && worst.as_ref().is_none_or(|(most, _)| missed > *most) {
            worst = Some((missed, now));
        }
    }
    let (_, time) = worst?;
    let seconds = time.seconds();
    Some(MissedTime {
        sent_bps: Rate::from_bps((8.0 * time.bytes / seconds) as u64),
        from_seconds: time.from_seconds,
        to_seconds: time.to_seconds,
        running_percent: time.running / seconds,
        waiting_percent: time.waiting / seconds,
    })
}

/// The datagrams of a time of a second or longer.
struct Kept {
    from_seconds: f64,
    to_seconds: f64,
    /// The bytes sent.
    bytes: f64,
    /// The shares in percent in which the busiest thread ran and waited, times the seconds.
    running: f64,
    waiting: f64,
}

impl Kept {
    fn of(sample: &TestSample) -> Option<Self> {
        let seconds = sample.seconds();
        let threads = sample.streams.iter().filter_map(|stream| stream.sender_thread.as_ref());
        let busiest = threads.max_by(|a, b| a.running_percent.total_cmp(&b.running_percent))?;
        Some(Kept {
            from_seconds: sample.start_seconds,
            to_seconds: sample.end_seconds,
            bytes: sample.sent_bps?.bps() as f64 / 8.0 * seconds,
            running: busiest.running_percent * seconds,
            waiting: busiest.waiting_percent.unwrap_or(0.0) * seconds,
        })
    }

    /// Returns this time together with the one `before` it.
    fn after(self, before: Option<Self>) -> Self {
        let Some(before) = before else { return self };
        Kept {
            from_seconds: before.from_seconds,
            bytes: before.bytes + self.bytes,
            running: before.running + self.running,
            waiting: before.waiting + self.waiting,
            ..self
        }
    }

    fn seconds(&self) -> f64 {
        self.to_seconds - self.from_seconds
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::fold::tests::side;
    use super::*;
    use crate::result::{
        MeasuredHalf, SideResult, SideSample, SideStreamSample, TestResult, ThreadSample, UdpCounts,
    };

    #[test]
    fn each_cause_of_an_invalid_result_is_named() {
        let kinds = |plan, sent: &SideResult| -> Vec<_> {
            let received = side(&[1000]);
            let end = TestEnd::Completed;
            let measured = MeasuredHalf {
                intervals: vec![],
                sender: sent.into(),
                receiver: (&received).into(),
            };
            TestResult::fold("far".into(), plan, end, measured)
                .warnings
                .into_iter()
                .map(|w| w.kind)
                .collect()
        };
        let clipped = TestPlan { window_bytes: Some(Bytes::mib(64)), ..TestPlan::new() };
        let found = kinds(clipped, &side(&[1000]));
        assert!(matches!(found[0], WarningKind::WindowClipped { end: End::Sender, .. }));
        assert!(matches!(found[1], WarningKind::WindowClipped { end: End::Receiver, .. }));

        let paced = TestPlan { rate_bps: Some(Rate::from_bps(10_000)), ..TestPlan::new() };
        assert!(matches!(kinds(paced, &side(&[1000]))[..], [WarningKind::PacingMissed { .. }]));

        let mut busy = side(&[1000]);
        busy.streams[0].cpu_seconds = 1.96;
        let found = kinds(TestPlan::new(), &busy);
        assert!(matches!(found[..], [WarningKind::CpuBound { end: End::Sender, .. }]));

        let mut early = side(&[0]);
        early.seconds = 0.0;
        let plan = TestPlan { omit: Duration::from_secs(4), ..TestPlan::new() };
        let end = TestEnd::Interrupted;
        let measured =
            MeasuredHalf { intervals: vec![], sender: (&early).into(), receiver: (&early).into() };
        let result = TestResult::fold("far".into(), plan, end, measured);
        assert_eq!(result.warnings[0].kind, WarningKind::AllOmitted);
        assert_eq!(result.summary.throughput_bps, Rate::from_bps(0));
    }

    /// Returns the intervals of a sender that sent so many bytes in each of `seconds`.
    fn intervals(seconds: f64, sent: &[u64]) -> Vec<TestSample> {
        let sample = |(index, bytes): (usize, &u64)| {
            let thread = ThreadSample {
                running_percent: 60.0,
                waiting_percent: Some(30.0),
                ..ThreadSample::default()
            };
            let side = SideSample {
                index: index as u32,
                start_seconds: index as f64 * seconds,
                end_seconds: (index + 1) as f64 * seconds,
                streams: vec![SideStreamSample {
                    bytes: Bytes::new(*bytes),
                    udp: Some(UdpCounts::default()),
                    thread: Some(thread),
                    ..SideStreamSample::default()
                }],
                ..SideSample::default()
            };
            TestSample::join(&side, Some(&side))
        };
        sent.iter().enumerate().map(sample).collect()
    }

    #[test]
    fn datagrams_at_another_rate_in_a_second_are_named() {
        // 1 Gb/s are 125 MB in a second; the last interval does not count.
        let (plan, rate) = (TestPlan::new(), Rate::from_bps(1_000_000_000));
        let found =
            |seconds, sent: &[u64]| missed_time(rate, &plan, &[], &intervals(seconds, sent));
        let second = 125_000_000;
        assert_eq!(found(1.0, &[second, second * 1001 / 1000, second, 0]), None);
        let sent = [second, second * 97 / 100, second * 95 / 100, second, 0];
        let missed = found(1.0, &sent).expect("the third second is 5 % short");
        assert_eq!(missed.sent_bps.bps(), 950_000_000);
        assert!((missed.from_seconds - 2.0).abs() < 1e-9);
        assert!((missed.running_percent - 60.0).abs() < 1e-9);
        // Short intervals are compared together.
        let uneven = [second / 20, second * 3 / 20].repeat(5);
        assert_eq!(found(0.1, &[&uneven[..], &[0]].concat()), None);
        assert!(found(0.1, &[&[second / 11; 10][..], &[0]].concat()).is_some());
        // In a second of few datagrams, one datagram more or less does not mean that the rate was
        // missed.
        let datagram = StreamResult { mss: Some(8948), ..stream() };
        let few = intervals(1.0, &[8948, 0, 8948, 8948, 0]);
        assert_eq!(missed_time(Rate::from_bps(64_000), &plan, &[datagram], &few), None);
    }

    fn stream() -> StreamResult {
        let measured = MeasuredHalf {
            intervals: vec![],
            sender: (&side(&[1000])).into(),
            receiver: (&side(&[1000])).into(),
        };
        let end = TestEnd::Completed;
        TestResult::fold("far".into(), TestPlan::new(), end, measured).streams.remove(0)
    }
}
