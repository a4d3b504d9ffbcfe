//! The state of a cell of the grid: from the last measurements and the thresholds of the mesh,
//! relative to the capacity of the path.

use longhaul_core::units::Rate;

use crate::api::{CellMetric, CellState};
use crate::mesh::Judgement;

/// One measurement of a cell, or a run without a result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// The time, in ms since 1970.
    pub at_ms: i64,
    /// The value in the unit of the metric; `None` if the run has no result.
    pub value: Option<f64>,
}

/// The age limit and the host states that a cell depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellContext {
    /// The present time, in ms since 1970.
    pub now_ms: i64,
    /// The age in ms from which a measurement does not count.
    pub stale_ms: i64,
    /// True if one of the hosts is in maintenance.
    pub maintenance: bool,
    /// The lowest capacity of the path.
    pub capacity_bps: Option<Rate>,
}

/// The state of a cell with the values that explain it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// The state.
    pub state: CellState,
    /// The last value.
    pub value: Option<f64>,
    /// The expected throughput, or the warning threshold of another metric.
    pub expected: Option<f64>,
    /// The time of the last value, in ms since 1970.
    pub at_ms: Option<i64>,
}

/// Returns the state of a cell. `readings` are in the order of time; older ones than the last
/// `rule.of` are ignored.
///
/// A cell turns to a worse state if at least `rule.bad` of the last `rule.of` readings are in that
/// state or a worse one. A cell with too few readings is unknown, which is not bad.
pub fn cell(
    metric: CellMetric,
    rule: &Judgement,
    context: CellContext,
    readings: &[Reading],
) -> Cell {
    let (expected, warning, critical) = thresholds(metric, rule, context.capacity_bps);
    let last = readings.iter().rev().find(|reading| reading.value.is_some());
    let made = |state| Cell {
        state,
        value: last.and_then(|reading| reading.value),
        expected,
        at_ms: last.map(|reading| reading.at_ms),
    };
    if context.maintenance {
        return made(CellState::Maintenance);
    }
    let fresh: Vec<&Reading> =
        readings.iter().filter(|one| one.at_ms > context.now_ms - context.stale_ms).collect();
    let recent = &fresh[fresh.len().saturating_sub(rule.of.max(1) as usize)..];
    let least = rule.bad.max(1) as usize;
    let worse = |beyond: &dyn Fn(f64) -> bool| {
        recent.iter().filter(|reading| reading.value.is_some_and(beyond)).count()
    };
    let is_warning = |value: f64| beyond(metric, value, warning) || beyond(metric, value, critical);
    let failed = recent.iter().filter(|reading| reading.value.is_none()).count();
    let bad = worse(&is_warning);
    let state = match recent.len() {
        0 => CellState::Unknown,
        count if failed == count || failed >= least => CellState::NotRun,
        _ if worse(&|value| beyond(metric, value, critical)) >= least => CellState::Critical,
        _ if bad >= least => CellState::Warning,
        count if count < least && bad > 0 => CellState::Unknown,
        _ => CellState::Good,
    };
    made(state)
}

/// Returns the expected value, and the thresholds of the states.
fn thresholds(
    metric: CellMetric,
    rule: &Judgement,
    capacity_bps: Option<Rate>,
) -> (Option<f64>, Option<f64>, Option<f64>) {
    match metric {
        CellMetric::Throughput => {
            let expected = rule.expect_bps.or(capacity_bps).map(|rate| rate.bps() as f64);
            let of = |share: Option<f64>| Some(expected? * share?);
            (expected, of(rule.warn_share), of(rule.fail_share))
        }
        CellMetric::Loss => (rule.warn_loss, rule.warn_loss, rule.fail_loss),
        CellMetric::Rtt => (rule.warn_rtt_ms, rule.warn_rtt_ms, rule.fail_rtt_ms),
        CellMetric::Mtu => {
            let least = rule.least_mtu.map(f64::from);
            (least, None, least)
        }
    }
}

/// Returns whether a value is on the bad side of a threshold.
fn beyond(metric: CellMetric, value: f64, threshold: Option<f64>) -> bool {
    threshold.is_some_and(|threshold| match metric {
        CellMetric::Throughput | CellMetric::Mtu => value < threshold,
        CellMetric::Loss | CellMetric::Rtt => value > threshold,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Judgement = Judgement {
        expect_bps: None,
        warn_share: Some(0.8),
        fail_share: Some(0.5),
        warn_loss: Some(0.001),
        fail_loss: Some(0.01),
        warn_rtt_ms: None,
        fail_rtt_ms: None,
        least_mtu: Some(9000),
        bad: 2,
        of: 3,
    };

    fn state_of(metric: CellMetric, values: &[Option<f64>]) -> CellState {
        let reading =
            |(at, value): (usize, &Option<f64>)| Reading { at_ms: at as i64 * 1000, value: *value };
        let readings: Vec<Reading> = values.iter().enumerate().map(reading).collect();
        let context = CellContext {
            now_ms: 100_000,
            stale_ms: 200_000,
            maintenance: false,
            capacity_bps: Some(Rate::from_bps(100)),
        };
        cell(metric, &RULE, context, &readings).state
    }

    #[test]
    fn a_cell_turns_if_m_of_n_readings_are_bad() {
        use CellState::{Critical, Good, NotRun, Unknown, Warning};
        let throughput = |values: &[f64]| {
            let values: Vec<Option<f64>> = values.iter().map(|value| Some(*value)).collect();
            state_of(CellMetric::Throughput, &values)
        };
        for (values, state) in [
            (&[][..], Unknown),
            (&[90.0], Good),
            (&[10.0], Unknown),
            (&[90.0, 10.0], Good),
            (&[90.0, 10.0, 90.0], Good),
            (&[10.0, 90.0, 70.0], Warning),
            (&[10.0, 90.0, 40.0], Critical),
            (&[10.0, 10.0, 90.0, 90.0], Good),
            (&[10.0, 90.0, 70.0, 70.0], Warning),
        ] {
            assert_eq!(throughput(values), state, "{values:?}");
        }
        assert_eq!(state_of(CellMetric::Throughput, &[Some(90.0), None, None]), NotRun);
        assert_eq!(state_of(CellMetric::Throughput, &[None]), NotRun);
        assert_eq!(state_of(CellMetric::Loss, &[Some(0.5), Some(0.002)]), Warning);
        assert_eq!(state_of(CellMetric::Mtu, &[Some(1500.0), Some(1500.0)]), Critical);
        assert_eq!(state_of(CellMetric::Rtt, &[Some(1e9), Some(1e9)]), Good);
    }

    #[test]
    fn age_and_maintenance_are_not_bad() {
        let readings = [1, 2, 3].map(|at_ms| Reading { at_ms, value: Some(10.0) });
        let mut context =
            CellContext { now_ms: 1000, stale_ms: 100, maintenance: false, capacity_bps: None };
        let now = |context| cell(CellMetric::Throughput, &RULE, context, &readings);
        assert_eq!(now(context).state, CellState::Unknown);
        assert_eq!(now(context).value, Some(10.0));
        context.stale_ms = 5000;
        // Without a capacity there is no expectation.
        assert_eq!(now(context).state, CellState::Good);
        context.capacity_bps = Some(Rate::from_bps(100));
        assert_eq!(now(context).state, CellState::Critical);
        context.maintenance = true;
        assert_eq!(now(context).state, CellState::Maintenance);
    }
}
