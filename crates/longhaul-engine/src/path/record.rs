//! Records the delay, loss and capacity of a path over time.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::plan::PathPlan;
use longhaul_core::plan::link::RecordedWindow;
use longhaul_core::result::{Certainty, PathDirection};
use longhaul_core::units::Rate;
use longhaul_core::wire::{FrameError, PathOrder};
use longhaul_sys::probe::now_nanos;

use super::client::PathClient;
use super::probe_socket::{ProbeReply, ProbeSocket, ProbeSpec, ReplyKind};
use super::series::Series;
use crate::error::{EngineError, Result};
use crate::session::Session;

/// The duration of a window.
const WINDOW: Duration = Duration::from_secs(1);
/// The latest answer that counts.
const PATIENCE: Duration = Duration::from_secs(3);

/// The parameters of a recording.
#[derive(Debug, Clone, Copy)]
pub struct RecordSpec {
    /// The interval between probes, 1 ms to 1 s.
    pub interval: Duration,
    /// The bytes of a probe with its IP header.
    pub packet_bytes: u32,
    /// The duration; a server ends a session after at least five minutes.
    pub time: Duration,
    /// True to estimate the capacity first, which takes some seconds.
    pub capacity: bool,
    /// The time between estimates of the capacity. Each session has one estimate and ends at the next
    /// multiple of this time after the origin, so that the estimates are equally far apart.
    pub rate_every: Duration,
}

/// Records the path to the server of `session` for the time of `spec`, and passes each window to
/// `take`, and whether both ends have the same clock. The windows count from `origin`, and each probe
/// is sent a whole number of intervals after it, so that the sessions of a recording continue each
/// other. It ends early when `stop` is set.
///
/// # Errors
/// The server refuses the measurement or closes the session early, no data can be exchanged with it, or `take`
/// fails.
pub fn record(
    session: Session,
    spec: &RecordSpec,
    origin: Instant,
    stop: &AtomicBool,
    take: Take<'_>,
) -> Result<()> {
    let plan = PathPlan::new();
    let mut client = PathClient::open(session, "", &plan, stop, |_: &str| ())?;
    client.first_trips();
    if spec.capacity {
        // Without an estimate the recording has no capacity.
        let _ = client.capacity();
    }
    let capacity = |way: &PathDirection| {
        let sure = way.capacity.as_ref().filter(|found| found.certainty == Certainty::Good)?;
        sure.estimate_bps
    };
    let capacities = [capacity(&client.result.forward), capacity(&client.result.reverse)];
    let begun = next_slot(origin.elapsed(), spec.interval);
    let time = spec.time.min(until_multiple(begun, spec.rate_every));
    let mut recorder = Recorder {
        series: Series::new(client.same_clock),
        per_window: (WINDOW.as_nanos() / spec.interval.as_nanos().max(1)).max(1) as usize,
        begun,
        origin,
        windows: 0,
        capacities,
        same_clock: client.same_clock,
        spec: RecordSpec { time, ..*spec },
    };
    let server_left = client.receiver.peer_check();
    let ends = || stop.load(Ordering::Acquire) || server_left();
    let recorded = recorder.run(&mut client.flow, ends, take);
    let _ = client.sender.send(&PathOrder::Finished);
    if recorded? || stop.load(Ordering::Acquire) {
        return Ok(());
    }
    let peer = client.receiver.peer().to_owned();
    Err(EngineError::Control { peer, source: FrameError::Closed })
}

/// Returns the time of the first slot that begins after `elapsed`.
fn next_slot(elapsed: Duration, interval: Duration) -> Duration {
    let interval = interval.as_nanos().max(1);
    let slots = elapsed.as_nanos() / interval + 1;
    Duration::from_nanos((slots * interval) as u64)
}

/// Returns the time from `begun` until the next multiple of `every`, or the one after it if the next
/// one is close.
fn until_multiple(begun: Duration, every: Duration) -> Duration {
    const LEAST: Duration = Duration::from_secs(5);
    let left = |after: Duration| every.as_nanos() - after.as_nanos() % every.as_nanos().max(1);
    Duration::from_nanos(left(begun + LEAST) as u64) + LEAST
}

struct Recorder {
    series: Series,
    per_window: usize,
    /// The time of the first probe since the start of the recording.
    begun: Duration,
    origin: Instant,
    windows: usize,
    /// The capacities that the first window states.
    capacities: [Option<Rate>; 2],
    same_clock: bool,
    spec: RecordSpec,
}

/// A function that takes a window.
type Take<'a> = &'a mut dyn FnMut(bool, RecordedWindow) -> io::Result<()>;

impl Recorder {
    /// Returns false if `ends` was true before all probes were sent.
    fn run(
        &mut self,
        flow: &mut impl ProbeSocket,
        ends: impl Fn() -> bool,
        take: Take<'_>,
    ) -> Result<bool> {
        let begun = self.origin + self.begun;
        let interval = self.spec.interval;
        let count = self.spec.time.as_nanos().div_ceil(interval.as_nanos().max(1)) as u32;
        let late = (PATIENCE.as_nanos() / interval.as_nanos().max(1)) as usize;
        let mut complete = true;
        for index in 0..count {
            self.listen(flow, begun + interval * index);
            if ends() {
                complete = false;
                break;
            }
            let number = flow.number();
            let bytes = self.spec.packet_bytes;
            self.series.sent(number, now_nanos());
            let probe =
                ProbeSpec { number, packet_bytes: bytes, answer_bytes: bytes, hop_limit: None };
            flow.send_probe(&probe)
                .map_err(|source| EngineError::System { operation: "send probes", source })?;
            while self.series.len() > late + self.per_window {
                self.pass(take)?;
            }
        }
        let until = Instant::now() + PATIENCE;
        self.listen(flow, until);
        while self.series.len() > 0 {
            self.pass(take)?;
        }
        Ok(complete)
    }

    /// Takes answers until a deadline.
    fn listen(&mut self, flow: &mut impl ProbeSocket, until: Instant) {
        while let Some(reply) = flow.receive_reply(until) {
            if let ProbeReply {
                number: Some(number),
                what: ReplyKind::Answer(Some(peer)),
                at_ns,
                ..
            } = reply
            {
                self.series.answered(number, peer, at_ns);
            }
            if Instant::now() >= until {
                break;
            }
        }
    }

    /// Passes the next window on.
    fn pass(&mut self, take: Take<'_>) -> Result<()> {
        let first = self.windows * self.per_window;
        let seconds = self.begun + self.spec.interval * first as u32;
        let mut window = self.series.window(self.per_window, seconds.as_secs_f64());
        self.windows += 1;
        [window.up.capacity_bps, window.down.capacity_bps] = std::mem::take(&mut self.capacities);
        take(self.same_clock, window)
            .map_err(|source| EngineError::System { operation: "write the recording", source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_end_at_multiples_of_the_time_between_estimates() {
        let seconds = Duration::from_secs;
        let until = |begun: u64| until_multiple(seconds(begun), seconds(60));
        assert_eq!(
            [0, 7, 54, 55, 59, 60, 130].map(until),
            [60, 53, 6, 65, 61, 60, 50].map(seconds)
        );
    }
}
