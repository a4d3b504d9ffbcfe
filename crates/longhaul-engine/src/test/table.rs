//! Joins the measurements of both ends of a test at the client.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use longhaul_core::result::{End, SideResult, SideSample, TestSample};
use longhaul_core::wire::{TestEvent, TestOrder};

use super::context::Part;
use crate::error::{EngineError, Result};
use crate::session::{ControlReceiver, ControlSender};

/// The interval at which the stop flag is checked.
const STOP_CHECK: Duration = Duration::from_millis(20);
/// The most that the server's samples may be ahead of this clock: the omitted time and the end
/// shorten intervals, and the two clocks start at times that differ by the delay of the path.
const SAMPLE_SLACK: Duration = Duration::from_secs(60);

/// The results of this end and of the server for one direction.
pub(super) type BothEnds = (SideResult, SideResult);

/// A message from a thread of the client to the thread that joins the samples.
pub(super) enum Note {
    Ours(SideSample),
    OurEnd(SideResult),
    Theirs(SideSample),
    TheirEnd(Result<SideResult>),
}

/// Passes the server's messages on until the end. It accepts at most the samples of all intervals
/// in each of the `halves`, so that the memory for samples is bounded by the duration.
pub(super) fn listen(
    receiver: &mut ControlReceiver,
    interval: Duration,
    halves: u32,
    notes: &mpsc::Sender<Note>,
) {
    let peer = receiver.peer().to_owned();
    let begun = Instant::now();
    let (mut samples, mut ended) = (0u32, 0);
    while ended < halves {
        let end = match receiver.receive() {
            Ok(TestEvent::Sample(_))
                if begun.elapsed() + SAMPLE_SLACK < interval * (samples / halves) =>
            {
                Err(EngineError::Protocol {
                    peer: peer.clone(),
                    what: "it sent more samples than requested",
                })
            }
            Ok(TestEvent::Sample(sample)) => {
                samples += 1;
                let _ = notes.send(Note::Theirs(sample));
                continue;
            }
            Ok(TestEvent::Done(result)) => Ok(result),
            Ok(TestEvent::Failed { reason }) => {
                Err(EngineError::Failed { peer: peer.clone(), reason, again: false })
            }
            Ok(_) => Err(EngineError::Protocol {
                peer: peer.clone(),
                what: "it sent an unexpected \
                    message",
            }),
            Err(error) => Err(error),
        };
        let broken = end.is_err();
        let _ = notes.send(Note::TheirEnd(end));
        if broken {
            return;
        }
        ended += 1;
    }
}

/// Joins the samples of both ends per interval and direction.
pub(super) struct Table<F> {
    halves: Vec<HalfTable>,
    on_sample: F,
}

/// One direction of the table.
pub(super) struct HalfTable {
    /// The role of this end.
    pub(super) role: End,
    reverse: bool,
    from: VecDeque<SideSample>,
    to: VecDeque<SideSample>,
    pub(super) joined: Vec<TestSample>,
    ends: (Option<SideResult>, Option<SideResult>),
    /// The totals of the server's samples.
    server_so_far: SideResult,
}

impl HalfTable {
    /// Joins the next interval that both ends have completed.
    fn join(&mut self) -> Option<TestSample> {
        let (from, to) = (self.from.front()?, self.to.front()?);
        let joined = TestSample::join(to, Some(from));
        self.from.pop_front();
        self.to.pop_front();
        Some(joined)
    }
}

impl<F: FnMut(&TestSample)> Table<F> {
    pub(super) fn new<T>(parts: &[(Part, T)], on_sample: F) -> Self {
        let half = |(part, _): &(Part, T)| HalfTable {
            role: part.role,
            reverse: part.reverse,
            from: VecDeque::new(),
            to: VecDeque::new(),
            joined: Vec::new(),
            ends: (None, None),
            server_so_far: SideResult::default(),
        };
        Table { halves: parts.iter().map(half).collect(), on_sample }
    }

    /// Receives messages until both ends have finished all directions. Returns the results of this
    /// end and of the server per direction.
    pub(super) fn gather(
        &mut self,
        incoming: &mpsc::Receiver<Note>,
        sender: &ControlSender,
        stop: &AtomicBool,
        abort: &AtomicBool,
    ) -> Result<Vec<BothEnds>> {
        let mut passed_on = false;
        loop {
            if stop.load(Ordering::Acquire) && !passed_on {
                passed_on = true;
                // A server that is gone ends the test by itself.
                let _ = sender.send(&TestOrder::Stop);
            }
            match incoming.recv_timeout(STOP_CHECK) {
                Ok(Note::Ours(sample)) => self.add(true, sample),
                Ok(Note::Theirs(sample)) => self.add(false, sample),
                Ok(Note::OurEnd(result)) => {
                    if result.cut.is_some() {
                        // If one direction breaks, the other ends, too: a test of one direction
                        // would be a different test.
                        abort.store(true, Ordering::Release);
                    }
                    if let Some(half) = self.half(result.reverse) {
                        half.ends.0 = Some(result);
                    }
                }
                // The measurements of a server that vanished count until then.
                Ok(Note::TheirEnd(Err(error))) if error.is_loss() && self.has_measured() => {
                    abort.store(true, Ordering::Release);
                    self.server_is_lost(&error);
                }
                Ok(Note::TheirEnd(result)) => {
                    let result = result?;
                    if let Some(half) = self.half(result.reverse) {
                        half.ends.1 = Some(result);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                // Every thread sends a last message unless it panics. A server that ends one
                // direction twice ends the loop, too.
                Err(RecvTimeoutError::Disconnected) => return Err(EngineError::Interrupted),
            }
            if self.halves.iter().all(|half| half.ends.0.is_some() && half.ends.1.is_some()) {
                let ends = self.halves.iter_mut().map(|half| std::mem::take(&mut half.ends));
                return Ok(ends.filter_map(|(ours, theirs)| ours.zip(theirs)).collect());
            }
        }
    }

    /// Returns the direction of a sample or result; `None` if the test does not have it.
    fn half(&mut self, reverse: bool) -> Option<&mut HalfTable> {
        self.halves.iter_mut().find(|half| half.reverse == reverse)
    }

    /// Returns whether both ends have completed an interval.
    fn has_measured(&self) -> bool {
        self.halves.iter().any(|half| !half.joined.is_empty())
    }

    /// Ends the directions that the server has not ended, with the totals of its samples.
    fn server_is_lost(&mut self, error: &EngineError) {
        for half in self.halves.iter_mut().filter(|half| half.ends.1.is_none()) {
            let so_far = std::mem::take(&mut half.server_so_far);
            half.ends.1 = Some(SideResult { cut: Some(error.to_string()), ..so_far });
        }
    }

    fn add(&mut self, ours: bool, sample: SideSample) {
        let of = sample.reverse;
        let Some(half) = self.halves.iter_mut().find(|half| half.reverse == of) else { return };
        if !ours {
            half.server_so_far.add(&sample);
        }
        let sent = (half.role == End::Sender) == ours;
        let side = if sent { &mut half.from } else { &mut half.to };
        side.push_back(sample);
        while let Some(joined) = half.join() {
            half.joined.push(joined);
            if let Some(joined) = half.joined.last() {
                (self.on_sample)(joined);
            }
        }
    }

    /// Returns all intervals. The last interval of the receiver may have no counterpart and counts
    /// nevertheless.
    pub(super) fn finish(mut self) -> Vec<HalfTable> {
        for half in &mut self.halves {
            for to in std::mem::take(&mut half.to) {
                let joined = TestSample::join(&to, None);
                (self.on_sample)(&joined);
                half.joined.push(joined);
            }
        }
        self.halves
    }
}
