//! A check under construction: criteria, verdicts and the confidence they need.

use std::ops::RangeInclusive;

use longhaul_core::result::{Check, CheckUnit, CheckVerdict, MachineTiming};
use longhaul_core::stats::proportion_interval;

/// The probability that one check of a correct emulator fails by chance. By Bonferroni's
/// inequality, one of the fewer than 100 checks of a certificate then fails by chance in less than
/// 1 of 100 runs. With 95 % intervals almost every certificate would fail.
pub(super) const FALSE_ALARM: f64 = 1e-4;

/// The number of standard deviations that a normal variable exceeds, on either side, with
/// probability [`FALSE_ALARM`].
pub(super) const VERDICT_DEVIATIONS: f64 = 3.891;

/// The number of standard deviations of the 95 % interval.
pub(super) const USUAL_DEVIATIONS: f64 = 1.96;

/// The number of datagrams that the kernel itself may send (neighbor discovery and similar), by
/// which the emulator's count may differ from the probe's.
const STRAY: u64 = 5;

/// The description of a check before its measurement.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) ipv6: bool,
    /// The link's options as `longhaul wan run` takes them.
    pub(super) options: String,
    pub(super) unit: CheckUnit,
}

/// The number of affected datagrams among many, as the probe and the emulator counted them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tallies {
    pub(super) counted: u64,
    pub(super) of: u64,
    pub(super) emulator: u64,
}

impl Case {
    pub(super) fn new(
        name: impl Into<String>,
        options: impl Into<String>,
        unit: CheckUnit,
    ) -> Self {
        Case { name: name.into(), ipv6: false, options: options.into(), unit }
    }

    pub(super) fn over(mut self, ipv6: bool) -> Self {
        self.ipv6 = ipv6;
        self
    }

    fn check(&self, verdict: CheckVerdict) -> Check {
        Check {
            name: self.name.clone(),
            family: if self.ipv6 { "ipv6" } else { "ipv4" }.to_owned(),
            options: self.options.clone(),
            unit: self.unit,
            configured: None,
            measured: None,
            interval_95: None,
            emulator: None,
            samples: 0,
            criterion: String::new(),
            verdict,
            reason: String::new(),
            spoiled_by_host: false,
            machine: None,
        }
    }

    /// Returns the check as inconclusive, with the reason.
    pub(super) fn not_done(&self, reason: impl Into<String>) -> Check {
        Check { reason: reason.into(), ..self.check(CheckVerdict::NotDone) }
    }

    /// Checks a probability: it must lie in the confidence interval of the probe's count, and the
    /// emulator must have the same count.
    pub(super) fn share(&self, configured: f64, tallies: Tallies) -> Check {
        let Tallies { counted, of, emulator } = tallies;
        let (low, high) = proportion_interval(counted, of, 1.0 - FALSE_ALARM);
        let reason = if (low..=high).contains(&configured) {
            String::new()
        } else {
            format!("{configured} is outside {low:.3e} to {high:.3e}")
        };
        Check {
            configured: Some(configured),
            measured: Some(counted as f64 / of.max(1) as f64),
            interval_95: Some(proportion_interval(counted, of, 0.95)),
            samples: of,
            criterion: "configured lies in the 99.99 % interval".to_owned(),
            reason,
            ..self.check(CheckVerdict::Pass)
        }
        .counted(counted, emulator)
    }

    /// Checks a mean: the configured value must lie within [`VERDICT_DEVIATIONS`] standard errors
    /// of the measured mean.
    pub(super) fn mean(&self, configured: f64, mean: f64, error: f64, samples: u64) -> Check {
        let off = (mean - configured).abs() / error;
        let reason = if off <= VERDICT_DEVIATIONS {
            String::new()
        } else {
            format!("it is {off:.1} standard errors off")
        };
        let half = USUAL_DEVIATIONS * error;
        Check {
            configured: Some(configured),
            measured: Some(mean),
            interval_95: Some((mean - half, mean + half)),
            samples,
            criterion: "configured lies in the 99.99 % interval".to_owned(),
            reason,
            ..self.check(CheckVerdict::Pass)
        }
        .judged()
    }

    /// Checks a value that must lie within `tolerance` of the configured one.
    pub(super) fn near(&self, configured: f64, measured: f64, tolerance: f64, of: u64) -> Check {
        self.between((configured, measured), (configured - tolerance, configured + tolerance), of)
    }

    /// Checks a value, given as (configured, measured), that must lie in a range.
    pub(super) fn between(
        &self,
        (configured, measured): (f64, f64),
        (low, high): (f64, f64),
        samples: u64,
    ) -> Check {
        let range = format!("{} to {}", self.unit.format(low), self.unit.format(high));
        let reason = if (low..=high).contains(&measured) {
            String::new()
        } else {
            format!("{} is outside {range}", self.unit.format(measured))
        };
        Check {
            configured: Some(configured),
            measured: Some(measured),
            samples,
            criterion: format!("measured is {range}"),
            reason,
            ..self.check(CheckVerdict::Pass)
        }
        .judged()
    }

    /// Checks a count that must be zero; `what` names the counted events.
    pub(super) fn none(&self, what: &str, counted: u64, of: u64) -> Check {
        let reason = if counted == 0 { String::new() } else { format!("{counted} {what}") };
        Check {
            configured: Some(0.0),
            measured: Some(counted as f64),
            samples: of,
            criterion: format!("no {what}"),
            reason,
            ..self.check(CheckVerdict::Pass)
        }
        .judged()
    }
}

/// Runs checks of times, and repeats them if one fails or the host disturbs it. One disturbance
/// does not describe the emulator; two mean that the machine is unsuitable.
pub(super) fn twice(mut make: impl FnMut() -> Vec<Check>) -> Vec<Check> {
    let first = make();
    let is_bad = |check: &Check| check.verdict == CheckVerdict::Fail || check.spoiled_by_host;
    if first.iter().any(is_bad) { make() } else { first }
}

/// Operations that add a verdict to a measured check.
pub(super) trait Judged {
    /// Marks the check as failed if it has a reason.
    fn judged(self) -> Check;

    /// Adds the emulator's count of the events. The probe has counted `counted` of them, and the
    /// counts must be equal.
    fn counted(self, counted: u64, emulator: u64) -> Check;

    /// Adds `reason` as a cause of failure, if there is one.
    fn unless(self, reason: Option<String>) -> Check;

    /// Adds the emulator's own warning to the reason of a check that did not pass.
    fn with_warning(self, warning: Option<&String>) -> Check;

    /// Judges a check of times or rates against the timing of the `machine` in the same seconds. A
    /// failed figure in `explained`, the range that this timing explains, does not describe the
    /// emulator. A figure outside of it remains a failure.
    fn beside(self, machine: MachineTiming, explained: RangeInclusive<f64>) -> Check;
}

impl Judged for Check {
    fn judged(mut self) -> Check {
        if self.verdict != CheckVerdict::NotDone && !self.reason.is_empty() {
            self.verdict = CheckVerdict::Fail;
        }
        self
    }

    fn counted(mut self, counted: u64, emulator: u64) -> Check {
        let figure = emulator as f64;
        self.emulator = Some(match self.unit {
            CheckUnit::Share => figure / self.samples.max(1) as f64,
            _ => figure,
        });
        self.criterion.push_str(", and the emulator's count is equal");
        let reason = format!("the probe counts {counted} and the emulator {emulator}");
        self.unless((counted.abs_diff(emulator) > STRAY).then_some(reason))
    }

    fn unless(mut self, reason: Option<String>) -> Check {
        if let Some(reason) = reason {
            if !self.reason.is_empty() {
                self.reason.push_str("; ");
            }
            self.reason.push_str(&reason);
        }
        self.judged()
    }

    fn with_warning(self, warning: Option<&String>) -> Check {
        let passed = self.verdict == CheckVerdict::Pass;
        self.unless(warning.filter(|_| !passed).cloned())
    }

    fn beside(mut self, machine: MachineTiming, explained: RangeInclusive<f64>) -> Check {
        let figure = self.measured.unwrap_or(f64::NAN);
        if self.verdict == CheckVerdict::Fail && machine.realtime && explained.contains(&figure) {
            self.verdict = CheckVerdict::NotDone;
            self.spoiled_by_host = true;
            self.reason.push_str(&format!(
                "; in the same seconds this machine woke a bare real-time timer up to {:.2} ms late \
                 (99 %: {:.2} ms), which explains {} to {}",
                machine.max_ms,
                machine.p99_ms,
                self.unit.format(*explained.start()),
                self.unit.format(*explained.end()),
            ));
        }
        self.machine = Some(machine);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case() -> Case {
        Case::new("loss 1e-2", "--up-loss 1e-2", CheckUnit::Share)
    }

    #[test]
    fn a_share_is_judged_by_its_interval_and_by_the_emulators_count() {
        let tallies = Tallies { counted: 1010, of: 100_000, emulator: 1012 };
        let good = case().share(0.01, tallies);
        assert_eq!((good.verdict, good.reason.as_str()), (CheckVerdict::Pass, ""));
        let (low, high) = good.interval_95.unwrap();
        assert!(low < 0.0101 && 0.0101 < high);
        // Six standard deviations.
        let off = case().share(0.01, Tallies { counted: 1200, emulator: 1200, ..tallies });
        assert_eq!(off.verdict, CheckVerdict::Fail);
        let disagreed = case().share(0.01, Tallies { emulator: 900, ..tallies });
        assert!(disagreed.reason.contains("the emulator 900"), "{}", disagreed.reason);
    }

    /// Checks [`FALSE_ALARM`]: a correct emulator fails about once in 10,000 checks. With a
    /// thousand fixed draws none fails, while a twentieth is outside of its 95 % interval.
    #[test]
    fn luck_seldom_fails_a_right_emulator() {
        let mut state = 1_u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f64 / f64::from(1 << 24)
        };
        let (mut failed, mut outside) = (0, 0);
        for _ in 0..1000 {
            let counted = (0..2000).filter(|_| draw() < 0.05).count() as u64;
            let check = case().share(0.05, Tallies { counted, of: 2000, emulator: counted });
            failed += u32::from(check.verdict == CheckVerdict::Fail);
            let (low, high) = check.interval_95.unwrap();
            outside += u32::from(!(low..=high).contains(&0.05));
        }
        assert!(failed <= 2, "{failed}");
        assert!((15..=75).contains(&outside), "{outside}");
    }

    #[test]
    fn only_a_deviation_that_the_machine_explains_is_excused() {
        let machine =
            MachineTiming { realtime: true, p99_ms: 0.7, max_ms: 3.0, ..MachineTiming::default() };
        let late = |ms| Case::new("delay", "", CheckUnit::Ms).between((0.0, ms), (0.0, 0.3), 9);
        let spoiled = late(0.9).beside(machine, 0.0..=1.7);
        assert_eq!((spoiled.verdict, spoiled.spoiled_by_host), (CheckVerdict::NotDone, true));
        let because = "bare real-time timer up to 3.00 ms late (99 %: 0.70 ms), which explains \
                       0.000 ms to 1.700 ms";
        assert!(spoiled.reason.contains(because), "{}", spoiled.reason);
        assert_eq!(spoiled.measured, Some(0.9), "the figure is kept");
        assert_eq!(late(1.8).beside(machine, 0.0..=1.7).verdict, CheckVerdict::Fail);
        assert_eq!(late(f64::NAN).beside(machine, 0.0..=1.7).verdict, CheckVerdict::Fail);
        let ordinary = MachineTiming { realtime: false, ..machine };
        assert_eq!(late(0.9).beside(ordinary, 0.0..=1.7).verdict, CheckVerdict::Fail);
        let good = late(0.1).beside(machine, 0.0..=1.7);
        assert_eq!((good.verdict, good.machine), (CheckVerdict::Pass, Some(machine)));
    }

    #[test]
    fn ranges_counts_and_means() {
        let ms = Case::new("delay", "", CheckUnit::Ms);
        assert_eq!(ms.near(10.0, 10.04, 0.05, 9).verdict, CheckVerdict::Pass);
        assert_eq!(ms.near(10.0, 9.94, 0.05, 9).verdict, CheckVerdict::Fail);
        assert_eq!(ms.near(10.0, f64::NAN, 0.05, 9).verdict, CheckVerdict::Fail);
        assert_eq!(ms.none("lost", 0, 5).verdict, CheckVerdict::Pass);
        assert_eq!(ms.none("lost", 1, 5).reason, "1 lost");
        assert_eq!(ms.mean(5.0, 5.1, 0.05, 100).verdict, CheckVerdict::Pass);
        assert_eq!(ms.mean(5.0, 5.3, 0.05, 100).verdict, CheckVerdict::Fail);
        let spoiled = ms.none("lost", 0, 5).unless(Some("the clock was set".to_owned()));
        assert_eq!(spoiled.verdict, CheckVerdict::Fail);
        assert_eq!(ms.not_done("no IPv6").unless(None).verdict, CheckVerdict::NotDone);
    }
}
