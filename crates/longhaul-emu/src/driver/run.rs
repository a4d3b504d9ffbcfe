//! The driver thread: moves packets over its lanes and answers requests between two packets.

use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use longhaul_core::result::{DirectionReport, ProcessorShare};
use longhaul_core::units::Bytes;
use longhaul_sys::cpu::HostTimes;
use longhaul_sys::schedule::{ScheduleGauge, ThreadSchedule};

use super::carrier::Carrier;
use super::lane::Lane;
use super::mailbox::{Inbox, Outbox, mailbox};
use super::ready_intakes::ReadyIntakes;
use super::sleeper::{Sleeper, SpinBudget};
use super::steering::Intake;
use super::timeline::Timeline;
use crate::capture::Tap;
use crate::link::{LinkModel, LinkTime};

/// The number of pieces that leave in one direction before the other direction's turn.
const BATCH: usize = 8;

/// The lowest real-time priority. It only has to exceed the priority of ordinary threads.
const PRIORITY: i32 = 1;

/// A thread that moves packets over some lanes, which callers identify by index.
#[derive(Debug)]
pub(crate) struct Driver {
    requests: Outbox<Request>,
    origin: Instant,
    thread: Option<JoinHandle<()>>,
}

/// The counters of a driver's lanes at one time.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The reports in the order of the lanes given to the driver.
    pub(crate) lanes: Vec<DirectionReport>,
    /// The processor time of the driver's thread.
    pub(crate) processor: ProcessorShare,
}

type Change = Box<dyn FnOnce(&mut LinkModel, LinkTime) + Send>;

type CarrierChange = Box<dyn Fn(&mut Carrier, LinkTime) + Send>;

enum Request {
    Tell(Sender<Snapshot>),
    Set { lane: usize, budget: Bytes, change: Change },
    Steer { link: usize, change: CarrierChange },
    Capture { lane: usize, tap: Tap },
    Stop,
}

impl Driver {
    /// Starts to move packets from `intakes` over `lanes`. The thread spins as `spins` permits.
    pub(crate) fn start(
        lanes: Vec<Lane>,
        intakes: Vec<Intake>,
        spins: Arc<SpinBudget>,
    ) -> io::Result<Self> {
        let (requests, inbox) = mailbox()?;
        let origin = Instant::now();
        let thread = std::thread::Builder::new().name("link".into()).spawn(move || {
            // The default timer slack of 50 us would delay every departure by up to 50 us.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            // The thread gets real-time priority if permitted: when all processors are busy, as
            // during a fast transfer, an ordinary thread waits for tens of milliseconds at a time.
            let realtime = longhaul_sys::schedule::run_first(PRIORITY).is_ok();
            let sleeper = Sleeper::new(spins);
            PacketMover { lanes, intakes, sleeper, origin }.run(&inbox, realtime);
        })?;
        Ok(Driver { requests, origin, thread: Some(thread) })
    }

    /// Returns the time at which the clock of the lanes was zero.
    pub(crate) fn origin(&self) -> Instant {
        self.origin
    }

    /// Returns the counters so far, all taken at one time between two packets. Returns `None` if
    /// the thread has ended, which only a panic causes.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let (reply, answer) = channel();
        self.requests.send(Request::Tell(reply));
        answer.recv().ok()
    }

    /// Changes a lane's model and the bytes of packets that may be in flight on it. Packets that
    /// have entered keep their departure times. The change precedes every later snapshot.
    pub(crate) fn set(
        &self,
        lane: usize,
        budget: Bytes,
        change: impl FnOnce(&mut LinkModel, LinkTime) + Send + 'static,
    ) {
        self.requests.send(Request::Set { lane, budget, change: Box::new(change) });
    }

    /// Changes the state of a link (by index among parallel ones) as routers see it.
    pub(crate) fn steer(
        &self,
        link: usize,
        change: impl Fn(&mut Carrier, LinkTime) + Send + 'static,
    ) {
        self.requests.send(Request::Steer { link, change: Box::new(change) });
    }

    /// Captures the packets of a lane from now on.
    pub(crate) fn capture(&self, lane: usize, tap: Tap) {
        self.requests.send(Request::Capture { lane, tap });
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

/// The packets that a driver's thread moves.
struct PacketMover {
    lanes: Vec<Lane>,
    intakes: Vec<Intake>,
    sleeper: Sleeper,
    origin: Instant,
}

impl PacketMover {
    fn run(mut self, inbox: &Inbox<Request>, realtime: bool) {
        let origin = self.origin;
        let clock = || LinkTime::from_nanos(origin.elapsed().as_nanos() as u64);
        let strain = ThreadLoad::begin();
        let saves = self.sleeper.saves();
        let mut timeline = Timeline::begin(clock(), saves);
        let mut entry = Entry::new(saves);
        loop {
            for request in inbox.take() {
                if !self.answer(request, clock, &strain) {
                    return;
                }
            }
            // Reading the clock costs time. Each step therefore begins at the time at which the
            // previous one ended.
            let mut now = clock();
            // Departures precede arrivals: they have a due time, while arrivals can wait in their
            // device.
            let mut busy = false;
            for lane in &mut self.lanes {
                let released = |_: &usize| lane.release(&mut now, clock, &mut timeline);
                busy |= (0..BATCH).take_while(released).count() > 0;
            }
            if realtime {
                self.sleeper.rest(&mut now, clock, &mut timeline);
            }
            let is_open = entry.gate.is_open(now);
            if busy || (!is_open && entry.ready.expects_any()) {
                continue;
            }
            if is_open && self.admit(&mut entry, &mut now, clock, &mut timeline) {
                continue;
            }
            let due = self.lanes.iter().filter_map(Lane::next_due).min();
            let waker = std::iter::once(inbox.waker());
            let sources = self.intakes.iter().filter_map(|intake| intake.source(&self.lanes));
            let woken = self.sleeper.wait(due, sources.chain(waker), clock, &mut timeline);
            let open = |intake: &usize| self.intakes[*intake].source(&self.lanes).is_some();
            entry.ready.woke(&woken, (0..self.intakes.len()).filter(open));
            entry.waited = woken.waited;
        }
    }

    /// Reads one packet, or those that the device passes at once, from the direction that was read less recently: a full device must not delay
    /// the acknowledgements of the other direction. Returns whether there was a packet. `now` is the
    /// time, which becomes that of the read.
    fn admit(
        &mut self,
        entry: &mut Entry,
        now: &mut LinkTime,
        clock: impl Fn() -> LinkTime + Copy,
        timeline: &mut Timeline,
    ) -> bool {
        for _ in 0..self.intakes.len() {
            entry.turn = (entry.turn + 1) % self.intakes.len();
            let turn = entry.turn;
            if !entry.ready.expects(turn) {
                continue;
            }
            let mut had_packet = false;
            // Packets that were read at once enter at once, so that they can leave at once.
            while !had_packet || self.intakes[turn].has_more(&self.lanes) {
                let waited = std::mem::take(&mut entry.waited);
                let begun = *now;
                let intake = &mut self.intakes[turn];
                let cost = intake.admit(&mut self.lanes, (now, waited), clock, timeline);
                let Some(cost) = cost else { break };
                had_packet = true;
                *now = clock();
                entry.gate.pass(begun, now.since(begun) + cost);
            }
            entry.ready.was_read(turn, had_packet);
            if had_packet {
                return true;
            }
        }
        false
    }

    /// Answers a request. Returns `false` if the thread has to stop.
    fn answer(
        &mut self,
        request: Request,
        clock: impl Fn() -> LinkTime,
        strain: &ThreadLoad,
    ) -> bool {
        match request {
            Request::Tell(reply) => {
                let now = clock();
                let lanes = self.lanes.iter().map(|lane| lane.report(now)).collect();
                // If the requester no longer exists, the answer is not needed.
                let _ = reply.send(Snapshot { lanes, processor: strain.share() });
            }
            Request::Set { lane, budget, change } => {
                if let Some(lane) = self.lanes.get_mut(lane) {
                    lane.set(budget, |model| change(model, clock()));
                }
            }
            Request::Steer { link, change } => {
                let now = clock();
                for intake in &mut self.intakes {
                    intake.steer(link, |carrier| change(carrier, now));
                }
            }
            Request::Capture { lane, tap } => {
                if let Some(lane) = self.lanes.get_mut(lane) {
                    lane.capture(clock(), tap);
                }
            }
            Request::Stop => return false,
        }
        true
    }
}

/// The state of the entry of packets.
#[derive(Debug)]
struct Entry {
    ready: ReadyIntakes,
    gate: Gate,
    /// The intake that was read last.
    turn: usize,
    /// The time that the packet that ended a sleep waited for the thread to wake up.
    waited: Duration,
}

impl Entry {
    fn new(saves: bool) -> Self {
        let ready = ReadyIntakes::new(saves);
        Entry { ready, gate: Gate::default(), turn: 0, waited: Duration::ZERO }
    }
}

/// Spaces the entries of packets.
///
/// Each entry costs the thread a departure later. If packets entered at full speed while none is
/// due, they would form a burst that cannot leave at the same speed while others enter. Entries are
/// therefore farther apart than an entry and a departure take together.
#[derive(Debug, Default)]
struct Gate {
    /// The time at which the next packet may enter.
    opens_at: LinkTime,
}

/// The most time that entries may catch up. Most departures take 5 us and a few take 100 us. If a
/// slow departure delayed all later entries, packets would wait in their device while the thread
/// spins.
const CREDIT: Duration = Duration::from_micros(500);

/// The time between entries, in tenths of the duration of an entry and a departure. A thread that is
/// late needs the rest to catch up.
const SPACING: u32 = 13;

impl Gate {
    fn is_open(&self, now: LinkTime) -> bool {
        now >= self.opens_at
    }

    /// Records an entry that began at `begun`. `cost` is its duration and the expected duration of the
    /// departure.
    fn pass(&mut self, begun: LinkTime, cost: Duration) {
        self.opens_at = self.opens_at.max(begun.before(CREDIT)) + cost * SPACING / 10;
    }
}

/// Measures the processor time of the calling thread.
///
/// A figure that the kernel does not provide is zero. The warning based on it is then missing, but
/// lateness still shows the effects of a starved thread.
#[derive(Debug)]
pub(super) struct ThreadLoad {
    since: Instant,
    gauge: Option<ScheduleGauge>,
    schedule: ThreadSchedule,
    stolen: Duration,
}

impl ThreadLoad {
    /// Starts to measure.
    pub(super) fn begin() -> Self {
        let gauge = ScheduleGauge::current().ok();
        ThreadLoad {
            since: Instant::now(),
            schedule: counts(gauge.as_ref()),
            gauge,
            stolen: HostTimes::now().map_or(Duration::ZERO, |times| times.stolen()),
        }
    }

    /// Returns the processor time since the start. The caller must be the thread that started it.
    pub(super) fn share(&self) -> ProcessorShare {
        let schedule = counts(self.gauge.as_ref());
        let stolen = HostTimes::now().map_or(Duration::ZERO, |times| times.stolen());
        let seconds = |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64();
        ProcessorShare {
            seconds: self.since.elapsed().as_secs_f64(),
            busy_seconds: seconds(schedule.ran, self.schedule.ran),
            waited_seconds: seconds(schedule.waited, self.schedule.waited),
            stolen_seconds: seconds(stolen, self.stolen),
        }
    }
}

fn counts(gauge: Option<&ScheduleGauge>) -> ThreadSchedule {
    gauge.and_then(|gauge| gauge.read().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Duration = Duration::from_micros(20);

    /// Returns the number of packets that enter at `now`.
    fn entries(gate: &mut Gate, now: LinkTime) -> u128 {
        std::iter::from_fn(|| gate.is_open(now).then(|| gate.pass(now, COST))).count() as u128
    }

    #[test]
    fn entries_catch_up_after_a_slow_departure() {
        let mut gate = Gate::default();
        let start = LinkTime::from_nanos(1_000_000_000);
        entries(&mut gate, start);
        assert_eq!(entries(&mut gate, start + 4 * COST * SPACING / 10), 4);
        assert_eq!(
            entries(&mut gate, start + 4 * COST * SPACING / 10),
            0,
            "in turns with departures"
        );
    }

    #[test]
    fn a_burst_after_a_pause_is_short() {
        let mut gate = Gate::default();
        let burst = entries(&mut gate, LinkTime::from_nanos(1_000_000_000));
        assert_eq!(burst, CREDIT.as_micros() / (COST * SPACING / 10).as_micros() + 1);
    }
}
