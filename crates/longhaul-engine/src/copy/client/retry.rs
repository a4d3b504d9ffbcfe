//! Runs a copy over one session after another until it ends or makes no progress.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::key::CopySecret;
use crate::HASTE;
use crate::copy::past_rates::PastRates;
use crate::copy::progress::CopyRun;
use crate::error::{EngineError, Result};
use crate::session::Session;

/// The pause before the first attempt to connect again; it doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(1_000 / HASTE);
const LONGEST_PAUSE: Duration = Duration::from_millis(5_000 / HASTE);
/// The interval at which a pause checks for the end of the copy.
const STOP_CHECK: Duration = Duration::from_millis(100 / HASTE);

/// The means by which a client connects to the server, at first and again.
pub struct Reconnect<'a> {
    /// Opens a session.
    pub connect: &'a mut dyn FnMut() -> Result<Session>,
    /// The longest time of attempts to reconnect without progress.
    pub give_up: Duration,
    /// Receives the error each time that the connection is lost.
    pub lost: &'a dyn Fn(&EngineError),
    /// The user's secret, on which the copy's key depends.
    pub secret: &'a CopySecret,
    /// The rates of the user's earlier copies; `None` remembers nothing.
    pub past: Option<&'a PastRates>,
}

/// Runs `attempt` over one session after another, until it ends for another reason than a lost
/// connection, or there is no progress for too long. The first session must open at once.
pub(super) fn persist<T>(
    line: Reconnect<'_>,
    run: CopyRun<'_>,
    mut attempt: impl FnMut(Session) -> Result<T>,
) -> Result<T> {
    let CopyRun { progress, stop, .. } = run;
    let mut deadline = None;
    let mut most = 0;
    let mut session = (line.connect)();
    let mut sessions = 0;
    let mut last_pause = PAUSE;
    loop {
        let lost_session = session.is_ok();
        let outcome = session.and_then(|session| {
            sessions += 1;
            attempt(session)
        });
        let error = match outcome {
            Err(error) if error.may_pass() && sessions > 0 => error,
            done => return done,
        };
        if stop.load(Ordering::Relaxed) {
            return Err(EngineError::Interrupted);
        }
        let now = Instant::now();
        let moved = progress.moved().get();
        if moved > most || deadline.is_none() {
            most = moved.max(most);
            deadline = Some(now + line.give_up);
        }
        if deadline.is_some_and(|deadline| now >= deadline) {
            return Err(error);
        }
        if lost_session {
            (line.lost)(&error);
        }
        let sleep = if lost_session { PAUSE } else { (2 * last_pause).min(LONGEST_PAUSE) };
        last_pause = sleep;
        pause(sleep, stop);
        session = (line.connect)();
    }
}

fn pause(time: Duration, stop: &AtomicBool) {
    let end = Instant::now() + time;
    while Instant::now() < end && !stop.load(Ordering::Relaxed) {
        thread::sleep(STOP_CHECK);
    }
}
