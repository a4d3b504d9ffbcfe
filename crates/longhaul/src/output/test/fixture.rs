//! Test data: a test of four streams at 90 ms.

use longhaul_core::plan::{Direction, TestPlan};
use longhaul_core::result::{
    Curve, HostSample, MeasuredHalf, SideResult, SideSample, SideStream, SideStreamSample,
    TcpSample, TestEnd, TestResult, TestSample, ThreadSample,
};
use longhaul_core::units::{Bytes, Rate};

pub(super) fn plan(direction: Direction) -> TestPlan {
    TestPlan { streams: 4, direction, ..TestPlan::new() }
}

fn side(cpu_seconds: f64, retransmits: u64, rtt_ms: f64) -> SideResult {
    let stream = SideStream {
        bytes: Bytes::new(2_942_500_000),
        total_bytes: Bytes::new(2_942_500_000),
        seconds: 10.0,
        cpu_seconds: cpu_seconds / 4.0,
        retransmits,
        rtt_ms,
        rtt_min_ms: 90.0,
        congestion: "bbr".to_owned(),
        mss: 8948,
        buffer_bytes: Bytes::mib(4),
        ..SideStream::default()
    };
    let curve = Curve { period_seconds: 0.1, bytes: vec![117_700_000; 100] };
    SideResult {
        seconds: 10.0,
        cpu_seconds,
        streams: vec![stream; 4],
        curve: Some(curve),
        ..SideResult::default()
    }
}

fn tcp() -> TcpSample {
    TcpSample {
        rtt_ms: 90.06,
        rtt_mean_ms: 90.06,
        rtt_variation_ms: 0.1,
        cwnd_bytes: Bytes::mib(110),
        peer_window_bytes: Bytes::mib(200),
        retransmits: 12,
        segments: 120_000,
        delivery_rate_bps: Rate::from_bps(9_400_000_000),
        busy_ms: 1000.0,
        cwnd_limited_ms: 910.0,
        ..TcpSample::default()
    }
}

/// Returns an omitted interval of one stream.
pub(super) fn interval() -> TestSample {
    let half = |tcp: Option<TcpSample>| SideSample {
        index: 11,
        omitted: true,
        start_seconds: 11.0,
        end_seconds: 12.0,
        cpu_seconds: 0.54,
        streams: vec![SideStreamSample {
            bytes: Bytes::new(1_177_000_000),
            tcp,
            thread: Some(ThreadSample::default()),
            ..SideStreamSample::default()
        }],
        host: Some(HostSample::default()),
        ..SideSample::default()
    };
    TestSample::join(&half(None), Some(&half(Some(tcp()))))
}

pub(super) fn result(direction: Direction, end: TestEnd) -> TestResult {
    let (sender, receiver) = (side(5.4, 3, 90.06), side(7.1, 0, 90.0));
    let intervals = vec![TestSample { omitted: false, ..interval() }];
    let measured =
        MeasuredHalf { intervals, sender: (&sender).into(), receiver: (&receiver).into() };
    let mut result = TestResult::fold("far:5210".into(), plan(direction), end, measured);
    crate::output::complete_test(&mut result);
    result
}
