//! The lateness of packets in the emulator, and its causes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The lateness of all packets of a direction: departure time minus due time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// The median in ms.
    pub p50_ms: f64,
    /// The 99th percentile in ms.
    pub p99_ms: f64,
    /// The 99.9th percentile in ms.
    pub p999_ms: f64,
    /// The largest lateness in ms.
    pub max_ms: f64,
    /// The number of packets per bucket, in ascending order; empty buckets are omitted.
    #[serde(default)]
    pub histogram: Vec<LatenessBucket>,
    /// The causes of lateness above the threshold at which a packet is examined.
    #[serde(default)]
    pub causes: LatenessCauses,
}

/// A bucket: the packets that were later than the previous bound and at most `at_most_ms` late.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LatenessBucket {
    /// The upper bound of the bucket in ms.
    pub at_most_ms: f64,
    /// The number of packets.
    pub packets: u64,
}

impl Lateness {
    /// The upper bounds of all buckets except the last, which has no bound, in ns: three per decade
    /// from 1 us to 10 s.
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

    /// Sorts counts of lateness in ns into buckets.
    pub fn histogram_of(counts: impl IntoIterator<Item = (u64, u64)>) -> Vec<LatenessBucket> {
        let mut packets = [0; Self::BOUNDS.len() + 1];
        for (nanos, count) in counts {
            packets[Self::BOUNDS.partition_point(|bound| *bound < nanos)] += count;
        }
        // JSON has no infinity, so a minute is the last bound; no packet is that late.
        let bounds = Self::BOUNDS.into_iter().chain([60_000_000_000]);
        let buckets = bounds.zip(packets).filter(|(_, packets)| *packets > 0);
        buckets
            .map(|(nanos, packets)| LatenessBucket { at_most_ms: nanos as f64 / 1e6, packets })
            .collect()
    }
}

/// The cause of a packet's wait after its due time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LatenessCause {
    /// The emulator's thread was ready but had no processor.
    Processor,
    /// The thread was neither running, waiting for a processor nor asleep. The kernel does not count
    /// the reason: a lock of the kernel, a hypervisor that took the processor, or the hardware (system
    /// management mode, interrupts that the kernel counts separately).
    Host,
    /// The thread slept and woke later than requested.
    Timer,
    /// A write took long, including the receiver's processing in the kernel.
    Write,
    /// A read took long.
    Read,
    /// Packets ahead in the queue, while the thread worked at its usual speed.
    Backlog,
}

impl LatenessCause {
    /// All causes.
    pub const ALL: [LatenessCause; 6] = [
        LatenessCause::Processor,
        LatenessCause::Host,
        LatenessCause::Timer,
        LatenessCause::Write,
        LatenessCause::Read,
        LatenessCause::Backlog,
    ];

    /// Returns the advice for the cause.
    fn advice(self) -> &'static str {
        match self {
            LatenessCause::Host | LatenessCause::Timer => {
                "measure again, or on a machine with less other load"
            }
            LatenessCause::Processor
            | LatenessCause::Write
            | LatenessCause::Read
            | LatenessCause::Backlog => "give it more CPU or lower the rate",
        }
    }
}

/// Describes the state of a late packet, for example "waiting for a processor".
impl fmt::Display for LatenessCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LatenessCause::Processor => "waiting for a processor",
            LatenessCause::Host => "neither running nor waiting for a processor",
            LatenessCause::Timer => "being woken late",
            LatenessCause::Write => "in a write to the receiver's kernel",
            LatenessCause::Read => "in a read from the sender's kernel",
            LatenessCause::Backlog => "behind other packets",
        })
    }
}

/// The cause with the largest share of a lateness.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MainCause {
    /// The cause.
    pub cause: LatenessCause,
    /// The share, 0 to 1.
    pub share: f64,
}

impl MainCause {
    /// Returns the clause of a warning that names the cause; empty if the cause is unknown.
    pub(super) fn because(main: Option<&MainCause>) -> String {
        main.map_or_else(String::new, |MainCause { cause, share }| {
            format!(", {:.0} % of it {cause}", share * 100.0)
        })
    }

    /// Returns the advice.
    pub(super) fn advice(main: Option<&MainCause>) -> &'static str {
        main.map_or(LatenessCause::Backlog, |main| main.cause).advice()
    }
}

/// The waiting time of late packets by cause, summed over the packets: a stall of 5 ms that delays
/// 100 packets counts 500 ms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LatenessCauses {
    /// The lateness in ms above which packets are examined; 0 in documents without causes.
    pub over_ms: f64,
    /// The number of packets above this lateness.
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
    /// Returns the ms of a cause.
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

    /// Adds `ms` to a cause.
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

    /// Returns the share of a cause, 0 to 1; 0 if nothing was late.
    pub fn share(&self, cause: LatenessCause) -> f64 {
        let all: f64 = LatenessCause::ALL.into_iter().map(|cause| self.of(cause)).sum();
        if all > 0.0 { self.of(cause) / all } else { 0.0 }
    }

    /// Returns the cause with the largest share; `None` if nothing was late.
    pub fn main(&self) -> Option<MainCause> {
        let all = LatenessCause::ALL.map(|cause| MainCause { cause, share: self.share(cause) });
        all.into_iter().max_by(|a, b| a.share.total_cmp(&b.share)).filter(|main| main.share > 0.0)
    }

    /// Returns each cause with its share, the largest first, without shares below 1 %: "62 % behind
    /// other packets, 30 % waiting for a processor".
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
    fn the_main_cause_is_the_largest_one() {
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
        assert!(MainCause::advice(Some(&main)).starts_with("give it more CPU"));
        let host = MainCause { cause: LatenessCause::Host, share: 0.5 };
        assert!(MainCause::advice(Some(&host)).contains("less other load"));
        assert_eq!(MainCause::because(None), "");
        assert_eq!(
            causes.summary(),
            "80 % waiting for a processor, 15 % neither running nor waiting for a processor, 4 % \
             behind other packets"
        );
    }
}
