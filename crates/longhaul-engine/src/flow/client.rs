//! The client: asks for a test, runs its own end, and puts both ends' accounts together.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::FlowPlan;
use longhaul_core::result::{End, FlowEnd, FlowResult, FlowSample, SideResult, SideSample};
use longhaul_core::wire::{FlowEvent, FlowOrder};

use super::end::{self, Bounds, Signals, client_role};
use super::limits::{FlowLimits, STEP_LIMIT};
use super::options::socket_options;
use crate::error::{EngineError, Result};
use crate::session::{ControlReceiver, ControlSender, DataDialer, Session};

/// How soon a stop that the user asked for is passed on.
const STOP_LOOK: Duration = Duration::from_millis(20);
/// How far the server's samples may run ahead of our clock: the omitted time and the end cut
/// intervals short, and the two clocks begin a path's delay apart.
const SAMPLE_SLACK: Duration = Duration::from_secs(60);

/// Runs `plan` over `session` and calls `on_sample` each interval. When `stop` is set the test
/// ends in order and the result covers what was measured.
///
/// # Errors
/// The server refuses the plan, a socket option does not work here, a data connection cannot be
/// opened, or the control channel breaks. A data connection that breaks once the test runs is no
/// error: the result says that the test was cut.
pub fn run(
    session: Session,
    plan: &FlowPlan,
    stop: &AtomicBool,
    on_sample: impl FnMut(&FlowSample),
) -> Result<FlowResult> {
    let (sender, mut receiver, dialer) = session.split();
    receiver.set_timeout(Some(STEP_LIMIT))?;
    let streams = prepare(&sender, &mut receiver, &dialer, plan)?;
    let limits = FlowLimits::default();
    // The server speaks each interval, and when it gives up for idleness; longer silence means
    // that it is gone.
    receiver.set_timeout(Some(plan.interval + limits.idle + STEP_LIMIT))?;
    sender.send(&FlowOrder::Start)?;

    let role = client_role(plan.direction);
    let abort = AtomicBool::new(false);
    let signals = Signals { stop, abort: &abort };
    let bounds = Bounds::new(plan, &limits);
    let closer = receiver.closer();
    let (notes, heard) = mpsc::channel();
    let mut table = Table::new(role, on_sample);
    let ends = thread::scope(|scope| {
        let server_notes = notes.clone();
        let interval = plan.interval;
        scope.spawn(move || listen(&mut receiver, interval, &server_notes));
        scope.spawn(move || {
            let to_table = notes.clone();
            let result = end::run(role, streams, plan, bounds, signals, |sample| {
                let _ = to_table.send(Note::Ours(sample));
            });
            let _ = notes.send(Note::OurEnd(result));
        });
        let ends = table.gather(&heard, &sender, stop);
        if ends.is_err() {
            // Neither thread has anything left to wait for.
            abort.store(true, Ordering::Release);
            closer();
        }
        ends
    });
    let (ours, theirs) = ends?;
    // The server waits for this, but not for long.
    let _ = sender.send(&FlowOrder::Finished);
    let end = match ours.cut.as_ref().or(theirs.cut.as_ref()) {
        Some(reason) => FlowEnd::Cut { reason: reason.clone() },
        None if stop.load(Ordering::Relaxed) => FlowEnd::Interrupted,
        None => FlowEnd::Completed,
    };
    let (from, to) = match role {
        End::Sender => (ours, theirs),
        End::Receiver => (theirs, ours),
    };
    let intervals = table.finish();
    let target = sender.peer().to_owned();
    Ok(FlowResult::fold(target, plan.clone(), end, intervals, &from, &to))
}

/// Agrees on the plan and opens the data connections.
fn prepare(
    sender: &ControlSender,
    receiver: &mut ControlReceiver,
    dialer: &DataDialer,
    plan: &FlowPlan,
) -> Result<Vec<TcpStream>> {
    let options = socket_options(plan, client_role(plan.direction));
    // Options fail here, by name, rather than as a data connection that cannot be opened.
    let probe = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
        .map_err(|source| EngineError::System { operation: "open a socket", source })?;
    options.apply(&probe)?;
    sender.send(&FlowOrder::Plan(plan.clone()))?;
    expect(receiver, &FlowEvent::Accepted)?;
    let streams = (0..plan.streams)
        .map(|number| dialer.open(number, |s| options.apply(s).map_err(io::Error::other)))
        .collect::<Result<_>>()?;
    expect(receiver, &FlowEvent::Ready)?;
    Ok(streams)
}

fn expect(receiver: &mut ControlReceiver, expected: &FlowEvent) -> Result<()> {
    let peer = receiver.peer().to_owned();
    match receiver.receive()? {
        event if event == *expected => Ok(()),
        FlowEvent::Refused { kind, reason } => Err(EngineError::Refused { peer, kind, reason }),
        FlowEvent::Failed { reason } => Err(EngineError::Failed { peer, reason, again: false }),
        _ => Err(EngineError::Protocol { peer, what: "it answered out of turn" }),
    }
}

/// What the threads of the client tell the one that keeps the table.
enum Note {
    Ours(SideSample),
    OurEnd(SideResult),
    Theirs(SideSample),
    TheirEnd(Result<SideResult>),
}

/// Passes on what the server says, to the end. It may say no more than there are intervals, so
/// that what waits to be joined is bounded by the test's time.
fn listen(receiver: &mut ControlReceiver, interval: Duration, notes: &mpsc::Sender<Note>) {
    let peer = receiver.peer().to_owned();
    let begun = Instant::now();
    let mut samples = 0u32;
    loop {
        let end = match receiver.receive() {
            Ok(FlowEvent::Sample(_)) if begun.elapsed() + SAMPLE_SLACK < interval * samples => {
                Err(EngineError::Protocol { peer, what: "it sends more samples than asked for" })
            }
            Ok(FlowEvent::Sample(sample)) => {
                samples += 1;
                let _ = notes.send(Note::Theirs(sample));
                continue;
            }
            Ok(FlowEvent::Done(result)) => Ok(result),
            Ok(FlowEvent::Failed { reason }) => {
                Err(EngineError::Failed { peer, reason, again: false })
            }
            Ok(_) => Err(EngineError::Protocol { peer, what: "it spoke out of turn" }),
            Err(error) => Err(error),
        };
        let _ = notes.send(Note::TheirEnd(end));
        return;
    }
}

/// Joins the two ends' samples, interval by interval.
struct Table<F> {
    role: End,
    from: VecDeque<SideSample>,
    to: VecDeque<SideSample>,
    joined: Vec<FlowSample>,
    on_sample: F,
}

impl<F: FnMut(&FlowSample)> Table<F> {
    fn new(role: End, on_sample: F) -> Self {
        let (from, to) = (VecDeque::new(), VecDeque::new());
        Table { role, from, to, joined: Vec::new(), on_sample }
    }

    /// Takes notes until both ends are over. Returns ours and theirs.
    fn gather(
        &mut self,
        heard: &mpsc::Receiver<Note>,
        sender: &ControlSender,
        stop: &AtomicBool,
    ) -> Result<(SideResult, SideResult)> {
        let (mut ours, mut theirs) = (None, None);
        let mut passed_on = false;
        loop {
            if stop.load(Ordering::Acquire) && !passed_on {
                passed_on = true;
                sender.send(&FlowOrder::Stop)?;
            }
            match heard.recv_timeout(STOP_LOOK) {
                Ok(Note::Ours(sample)) => self.add(self.role, sample),
                Ok(Note::Theirs(sample)) => self.add(opposite(self.role), sample),
                Ok(Note::OurEnd(result)) => ours = Some(result),
                Ok(Note::TheirEnd(result)) => theirs = Some(result?),
                Err(RecvTimeoutError::Timeout) => {}
                // Both threads say their end before they go, unless they panic.
                Err(RecvTimeoutError::Disconnected) => return Err(EngineError::Interrupted),
            }
            match (ours.take(), theirs.take()) {
                (Some(ours), Some(theirs)) => return Ok((ours, theirs)),
                (one, other) => (ours, theirs) = (one, other),
            }
        }
    }

    fn add(&mut self, of: End, sample: SideSample) {
        match of {
            End::Sender => self.from.push_back(sample),
            End::Receiver => self.to.push_back(sample),
        }
        while let (Some(_), Some(to)) = (self.from.front(), self.to.front()) {
            let joined = FlowSample::join(to, self.from.front());
            self.from.pop_front();
            self.to.pop_front();
            self.emit(joined);
        }
    }

    fn emit(&mut self, sample: FlowSample) {
        (self.on_sample)(&sample);
        self.joined.push(sample);
    }

    /// All intervals. The receiver's last may have no counterpart: it counts all the same.
    fn finish(mut self) -> Vec<FlowSample> {
        while let Some(to) = self.to.pop_front() {
            self.emit(FlowSample::join(&to, None));
        }
        self.joined
    }
}

fn opposite(role: End) -> End {
    match role {
        End::Sender => End::Receiver,
        End::Receiver => End::Sender,
    }
}
