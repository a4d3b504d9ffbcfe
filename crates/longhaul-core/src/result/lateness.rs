use std::fmt;

use serde::{Deserialize, Serialize};

/// By how much packets left after their due time, over all packets of a direction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Median, in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile, in milliseconds.
    pub p99_ms: f64,
    /// 99.9th percentile, in milliseconds.
    pub p999_ms: f64,
    /// The largest, in milliseconds.
    pub max_ms: f64,
    /// How many left how late, in buckets that rise and do not overlap; empty ones are left out.
    #[serde(default)]
    pub histogram: Vec<LatenessBucket>,
    /// Why packets left late, of those that left so late that it is looked into.
    #[serde(default)]
    pub causes: LatenessCauses,
}

/// Packets that left late by more than the bucket before says and at most by `at_most_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LatenessBucket {
    /// The bucket's upper bound, in milliseconds.
    pub at_most_ms: f64,
    /// How many.
    pub packets: u64,
}

impl Lateness {
    /// The upper bounds of all buckets but the last, which takes what is later, in nanoseconds:
    /// three for each decade from 1 us to 10 s.
    const BOUNDS: [u64; 22] = {
        let mut bounds = [0; 22];
        let (mut at, mut decade) = (0, 1000);
        while at < bounds.len() {
            bounds[at] = decade * [1, 2, 5][at % 3];
            if at % 3 == 2 {
                decade *= 10;
            }
            at += 1;
        }
        bounds
    };

    /// Sorts counts of latenesses, in nanoseconds, into buckets.
    pub fn histogram_of(counts: impl IntoIterator<Item = (u64, u64)>) -> Vec<LatenessBucket> {
        let mut packets = [0; Self::BOUNDS.len() + 1];
        for (nanos, count) in counts {
            packets[Self::BOUNDS.partition_point(|bound| *bound < nanos)] += count;
        }
        // JSON has no infinity; a minute is later than any packet can be.
        let bounds = Self::BOUNDS.into_iter().chain([60_000_000_000]);
        let buckets = bounds.zip(packets).filter(|(_, packets)| *packets > 0);
        buckets
            .map(|(nanos, packets)| LatenessBucket { at_most_ms: nanos as f64 / 1e6, packets })
            .collect()
    }
}

/// What a packet waited for after it was due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LatenessCause {
    /// The emulator's thread could run, but had no processor.
    Processor,
    /// The thread neither ran nor waited nor slept: the host of a virtual machine withheld its
    /// processor, or hardware did (system management, interrupts where the kernel counts them
    /// apart).
    Host,
    /// The thread slept, and was woken later than it had asked for.
    Timer,
    /// A write took long: the receiver's share of the kernel's work is done in it.
    Write,
    /// A read took long.
    Read,
    /// Packets before it: the thread was at work, at its usual pace.
    Backlog,
}

impl LatenessCause {
    /// All of them.
    pub const ALL: [LatenessCause; 6] = [
        LatenessCause::Processor,
        LatenessCause::Host,
        LatenessCause::Timer,
        LatenessCause::Write,
        LatenessCause::Read,
        LatenessCause::Backlog,
    ];

    /// What to do about it.
    fn advice(self) -> &'static str {
        match self {
            LatenessCause::Host | LatenessCause::Timer => {
                "measure again, or on a machine that is not shared"
            }
            LatenessCause::Processor
            | LatenessCause::Write
            | LatenessCause::Read
            | LatenessCause::Backlog => "leave it more CPU or lower the rate",
        }
    }
}

/// As what a packet was doing: "80 % waiting for a processor".
impl fmt::Display for LatenessCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LatenessCause::Processor => "waiting for a processor",
            LatenessCause::Host => "with the processor withheld by the host",
            LatenessCause::Timer => "being woken late by the machine",
            LatenessCause::Write => "in a write to the receiver's kernel",
            LatenessCause::Read => "in a read from the sender's kernel",
            LatenessCause::Backlog => "behind other packets",
        })
    }
}

/// The cause of the largest part of a lateness.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MainCause {
    /// Which.
    pub cause: LatenessCause,
    /// Its part of all of it, 0 to 1.
    pub share: f64,
}

impl MainCause {
    /// The part of a warning's sentence that says so; empty where no cause is known.
    pub(super) fn because(main: Option<&MainCause>) -> String {
        main.map_or_else(String::new, |MainCause { cause, share }| {
            format!(", {:.0} % of it {cause}", share * 100.0)
        })
    }

    /// What to do about it.
    pub(super) fn advice(main: Option<&MainCause>) -> &'static str {
        main.map_or(LatenessCause::Backlog, |main| main.cause).advice()
    }
}

/// How the time of packets that left late was spent between when they were due and when they left,
/// summed over these packets: 100 packets that one stall of 5 ms held up are 500 ms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LatenessCauses {
    /// Later than this is looked into, in milliseconds; 0 in documents that did not look.
    pub over_ms: f64,
    /// How many packets were so late.
    pub packets: u64,
    /// [`LatenessCause::Processor`].
    pub processor_ms: f64,
    /// [`LatenessCause::Host`].
    pub host_ms: f64,
    /// [`LatenessCause::Timer`].
    pub timer_ms: f64,
    /// [`LatenessCause::Write`].
    pub write_ms: f64,
    /// [`LatenessCause::Read`].
    pub read_ms: f64,
    /// [`LatenessCause::Backlog`].
    pub backlog_ms: f64,
}

impl LatenessCauses {
    /// The milliseconds of a cause.
    pub fn of(&self, cause: LatenessCause) -> f64 {
        match cause {
            LatenessCause::Processor => self.processor_ms,
            LatenessCause::Host => self.host_ms,
            LatenessCause::Timer => self.timer_ms,
            LatenessCause::Write => self.write_ms,
            LatenessCause::Read => self.read_ms,
            LatenessCause::Backlog => self.backlog_ms,
        }
    }

    /// Lays `ms` more milliseconds to a cause.
    pub fn add(&mut self, cause: LatenessCause, ms: f64) {
        *match cause {
            LatenessCause::Processor => &mut self.processor_ms,
            LatenessCause::Host => &mut self.host_ms,
            LatenessCause::Timer => &mut self.timer_ms,
            LatenessCause::Write => &mut self.write_ms,
            LatenessCause::Read => &mut self.read_ms,
            LatenessCause::Backlog => &mut self.backlog_ms,
        } += ms;
    }

    /// A cause's part of all of it, 0 to 1; 0 when nothing was late.
    pub fn share(&self, cause: LatenessCause) -> f64 {
        let all: f64 = LatenessCause::ALL.into_iter().map(|cause| self.of(cause)).sum();
        if all > 0.0 { self.of(cause) / all } else { 0.0 }
    }

    /// The largest; `None` when nothing was late.
    pub fn main(&self) -> Option<MainCause> {
        let all = LatenessCause::ALL.map(|cause| MainCause { cause, share: self.share(cause) });
        all.into_iter().max_by(|a, b| a.share.total_cmp(&b.share)).filter(|main| main.share > 0.0)
    }

    /// Each cause with its share, the largest first, those below 1 % left out: "62 % behind other
    /// packets, 30 % waiting for a processor".
    pub fn summary(&self) -> String {
        let mut parts: Vec<(f64, LatenessCause)> =
            LatenessCause::ALL.map(|cause| (self.share(cause), cause)).into();
        parts.retain(|(share, _)| *share >= 0.01);
        parts.sort_by(|a, b| b.0.total_cmp(&a.0));
        let words = parts.iter().map(|(share, cause)| format!("{:.0} % {cause}", share * 100.0));
        words.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latenesses_fall_into_buckets() {
        let counts = [(0, 5), (1000, 1), (1001, 2), (7_000_000, 3), (20_000_000_000, 1)];
        let buckets = Lateness::histogram_of(counts);
        let all: Vec<(f64, u64)> = buckets.iter().map(|b| (b.at_most_ms, b.packets)).collect();
        assert_eq!(all, [(0.001, 6), (0.002, 2), (10.0, 3), (60_000.0, 1)]);
        assert_eq!(Lateness::BOUNDS.last(), Some(&10_000_000_000));
        assert!(Lateness::BOUNDS.is_sorted());
    }

    #[test]
    fn the_largest_cause_is_told_and_nothing_late_has_none() {
        assert_eq!(LatenessCauses::default().main(), None);
        assert_eq!(LatenessCauses::default().summary(), "");
        let causes = LatenessCauses {
            over_ms: 0.25,
            packets: 40,
            processor_ms: 80.0,
            host_ms: 15.0,
            backlog_ms: 4.5,
            timer_ms: 0.5,
            ..LatenessCauses::default()
        };
        let main = causes.main().unwrap();
        assert_eq!(main, MainCause { cause: LatenessCause::Processor, share: 0.8 });
        assert_eq!(MainCause::because(Some(&main)), ", 80 % of it waiting for a processor");
        assert!(MainCause::advice(Some(&main)).starts_with("leave it more CPU"));
        let host = MainCause { cause: LatenessCause::Host, share: 0.5 };
        assert!(MainCause::advice(Some(&host)).contains("not shared"));
        assert_eq!(MainCause::because(None), "");
        assert_eq!(
            causes.summary(),
            "80 % waiting for a processor, 15 % with the processor withheld by the host, 4 % \
             behind other packets"
        );
    }
}
