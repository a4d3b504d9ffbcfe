//! The limits of a server for tests.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::plan::{TestLength, TestPlan};
use longhaul_core::units::{Bytes, Rate, format_span};

use crate::session::{KeyRate, Reserved};
use crate::share::SessionPool;

/// The longest time without progress on a stream. The receive timeout of iperf3 has the same order,
/// and no retransmission timer of a working path is longer (RFC 6298 allows a minute, but only
/// after several losses in a row).
pub(super) const IDLE_LIMIT: Duration = Duration::from_secs(30);
/// The longest time after the end of a test by time, in which data in flight drain.
pub(super) const DRAIN_LIMIT: Duration = Duration::from_secs(60);
/// The time limit for the client's plan; other clients wait for it.
pub(crate) const PLAN_LIMIT: Duration = Duration::from_secs(5);
/// The time limit of the peer for one step of the setup.
pub(crate) const STEP_LIMIT: Duration = Duration::from_secs(20);

/// The limits of a server for one test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestLimits {
    /// The longest test, including the omitted time. A test by bytes is cut at this time.
    pub time: Duration,
    /// The maximum number of streams.
    pub streams: u32,
    /// The highest rate of a test over all streams of a direction; `None` is unlimited. A client
    /// that requests more or no rate is refused, and one that sends faster is cut.
    pub rate: Option<Rate>,
    /// The maximum memory for buffers: streams times write length.
    pub buffers: Bytes,
    /// The longest time without progress.
    pub idle: Duration,
    /// The memory that this session shares with others; `None` is unlimited.
    pub pool: Option<SessionPool>,
}

impl Default for TestLimits {
    /// Returns an hour and a little, so that `-t 3600 -O 10` passes; 128 streams; 256 MiB.
    fn default() -> Self {
        TestLimits {
            time: Duration::from_secs(3700),
            streams: TestPlan::MAX_STREAMS,
            rate: None,
            buffers: Bytes::mib(256),
            idle: IDLE_LIMIT,
            pool: None,
        }
    }
}

/// Reserves the rate of a test from the rate of its key until the value is dropped.
///
/// # Errors
/// A sentence for a client that requests more than is left.
pub(super) fn reserve_rate(
    rate: Option<&Arc<KeyRate>>,
    plan: &TestPlan,
) -> std::result::Result<Option<Reserved>, String> {
    let Some(rate) = rate else { return Ok(None) };
    rate.reserve(plan.rate_bps).map(Some).map_err(|left| {
        format!("{left} are left of this key's rate of {}; request no more than that", rate.limit())
    })
}

impl TestLimits {
    /// Returns the limits for a client whose key has a rate: a test that sends faster than it
    /// requested is cut.
    pub(super) fn within(&self, rate: Option<&KeyRate>, plan: &TestPlan) -> Self {
        let own = rate.map(|rate| plan.rate_bps.unwrap_or(rate.limit()).min(rate.limit()));
        let rate = [self.rate, own].into_iter().flatten().min();
        TestLimits { rate, ..self.clone() }
    }

    /// Returns the limit that `plan` exceeds, as a sentence without a full stop.
    pub fn refusal(&self, plan: &TestPlan) -> Option<String> {
        if plan.streams > self.streams {
            return Some(format!(
                "this server allows {} streams, not {}",
                self.streams, plan.streams
            ));
        }
        let time = plan.omit
            + if let TestLength::Time(time) = plan.amount { time } else { Duration::ZERO };
        if time > self.time {
            return Some(format!(
                "this server allows tests of {}, not {}",
                format_span(self.time),
                format_span(time)
            ));
        }
        if let Some(limit) = self.rate
            && plan.rate_bps.is_none_or(|rate| rate > limit)
        {
            return Some(match plan.rate_bps {
                Some(rate) => format!("this server allows {limit}, not {rate}"),
                None => format!("this server allows {limit}; request a rate of at most that"),
            });
        }
        let buffers = Bytes::new(plan.write_bytes.get().saturating_mul(plan.streams.into()));
        if buffers > self.buffers {
            return Some(format!(
                "this server allows {} of buffers, not {} streams of {}",
                self.buffers, plan.streams, plan.write_bytes
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_named_when_it_is_passed() {
        let limits = TestLimits { streams: 8, ..TestLimits::default() };
        let plan = TestPlan::new();
        assert_eq!(limits.refusal(&plan), None);
        let streams = TestPlan { streams: 9, ..plan.clone() };
        assert_eq!(limits.refusal(&streams).unwrap(), "this server allows 8 streams, not 9");
        let day = TestLength::Time(Duration::from_secs(86400));
        let long = TestPlan { amount: day, ..plan.clone() };
        assert!(limits.refusal(&long).unwrap().contains("not 86400s"));
        let hour = TestLength::Time(Duration::from_secs(3600));
        let omit = Duration::from_secs(600);
        assert!(limits.refusal(&TestPlan { amount: hour, omit, ..plan.clone() }).is_some());
        let slow = TestLimits { rate: Some(Rate::from_bps(1_000_000)), ..limits.clone() };
        assert!(slow.refusal(&plan).unwrap().contains("allows 1.00 Mb/s; request"));
        let paced = |bps| TestPlan { rate_bps: Some(Rate::from_bps(bps)), ..plan.clone() };
        assert!(slow.refusal(&paced(2_000_000)).unwrap().contains("not 2.00 Mb/s"));
        assert_eq!(slow.refusal(&paced(1_000_000)), None);
        let large = TestPlan { streams: 128, write_bytes: Bytes::mib(4), ..plan };
        assert!(TestLimits::default().refusal(&large).unwrap().contains("256 MiB of buffers"));
    }
}
