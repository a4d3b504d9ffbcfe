use std::io;
use std::num::NonZeroU64;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use longhaul_core::result::{DirectionReport, ProcessorShare};
use longhaul_core::units::Bytes;

use super::Lane;
use super::mailbox::{Inbox, Outbox, mailbox};
use super::sleeper::Sleeper;
use super::strain::Strain;
use super::timeline::Timeline;
use super::warmer::Warmer;
use crate::link::{LinkModel, LinkTime};

/// How many pieces of one direction leave before the other direction has its turn.
const BATCH: usize = 8;

/// Among real-time threads: the lowest, because ordinary ones are all that it has to precede.
const PRIORITY: i32 = 1;

/// The thread that moves packets over some lanes, which are known by their index.
#[derive(Debug)]
pub(crate) struct Driver {
    requests: Outbox<Request>,
    thread: Option<JoinHandle<()>>,
    _warmer: Warmer,
}

/// What passed so far over the lanes of a driver.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// In the order in which the driver was given them.
    pub(crate) lanes: Vec<DirectionReport>,
    /// What the machine gave the thread that runs them.
    pub(crate) processor: ProcessorShare,
}

type Change = Box<dyn FnOnce(&mut LinkModel, LinkTime) + Send>;

enum Request {
    Tell(Sender<Snapshot>),
    Set { lane: usize, budget: Bytes, change: Change },
    Stop,
}

impl Driver {
    /// Starts moving packets.
    pub(crate) fn start(mut lanes: Vec<Lane>) -> io::Result<Self> {
        let (requests, inbox) = mailbox()?;
        let warmer = Warmer::start(lanes.iter().map(Lane::reserve).collect())?;
        let thread = std::thread::Builder::new().name("link".into()).spawn(move || {
            // The default slack of 50 us would make every departure late by as much.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            // Where permitted: on a machine whose processors are all busy, as both ends of a fast
            // transfer see to, an ordinary thread waits for tens of milliseconds at a time.
            let realtime = longhaul_sys::realtime::run_first(PRIORITY).is_ok();
            run(&mut lanes, &inbox, realtime);
        })?;
        Ok(Driver { requests, thread: Some(thread), _warmer: warmer })
    }

    /// What passed so far, counted at one moment between two packets; `None` if the thread has
    /// ended, which it does by itself only where it panics.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let (reply, answer) = channel();
        self.requests.send(Request::Tell(reply));
        answer.recv().ok()
    }

    /// Changes the model of a lane, and how many bytes of packets may be under way on it. Packets
    /// that have entered before keep the times that they were given. The change is made before
    /// any snapshot that is asked for later.
    pub(crate) fn set(
        &self,
        lane: usize,
        budget: Bytes,
        change: impl FnOnce(&mut LinkModel, LinkTime) + Send + 'static,
    ) {
        self.requests.send(Request::Set { lane, budget, change: Box::new(change) });
    }

    fn halt(&mut self) {
        self.requests.send(Request::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.halt();
    }
}

fn run(lanes: &mut [Lane], inbox: &Inbox<Request>, realtime: bool) {
    let origin = Instant::now();
    let clock = || LinkTime::from_nanos(origin.elapsed().as_nanos() as u64);
    let strain = Strain::begin();
    let mut timeline = Timeline::begin(clock());
    // When the next packet may enter. Each entry costs the thread a departure later; entering at
    // full speed while nothing is due yet would make a burst that cannot leave at the speed at
    // which it came. A link without a rate is as fast as packets enter and leave by turns.
    let mut open_at = LinkTime::default();
    let mut turn = 0;
    let mut sleeper = Sleeper::default();
    // For how long the packet that ended a sleep had waited for the thread to wake up.
    let mut waited = Duration::ZERO;
    loop {
        for request in inbox.take() {
            match request {
                Request::Tell(reply) => {
                    let now = clock();
                    let lanes = lanes.iter().map(|lane| lane.report(now)).collect();
                    // An asker that is gone needs no answer.
                    let _ = reply.send(Snapshot { lanes, processor: strain.share() });
                }
                Request::Set { lane, budget, change } => {
                    if let Some(lane) = lanes.get_mut(lane) {
                        lane.set(budget, |model| change(model, clock()));
                    }
                }
                Request::Stop => return,
            }
        }
        // Departures have a time and arrivals can wait in their device, so departures go first.
        let mut busy = false;
        for lane in &mut *lanes {
            busy |= (0..BATCH).take_while(|_| lane.release(clock, &mut timeline)).count() > 0;
        }
        if realtime {
            sleeper.rest(clock, &mut timeline);
        }
        if busy || clock() < open_at {
            continue;
        }
        // One packet, from whichever direction had its turn longer ago: a full device must not
        // keep the other direction's acknowledgements waiting.
        for _ in 0..lanes.len() {
            turn = (turn + 1) % lanes.len();
            if let Some(cost) = lanes[turn].admit(clock, std::mem::take(&mut waited), &mut timeline)
            {
                open_at = clock() + cost;
                busy = true;
                break;
            }
        }
        if !busy {
            let due = lanes.iter().filter_map(Lane::next_due).min();
            let bell = std::iter::once(inbox.bell());
            let sources = lanes.iter().filter_map(Lane::source).chain(bell);
            waited = sleeper.wait(due, sources, clock, &mut timeline);
        }
    }
}
