//! The confidence intervals of a matrix, by the way in which its plan ends the passes.

use longhaul_core::plan::MatrixPlan;
use longhaul_core::sequential::Looks;
use longhaul_core::stats::median_interval;

/// The 95 % confidence intervals of medians of a plan's runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Intervals {
    /// The looks of a plan with a precision, whose number of passes depends on the results.
    looks: Option<Looks>,
}

impl Intervals {
    pub(crate) fn of(plan: &MatrixPlan) -> Self {
        Intervals { looks: plan.looks() }
    }

    /// Returns the interval of the median of the population of `values`; `None` for fewer than six
    /// values.
    pub(crate) fn median(&self, values: &[f64]) -> Option<(f64, f64)> {
        match &self.looks {
            Some(looks) => looks.interval(values),
            None => median_interval(values, 0.95),
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::plan::Precision;

    use super::*;

    #[test]
    fn repeated_looks_need_a_wider_interval() {
        let values: Vec<f64> = (1..=30).map(f64::from).collect();
        let mut plan = MatrixPlan::named("p");
        let fixed = Intervals::of(&plan).median(&values).unwrap();
        plan.precision = Some(Precision::new(0.05, 60));
        let looks = Intervals::of(&plan);
        let (low, high) = looks.median(&values).unwrap();
        assert!(low < fixed.0 + 0.5 && high > fixed.1 - 0.5, "{low} {high} {fixed:?}");
        assert_eq!(looks.median(&values[..5]), None);
    }
}
