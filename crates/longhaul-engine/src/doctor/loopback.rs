//! The speed of TCP over loopback: a test of one stream with both ends in this process.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longhaul_core::plan::{TestLength, TestPlan};
use longhaul_core::result::{Measurement, TestResult};
use longhaul_core::wire::{RefusalKind, Service};

use super::failed;
use crate::error::Result;
use crate::serve::{InProcess, Services};
use crate::session::ServedSession;
use crate::test::{self, TestLimits};

const NAME: &str = "loopback_tcp";
const TITLE: &str = "TCP over loopback";

/// Measures one stream for `time`, with a thread each for sender and receiver.
pub(super) fn measure(time: Duration, stop: &AtomicBool) -> Measurement {
    let result = match run(time, stop) {
        Ok(result) => result,
        Err(error) => return failed(NAME, TITLE, &error),
    };
    let summary = &result.summary;
    Measurement {
        name: NAME.to_owned(),
        title: TITLE.to_owned(),
        throughput_bps: Some(summary.throughput_bps),
        seconds: summary.receiver.seconds,
        note: format!(
            "1 stream; sender {:.0} %, receiver {:.0} % of a core",
            summary.sender.cpu_percent.unwrap_or(0.0),
            summary.receiver.cpu_percent.unwrap_or(0.0)
        ),
    }
}

/// The server of one client in this process.
struct Tests;

impl Services for Tests {
    fn refusal(&self, _: Service, _: bool) -> Option<(RefusalKind, String)> {
        None
    }

    fn run(&self, _: Service, session: ServedSession) -> Result<()> {
        test::serve(session, &TestLimits::default())
    }
}

fn run(time: Duration, stop: &AtomicBool) -> Result<TestResult> {
    let (far, session) = InProcess::start(Tests, Service::Test)?;
    let plan = TestPlan { amount: TestLength::Time(time), ..TestPlan::new() };
    let result = test::run(session, &plan, stop, |_| {});
    far.finish();
    result
}
