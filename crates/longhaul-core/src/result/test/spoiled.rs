//! The warnings about a test.

use super::{StreamResult, TestEnd, TestSummary};
use crate::plan::TestPlan;
use crate::result::{End, WarningKind};
use crate::units::Bytes;

/// The percentage of a core above which a thread is fully loaded.
const CPU_BOUND_PERCENT: f64 = 97.0;
/// The share of the requested rate below which a paced test missed it. The requested rate includes
/// headers, which take up to 4 %.
const PACED_PART: f64 = 0.9;

/// Returns the reasons why the result may be misleading.
pub(super) fn warnings(
    plan: &TestPlan,
    end: &TestEnd,
    summary: &TestSummary,
    streams: &[StreamResult],
) -> Vec<WarningKind> {
    let mut found = Vec::new();
    if let Some(requested_bytes) = plan.window_bytes {
        let mut clipped = |end, of: fn(&StreamResult) -> Option<Bytes>| {
            let granted = streams.iter().filter_map(of).min();
            // The kernel rounds sizes, so a small difference does not mean that it clipped the
            // buffer.
            if let Some(granted_bytes) = granted.filter(|g| g.get() + 4096 < requested_bytes.get())
            {
                found.push(WarningKind::WindowClipped { end, requested_bytes, granted_bytes });
            }
        };
        clipped(End::Sender, |s| s.send_buffer_bytes);
        clipped(End::Receiver, |s| s.receive_buffer_bytes);
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
    if let Some(requested_bps) = plan.rate_bps
        && *end == TestEnd::Completed
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::fold::tests::side;
    use super::*;
    use crate::result::{SideResult, TestResult};
    use crate::units::Rate;

    #[test]
    fn each_cause_of_an_invalid_result_is_named() {
        let kinds = |plan, sent: &SideResult| -> Vec<_> {
            let received = side(&[1000]);
            let end = TestEnd::Completed;
            TestResult::fold("far".into(), plan, end, vec![], sent, &received)
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
        let result = TestResult::fold("far".into(), plan, end, vec![], &early, &early);
        assert_eq!(result.warnings[0].kind, WarningKind::AllOmitted);
        assert_eq!(result.summary.throughput_bps, Rate::from_bps(0));
    }
}
