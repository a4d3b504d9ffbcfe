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
                busy |= lane.release(&mut now, clock, &mut timeline);
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
            let due = self.next_due();
            let waker = std::iter::once(inbox.waker());
            let sources = self.intakes.iter().filter_map(|intake| intake.source(&self.lanes));
            let woken = self.sleeper.wait(due, sources.chain(waker), clock, &mut timeline);
            let open = |intake: &usize| self.intakes[*intake].source(&self.lanes).is_some();
            entry.ready.woke(&woken, (0..self.intakes.len()).filter(open));
            entry.waited = woken.waited;
        }
    }

    /// Reads one packet, or those that the device passes at once, from the direction that was read less
    /// recently: a full device must not delay the acknowledgements of the other direction. Returns
    /// whether there was a packet. `now` is the time, which becomes that of the read.
    ///
    /// The packets of one read enter in the same turn, so that one write can send them. When an earlier
    /// packet becomes due, the rest enters in a later turn, as if it had waited in the device.
    fn admit(
        &mut self,
        entry: &mut Entry,
        now: &mut LinkTime,
        clock: impl Fn() -> LinkTime + Copy,
        timeline: &mut Timeline,
    ) -> bool {
        let due = self.next_due();
        for _ in 0..self.intakes.len() {
            entry.turn = (entry.turn + 1) % self.intakes.len();
            let turn = entry.turn;
            if !entry.ready.expects(turn) {
                continue;
            }
            let (mut had_packet, mut has_more) = (false, false);
            while !had_packet || (has_more && due.is_none_or(|due| *now < due)) {
                let waited = std::mem::take(&mut entry.waited);
                let begun = *now;
                let intake = &mut self.intakes[turn];
                let cost = intake.admit(&mut self.lanes, (now, waited), clock, timeline);
                let Some(cost) = cost else { break };
                had_packet = true;
                *now = clock();
                entry.gate.pass(begun, now.since(begun) + cost);
                has_more = self.intakes[turn].has_more(&self.lanes);
            }
            if !has_more {
                entry.ready.was_read(turn, had_packet);
            }
            if had_packet {
                return true;
            }
        }
        false
    }

    /// Returns the time at which the next write must start.
    fn next_due(&self) -> Option<LinkTime> {
        self.lanes.iter().filter_map(Lane::next_due).min()
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
    use std::cell::Cell;
    use std::fs::File;
    use std::io::IoSlice;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use longhaul_core::plan::{LinkPlan, Side};

    use super::super::PacketMemory;
    use super::super::sleeper::WaitEnd;
    use super::*;
    use crate::device::{MOST_FRAMES, PacketDevice};
    use crate::packet::test_frames::TestFrame;

    /// A device that passes several frames at once.
    #[derive(Debug)]
    struct Batched {
        file: File,
        /// The number of frames that wait to be read.
        waiting: AtomicUsize,
        written: AtomicUsize,
    }

    impl Batched {
        fn new(waiting: usize) -> Arc<Self> {
            let file = File::open("/dev/null").unwrap();
            Arc::new(Batched { file, waiting: waiting.into(), written: 0.into() })
        }

        fn written(&self) -> usize {
            self.written.load(Ordering::Relaxed)
        }
    }

    impl PacketDevice for Batched {
        fn readiness(&self) -> BorrowedFd<'_> {
            self.file.as_fd()
        }

        fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
            let take = |waiting: usize| waiting.checked_sub(1);
            self.waiting
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .map_err(|_| io::ErrorKind::WouldBlock)?;
            let frame = TestFrame { payload: 100, ..TestFrame::TCP }.frame();
            buffer[..frame.len()].copy_from_slice(&frame);
            Ok(frame.len())
        }

        fn write(&self, _: &[IoSlice<'_>]) -> io::Result<usize> {
            self.written.fetch_add(1, Ordering::Relaxed);
            Ok(0)
        }

        fn batch(&self) -> usize {
            MOST_FRAMES
        }

        fn read_many(&self, buffers: &mut [&mut [u8]], lengths: &mut [usize]) -> io::Result<usize> {
            let frames = buffers.iter_mut().zip(lengths.iter_mut());
            let read = frames.map_while(|(buffer, length)| {
                *length = self.read(buffer).ok()?;
                Some(())
            });
            match read.count() {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                count => Ok(count),
            }
        }

        fn write_many(&self, frames: &[&[u8]]) -> io::Result<usize> {
            self.written.fetch_add(frames.len(), Ordering::Relaxed);
            Ok(frames.len())
        }
    }

    /// A thread's packets, without the thread. Each use of its clock takes a microsecond.
    struct Virtual {
        mover: PacketMover,
        entry: Entry,
        timeline: Timeline,
        now: Cell<LinkTime>,
    }

    impl Virtual {
        /// Creates lanes, each with its delay, between devices.
        fn of(lanes: &[(Duration, [&Arc<Batched>; 2])]) -> Self {
            let memory = PacketMemory::of(Bytes::mib(64));
            let lane = |(delay, [source, sink]): &(Duration, [&Arc<Batched>; 2])| {
                let devices: [Arc<dyn PacketDevice>; 2] = [(*source).clone(), (*sink).clone()];
                let model = LinkModel::new(&LinkPlan::symmetric(*delay * 2), Side::Near);
                Lane::new(Side::Near, devices, model, Bytes::mib(8), &memory).unwrap()
            };
            let lanes: Vec<Lane> = lanes.iter().map(lane).collect();
            let intakes = (0..lanes.len()).map(Intake::of).collect();
            let sleeper = Sleeper::new(SpinBudget::of(1));
            Virtual {
                mover: PacketMover { lanes, intakes, sleeper, origin: Instant::now() },
                entry: Entry::new(true),
                timeline: Timeline::begin(LinkTime::default(), true),
                now: Cell::default(),
            }
        }

        /// Admits packets of an intake that is readable.
        fn admit(&mut self, intake: usize) {
            let (waited, slept) = (Duration::ZERO, Duration::from_secs(1));
            let woken = WaitEnd { waited, readable: Some(1), slept };
            self.entry.ready.woke(&woken, std::iter::once(intake));
            let now = &self.now;
            let clock = || {
                now.set(now.get() + Duration::from_micros(1));
                now.get()
            };
            let mut read = now.get();
            assert!(self.mover.admit(&mut self.entry, &mut read, clock, &mut self.timeline));
        }

        fn release(&mut self, lane: usize) {
            let now = self.now.get();
            let mut written = now;
            self.mover.lanes[lane].release(&mut written, || now, &mut self.timeline);
        }

        fn entered(&self, lane: usize) -> u64 {
            self.mover.lanes[lane].report(self.now.get()).entered.packets
        }
    }

    #[test]
    fn a_lane_with_many_due_frames_leaves_the_turn_to_others() {
        let (source, sink) = (Batched::new(3 * MOST_FRAMES), Batched::new(0));
        let mut thread = Virtual::of(&[(Duration::ZERO, [&source, &sink])]);
        while thread.entered(0) < 3 * MOST_FRAMES as u64 {
            thread.admit(0);
        }
        for turn in 1..=3 {
            thread.release(0);
            assert_eq!(sink.written(), turn * MOST_FRAMES);
        }
    }

    #[test]
    fn frames_that_were_read_at_once_enter_until_an_earlier_frame_is_due() {
        let delay = Duration::from_millis(1);
        let (source, sink) = (Batched::new(1), Batched::new(0));
        // Reads grow from one frame to the largest number.
        let before = MOST_FRAMES - 1;
        let (busy, other) = (Batched::new(before), Batched::new(0));
        let mut thread =
            Virtual::of(&[(delay, [&source, &sink]), (Duration::ZERO, [&busy, &other])]);
        while thread.entered(1) < before as u64 {
            thread.admit(1);
        }
        thread.release(1);
        busy.waiting.store(MOST_FRAMES, Ordering::Relaxed);
        thread.admit(0);
        let due = thread.mover.next_due().unwrap();
        thread.now.set(due.before(Duration::from_micros(5)));
        thread.admit(1);
        let entered = thread.entered(1) - before as u64;
        assert!((2..MOST_FRAMES as u64).contains(&entered), "{entered}");
        assert!((thread.now.get().since(due)) < Duration::from_micros(3), "the frame is due now");
        assert!(thread.entry.ready.expects_any(), "the thread does not sleep");
        thread.release(0);
        assert_eq!(sink.written(), 1);
        thread.release(1);
        thread.admit(1);
        assert_eq!(thread.entered(1), (before + MOST_FRAMES) as u64);
        assert!(!thread.entry.ready.expects_any(), "nothing is left");
    }

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
