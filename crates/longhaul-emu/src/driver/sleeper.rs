use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::timeline::Timeline;
use crate::link::LinkTime;

/// Waits for the time of a departure, or for a packet.
///
/// The kernel's timer wakes a thread some time after the moment asked for: about 5 us on a busy
/// processor, 100 us on a virtual one that had gone idle. The sleeper learns how long, asks for
/// an earlier moment and spins for the rest. It spins for at most an eighth of any wait, so that
/// a packet every few microseconds does not keep the processor from the ends of the link.
#[derive(Debug, Default)]
pub(super) struct Sleeper {
    /// How late the timer has been, as a moving mean.
    overshoot: Duration,
    /// How far it was from that mean, as a moving mean.
    deviation: Duration,
    /// The last departure that it slept for; the little that was left until then is spun.
    slept_for: LinkTime,
    /// When it last let others have the processor.
    rested_at: LinkTime,
}

/// How long a real-time thread may hold the processor, and how long it then rests: 8 %, spread
/// evenly. The kernel reserves 5 % for ordinary threads and, when they did not get it, takes it
/// in one piece of 50 ms (the fair server of kernel/sched/deadline.c, `sched_rt_runtime_us`
/// before Linux 6.12), which is how late packets would then be.
const STINT: Duration = Duration::from_micros(2500);
const REST: Duration = Duration::from_micros(200);

impl Sleeper {
    /// Waits until `due`, if there is one, but not beyond the moment one of `sources` can be
    /// read; shorter waits are possible. Returns for how long a source that ended the wait could
    /// likely be read before this returns.
    ///
    /// That is half of what the timer takes to wake the thread: a source that another processor
    /// fills wakes it as the timer does, one that its own processor fills takes next to nothing,
    /// and the kernel does not tell which it was.
    pub(super) fn wait<'a>(
        &mut self,
        due: Option<LinkTime>,
        sources: impl Iterator<Item = BorrowedFd<'a>>,
        clock: impl Fn() -> LinkTime,
        timeline: &mut Timeline,
    ) -> Duration {
        let now = clock();
        timeline.begin_step(now);
        let sleep = match due {
            None => None,
            Some(due) => match self.sleep_within(due.since(now)) {
                Some(sleep) if due > self.slept_for => Some(sleep),
                _ => {
                    std::hint::spin_loop();
                    return Duration::ZERO;
                }
            },
        };
        let mut events: Vec<PollFd<'a>> =
            sources.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let timeout = sleep.map(|sleep| Timespec {
            tv_sec: sleep.as_secs() as i64,
            tv_nsec: i64::from(sleep.subsec_nanos()),
        });
        let woken_by = rustix::event::poll(&mut events, timeout.as_ref());
        let woke = clock();
        timeline.slept(now, sleep.map(|sleep| now + sleep), woke);
        if woke.since(now) >= REST {
            self.rested_at = woke;
        }
        // Only the timer's own wake-ups tell of the timer; an interrupted wait is a short wait.
        match (woken_by, due, sleep) {
            (Ok(0), Some(due), Some(sleep)) => {
                self.slept_for = due;
                self.learn(woke.since(now + sleep));
                Duration::ZERO
            }
            (Ok(_), ..) => (self.overshoot / 2).min(woke.since(now)),
            _ => Duration::ZERO,
        }
    }

    /// Rests, if the thread has not done so for long; for a thread with real-time priority.
    pub(super) fn rest(&mut self, clock: impl Fn() -> LinkTime, timeline: &mut Timeline) {
        let now = clock();
        if now.since(self.rested_at) > STINT {
            timeline.begin_step(now);
            std::thread::sleep(REST);
            self.rested_at = clock();
            timeline.slept(now, Some(now + REST), self.rested_at);
        }
    }

    /// How much of the time `left` to sleep; `None` is to spin.
    fn sleep_within(&self, left: Duration) -> Option<Duration> {
        /// What entering and leaving the kernel takes at the least.
        const SHORTEST: Duration = Duration::from_micros(5);
        // As TCP's timeout covers most round trips (RFC 6298), with half its caution.
        let usual = self.overshoot + self.deviation * 2;
        let lead = usual.min(left / 8).max(SHORTEST);
        left.checked_sub(lead).filter(|sleep| !sleep.is_zero())
    }

    fn learn(&mut self, overshoot: Duration) {
        const WEIGHT: u32 = 8;
        /// Beyond this the processor was busy with something else, which no lead makes up for.
        const LONGEST: Duration = Duration::from_micros(250);
        let overshoot = overshoot.min(LONGEST);
        let deviation = overshoot.abs_diff(self.overshoot);
        self.deviation = (self.deviation * (WEIGHT - 1) + deviation) / WEIGHT;
        self.overshoot = (self.overshoot * (WEIGHT - 1) + overshoot) / WEIGHT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: fn(u64) -> Duration = Duration::from_micros;

    #[test]
    fn a_short_wait_is_spun_and_a_long_one_ends_early_by_what_was_learnt() {
        let mut sleeper = Sleeper::default();
        assert_eq!(sleeper.sleep_within(US(4)), None);
        assert_eq!(sleeper.sleep_within(US(1000)), Some(US(995)));
        for _ in 0..100 {
            sleeper.learn(US(80));
        }
        let lead = US(10_000) - sleeper.sleep_within(US(10_000)).unwrap();
        assert!((US(79)..=US(81)).contains(&lead), "{lead:?}");
        assert_eq!(sleeper.sleep_within(US(160)), Some(US(140)), "an eighth at most");
    }

    #[test]
    fn a_stint_ends_with_a_rest() {
        let mut sleeper = Sleeper::default();
        let time = std::cell::Cell::new(STINT);
        let clock = || LinkTime::default() + time.get();
        let mut timeline = Timeline::begin(clock());
        sleeper.rest(clock, &mut timeline);
        assert_eq!(sleeper.rested_at, LinkTime::default(), "not yet");
        time.set(STINT + US(1));
        sleeper.rest(clock, &mut timeline);
        assert_eq!(sleeper.rested_at, clock());
    }

    #[test]
    fn an_interruption_is_not_taken_for_the_timer() {
        let mut sleeper = Sleeper::default();
        sleeper.learn(Duration::from_millis(50));
        assert!(sleeper.overshoot < US(32) && sleeper.deviation < US(32));
    }
}
