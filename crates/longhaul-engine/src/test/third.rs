//! A test between two servers that a client of one of them requests.
//!
//! The first server is an ordinary client of the second, which applies its own limits to the first:
//! the rights of the third host do not pass through. Only the plan and the address come from the
//! third host, and nothing is executed. The third host could make this server load others, so the
//! service decides who may request such tests
//! ([`Services::refusal`](crate::serve::Services::refusal) of
//! [`Service::ThirdParty`](longhaul_core::wire::Service::ThirdParty)). Data are sent only to
//! servers that use the protocol and accept the test.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use longhaul_core::plan::{Opener, TestPlan};
use longhaul_core::result::{TestResult, TestSample};
use longhaul_core::units::Bytes;
use longhaul_core::wire::{RefusalKind, Service, TARGET_LIMIT_BYTES, ThirdEvent, ThirdOrder};

use super::limits::{STEP_LIMIT, TestLimits, reserve_rate};
use crate::error::{EngineError, Result};
use crate::session::{
    ConfigDir, ConnectOptions, Family, HostPolicy, HostPort, Identity, Operation, ServedSession,
    Session, connect_queued,
};

/// The interval at which the stop flag is checked.
const STOP_CHECK: Duration = Duration::from_millis(20);
/// The additional time of a test for connecting and draining.
const AROUND_LIMIT: Duration = Duration::from_secs(120);

/// Makes the server of `session` run `plan` as the client of `target`. When `stop` is set, the test
/// ends early.
///
/// # Errors
/// The server refuses, cannot reach the other server or is refused by it, or the control channel
/// breaks.
pub fn run_third(
    session: Session,
    target: &HostPort,
    plan: &TestPlan,
    stop: &AtomicBool,
    mut on_sample: impl FnMut(&TestSample),
) -> Result<TestResult> {
    let (sender, mut receiver, _dialer) = session.split();
    let peer = sender.peer().to_owned();
    // The server first connects to the other one. Then the test may be silent as long as an
    // ordinary test.
    let silence = plan.interval + TestLimits::default().idle + 3 * STEP_LIMIT;
    receiver.set_timeout(Some(silence))?;
    sender.send(&ThirdOrder::Run { target: target.to_string(), plan: Box::new(plan.clone()) })?;
    let over = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        let (over, stopping) = (&over, sender.clone());
        scope.spawn(move || {
            while !over.load(Ordering::Acquire) {
                if stop.load(Ordering::Acquire) {
                    let _ = stopping.send(&ThirdOrder::Stop);
                    return;
                }
                thread::park_timeout(STOP_CHECK);
            }
        });
        let mut intervals = Vec::new();
        let result = loop {
            match receiver.receive() {
                Ok(ThirdEvent::Started) => {}
                Ok(ThirdEvent::Sample(sample)) if intervals.len() < most_samples(plan) => {
                    on_sample(&sample);
                    intervals.push(*sample);
                }
                Ok(ThirdEvent::Sample(_)) => {
                    let what = "it sent more samples than requested";
                    break Err(EngineError::Protocol { peer: peer.clone(), what });
                }
                Ok(ThirdEvent::Done(result)) => break Ok(put_back(*result, intervals)),
                Ok(ThirdEvent::Refused { kind, reason }) => {
                    break Err(EngineError::Refused { peer: peer.clone(), kind, reason });
                }
                Ok(ThirdEvent::Failed { reason }) => {
                    break Err(EngineError::Failed { peer: peer.clone(), reason, again: false });
                }
                Err(error) => break Err(error),
            }
        };
        over.store(true, Ordering::Release);
        result
    })?;
    let _ = sender.send(&ThirdOrder::Finished);
    Ok(TestResult { third_party: Some(peer), ..result })
}

/// Returns the maximum number of intervals of `plan`, including those that the omitted time and the
/// end cut.
fn most_samples(plan: &TestPlan) -> usize {
    let longest = TestLimits::default().time + AROUND_LIMIT;
    let each = longest.as_secs_f64() / plan.interval.as_secs_f64();
    (each as usize + 64) * plan.directions() as usize
}

/// Adds the intervals, which were sent one by one, to the result.
fn put_back(mut result: TestResult, intervals: Vec<TestSample>) -> TestResult {
    let (reverse, forward): (Vec<_>, Vec<_>) = intervals.into_iter().partition(|i| i.reverse);
    result.intervals = forward;
    if let Some(half) = &mut result.reverse {
        half.intervals = reverse;
    }
    result
}

/// Serves one request for a test with another server under `limits` on the calling thread. This
/// server connects as `identity` and knows the servers in `config`. It returns in bounded time for
/// every behavior of the client.
///
/// # Errors
/// The client was refused, the test failed, or the control channel broke.
pub fn serve_third(
    session: ServedSession,
    who: (&Identity, &ConfigDir),
    limits: &TestLimits,
) -> Result<()> {
    let ServedSession { sender, mut receiver, streams, record, rate, .. } = session;
    record.note_request(Operation::TestOther, []);
    // This service needs no data connections.
    drop(streams);
    let peer = sender.peer().to_owned();
    receiver.set_timeout(Some(STEP_LIMIT))?;
    let ThirdOrder::Run { target, plan } = receiver.receive()? else {
        return Err(EngineError::Protocol { peer, what: "its first message is not a test" });
    };
    record.with_other(target.clone());
    let refused = refusal(&target, &plan, limits);
    let reserved = reserve_rate(rate.as_ref(), &plan);
    let refused = refused.or_else(|| Some((RefusalKind::Limit, reserved.as_ref().err()?.clone())));
    if let Some((kind, reason)) = refused {
        sender.send(&ThirdEvent::Refused { kind, reason: reason.clone() })?;
        return Err(EngineError::Refused { peer, kind, reason });
    }
    let stop = AtomicBool::new(false);
    receiver.set_timeout(Some(limits.time + AROUND_LIMIT))?;
    let closer = receiver.closer();
    let (finished, wait) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            // A client that leaves or breaks the protocol ends the test, too.
            while let Ok(ThirdOrder::Stop) = receiver.receive() {
                stop.store(true, Ordering::Release);
            }
            stop.store(true, Ordering::Release);
            drop(finished);
        });
        let outcome = record.time(|| {
            as_client(&target, who, &plan, stop, |event| {
                // The receiving thread notices a client that left.
                let _ = sender.send(&event);
            })
        });
        if let Ok(result) = &outcome {
            record.note(|work| work.bytes = moved(result));
        }
        let reported = match &outcome {
            Ok(result) => sender.send(&ThirdEvent::Done(Box::new(result.clone()))),
            Err(error) => sender.send(&ThirdEvent::Failed { reason: sentence(error) }),
        };
        if reported.is_ok() {
            let _ = wait.recv_timeout(STEP_LIMIT);
        }
        closer();
        outcome.map(drop).and(reported)
    })
}

/// Returns the bytes of both directions.
fn moved(result: &TestResult) -> Bytes {
    let reverse = result.reverse.as_ref().map_or(0, |half| half.summary.receiver.bytes.get());
    Bytes::new(result.summary.receiver.bytes.get().saturating_add(reverse))
}

/// Refuses a client that may not request a test between servers.
///
/// # Errors
/// The refusal, for the server's record, or the control channel broke.
pub fn refuse_third(session: ServedSession, reason: String) -> Result<()> {
    let kind = RefusalKind::NotAuthorized;
    session.sender.send(&ThirdEvent::Refused { kind, reason: reason.clone() })?;
    Err(EngineError::Refused { peer: session.sender.peer().to_owned(), kind, reason })
}

/// Returns the error with its causes, which the client cannot query later.
fn sentence(error: &EngineError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn refusal(target: &str, plan: &TestPlan, limits: &TestLimits) -> Option<(RefusalKind, String)> {
    let invalid = |reason: String| Some((RefusalKind::Invalid, reason));
    if target.len() > TARGET_LIMIT_BYTES {
        return invalid("the name of the other server is too long".to_owned());
    }
    if let Err(error) = target.parse::<HostPort>() {
        return invalid(error.to_string());
    }
    if let Err(error) = plan.validate() {
        return invalid(error.to_string());
    }
    if plan.opener == Opener::Server || !plan.links.is_empty() {
        let reason = "a test between two servers cannot reverse its connections or choose \
            addresses";
        return invalid(reason.to_owned());
    }
    limits.refusal(plan).map(|reason| (RefusalKind::Limit, reason))
}

fn as_client(
    target: &str,
    (identity, config): (&Identity, &ConfigDir),
    plan: &TestPlan,
    stop: &AtomicBool,
    report: impl Fn(ThirdEvent),
) -> Result<TestResult> {
    let options = ConnectOptions {
        identity,
        config,
        policy: HostPolicy::RefuseChanged,
        family: Family::Any,
        local: None,
    };
    let session = connect_queued(&target.parse()?, Service::Test, &options, |_| {
        !stop.load(Ordering::Acquire)
    })?;
    report(ThirdEvent::Started);
    let mut result = super::run(session, plan, stop, |sample| {
        report(ThirdEvent::Sample(Box::new(sample.clone())));
    })?;
    result.intervals.clear();
    if let Some(half) = &mut result.reverse {
        half.intervals.clear();
    }
    Ok(result)
}
