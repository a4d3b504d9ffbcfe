//! One end of a test: starts its threads, samples them, stops them, and says what they did.

use std::net::{Shutdown, TcpStream};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::{Amount, FlowPlan};
use longhaul_core::result::{End, SideResult, SideSample, SideStream};
use longhaul_core::units::Bytes;
use longhaul_sys::tcp::{Granted, granted};

use super::limits::DRAIN_LIMIT;
use super::mover::{self, Slot};
use super::snapshot::{Snapshot, StreamSnapshot, millis};

/// How long the sampler sleeps at most before it looks at the flags again.
const LOOK: Duration = Duration::from_millis(20);
/// How often a sender looks whether the last of its data has been acknowledged.
const DRAIN_LOOK: Duration = Duration::from_millis(1);

/// What an end looks at while it runs.
#[derive(Debug)]
pub(super) struct Signals<'a> {
    /// End early and in order: a sender closes its streams as when time is up. A receiver takes
    /// no notice; its client tells the sender.
    pub(super) stop: &'a AtomicBool,
    /// Break off: the other side is gone.
    pub(super) abort: &'a AtomicBool,
}

/// How an end came to its end.
#[derive(Debug)]
pub(super) struct Outcome {
    /// What this end saw.
    pub(super) result: SideResult,
    /// Why it was cut; `None` when the streams ran to their end.
    pub(super) cut: Option<String>,
}

/// The most an end may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// From the start to the end of data.
    pub(super) time: Duration,
    /// With nothing moving.
    pub(super) idle: Duration,
}

impl Bounds {
    /// For a test by time, its time and what it takes to drain; for one by bytes, `time`.
    pub(super) fn new(plan: &FlowPlan, time: Duration, idle: Duration) -> Self {
        let time = match plan.amount {
            Amount::Time(planned) => plan.omit + planned + DRAIN_LIMIT,
            Amount::Bytes(_) => time,
        };
        Bounds { time, idle }
    }
}

/// Runs one end over `streams`, from the first byte to the last. Calls `on_sample` each interval,
/// on the calling thread.
pub(super) fn run(
    role: End,
    streams: Vec<TcpStream>,
    plan: &FlowPlan,
    bounds: Bounds,
    signals: &Signals<'_>,
    on_sample: impl FnMut(SideSample),
) -> Outcome {
    let slots: Vec<Slot> = streams.into_iter().map(Slot::new).collect();
    let granted: Vec<_> = slots.iter().map(|slot| granted(&slot.stream).ok()).collect();
    let write_bytes = plan.write_bytes.get() as usize;
    let noise = if role == End::Sender { mover::noise(write_bytes) } else { Vec::new() };
    let (first, closing) = (OnceLock::new(), AtomicBool::new(false));
    let mut spawn_failure = None;
    let mut sampler = Sampler {
        role,
        slots: &slots,
        plan,
        bounds,
        signals,
        closing: &closing,
        first: &first,
        begun: Snapshot::take(&slots),
        base: None,
        rtts: vec![(0.0, 0); slots.len()],
        on_sample,
    };
    let cut = thread::scope(|scope| {
        let this = thread::current();
        if role == End::Sender {
            let _ = first.set(Instant::now());
        }
        for (number, slot) in slots.iter().enumerate() {
            let (first, closing, noise, this) = (&first, &closing, &noise, this.clone());
            let share = plan.share(number as u32);
            let spawned = thread::Builder::new().name(format!("{role} {number}")).spawn_scoped(
                scope,
                move || match role {
                    End::Sender => mover::send(slot, noise, share, closing, &this),
                    End::Receiver => mover::receive(slot, write_bytes, first, &this),
                },
            );
            if let Err(error) = spawned {
                spawn_failure = Some(format!("cannot start a thread for stream {number}: {error}"));
                // The threads that run end with their streams.
                sampler.shut(Shutdown::Both);
                return spawn_failure.take();
            }
        }
        let cut = sampler.watch();
        if cut.is_some() {
            sampler.shut(Shutdown::Both);
        }
        cut
    });
    let result = sampler.result(&granted);
    let failed = result.streams.iter().find_map(|s| s.failure.clone());
    Outcome { result, cut: cut.or(failed) }
}

struct Sampler<'a, F> {
    role: End,
    slots: &'a [Slot],
    plan: &'a FlowPlan,
    bounds: Bounds,
    signals: &'a Signals<'a>,
    /// Set before the sender's streams are shut down.
    closing: &'a AtomicBool,
    /// When the clock began: at the first byte.
    first: &'a OnceLock<Instant>,
    begun: Snapshot,
    /// The end of the omitted time; what came before does not count.
    base: Option<Snapshot>,
    /// Sum and number of the round-trip times sampled, by stream.
    rtts: Vec<(f64, u32)>,
    on_sample: F,
}

impl<F: FnMut(SideSample)> Sampler<'_, F> {
    fn shut(&self, how: Shutdown) {
        for slot in self.slots {
            // A connection that is closed already needs no closing.
            let _ = slot.stream.shutdown(how);
        }
    }

    fn all_ended(&self) -> bool {
        self.slots.iter().all(|slot| slot.ended().is_some())
    }

    fn failed(&self) -> bool {
        self.slots.iter().any(|slot| slot.ended().is_some_and(|e| e.failure.is_some()))
    }

    /// Samples until every stream has ended. Returns why the test has to be cut, if it has.
    fn watch(&mut self) -> Option<String> {
        let mut idle = Idle::new(self.bounds.idle);
        let started = Instant::now();
        let epoch = loop {
            if let Some(first) = self.first.get() {
                break *first;
            }
            if let Some(reason) = self.must_cut(started, &mut idle) {
                return Some(reason);
            }
            if self.all_ended() {
                break started;
            }
            thread::park_timeout(LOOK);
        };
        self.begun.at = epoch;
        let mut last = self.begun.clone();
        if self.plan.omit.is_zero() {
            self.base = Some(last.clone());
        }
        let mut ticks = Ticks::new(self.plan, self.role);
        let over = self.role == End::Sender;
        let over = over.then(|| end_of_time(self.plan)).flatten().map(|time| epoch + time);
        let mut closed = false;
        while !self.all_ended() {
            if let Some(reason) = self.must_cut(epoch, &mut idle) {
                return Some(reason);
            }
            // One stream that breaks ends the test: what the others do from then on is another
            // test than the one that was asked for.
            if self.failed() {
                break;
            }
            let now = Instant::now();
            let time_is_up = over.is_some_and(|over| now >= over);
            let stopped = self.role == End::Sender && self.signals.stop.load(Ordering::Acquire);
            if (time_is_up || stopped) && !closed {
                closed = true;
                self.closing.store(true, Ordering::Release);
                self.shut(Shutdown::Write);
                continue;
            }
            let due = epoch + ticks.due;
            if now >= due {
                last = self.sample(last, epoch, &mut ticks);
                continue;
            }
            let next = over.filter(|_| !closed).map_or(due, |over| over.min(due));
            thread::park_timeout(next.saturating_duration_since(now).min(LOOK));
        }
        if self.failed() {
            self.shut(Shutdown::Both);
        }
        self.sample(last, epoch, &mut ticks);
        if self.role == End::Sender && !self.failed() { self.drain(epoch, &mut idle) } else { None }
    }

    /// Takes the sample that is due, or the last one.
    fn sample(&mut self, last: Snapshot, epoch: Instant, ticks: &mut Ticks) -> Snapshot {
        let now = Snapshot::take(self.slots);
        let sending = self.role == End::Sender;
        let sample = last.until(&now, epoch, ticks.index, ticks.omitting, sending);
        let ended_within_omit = ticks.omitting && now.at < epoch + ticks.due;
        if !ticks.omitting || ended_within_omit {
            for (sum, stream) in self.rtts.iter_mut().zip(&now.streams) {
                *sum = (sum.0 + millis(stream.tcp.rtt), sum.1 + 1);
            }
        }
        if ticks.advance() {
            self.base = (!ended_within_omit).then(|| now.clone());
        }
        (self.on_sample)(sample);
        now
    }

    /// Waits until the peer has acknowledged everything, so that the retransmissions of the
    /// last bytes count too.
    fn drain(&mut self, epoch: Instant, idle: &mut Idle) -> Option<String> {
        loop {
            let now = Snapshot::take(self.slots);
            let left = |s: &StreamSnapshot| s.tcp.notsent_bytes > 0 || s.tcp.unacked_segments > 0;
            if !now.streams.iter().any(left) {
                return None;
            }
            if let Some(reason) = self.must_cut(epoch, idle) {
                return Some(reason);
            }
            thread::park_timeout(DRAIN_LOOK);
        }
    }

    fn must_cut(&self, since: Instant, idle: &mut Idle) -> Option<String> {
        if self.signals.abort.load(Ordering::Acquire) {
            return Some("the other side is gone".to_owned());
        }
        if since.elapsed() > self.bounds.time {
            return Some(format!("it was not over after {:.0?}", self.bounds.time));
        }
        idle.check(|| Snapshot::take(self.slots).progress())
    }

    fn result(&self, granted: &[Option<Granted>]) -> SideResult {
        let now = Snapshot::take(self.slots);
        // Within the omitted time nothing counts: the base is the end.
        let base = self.base.as_ref().unwrap_or(&now);
        let ended_at = |slot: &Slot| slot.ended().map_or(now.at, |ended| ended.at);
        let seconds = |at: Instant| at.saturating_duration_since(base.at).as_secs_f64();
        let streams = self
            .slots
            .iter()
            .enumerate()
            .map(|(number, slot)| {
                let (from, to) = (&base.streams[number], &now.streams[number]);
                let (sum, samples) = self.rtts[number];
                let granted = granted[number].as_ref();
                let tcp = &to.tcp;
                SideStream {
                    bytes: Bytes::new(to.bytes - from.bytes),
                    total_bytes: Bytes::new(to.bytes),
                    seconds: seconds(ended_at(slot)),
                    cpu_seconds: to.cpu.saturating_sub(from.cpu).as_secs_f64(),
                    retransmits: tcp.retransmits.saturating_sub(from.tcp.retransmits),
                    rtt_ms: if samples > 0 { sum / f64::from(samples) } else { millis(tcp.rtt) },
                    rtt_min_ms: millis(tcp.min_rtt.unwrap_or(tcp.rtt)),
                    congestion: granted.map(|g| g.congestion.clone()).unwrap_or_default(),
                    mss: granted.map_or(0, |g| g.mss),
                    buffer_bytes: Bytes::new(granted.map_or(0, |g| match self.role {
                        End::Sender => g.send_buffer_bytes,
                        End::Receiver => g.receive_buffer_bytes,
                    })),
                    failure: slot.ended().and_then(|ended| ended.failure.as_ref()).map(|error| {
                        format!("the {} of stream {number} failed: {error}", self.role)
                    }),
                }
            })
            .collect();
        SideResult {
            seconds: self.slots.iter().map(|slot| seconds(ended_at(slot))).fold(0.0, f64::max),
            cpu_seconds: now.cpu().saturating_sub(base.cpu()).as_secs_f64(),
            streams,
        }
    }
}

/// When a sender stops for its time is up, from the first byte.
fn end_of_time(plan: &FlowPlan) -> Option<Duration> {
    match plan.amount {
        Amount::Time(time) => Some(plan.omit + time),
        Amount::Bytes(_) => None,
    }
}

/// When samples are due. The omitted time is cut into intervals of its own, so that the first
/// that counts begins where it ends.
#[derive(Debug)]
struct Ticks {
    index: u32,
    /// From the first byte.
    due: Duration,
    omitting: bool,
    omit: Duration,
    interval: Duration,
    /// No sample is due from here on: the last one waits for the end of data.
    last_due: Option<Duration>,
}

impl Ticks {
    fn new(plan: &FlowPlan, role: End) -> Self {
        let mut ticks = Ticks {
            index: 0,
            due: Duration::ZERO,
            omitting: !plan.omit.is_zero(),
            omit: plan.omit,
            interval: plan.interval,
            last_due: end_of_time(plan),
        };
        // A sender ends at the time itself, a receiver a moment later; neither has an interval
        // of just that moment.
        let _ = role;
        ticks.schedule();
        ticks
    }

    fn schedule(&mut self) {
        let next = self.due + self.interval;
        self.due = if self.omitting { next.min(self.omit) } else { next };
        if self.last_due.is_some_and(|last| !self.omitting && self.due >= last) {
            self.due = Duration::from_secs(1 << 32);
        }
    }

    /// Goes on to the next interval. Returns whether the omitted time ends here.
    fn advance(&mut self) -> bool {
        self.index += 1;
        let omit_ends = self.omitting && self.due >= self.omit;
        self.omitting &= !omit_ends;
        self.schedule();
        omit_ends
    }
}

/// Notices that nothing moves.
#[derive(Debug)]
struct Idle {
    limit: Duration,
    progress: u64,
    since: Instant,
    looked: Instant,
}

impl Idle {
    fn new(limit: Duration) -> Self {
        let now = Instant::now();
        Idle { limit, progress: 0, since: now, looked: now }
    }

    /// Looks at `progress` now and then. Returns the reason to cut when it stood still too long.
    fn check(&mut self, progress: impl FnOnce() -> u64) -> Option<String> {
        let now = Instant::now();
        if now - self.looked < self.limit / 20 {
            return None;
        }
        self.looked = now;
        let progress = progress();
        if progress != self.progress {
            self.progress = progress;
            self.since = now;
        }
        (now - self.since >= self.limit).then(|| format!("no data moved for {:.0?}", self.limit))
    }
}
