use std::collections::VecDeque;
use std::time::Duration;

use longhaul_core::result::{LatenessCause, LatenessCauses};
use longhaul_sys::schedule::{ScheduleGauge, ThreadSchedule};

use crate::link::LinkTime;

/// What the thread was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Writing a piece, or having the kernel of the receiver do its work in the course of it.
    Write,
    /// Reading a packet, and deciding on it.
    Read,
    /// Asleep beyond the moment for which it had asked.
    Overslept,
    /// Anything else.
    Own,
}

impl Step {
    /// Whom to blame for the part of a long step in which the thread was on its processor, or
    /// slept.
    fn cause(self) -> LatenessCause {
        match self {
            Step::Write => LatenessCause::Write,
            Step::Read => LatenessCause::Read,
            Step::Overslept => LatenessCause::Timer,
            Step::Own => LatenessCause::Backlog,
        }
    }
}

/// A step longer than this is looked into. The usual one takes 1 to 20 us, and 50 with cold
/// caches.
const LONG: Duration = Duration::from_micros(100);

/// A packet later than this is explained: what an idle round trip may be off by.
pub(super) const LATE: Duration = Duration::from_micros(250);

/// How many long steps are remembered: more than any packet is likely to have waited through.
const REMEMBERED: usize = 256;

/// How old the counts may be from which those of a long step are told: what the thread waits for
/// in that time and without a long step, some microseconds at each waking, would be added to it.
const STALE: Duration = Duration::from_millis(1);

/// What the driver's thread did of late, as far as it took long, so that the lateness of a packet
/// can be laid to its causes.
///
/// Steps that took no longer than usual are not remembered: what is left of a lateness after the
/// long ones is the time that the packets before it took.
#[derive(Debug)]
pub(super) struct Timeline {
    /// `None` where the kernel does not tell: then a long step is all its own.
    gauge: Option<ScheduleGauge>,
    /// The counts at `since`, and for how long the thread has slept after it.
    counts: ThreadSchedule,
    since: LinkTime,
    slept: Duration,
    /// The end of the last step.
    at: LinkTime,
    long: VecDeque<LongStep>,
}

/// A step that took long, and how its time was spent.
#[derive(Debug)]
struct LongStep {
    from: LinkTime,
    to: LinkTime,
    waited: Duration,
    withheld: Duration,
    /// The rest is of this.
    cause: LatenessCause,
}

impl Timeline {
    /// Of the calling thread, from the link's time `at`.
    pub(super) fn begin(at: LinkTime) -> Self {
        let gauge = ScheduleGauge::current().ok();
        let counts = gauge.as_ref().and_then(|gauge| gauge.read().ok()).unwrap_or_default();
        let long = VecDeque::with_capacity(REMEMBERED);
        Timeline { gauge, counts, since: at, slept: Duration::ZERO, at, long }
    }

    /// A step begins `now`; what was between it and the last was none.
    pub(super) fn begin_step(&mut self, now: LinkTime) {
        if now.since(self.at) > LONG {
            self.look_into(Step::Own, self.at, now);
        }
        self.at = now;
    }

    /// The thread did `step`, which began at `from`, until `to`.
    pub(super) fn end_step(&mut self, step: Step, from: LinkTime, to: LinkTime) {
        if to.since(from) > LONG {
            self.look_into(step, from, to);
        }
        self.at = to;
        if to.since(self.since) > STALE {
            self.count(to);
        }
    }

    /// The thread slept, which began at `from`, until it `woke`, and had asked to be woken at
    /// `until`, if at any time.
    pub(super) fn slept(&mut self, from: LinkTime, until: Option<LinkTime>, woke: LinkTime) {
        let meant = until.map_or(woke, |until| until.min(woke));
        self.slept += meant.since(from);
        if woke.since(meant) > LONG {
            self.look_into(Step::Overslept, meant, woke);
        } else {
            self.slept += woke.since(meant);
        }
        self.at = woke;
        if woke.since(self.since) > STALE {
            self.count(woke);
        }
    }

    /// Starts counting anew; returns what was counted since the last time.
    fn count(&mut self, at: LinkTime) -> Option<ThreadSchedule> {
        let counts = self.gauge.as_ref()?.read().ok()?;
        let passed = ThreadSchedule {
            ran: counts.ran.saturating_sub(self.counts.ran),
            waited: counts.waited.saturating_sub(self.counts.waited),
        };
        (self.counts, self.since, self.slept) = (counts, at, Duration::ZERO);
        Some(passed)
    }

    fn look_into(&mut self, step: Step, from: LinkTime, to: LinkTime) {
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

    /// Adds to `causes` what a packet waited for that was due at one moment and left at another.
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

/// Of a step of `length`, at the end of `awake` that the thread did not sleep, the part in which
/// it waited for a processor and that in which it had none without waiting. Before the step it
/// was on its processor all the time, or the step before would have been long.
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

    /// Microseconds by cause, in the order of [`LatenessCause::ALL`].
    fn micros(causes: &LatenessCauses) -> [i64; 6] {
        LatenessCause::ALL.map(|cause| (causes.of(cause) * 1e3).round() as i64)
    }

    #[test]
    fn a_lateness_is_laid_to_the_long_steps_that_it_overlaps_and_the_rest_to_other_packets() {
        let mut timeline = Timeline::begin(at(0));
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
        // Half of the long write, then usual work.
        assert_eq!(explain(2500, 3100), (1, [250, 125, 0, 125, 0, 100]));
        assert_eq!(explain(900, 4500), (1, [600, 250, 400, 250, 0, 2100]));
        // It left in the course of the long write, of which the middle counts.
        assert_eq!(explain(1900, 2500), (1, [250, 125, 0, 125, 0, 100]));
    }

    #[test]
    fn what_a_step_neither_ran_nor_waited_was_withheld() {
        let counted = |ran, waited| ThreadSchedule { ran: US(ran), waited: US(waited) };
        let part = |counted, awake, length, step| part(counted, US(awake), US(length), step);
        // 300 us of usual work before a step of 1000 us.
        assert_eq!(part(counted(1300, 0), 1300, 1000, Step::Write), (US(0), US(0)));
        assert_eq!(part(counted(500, 600), 1300, 1000, Step::Write), (US(600), US(200)));
        assert_eq!(part(counted(300, 0), 1300, 1000, Step::Own), (US(0), US(1000)));
        assert_eq!(part(counted(10, 40), 1300, 1000, Step::Overslept), (US(40), US(0)));
        assert_eq!(part(counted(10, 4000), 1300, 1000, Step::Read), (US(1000), US(0)));
    }

    #[test]
    fn a_thread_at_work_one_asleep_and_one_without_a_processor_are_told_apart() {
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
            let mut timeline = Timeline::begin(clock());
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
}
