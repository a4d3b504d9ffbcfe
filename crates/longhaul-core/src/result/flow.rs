//! The TCP flows beside a tool: their share of the link while the tool runs, and their recovery.

use serde::{Deserialize, Serialize};

use crate::units::Rate;

/// The flows beside a tool: their share of a link that they fill without the tool, and the time that
/// they need to fill it again after the tool has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowFigures {
    /// The congestion control that the plan sets; `None` means the default of the host.
    pub congestion: Option<String>,
    /// The rate to which all shares refer: the rate of the link, or the rate of the flows in the last
    /// second before the tool if the link has no stated rate.
    pub reference_bps: Rate,
    /// The share of the flows in the last second before the tool started.
    pub before_share: f64,
    /// The mean share of the flows while the tool ran.
    pub mean_share: f64,
    /// The smallest share of the flows in a whole second while the tool ran; `None` if it ran for
    /// less than a second.
    pub least_share: Option<f64>,
    /// The time in seconds from the end of the tool to the end of the first second in which the
    /// flows had 80 % of the reference, at least 1; `None` if they did not reach it in
    /// `after_seconds`.
    pub recovery_seconds: Option<f64>,
    /// The seconds after the end of the tool in which the recovery was measured.
    pub after_seconds: f64,
    /// The goodput of all flows over time.
    pub samples: Vec<GoodputSample>,
}

/// The goodput of an interval, which begins at the end of the previous interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GoodputSample {
    /// The end of the interval in seconds after the start of the tool; negative before it.
    pub seconds: f64,
    /// The mean goodput in the interval.
    pub goodput_bps: Rate,
}

impl FlowFigures {
    /// The share of the reference at which the flows fill the link.
    pub const FULL: f64 = 0.8;

    /// Computes the figures of flows beside a tool that ran for `tool_seconds`, over a link with the
    /// given rate. Returns `None` unless the samples cover at least nine tenths of each of the last
    /// second before the tool, the time while it ran, and the `after_seconds` after it.
    pub fn of(
        samples: Vec<GoodputSample>,
        link: Option<Rate>,
        tool_seconds: f64,
        after_seconds: f64,
    ) -> Option<Self> {
        let before = mean_bps(&samples, -1.0, 0.0)?;
        let reference_bps = link.unwrap_or(Rate::from_bps(before as u64));
        let mut figures = FlowFigures {
            congestion: None,
            reference_bps,
            before_share: 0.0,
            mean_share: 0.0,
            least_share: None,
            recovery_seconds: None,
            after_seconds,
            samples,
        };
        figures.before_share = figures.share(-1.0, 0.0)?;
        figures.mean_share = figures.share(0.0, tool_seconds)?;
        // Without these samples, a flow that ended early would count as one that did not recover.
        figures.share(tool_seconds, tool_seconds + after_seconds)?;
        let seconds = (0..tool_seconds as u64).map(|second| second as f64);
        let shares = seconds.filter_map(|from| figures.share(from, from + 1.0));
        figures.least_share = shares.reduce(f64::min);
        figures.recovery_seconds = figures.recovery(tool_seconds);
        Some(figures)
    }

    /// Returns the mean share of the flows in a time in seconds after the start of the tool; `None`
    /// if the samples do not include this time.
    pub fn share(&self, from: f64, to: f64) -> Option<f64> {
        let reference = self.reference_bps.bps() as f64;
        Some(mean_bps(&self.samples, from, to)? / reference).filter(|share| share.is_finite())
    }

    fn recovery(&self, tool_seconds: f64) -> Option<f64> {
        let ends = self.samples.iter().map(|sample| sample.seconds - tool_seconds);
        let mut whole = ends.filter(|end| (1.0..=self.after_seconds).contains(end));
        whole.find(|end| {
            let end = end + tool_seconds;
            self.share(end - 1.0, end).is_some_and(|share| share >= Self::FULL)
        })
    }
}

/// Returns the mean goodput between two times; `None` if the samples do not include at least nine
/// tenths of it.
fn mean_bps(samples: &[GoodputSample], from: f64, to: f64) -> Option<f64> {
    let (mut seconds, mut bits) = (0.0, 0.0);
    for pair in samples.windows(2) {
        let overlap = (pair[1].seconds.min(to) - pair[0].seconds.max(from)).max(0.0);
        seconds += overlap;
        bits += overlap * pair[1].goodput_bps.bps() as f64;
    }
    (seconds > 0.0 && seconds >= 0.9 * (to - from)).then(|| bits / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples every 0.2 s from 5 s before the tool, with a rate in Mb/s by time.
    fn samples(until: f64, mbps: impl Fn(f64) -> u64) -> Vec<GoodputSample> {
        let ticks = 0..((until + 5.0) * 5.0) as u64;
        let sample = |tick: u64| {
            let seconds = tick as f64 / 5.0 - 5.0;
            let goodput_bps = Rate::from_bps(mbps(seconds - 0.1) * 1_000_000);
            GoodputSample { seconds, goodput_bps }
        };
        ticks.map(sample).collect()
    }

    const LINK: Option<Rate> = Some(Rate::from_bps(1_000_000_000));

    /// 900 Mb/s alone; 300 beside the tool, which runs for 10 s, and 100 in its fourth second; then
    /// 500 for 3 s, and 900 again.
    fn mbps(seconds: f64) -> u64 {
        match seconds {
            s if s < 0.0 => 900,
            s if (3.0..4.0).contains(&s) => 100,
            s if s < 10.0 => 300,
            s if s < 13.0 => 500,
            _ => 900,
        }
    }

    #[test]
    fn share_and_recovery_follow_from_the_samples() {
        let of = |link| FlowFigures::of(samples(20.5, mbps), link, 10.0, 10.0).unwrap();
        let figures = of(LINK);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert!(near(figures.before_share, 0.9) && near(figures.mean_share, 0.28), "{figures:?}");
        assert!(near(figures.least_share.unwrap(), 0.1), "{figures:?}");
        // The second from 12.8 to 13.8 has 820 Mb/s, the one before it 740.
        assert!(near(figures.recovery_seconds.unwrap(), 3.8), "{figures:?}");
        // Without a rate of the link, shares refer to the rate before the tool.
        let figures = of(None);
        assert!(near(figures.before_share, 1.0) && near(figures.mean_share, 0.28 / 0.9));
        assert!(near(figures.recovery_seconds.unwrap(), 3.6), "{figures:?}");
    }

    #[test]
    fn a_missing_recovery_or_second_is_null() {
        let figures = FlowFigures::of(samples(13.0, mbps), LINK, 10.0, 2.0).unwrap();
        assert_eq!(figures.recovery_seconds, None, "{figures:?}");
        // The tool ends at once: no whole second, and no effect.
        let figures = FlowFigures::of(samples(6.0, |_| 900), LINK, 0.5, 5.0).unwrap();
        assert_eq!(figures.least_share, None);
        assert!((1.0..1.3).contains(&figures.recovery_seconds.unwrap()), "{figures:?}");
    }

    #[test]
    fn figures_need_samples_before_during_and_after_the_tool() {
        assert_eq!(FlowFigures::of(Vec::new(), LINK, 10.0, 10.0), None);
        assert_eq!(FlowFigures::of(samples(5.0, mbps), LINK, 10.0, 10.0), None);
        let recovering = |until| FlowFigures::of(samples(until, mbps), LINK, 10.0, 10.0);
        assert_eq!(recovering(15.0), None, "half of the time after the tool");
        assert!(recovering(20.5).is_some());
        let late: Vec<GoodputSample> = samples(20.0, mbps).split_off(26);
        assert_eq!(FlowFigures::of(late, LINK, 10.0, 10.0), None);
        let silent = FlowFigures::of(samples(20.0, |_| 0), None, 10.0, 10.0);
        assert_eq!(silent, None, "no reference rate");
    }
}
