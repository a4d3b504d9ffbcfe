//! Waits precisely for the next departure or packet: a timer for most of the wait, then a spin.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::timeline::Timeline;
use crate::link::LinkTime;

/// Waits until the time of a departure, or until a packet arrives.
///
/// The kernel's timer wakes a thread some time after the requested time: about 5 us on a busy
/// processor, 100 us on a virtual processor that was idle. The sleeper learns this delay, requests
/// an earlier time and spins for the rest. It spins for at most an eighth of a wait, so that a
/// packet every few microseconds leaves the processor to the programs at the ends of the link.
#[derive(Debug)]
pub(super) struct Sleeper {
    spins: Arc<SpinBudget>,
    /// The timer's delay, as a moving mean.
    overshoot: Duration,
    /// The deviation from that mean, as a moving mean.
    deviation: Duration,
    /// The time of the last departure for which the thread slept. Until then the thread only spins.
    slept_for: LinkTime,
    /// The time at which the thread last released the processor.
    rested_at: LinkTime,
}

/// The end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WaitEnd {
    /// The estimated time for which the source that ended the wait had been readable.
    pub(super) waited: Duration,
    /// The sources that are readable, as bits in their order; `None` if the sleeper did not ask.
    pub(super) readable: Option<u64>,
    /// The duration of the sleep.
    pub(super) slept: Duration,
}

/// The longest time that a real-time thread uses the processor without rest, and the length of the
/// rest. The rest is 8 %, spread evenly. The kernel reserves 5 % for ordinary threads. If these do
/// not get it, the kernel takes it in one interval of 50 ms (the fair server of
/// kernel/sched/deadline.c; `sched_rt_runtime_us` before Linux 6.12), which delays packets by as
/// much.
const STINT: Duration = Duration::from_micros(2500);
const REST: Duration = Duration::from_micros(200);

/// The processor time that the threads of a topology may spend on spins that follow a sleep.
///
/// Without a limit, dozens of links with little traffic would keep a processor busy with spins. A
/// link that may not spin sleeps until the departure, which is then late by the timer's delay.
#[derive(Debug)]
pub(crate) struct SpinBudget {
    /// The share of one processor for all threads, in thousandths; `None` without a limit.
    share: Option<u64>,
    began: Instant,
    /// The time since the start, in nanoseconds, at which the spins so far are within the share.
    spent_until: AtomicU64,
}

impl SpinBudget {
    /// The number of links from which on the budget is limited.
    const MANY_LINKS: usize = 5;
    /// The share of one processor that many links may spend, in thousandths.
    const SHARE: u64 = 20;
    /// The spins in nanoseconds that may follow each other immediately.
    const BURST: u64 = 2_000_000;

    /// Creates the budget of a topology with `links` links.
    pub(crate) fn of(links: usize) -> Arc<Self> {
        let share = (links >= Self::MANY_LINKS).then_some(Self::SHARE);
        Arc::new(SpinBudget { share, began: Instant::now(), spent_until: AtomicU64::new(0) })
    }

    /// Returns whether the topology has so many links that their threads save processor time.
    pub(super) fn is_limited(&self) -> bool {
        self.share.is_some()
    }

    /// Spends `span` if the budget has it.
    fn spend(&self, span: Duration) -> bool {
        self.spend_at(self.began.elapsed(), span)
    }

    fn spend_at(&self, now: Duration, span: Duration) -> bool {
        let Some(share) = self.share else { return true };
        let cost = |nanos: u64| nanos * 1000 / share;
        let now = now.as_nanos() as u64;
        let spend = |until: u64| {
            let until = until.max(now) + cost(span.as_nanos() as u64);
            (until <= now + cost(Self::BURST)).then_some(until)
        };
        self.spent_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_ok()
    }
}

impl Sleeper {
    /// Creates a sleeper that spins within `spins`.
    pub(super) fn new(spins: Arc<SpinBudget>) -> Self {
        Sleeper {
            spins,
            overshoot: Duration::ZERO,
            deviation: Duration::ZERO,
            slept_for: LinkTime::default(),
            rested_at: LinkTime::default(),
        }
    }

    /// Returns whether the thread saves processor time, because it is one of many.
    pub(super) fn saves(&self) -> bool {
        self.spins.is_limited()
    }

    /// Waits until `due`, if given, or until one of `sources` becomes readable, whichever is first.
    /// The wait may end early.
    ///
    /// The estimate of the time for which a source was readable is half of the timer's delay: a
    /// source filled by another processor wakes the thread as the timer does, a source filled by the
    /// thread's own processor takes almost no time, and the kernel does not report the case.
    pub(super) fn wait<'a>(
        &mut self,
        due: Option<LinkTime>,
        sources: impl Iterator<Item = BorrowedFd<'a>>,
        clock: impl Fn() -> LinkTime,
        timeline: &mut Timeline,
    ) -> WaitEnd {
        let now = clock();
        timeline.begin_step(now);
        let sleep = match due {
            None => None,
            Some(due) => match self.sleep_within(due.since(now)) {
                Some(sleep) if due > self.slept_for => Some(sleep),
                _ => {
                    std::hint::spin_loop();
                    return WaitEnd {
                        waited: Duration::ZERO,
                        readable: None,
                        slept: Duration::ZERO,
                    };
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
        let slept = woke.since(now);
        // Only a wake-up by the timer measures the timer's delay. An interrupted wait counts as a
        // short one.
        let waited = match (woken_by, due, sleep) {
            (Ok(0), Some(due), Some(sleep)) => {
                self.slept_for = due;
                self.learn(woke.since(now + sleep));
                Duration::ZERO
            }
            (Ok(_), ..) => (self.overshoot / 2).min(slept),
            _ => Duration::ZERO,
        };
        let bits = events.iter().enumerate().filter(|(_, event)| !event.revents().is_empty());
        let bits =
            bits.fold(0, |bits, (index, _)| bits | 1u64.checked_shl(index as u32).unwrap_or(0));
        WaitEnd { waited, readable: woken_by.is_ok().then_some(bits), slept }
    }

    /// Rests if a real-time thread has not rested for [`STINT`].
    /// `now` is the time, which becomes the end of the rest.
    pub(super) fn rest(
        &mut self,
        now: &mut LinkTime,
        clock: impl Fn() -> LinkTime,
        timeline: &mut Timeline,
    ) {
        if now.since(self.rested_at) > STINT {
            let begun = *now;
            timeline.begin_step(begun);
            std::thread::sleep(REST);
            *now = clock();
            self.rested_at = *now;
            timeline.slept(begun, Some(begun + REST), *now);
        }
    }

    /// Returns the part of `left` to sleep; `None` means that the thread should spin.
    fn sleep_within(&self, left: Duration) -> Option<Duration> {
        /// The minimum time to enter and leave the kernel.
        const SHORTEST: Duration = Duration::from_micros(5);
        // The margin resembles TCP's timeout (RFC 6298), with half of its factor.
        let usual = self.overshoot + self.deviation * 2;
        let lead = usual.min(left / 8);
        let lead = if lead > SHORTEST && self.spins.spend(lead) { lead } else { SHORTEST };
        left.checked_sub(lead).filter(|sleep| !sleep.is_zero())
    }

    fn learn(&mut self, overshoot: Duration) {
        const WEIGHT: u32 = 8;
        /// A longer delay means that the processor did other work. An earlier request would not
        /// compensate for it.
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
        let mut sleeper = Sleeper::new(SpinBudget::of(1));
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
    fn many_links_share_the_time_for_spins() {
        let few = SpinBudget::of(SpinBudget::MANY_LINKS - 1);
        assert!((0..1000).all(|_| few.spend_at(US(1), US(100))));
        let many = SpinBudget::of(SpinBudget::MANY_LINKS);
        let spent = |now| (0..1000).filter(|_| many.spend_at(now, US(100))).count();
        assert_eq!(spent(US(0)), 20, "a burst of 2 ms");
        assert_eq!(spent(US(1_000_000)), 20, "an idle second saves no credit");
        assert_eq!(spent(US(1_050_000)), 10, "2 % of 50 ms");
    }

    #[test]
    fn a_stint_ends_with_a_rest() {
        let mut sleeper = Sleeper::new(SpinBudget::of(1));
        let time = std::cell::Cell::new(STINT);
        let clock = || LinkTime::default() + time.get();
        let mut timeline = Timeline::begin(clock(), false);
        sleeper.rest(&mut clock(), clock, &mut timeline);
        assert_eq!(sleeper.rested_at, LinkTime::default(), "not yet");
        time.set(STINT + US(1));
        sleeper.rest(&mut clock(), clock, &mut timeline);
        assert_eq!(sleeper.rested_at, clock());
    }

    #[test]
    fn an_interruption_is_not_taken_for_the_timer() {
        let mut sleeper = Sleeper::new(SpinBudget::of(1));
        sleeper.learn(Duration::from_millis(50));
        assert!(sleeper.overshoot < US(32) && sleeper.deviation < US(32));
    }
}
