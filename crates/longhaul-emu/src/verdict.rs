//! Judges a link's report: the warnings about its figures, and whether a run over it counts.

use std::fmt;

use longhaul_core::plan::LinkPlan;
use longhaul_core::result::{DirectionReport, LinkReport, LinkWarning, ProcessorShare};

/// The share of a round trip by which lateness may prolong it in a valid run.
const ROUND_TRIP_SHARE: f64 = 0.05;

/// The minimum bounds in ms for short round trips, which a busy machine can meet: of the
/// 99.9th percentile of lateness, and of the median lateness.
const LEAST_RARE_MS: f64 = 1.0;
const LEAST_MEDIAN_MS: f64 = 0.5;

fn round_trip_share_ms(plan: &LinkPlan, least_ms: f64) -> f64 {
    (plan.rtt().as_secs_f64() * 1e3 * ROUND_TRIP_SHARE).max(least_ms)
}

/// Returns the bound in ms of the 99.9th percentile of lateness, above which there is a warning.
pub(crate) fn lateness_bound_ms(plan: &LinkPlan) -> f64 {
    round_trip_share_ms(plan, LEAST_RARE_MS)
}

/// The share of its time for which the emulator may wait for a processor, or a hypervisor may take
/// processors, in a valid run. Shorter waits only matter if they cause lateness.
const STARVED: f64 = 0.05;

/// The minimum time that counts as waiting or as taken: the hypervisor's account has steps of 0.01
/// s, so a single step is meaningless in a short run.
const LEAST_SECONDS: f64 = 0.05;

/// Returns a warning if the machine, which has `processors` processors, gave the emulator too
/// little time.
pub(crate) fn starvation(processor: &ProcessorShare, processors: usize) -> Option<LinkWarning> {
    let ProcessorShare { seconds, waited_seconds, stolen_seconds, .. } = *processor;
    let beyond = |lost: f64, of: f64| lost > (STARVED * of).max(LEAST_SECONDS);
    (beyond(waited_seconds, seconds) || beyond(stolen_seconds, seconds * processors as f64))
        .then_some(LinkWarning::ProcessorStarved { waited_seconds, stolen_seconds, seconds })
}

/// Returns the warnings about the figures of a direction.
pub(crate) fn verdicts(direction: &DirectionReport, bound_ms: f64) -> Vec<LinkWarning> {
    let from = direction.from;
    let mut warnings = Vec::new();
    let p999_ms = direction.lateness.p999_ms;
    if p999_ms > bound_ms {
        warnings.push(LinkWarning::BehindSchedule {
            from,
            p999_ms,
            bound_ms,
            cause: direction.lateness.causes.main(),
        });
    }
    if direction.interface_drops > 0 {
        warnings.push(LinkWarning::InterfaceDrops { from, packets: direction.interface_drops });
    }
    let packets = direction.dropped.memory_full.packets;
    if packets > 0 {
        warnings.push(LinkWarning::MemoryFull { from, packets });
    }
    let packets = direction.dropped.refused.packets;
    if packets > 0 {
        warnings.push(LinkWarning::Refused { from, packets });
    }
    if !direction.is_conserved() {
        warnings.push(LinkWarning::NotConserved { from });
    }
    warnings
}

/// The validity of figures that a tool reached over a link. Figures with a fault do not count.
#[derive(Debug, Clone, PartialEq)]
pub struct Validity {
    /// The reasons why the figures do not count.
    pub faults: Vec<LinkFault>,
    /// The warnings of a run that counts nevertheless. The limits of windows belong to the host and
    /// are the same for every tool. Rare lateness and a short wait for a processor are faults only
    /// if they affect the median ([`LinkFault::Late`]).
    pub notes: Vec<LinkWarning>,
}

/// A reason why figures over a link do not count.
#[derive(Debug, Clone, PartialEq)]
pub enum LinkFault {
    /// The median round trip was too long, because the emulator lacked CPU.
    Late {
        /// The time by which the median round trip exceeded the plan, in ms.
        late_ms: f64,
        /// The accepted time in ms.
        bound_ms: f64,
    },
    /// The link lost packets that it should have delivered, or its counters contradict each other.
    Lost(LinkWarning),
}

impl Validity {
    /// Judges a report.
    ///
    /// The criterion is the median of the lateness, not the 99.9th percentile of the warning: the
    /// rate of a flow that fills one window per round trip depends on the mean, and on a machine
    /// whose cores are busy with the tools some packets are always late.
    pub fn of(report: &LinkReport) -> Self {
        let late_ms = report.up.lateness.p50_ms + report.down.lateness.p50_ms;
        let bound_ms = round_trip_share_ms(&report.plan, LEAST_MEDIAN_MS);
        let late = (late_ms > bound_ms).then_some(LinkFault::Late { late_ms, bound_ms });
        let (notes, lost): (Vec<_>, Vec<_>) = report.warnings.iter().cloned().partition(is_mild);
        Validity {
            faults: late.into_iter().chain(lost.into_iter().map(LinkFault::Lost)).collect(),
            notes,
        }
    }
}

impl fmt::Display for LinkFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkFault::Late { late_ms, bound_ms } => write!(
                f,
                "the emulator was short of CPU: the median round trip was {late_ms:.1} ms longer \
                 than configured ({bound_ms:.1} ms are accepted)"
            ),
            LinkFault::Lost(warning) => warning.fmt(f),
        }
    }
}

fn is_mild(warning: &LinkWarning) -> bool {
    match warning {
        LinkWarning::BehindSchedule { .. }
        | LinkWarning::ProcessorStarved { .. }
        | LinkWarning::WindowsClipped { .. }
        | LinkWarning::WindowsUnset { .. } => true,
        LinkWarning::InterfaceDrops { .. }
        | LinkWarning::MemoryFull { .. }
        | LinkWarning::Refused { .. }
        | LinkWarning::NotConserved { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_core::plan::Side;
    use longhaul_core::result::{DropCounts, Impairments, Lateness, Traffic};
    use longhaul_core::units::Bytes;

    use super::*;

    fn clean() -> DirectionReport {
        DirectionReport {
            from: Side::Near,
            entered: Traffic { packets: 3, segments: 5, bytes: 900 },
            delivered: Traffic { packets: 3, segments: 5, bytes: 900 },
            dropped: DropCounts::default(),
            queued: Traffic::default(),
            waiting_bytes: Bytes::default(),
            interface_drops: 0,
            impairments: Impairments::default(),
            lateness: Lateness { p999_ms: 2.0, ..Lateness::default() },
            peak_memory_bytes: Bytes::mib(6),
        }
    }

    #[test]
    fn the_bound_of_lateness_follows_the_round_trip() {
        let bound = |rtt_ms| lateness_bound_ms(&LinkPlan::symmetric(Duration::from_millis(rtt_ms)));
        assert_eq!((bound(0), bound(180)), (1.0, 9.0));
        assert_eq!(verdicts(&clean(), bound(180)), []);
        assert!(matches!(verdicts(&clean(), bound(0))[..], [LinkWarning::BehindSchedule { .. }]));
    }

    #[test]
    fn a_thread_that_waits_for_a_processor_is_starved() {
        let starved = |seconds, waited_seconds, stolen_seconds| {
            let busy_seconds = 0.1;
            let share = ProcessorShare { seconds, busy_seconds, waited_seconds, stolen_seconds };
            starvation(&share, 4).is_some()
        };
        assert!(!starved(10.0, 0.4, 1.9));
        assert!(starved(10.0, 0.6, 0.0));
        assert!(starved(10.0, 0.0, 2.1), "of four processors");
        assert!(!starved(0.1, 0.04, 0.04), "the run is too short");
        assert_eq!(starvation(&ProcessorShare::default(), 4), None, "nothing is known");
    }

    #[test]
    fn each_kind_of_unplanned_loss_has_a_warning() {
        let one = Traffic { packets: 1, segments: 1, bytes: 100 };
        let mut asked_for = clean();
        asked_for.impairments.lost = one.into();
        asked_for.entered += one;
        assert_eq!(verdicts(&asked_for, 9.0), []);

        let mut lossy = clean();
        lossy.interface_drops = 7;
        lossy.dropped.memory_full = one;
        lossy.dropped.refused = one;
        let from = Side::Near;
        assert_eq!(
            verdicts(&lossy, 9.0),
            [
                LinkWarning::InterfaceDrops { from, packets: 7 },
                LinkWarning::MemoryFull { from, packets: 1 },
                LinkWarning::Refused { from, packets: 1 },
                // The report counts drops of packets that never entered.
                LinkWarning::NotConserved { from },
            ]
        );
    }

    fn report(rtt_ms: u64, late_ms: f64, warnings: Vec<LinkWarning>) -> LinkReport {
        let lateness = Lateness { p50_ms: late_ms, ..Lateness::default() };
        let direction = |from| DirectionReport { from, lateness: lateness.clone(), ..clean() };
        LinkReport {
            schema: LinkReport::SCHEMA.to_owned(),
            plan: LinkPlan::symmetric(Duration::from_millis(rtt_ms)),
            seconds: 1.0,
            processor: ProcessorShare::default(),
            tcp_offload: true,
            udp_offload: true,
            up: direction(Side::Near),
            down: direction(Side::Far),
            warnings,
        }
    }

    #[test]
    fn a_long_median_round_trip_is_a_fault_and_rare_lateness_is_a_note() {
        let (from, cause) = (Side::Near, None);
        let behind = LinkWarning::BehindSchedule { from, p999_ms: 9.0, bound_ms: 1.0, cause };
        let rounded =
            LinkWarning::BehindSchedule { from, p999_ms: 9.0, bound_ms: 87.0 * 0.05, cause: None };
        assert!(rounded.to_string().contains("(bound 4.35 ms)"), "{rounded}");
        let mild = Validity::of(&report(90, 0.1, vec![behind.clone()]));
        assert_eq!((mild.faults.len(), mild.notes), (0, vec![behind.clone()]));
        let late = Validity::of(&report(90, 2.5, vec![behind]));
        assert_eq!(late.faults, [LinkFault::Late { late_ms: 5.0, bound_ms: 4.5 }]);
        assert!(late.faults[0].to_string().contains("5.0 ms longer than configured (4.5 ms"));
        assert_eq!(Validity::of(&report(0, 0.2, vec![])).faults, []);
        assert_eq!(Validity::of(&report(0, 0.3, vec![])).faults.len(), 1);
    }

    #[test]
    fn drops_that_the_plan_does_not_configure_are_a_fault() {
        let drops = LinkWarning::InterfaceDrops { from: Side::Near, packets: 7 };
        let validity = Validity::of(&report(90, 0.0, vec![drops.clone()]));
        assert_eq!((validity.faults, validity.notes), (vec![LinkFault::Lost(drops)], vec![]));
    }
}
