//! The data of one test, until the client ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use longhaul_core::plan::TestPlan;
use longhaul_core::result::{SideResult, TestSample};
use longhaul_engine::EngineError;
use longhaul_engine::test::{DatagramFormat, TestMemory};

use super::{Failure, Measured, Session};
use crate::error::Step;
use crate::iperf3::control::{Control, STEP_LIMIT};
use crate::iperf3::datagram::DatagramHeader;
use crate::iperf3::direction::{Note, Runs, Sockets, TestDirection, sample_of};
use crate::iperf3::machine::{ServerEvent, ServerMachine};
use crate::iperf3::state::State;

/// The interval at which the samples and the control connection are read. A server that sends
/// continues until it reads the end of the test.
const LOOK: Duration = Duration::from_millis(5);

impl Session<'_> {
    /// Runs all directions until the client ends the test.
    pub(super) fn measure(
        &self,
        control: &mut Control<ServerMachine>,
        plan: &TestPlan,
        memory: &TestMemory,
        (halves, long): (Vec<(TestDirection, Sockets)>, bool),
    ) -> Result<Vec<Measured>, Failure> {
        let (stop, abort) = (AtomicBool::new(false), AtomicBool::new(false));
        let format: Arc<dyn DatagramFormat> = Arc::new(DatagramHeader { long });
        let runs = Runs {
            plan,
            at_client: false,
            limits: self.limits,
            memory: Some(memory),
            format: &format,
            stop: &stop,
            abort: &abort,
        };
        let mut sides: Vec<_> = halves.iter().map(|(half, _)| (*half, None, Vec::new())).collect();
        let (notes, heard) = mpsc::channel();
        let ended = thread::scope(|scope| {
            let mut threads = Vec::new();
            for (half, sockets) in halves {
                let notes = notes.clone();
                let run = scope.spawn(move || runs.run(half, sockets, &notes));
                threads.push(run.thread().clone());
            }
            drop(notes);
            // A run that sleeps between two checks sees the flag at once.
            let end = || {
                stop.store(true, Ordering::Release);
                threads.iter().for_each(thread::Thread::unpark);
            };
            let ended = self.gather(control, &heard, &mut sides, end);
            abort.store(ended.is_err(), Ordering::Release);
            ended
        });
        ended?;
        let complete =
            |(half, side, samples): (TestDirection, Option<SideResult>, Vec<TestSample>)| {
                Some((half, side?, samples))
            };
        let sides: Option<Vec<Measured>> = sides.into_iter().map(complete).collect();
        let sides = sides.ok_or(Failure::Lost(EngineError::Interrupted))?;
        let cut = sides.iter().any(|(_, side, _)| side.cut.is_some());
        if !stop.load(Ordering::Relaxed) && !cut {
            // The client has closed its data connections and ends the test next.
            match control.wait(STEP_LIMIT, Step::Running, || !self.gate.stopped())? {
                ServerEvent::End => {}
                _ => return Err(self.left(control)),
            }
        }
        Ok(sides)
    }

    /// Receives samples and results until all runs have ended. Calls `end` when the client ends the
    /// data.
    fn gather(
        &self,
        control: &mut Control<ServerMachine>,
        heard: &mpsc::Receiver<Note>,
        sides: &mut [(TestDirection, Option<SideResult>, Vec<TestSample>)],
        end: impl Fn(),
    ) -> Result<(), Failure> {
        let mut over = false;
        loop {
            match heard.recv_timeout(LOOK) {
                Ok(Note::Sample(sample)) => {
                    let of = sample.reverse;
                    for (half, _, samples) in sides.iter_mut().filter(|s| s.0.reverse == of) {
                        samples.push(sample_of(*half, &sample));
                    }
                }
                Ok(Note::End(result)) => {
                    let result = result.map_err(Failure::Lost)?;
                    let of = result.reverse;
                    if let Some(found) = sides.iter_mut().find(|s| s.0.reverse == of) {
                        found.1 = Some(result);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if self.gate.stopped() {
                let _ = control.send_state(State::ServerTerminate, Step::Running);
                return Err(Failure::Lost(EngineError::Interrupted));
            }
            if over {
                continue;
            }
            match control.poll(Step::Running)? {
                None => {}
                Some(ServerEvent::End) => {
                    over = true;
                    end();
                }
                Some(_) => return Err(self.left(control)),
            }
        }
    }
}
