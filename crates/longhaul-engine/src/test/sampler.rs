//! The sampling thread: it samples the movers, ends them in time, and aborts them if the peer is
//! gone.

use std::net::Shutdown;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::{TestLength, TestPlan};
use longhaul_core::result::{End, SideResult, SideSample, SideStream};
use longhaul_core::units::Bytes;
use longhaul_sys::tcp::Granted;

use super::context::{Bounds, Context, Ending, Part, Signals};
use super::mover::Slot;
use super::observe::{Observer, PROBE_INTERVAL};
use super::snapshot::Snapshot;
use super::ticks::millis;
use super::ticks::{IdleTimer, Slow, Ticks, end_of_time};

/// The factor by which a sender may exceed the agreed rate: the kernel paces packets with their
/// headers, and timers are late and catch up.
const RATE_SLACK: f64 = 1.1;
/// The time by which its bytes may be early.
const RATE_BURST: Duration = Duration::from_secs(1);
/// The interval at which a sender checks whether its last data are acknowledged.
const DRAIN_CHECK: Duration = Duration::from_millis(1);

/// Samples the movers of one end.
pub(super) struct Sampler<'a, F> {
    role: End,
    /// True for the half from the server to the client in a bidirectional test.
    reverse: bool,
    slots: &'a [Slot],
    plan: &'a TestPlan,
    bounds: Bounds<'a>,
    slow: Slow<'a>,
    signals: Signals<'a>,
    ending: Ending,
    /// True if the sending threads close their halves after a whole block.
    whole_blocks: bool,
    begun: Snapshot,
    /// The end of the omitted time; earlier data do not count.
    base: Option<Snapshot>,
    /// The sum and number of the sampled round-trip times per stream.
    rtts: Vec<(f64, u32)>,
    observer: Observer,
    on_sample: F,
}

impl<'a, F: FnMut(SideSample)> Sampler<'a, F> {
    pub(super) fn new(
        Part { role, reverse }: Part,
        slots: &'a [Slot],
        Context { plan, bounds, signals, ending, blocks, .. }: Context<'a>,
        on_sample: F,
    ) -> Self {
        let begun = Snapshot::take(slots);
        let rtts = vec![(0.0, 0); slots.len()];
        let observer = Observer::new(role, slots);
        Sampler {
            role,
            reverse,
            slots,
            plan,
            bounds,
            slow: Slow::new(bounds.pool),
            signals,
            ending,
            whole_blocks: blocks.is_some(),
            begun,
            base: None,
            rtts,
            observer,
            on_sample,
        }
    }

    /// Shuts all connections down, which wakes waiting threads.
    pub(super) fn shut(&self, how: Shutdown) {
        for slot in self.slots {
            slot.carrier.shut(how);
        }
    }

    fn all_ended(&self) -> bool {
        self.slots.iter().all(|slot| slot.ended().is_some())
    }

    /// Returns whether each stream is a flow of datagrams and has seen the end of its data.
    fn data_over(&self) -> bool {
        self.slots.iter().all(|slot| slot.carrier.data_over())
    }

    fn any_failed(&self) -> bool {
        self.slots.iter().any(|slot| slot.ended().is_some_and(|e| e.failure.is_some()))
    }

    /// Waits for the first byte and returns its time.
    ///
    /// # Errors
    /// The reason to cut the test.
    fn await_first(
        &mut self,
        first: &OnceLock<Instant>,
        idle: &mut IdleTimer,
    ) -> Result<Instant, String> {
        let started = Instant::now();
        loop {
            match first.get() {
                Some(first) => return Ok(*first),
                None if self.all_ended() || self.must_stop() => return Ok(started),
                None => {}
            }
            if let Some(reason) = self.must_cut(started, idle) {
                return Err(reason);
            }
            thread::park_timeout(PROBE_INTERVAL);
        }
    }

    /// Samples until every stream has ended. The clock starts at `first`; `closing` is set before a
    /// sender's streams are shut. Returns the reason if the test has to be cut.
    pub(super) fn watch(
        &mut self,
        first: &OnceLock<Instant>,
        closing: &AtomicBool,
    ) -> Option<String> {
        let mut idle = IdleTimer::new(self.bounds.idle);
        let epoch = match self.await_first(first, &mut idle) {
            Ok(epoch) => epoch,
            Err(reason) => return Some(reason),
        };
        self.begun.at = epoch;
        let mut last = self.begun.clone();
        if self.plan.omit.is_zero() {
            self.base = Some(last.clone());
        }
        let by_amount = self.ending.by_amount(self.role);
        let over = end_of_time(self.plan).filter(|_| by_amount).map(|time| epoch + time);
        let mut ticks = Ticks::new(self.plan);
        // One failed stream ends the test, because the rest would be a different test.
        while !self.all_ended() && !self.any_failed() {
            if let Some(reason) = self.must_cut(epoch, &mut idle) {
                return Some(reason);
            }
            let now = Instant::now();
            self.observer.probe_if_due(self.slots, Some(now.saturating_duration_since(epoch)));
            // A receiver of datagrams waits for late ones after the end of the data.
            let due = ticks.due.map(|due| epoch + due).filter(|_| !self.data_over());
            let closed = closing.load(Ordering::Relaxed);
            let over_now = || over.is_some_and(|over| now >= over) || self.amount_reached();
            if !closed && (self.must_stop() || over_now()) {
                closing.store(true, Ordering::Release);
                if self.ending == Ending::HalfClose && !self.whole_blocks {
                    self.shut(Shutdown::Write);
                }
            } else if due.is_some_and(|due| now >= due) {
                last = self.sample(&last, Snapshot::take(self.slots), epoch, &ticks);
                if ticks.advance() {
                    self.base = Some(last.clone());
                }
            } else {
                let next = [due, over.filter(|_| !closed)].into_iter().flatten().min();
                let wait = next.map_or(PROBE_INTERVAL, |next| {
                    next.saturating_duration_since(now).min(PROBE_INTERVAL)
                });
                thread::park_timeout(wait);
            }
        }
        let ended = self.slots.iter().filter_map(Slot::ended).map(|ended| ended.at).max();
        let since = ended.unwrap_or_else(Instant::now).saturating_duration_since(epoch);
        self.observer.record(self.slots, Some(since));
        let mut now = Snapshot::take(self.slots);
        if let Some(ended) = ended.filter(|_| self.all_ended()) {
            // The wait for late datagrams does not belong to the interval.
            now.at = ended.max(last.at);
        }
        self.sample(&last, now, epoch, &ticks);
        if self.any_failed() {
            self.shut(Shutdown::Both);
            return None;
        }
        if self.drains() { self.drain(epoch, &mut idle) } else { None }
    }

    /// Returns whether this end waits until its data have arrived. An end that stops by time and
    /// leaves its connections open does not wait, because its peer's clock runs on.
    fn drains(&self) -> bool {
        let by_bytes = matches!(self.plan.amount, TestLength::Bytes(_));
        self.role == End::Sender
            && match self.ending {
                Ending::HalfClose => true,
                Ending::Amount => by_bytes,
                Ending::Stop => false,
            }
    }

    fn must_stop(&self) -> bool {
        self.ending.by_flag(self.role) && self.signals.stop.load(Ordering::Acquire)
    }

    /// Returns whether the bytes of the plan have moved since the end of the omitted time, if no
    /// sending thread counts its share.
    fn amount_reached(&self) -> bool {
        let (TestLength::Bytes(total), Ending::Amount) = (self.plan.amount, self.ending) else {
            return false;
        };
        let Some(base) = &self.base else { return false };
        let before: u64 = base.streams.iter().map(|stream| stream.bytes).sum();
        self.slots.iter().map(Slot::bytes).sum::<u64>() - before >= total.get()
    }

    /// Passes on the sample from `last` to `now`, and returns `now`.
    fn sample(
        &mut self,
        last: &Snapshot,
        now: Snapshot,
        epoch: Instant,
        ticks: &Ticks,
    ) -> Snapshot {
        let sending = self.role == End::Sender;
        if !ticks.omitting {
            for (sum, stream) in self.rtts.iter_mut().zip(&now.streams) {
                *sum = (sum.0 + millis(stream.tcp.rtt), sum.1 + 1);
            }
        }
        let observed = self.observer.interval(self.slots, last, &now);
        let mut sample = last.until(&now, epoch, sending, observed);
        (sample.index, sample.omitted) = (ticks.index, ticks.omitting);
        sample.reverse = self.reverse;
        (self.on_sample)(sample);
        now
    }

    /// Waits until the peer has acknowledged all data, so that the last retransmissions count, too.
    fn drain(&mut self, epoch: Instant, idle: &mut IdleTimer) -> Option<String> {
        loop {
            if self.slots.iter().all(|slot| slot.carrier.drained()) {
                return None;
            }
            if let Some(reason) = self.must_cut(epoch, idle) {
                return Some(reason);
            }
            thread::park_timeout(DRAIN_CHECK);
        }
    }

    fn must_cut(&mut self, since: Instant, idle: &mut IdleTimer) -> Option<String> {
        if self.signals.abort.load(Ordering::Acquire) {
            return Some("the peer is gone".to_owned());
        }
        if since.elapsed() > self.bounds.time {
            return Some(format!("the test did not end within {:.1?}", self.bounds.time));
        }
        if let Some(limit) = self.bounds.rate.filter(|_| self.role == End::Receiver) {
            // A path may delay data and release them at once, so the limit applies to the mean.
            let allowed = since.elapsed().mul_f64(RATE_SLACK) + RATE_BURST;
            let bytes: u64 = self.slots.iter().map(Slot::bytes).sum();
            if bytes as f64 > limit.bytes_per_second() as f64 * allowed.as_secs_f64() {
                return Some(format!("it exceeded {limit}, the limit of this server"));
            }
        }
        let slots = self.slots;
        if let Some(reason) = self.slow.check(|| slots.iter().map(Slot::bytes).sum()) {
            return Some(reason);
        }
        let now = Instant::now();
        self.slots.iter().for_each(|slot| slot.carrier.attend(self.role, now));
        idle.check(|| Snapshot::take(self.slots).progress(self.role == End::Sender))
    }

    fn failure(&self, number: usize, slot: &Slot) -> Option<String> {
        let error = slot.ended()?.failure.as_ref()?;
        Some(format!("stream {number} broke at the {}: {error}", self.role))
    }

    /// Returns the result of this end after all its threads have ended.
    pub(super) fn result(
        &mut self,
        granted: &[Option<Granted>],
        cut: Option<String>,
    ) -> SideResult {
        let now = Snapshot::take(self.slots);
        let (curve, limits) = self.observer.finish();
        // Within the omitted time nothing counts: the base is the end.
        let base = self.base.as_ref().unwrap_or(&now);
        let seconds = |slot: &Slot| {
            let at = slot.ended().map_or(now.at, |ended| ended.at);
            at.saturating_duration_since(base.at).as_secs_f64()
        };
        // The clock of a thread runs from before the first byte until after the last, which matters
        // in a test of milliseconds: it is limited to the time that counts.
        let cpu_seconds = |number: usize, slot: &Slot| {
            let (from, to) = (&base.streams[number], &now.streams[number]);
            to.cpu.saturating_sub(from.cpu).as_secs_f64().min(seconds(slot))
        };
        let stream = |(number, slot): (usize, &Slot)| {
            let (from, to) = (&base.streams[number], &now.streams[number]);
            let (sum, samples) = self.rtts[number];
            let granted = granted[number].as_ref();
            SideStream {
                bytes: Bytes::new(to.bytes - from.bytes),
                total_bytes: Bytes::new(to.bytes),
                seconds: seconds(slot),
                cpu_seconds: cpu_seconds(number, slot),
                retransmits: to.tcp.retransmits.saturating_sub(from.tcp.retransmits),
                rtt_ms: if samples > 0 { sum / f64::from(samples) } else { millis(to.tcp.rtt) },
                rtt_min_ms: millis(to.tcp.min_rtt.unwrap_or(to.tcp.rtt)),
                congestion: granted.map(|g| g.congestion.clone()).unwrap_or_default(),
                mss: granted.map_or(0, |g| g.mss),
                buffer_bytes: Bytes::new(granted.map_or(0, |g| match self.role {
                    End::Sender => g.send_buffer_bytes,
                    End::Receiver => g.receive_buffer_bytes,
                })),
                udp: to.udp.map(|to| to.since(&from.udp.unwrap_or_default())),
                address: slot.carrier.local_address().map(|address| address.to_string()),
                cpus: slot.cpus.clone(),
                multipath: slot.carrier.multipath(self.plan.protocol),
                failure: self.failure(number, slot),
            }
        };
        let streams: Vec<_> = self.slots.iter().enumerate().map(stream).collect();
        let all_seconds = self.slots.iter().map(seconds).fold(0.0, f64::max);
        // This thread, which samples the connections, is part of the cost of the test.
        let sampling = now.own_cpu.saturating_sub(base.own_cpu).as_secs_f64().min(all_seconds);
        SideResult {
            seconds: all_seconds,
            cpu_seconds: streams.iter().map(|stream| stream.cpu_seconds).sum::<f64>() + sampling,
            cut: cut.or_else(|| streams.iter().find_map(|s| s.failure.clone())),
            reverse: self.reverse,
            streams,
            curve,
            limits: Some(limits),
        }
    }
}
