//! The control connection while the data move.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_engine::EngineError;

use crate::error::{Fault, InteropError, PeerName, Result, Step};
use crate::nuttcp::drive::channel::{self, Channel, ChannelRead, Deadline};
use crate::nuttcp::drive::result::Joiner;
use crate::nuttcp::{Client, ClientEvent, ServerReport};

/// The longest silence of a server after the data: nuttcp's own client waits as long.
const REPORT_LIMIT: Duration = Duration::from_secs(60);
/// The time in which this end has to finish after the server has closed the control connection.
const LAST_DATA: Duration = Duration::from_secs(5);

/// A note of the thread that reads the control connection.
pub(super) enum Note {
    Event(ClientEvent),
    Failed(InteropError),
}

/// The flags of a running test.
#[derive(Default)]
pub(super) struct Flags {
    /// Aborts this end's data.
    pub(super) abort: AtomicBool,
    /// This end has no more data.
    pub(super) done: AtomicBool,
    /// The server has closed the control connection.
    pub(super) closed: AtomicBool,
    /// Ends this end's data: the user stopped the test, or its time is over.
    pub(super) halt: AtomicBool,
}

/// The last notes of the control connection.
#[derive(Default)]
pub(super) struct ServerNotes {
    pub(super) report: Option<ServerReport>,
    pub(super) failed: Option<InteropError>,
}

impl ServerNotes {
    pub(super) fn take(&mut self, heard: &Receiver<Note>, joiner: &mut Joiner<'_>) {
        for note in heard.try_iter() {
            match note {
                Note::Event(ClientEvent::Interval(line, interval)) => {
                    joiner.theirs(line, *interval);
                }
                Note::Event(ClientEvent::Notice(line)) => joiner.notice(&line),
                Note::Event(ClientEvent::Finished(report)) => self.report = Some(*report),
                Note::Event(ClientEvent::Accepted(_) | ClientEvent::IntervalsOver) => {}
                Note::Failed(error) => self.failed = Some(error),
            }
        }
    }
}

/// The thread that reads the control connection.
pub(super) struct Watch<'a> {
    pub(super) channel: Channel,
    pub(super) peer: PeerName,
    pub(super) flags: &'a Flags,
    pub(super) stop: &'a AtomicBool,
    /// The time after which a sender stops before its bytes are sent.
    pub(super) time: Option<Duration>,
    /// True over UDP: nuttcp does not send a mark of the end on every stream.
    pub(super) datagrams: bool,
}

impl Watch<'_> {
    pub(super) fn run(mut self, mut machine: Client, notes: &Sender<Note>) {
        let note = match self.read(&mut machine, notes) {
            Ok(report) => Note::Event(report),
            Err(error) => {
                self.flags.abort.store(true, Ordering::Release);
                Note::Failed(error)
            }
        };
        let _ = notes.send(note);
        self.flags.closed.store(true, Ordering::Release);
        if self.datagrams {
            self.flags.halt.store(true, Ordering::Release);
        }
        self.let_data_end();
    }

    /// Reads until the server closes the channel.
    fn read(&mut self, machine: &mut Client, notes: &Sender<Note>) -> Result<ClientEvent> {
        let begun = Instant::now();
        let mut heard = begun;
        loop {
            if self.stop.load(Ordering::Relaxed) || self.time.is_some_and(|t| begun.elapsed() > t) {
                self.flags.halt.store(true, Ordering::Release);
            }
            match self.channel.look() {
                ChannelRead::Bytes(bytes) => {
                    heard = Instant::now();
                    for event in machine.receive(&bytes).map_err(|_| self.malformed())? {
                        let _ = notes.send(Note::Event(event));
                    }
                }
                ChannelRead::Nothing if !self.flags.done.load(Ordering::Acquire) => {
                    heard = Instant::now();
                }
                // A server that sends does not know of an interruption, and has no report.
                ChannelRead::Nothing
                    if self.stop.load(Ordering::Relaxed) && heard.elapsed() > LAST_DATA =>
                {
                    return Err(EngineError::Interrupted.into());
                }
                ChannelRead::Nothing if heard.elapsed() > REPORT_LIMIT => {
                    let (peer, limit) = (self.peer.clone(), REPORT_LIMIT);
                    return Err(InteropError::Silent { peer, during: Step::Results, limit });
                }
                ChannelRead::Nothing => {}
                ChannelRead::End => {
                    return machine.end().map_err(|_| self.malformed());
                }
                ChannelRead::Broken(source) => {
                    let (peer, source) = (self.peer.clone(), Some(source));
                    return Err(InteropError::Closed { peer, during: Step::Running, source });
                }
            }
        }
    }

    fn malformed(&self) -> InteropError {
        let (peer, fault) = (self.peer.clone(), Fault::Malformed);
        InteropError::Protocol { peer, during: Step::Running, fault }
    }

    /// Waits for this end's data, which cannot continue for long without the server.
    fn let_data_end(&self) {
        let deadline = Deadline::after(LAST_DATA);
        while !self.flags.done.load(Ordering::Acquire) {
            if deadline.is_over() {
                return self.flags.abort.store(true, Ordering::Release);
            }
            thread::sleep(channel::LOOK);
        }
    }
}
