//! A record of the driver thread's long steps, from which a packet's lateness is attributed to
//! causes.

use std::collections::VecDeque;
use std::time::Duration;

use longhaul_core::result::{LatenessCause, LatenessCauses};
use longhaul_sys::schedule::{ScheduleGauge, ThreadSchedule};

use crate::link::LinkTime;

/// An activity of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Writing a piece, including the work of the receiver's kernel during the write.
    Write,
    /// Reading a packet and deciding on it.
    Read,
    /// Sleeping past the requested time.
    Overslept,
    /// Any other activity.
    Own,
}

impl Step {
    /// Returns the cause for the part of a long step in which the thread ran or slept.
    fn cause(self) -> LatenessCause {
        match self {
            Step::Write => LatenessCause::Write,
            Step::Read => LatenessCause::Read,
            Step::Overslept => LatenessCause::Timer,
            Step::Own => LatenessCause::Backlog,
        }
    }
}

/// The minimum duration of a recorded step. A normal step takes 1 to 20 us, or 50 us with cold
/// caches.
const LONG: Duration = Duration::from_micros(100);

/// The lateness above which a packet's causes are recorded: the usual error of an idle round trip.
pub(super) const LATE: Duration = Duration::from_micros(250);

/// The number of long steps that are kept; few packets wait through more.
const REMEMBERED: usize = 256;

/// The greatest age of the counts with which a long step is compared. Waiting during that age
/// outside of long steps, some microseconds per wake-up, is wrongly added to the step.
const STALE: Duration = Duration::from_millis(1);

/// The sleeps after which a thread that saves processor time reads the counts again, if it was awake
/// for less than [`STALE`] since then. A reading takes two system calls, and a packet four others: two
/// waits, a read and a write.
const STALE_SLEEPS: u32 = 32;

/// The recent long steps of the driver's thread, used to attribute the lateness of a packet to
/// causes.
///
/// Steps of normal length are not kept: the part of a lateness that long steps do not explain is
/// the time that preceding packets took.
#[derive(Debug)]
pub(super) struct Timeline {
    /// `None` if the kernel provides no counts; then the whole duration of a long step has the
    /// cause of that step.
    gauge: Option<ScheduleGauge>,
    /// The counts at `since`, and the time that the thread has slept since then.
    counts: ThreadSchedule,
    since: LinkTime,
    slept: Duration,
    sleeps: u32,
    /// True if the thread saves processor time: the reading of the counts costs as much as a packet.
    saves: bool,
    /// The end of the last step.
    at: LinkTime,
    long: VecDeque<LongStep>,
}

/// A long step and how its time was spent.
#[derive(Debug)]
struct LongStep {
    from: LinkTime,
    to: LinkTime,
    waited: Duration,
    withheld: Duration,
    /// The cause of the remaining time.
    cause: LatenessCause,
}

impl Timeline {
    /// Starts a timeline for the calling thread at time `at` of the link.
    pub(super) fn begin(at: LinkTime, saves: bool) -> Self {
        let gauge = ScheduleGauge::current().ok();
        let counts = gauge.as_ref().and_then(|gauge| gauge.read().ok()).unwrap_or_default();
        let long = VecDeque::with_capacity(REMEMBERED);
        Timeline { gauge, counts, since: at, slept: Duration::ZERO, sleeps: 0, saves, at, long }
    }

    /// Starts a step `now`. The time between the previous step and this one belongs to no step.
    pub(super) fn begin_step(&mut self, now: LinkTime) {
        if now.since(self.at) > LONG {
            self.add_long_step(Step::Own, self.at, now);
        }
        self.at = now;
    }

    /// Ends `step`, which lasted from `from` to `to`.
    pub(super) fn end_step(&mut self, step: Step, from: LinkTime, to: LinkTime) {
        if to.since(from) > LONG {
            self.add_long_step(step, from, to);
        }
        self.at = to;
        if self.is_stale(to) {
            self.count(to);
        }
    }

    /// Records a sleep from `from` to `woke`. `until` is the requested wake-up time, if the sleep
    /// had one.
    pub(super) fn slept(&mut self, from: LinkTime, until: Option<LinkTime>, woke: LinkTime) {
        let meant = until.map_or(woke, |until| until.min(woke));
        self.slept += meant.since(from);
        if woke.since(meant) > LONG {
            self.add_long_step(Step::Overslept, meant, woke);
        } else {
            self.slept += woke.since(meant);
        }
        self.at = woke;
        self.sleeps += 1;
        if self.is_stale(woke) {
            self.count(woke);
        }
    }

    fn is_stale(&self, at: LinkTime) -> bool {
        let passed = at.since(self.since);
        if self.saves {
            self.sleeps >= STALE_SLEEPS || passed.saturating_sub(self.slept) > STALE
        } else {
            passed > STALE
        }
    }

    /// Restarts the counting and returns the counts since the last restart.
    fn count(&mut self, at: LinkTime) -> Option<ThreadSchedule> {
        let counts = self.gauge.as_ref()?.read().ok()?;
        let passed = ThreadSchedule {
            ran: counts.ran.saturating_sub(self.counts.ran),
            waited: counts.waited.saturating_sub(self.counts.waited),
        };
        (self.counts, self.since, self.slept) = (counts, at, Duration::ZERO);
        self.sleeps = 0;
        Some(passed)
    }

    fn add_long_step(&mut self, step: Step, from: LinkTime, to: LinkTime) {
        let awake = to.since(self.since).saturating_sub(self.slept);
        let length = to.since(from);
        let counted = self.count(to);
        let (waited, withheld) = match counted {
            Some(counted) => part(counted, awake, length, step),
            None => (Duration::ZERO, Duration::ZERO),
        };
        if self.long.len() == REMEMBERED {
            self.long.pop_front();
        }
        self.long.push_back(LongStep { from, to, waited, withheld, cause: step.cause() });
    }

    /// Adds to `causes` the reasons why a packet that was due at `due` left at `left`.
    pub(super) fn explain(&self, due: LinkTime, left: LinkTime, causes: &mut LatenessCauses) {
        let late = left.since(due);
        if late <= LATE {
            return;
        }
        causes.over_ms = milliseconds(LATE);
        causes.packets += 1;
        let mut explained = Duration::ZERO;
        for long in self.long.iter().rev().take_while(|long| long.to > due) {
            let overlap = long.to.min(left).since(long.from.max(due));
            let length = long.to.since(long.from);
            let part = overlap.as_secs_f64() / length.as_secs_f64();
            let rest = length.saturating_sub(long.waited + long.withheld);
            explained += overlap;
            causes.add(LatenessCause::Processor, milliseconds(long.waited) * part);
            causes.add(LatenessCause::Host, milliseconds(long.withheld) * part);
            causes.add(long.cause, milliseconds(rest) * part);
        }
        causes.add(LatenessCause::Backlog, milliseconds(late.saturating_sub(explained)));
    }
}

/// Splits a step of `length` that ends a period `awake` without sleep. Returns the part in which
/// the thread waited for a processor, and the part in which it neither ran nor waited. Before the
/// step the thread ran all the time; otherwise the previous step would have been long.
fn part(
    counted: ThreadSchedule,
    awake: Duration,
    length: Duration,
    step: Step,
) -> (Duration, Duration) {
    let waited = counted.waited.min(length);
    if step == Step::Overslept {
        return (waited, Duration::ZERO);
    }
    let before = awake.saturating_sub(length);
    let ran = counted.ran.saturating_sub(before).min(length - waited);
    (waited, length - waited - ran)
}

fn milliseconds(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: fn(u64) -> Duration = Duration::from_micros;

    fn at(micros: u64) -> LinkTime {
        LinkTime::default() + US(micros)
    }

    fn step(from: u64, to: u64, waited: u64, withheld: u64, cause: LatenessCause) -> LongStep {
        let [waited, withheld] = [waited, withheld].map(US);
        LongStep { from: at(from), to: at(to), waited, withheld, cause }
    }

    /// Returns microseconds by cause, in the order of [`LatenessCause::ALL`].
    fn micros(causes: &LatenessCauses) -> [i64; 6] {
        LatenessCause::ALL.map(|cause| (causes.of(cause) * 1e3).round() as i64)
    }

    #[test]
    fn a_lateness_is_laid_to_the_long_steps_that_it_overlaps_and_the_rest_to_other_packets() {
        let mut timeline = Timeline::begin(at(0), false);
        timeline.long = VecDeque::from([
            step(0, 1000, 1000, 0, LatenessCause::Backlog),
            step(2000, 3000, 500, 250, LatenessCause::Write),
            step(4000, 4400, 0, 0, LatenessCause::Timer),
        ]);
        let explain = |due, left| {
            let mut causes = LatenessCauses::default();
            timeline.explain(at(due), at(left), &mut causes);
            (causes.packets, micros(&causes))
        };
        assert_eq!(explain(1800, 2050), (0, [0; 6]), "not late enough");
        // Half of the long write, then normal work.
        assert_eq!(explain(2500, 3100), (1, [250, 125, 0, 125, 0, 100]));
        assert_eq!(explain(900, 4500), (1, [600, 250, 400, 250, 0, 2100]));
        // The packet left during the long write; its departure is the middle of the write.
        assert_eq!(explain(1900, 2500), (1, [250, 125, 0, 125, 0, 100]));
    }

    #[test]
    fn time_that_a_step_neither_ran_nor_waited_was_withheld() {
        let counted = |ran, waited| ThreadSchedule { ran: US(ran), waited: US(waited) };
        let part = |counted, awake, length, step| part(counted, US(awake), US(length), step);
        // 300 us of normal work before a step of 1000 us.
        assert_eq!(part(counted(1300, 0), 1300, 1000, Step::Write), (US(0), US(0)));
        assert_eq!(part(counted(500, 600), 1300, 1000, Step::Write), (US(600), US(200)));
        assert_eq!(part(counted(300, 0), 1300, 1000, Step::Own), (US(0), US(1000)));
        assert_eq!(part(counted(10, 40), 1300, 1000, Step::Overslept), (US(40), US(0)));
        assert_eq!(part(counted(10, 4000), 1300, 1000, Step::Read), (US(1000), US(0)));
    }

    #[test]
    fn running_sleeping_and_waiting_threads_are_distinguished() {
        const STALL: Duration = Duration::from_millis(40);
        let cpu = longhaul_sys::cpu::allowed().unwrap()[0];
        let causes = std::thread::spawn(move || {
            longhaul_sys::cpu::bind_thread(&[cpu]).unwrap();
            let origin = std::time::Instant::now();
            let clock = || LinkTime::default() + origin.elapsed();
            let work = |span| {
                let clock = longhaul_sys::cpu::ThreadClock::current();
                let begun = clock.elapsed().unwrap();
                while clock.elapsed().unwrap() - begun < span {}
            };
            let mut timeline = Timeline::begin(clock(), false);
            let explained = |due, timeline: &Timeline| {
                let mut causes = LatenessCauses::default();
                timeline.explain(due, clock(), &mut causes);
                causes
            };
            let begun = clock();
            timeline.begin_step(begun);
            work(STALL);
            timeline.end_step(Step::Write, begun, clock());
            let write = explained(begun, &timeline);

            let begun = clock();
            timeline.begin_step(begun);
            std::thread::sleep(STALL);
            timeline.slept(begun, Some(begun + STALL / 4), clock());
            let timer = explained(begun + STALL / 4, &timeline);

            let other = std::thread::spawn(move || {
                longhaul_sys::cpu::bind_thread(&[cpu]).unwrap();
                work(STALL * 2);
            });
            let begun = clock();
            timeline.begin_step(begun);
            work(STALL * 2);
            timeline.end_step(Step::Write, begun, clock());
            let processor = explained(begun, &timeline);
            other.join().unwrap();
            [write, timer, processor]
        });
        let [write, timer, processor] = causes.join().unwrap();
        let stall_ms = milliseconds(STALL);
        assert!(write.write_ms > stall_ms * 0.9, "{write:?}");
        assert!(timer.timer_ms + timer.processor_ms > stall_ms * 0.7, "{timer:?}");
        assert!(timer.timer_ms > 0.0 && timer.write_ms < stall_ms * 0.1, "{timer:?}");
        assert!(processor.processor_ms > stall_ms * 0.5, "{processor:?}");
    }

    #[test]
    fn a_saving_thread_counts_seldom_between_sleeps() {
        let stale = |saves, sleeps, awake: u64| {
            let mut timeline = Timeline::begin(at(0), saves);
            timeline.sleeps = sleeps;
            timeline.slept = US(50_000);
            timeline.is_stale(at(50_000 + awake))
        };
        assert!(stale(false, 1, 10), "50 ms have passed");
        assert!(!stale(true, STALE_SLEEPS - 1, 10));
        assert!(stale(true, STALE_SLEEPS, 10));
        assert!(stale(true, 1, 1001));
    }
}
