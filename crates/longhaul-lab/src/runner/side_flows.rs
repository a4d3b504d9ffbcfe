//! Cross traffic that reacts to congestion: TCP flows of `longhaul test` beside the measured tool,
//! and their share of the link and their recovery.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::Side;
use longhaul_core::result::{FlowFigures, GoodputSample, ToolOutput};
use longhaul_core::units::Rate;
use serde::Deserialize;

use super::process::{Finished, Process};
use super::ready::{self, Readiness, ReadySigns};
use super::work::{Run, RunProblem};
use crate::network::NetPath;

/// The port of the flows' server; no driver uses it.
const PORT: u16 = 5299;
/// The time that the flows get to fill the link before the tool starts, unless the plan sets it.
const SETTLE: Duration = Duration::from_secs(3);
/// The additional time for flows that do not fill the link yet: after a loss, one cubic flow over a
/// long path needs about 20 s.
pub(super) const FILL: Duration = Duration::from_secs(30);
/// The time in seconds that the flows run beyond the limit of the run.
const SPARE: u64 = 60;
/// The interval of the samples in seconds.
const INTERVAL: &str = "0.2";
/// The time after the recovery in which the last interval is reported.
const LAST: Duration = Duration::from_millis(700);
const TICK: Duration = Duration::from_millis(50);

/// The TCP flows that run beside the tool, with their server.
pub(super) struct SideFlows {
    server: Process,
    flows: Process,
    /// The start of the flows, if their share is measured.
    zero: Option<Instant>,
}

/// The goodput of the flows in the last second.
#[derive(Default)]
struct LastSecond {
    intervals: Vec<Interval>,
}

impl LastSecond {
    /// Adds the latest interval; one that is already present counts once.
    fn add(&mut self, latest: Interval) {
        let end = latest.end_seconds;
        // 1 ns of tolerance for rounding: the ends are sums of decimal fractions.
        self.intervals.retain(|old| old.end_seconds < end && old.end_seconds > end - 1.0 + 1e-9);
        self.intervals.push(latest);
    }

    /// Returns whether the flows fill the link; true for a link without a rate.
    fn fills(&self, link: Option<Rate>) -> bool {
        let Some(link) = link else { return true };
        let sum: f64 = self.intervals.iter().map(|each| each.throughput_bps.bps() as f64).sum();
        let mean = sum / self.intervals.len().max(1) as f64;
        mean >= FlowFigures::FULL * link.bps() as f64
    }
}

/// The time in which the tool ran.
#[derive(Clone, Copy)]
pub(super) struct ToolTime {
    pub(super) begun: Instant,
    pub(super) took: Duration,
}

impl SideFlows {
    /// Starts the flows that the entry of a run requires, and waits until they fill the link;
    /// `None` for an entry without flows.
    pub(super) fn start(run: &Run<'_>, path: &mut dyn NetPath) -> Result<Option<Self>, RunProblem> {
        if run.entry.beside == 0 {
            return Ok(None);
        }
        let Some(program) = run.program else {
            return Err(RunProblem::Failed(
                "longhaul, which starts the flows beside the tool, is missing".into(),
            ));
        };
        let port = PORT.to_string();
        let mut serve = Command::new(program);
        serve.args(["serve", "--port", &port]);
        let server = Process::spawn(path, Side::Far, serve).map_err(|e| RunProblem::of(&*e))?;
        match ready::wait(&server, &ReadySigns::port(PORT), path, run.stop) {
            Readiness::Listening => {}
            Readiness::Stopped => {
                server.finish();
                return Err(RunProblem::Stopped);
            }
            Readiness::Ended | Readiness::Late => {
                let what = "the server of the flows beside the tool does not listen";
                return Err(broken(what, server));
            }
        }
        let mut test = Command::new(program);
        test.args(["test", path.host(Side::Far), "--port", &port]).args(arguments(run));
        let flows = match Process::spawn(path, Side::Near, test) {
            Ok(flows) => flows,
            Err(error) => {
                server.finish();
                return Err(RunProblem::of(&*error));
            }
        };
        let mut beside = SideFlows { server, flows, zero: None };
        if !beside.settle(run) {
            return beside.stop().and(Err(RunProblem::Stopped));
        }
        // A flow that ends before the tool starts fails in every attempt, for example because its
        // congestion control is not available.
        if beside.flows.has_ended() {
            beside.server.finish();
            return Err(broken("the flow beside the tool ended", beside.flows));
        }
        Ok(Some(beside))
    }

    /// Waits until the flows fill the link, or until they end. Returns false if the stop flag was
    /// set.
    fn settle(&mut self, run: &Run<'_>) -> bool {
        let begun = Instant::now();
        let settle = run.recovery.map_or(SETTLE, |times| times.before());
        let link = run.recovery.and(run.condition.rate);
        let mut recent = LastSecond::default();
        let waits = |recent: &LastSecond| {
            begun.elapsed() < settle || (begun.elapsed() < settle + FILL && !recent.fills(link))
        };
        while waits(&recent) && !self.flows.has_ended() {
            if run.stop.load(Ordering::Relaxed) {
                return false;
            }
            thread::sleep(TICK);
            // The line of an interval arrives late, but never early, so the earliest start counts.
            let latest = self.flows.last_stdout_line().and_then(|line| interval(&line));
            let end = latest.as_ref().map(|latest| latest.end_seconds);
            if let Some(latest) = latest {
                recent.add(latest);
            }
            let end = end.and_then(|end| Duration::try_from_secs_f64(end).ok());
            let start = end.and_then(|end| Instant::now().checked_sub(end));
            self.zero = [self.zero, start].into_iter().flatten().min();
        }
        true
    }

    /// Stops the flows after the time of their recovery. Returns their figures if the plan measures
    /// them and the tool ran. A run whose flows ended earlier did not meet its conditions.
    pub(super) fn finish(
        self,
        run: &Run<'_>,
        tool: Option<ToolTime>,
    ) -> Result<Option<FlowFigures>, RunProblem> {
        let (Some(times), Some(tool)) = (run.recovery, tool) else {
            return self.stop().map(|_| None);
        };
        let end = tool.begun + tool.took + times.after() + LAST;
        if !self.runs_until(end, run.stop) {
            return self.stop().and(Err(RunProblem::Stopped));
        }
        let zero = self.zero;
        let output = self.stop()?;
        let begun = zero.map(|zero| (tool.begun - zero).as_secs_f64());
        let figures = figures(&output, begun, run.condition.rate, [tool.took, times.after()])?;
        let congestion = run.row.beside_congestion.clone();
        Ok(Some(FlowFigures { congestion, ..figures }))
    }

    /// Waits until `end` or the end of the flows. Returns false if the stop flag was set.
    fn runs_until(&self, end: Instant, stop: &AtomicBool) -> bool {
        while Instant::now() < end && !self.flows.has_ended() {
            if stop.load(Ordering::Relaxed) {
                return false;
            }
            thread::sleep(TICK);
        }
        true
    }

    /// Stops the flows and returns their output.
    fn stop(self) -> Result<ToolOutput, RunProblem> {
        let is_early = self.flows.has_ended();
        let Finished { output, .. } = self.flows.finish();
        self.server.finish();
        if !is_early {
            return Ok(output);
        }
        let said = output.last_line().unwrap_or("no output").to_owned();
        Err(RunProblem::Disturbed(format!("a flow beside the tool ended too early: {said}")))
    }
}

/// Returns the figures in the output of the flows, for a tool that started `begun` seconds after them,
/// with the time while it ran and the measured time after it.
fn figures(
    output: &ToolOutput,
    begun: Option<f64>,
    link: Option<Rate>,
    [took, after]: [Duration; 2],
) -> Result<FlowFigures, RunProblem> {
    if output.truncated {
        return Err(RunProblem::Disturbed(
            "the output of the flow beside the tool is too long to be kept, so its share is unknown"
                .into(),
        ));
    }
    let samples = begun.map_or_else(Vec::new, |begun| samples(&output.stdout, begun));
    FlowFigures::of(samples, link, took.as_secs_f64(), after.as_secs_f64()).ok_or_else(|| {
        RunProblem::Disturbed(
            "the flow beside the tool did not report its rate for the whole measured time".into(),
        )
    })
}

/// Returns the reason why the figures do not count: the flows did not fill the link before the tool.
pub(super) fn fault(figures: &FlowFigures) -> Result<(), RunProblem> {
    if figures.before_share >= FlowFigures::FULL {
        return Ok(());
    }
    Err(RunProblem::Disturbed(format!(
        "the flow beside the tool did not fill the link before the tool started: {:.0} % in the last \
         second",
        100.0 * figures.before_share
    )))
}

/// Returns the arguments of the flows, without the server.
fn arguments(run: &Run<'_>) -> Vec<String> {
    let around = run.recovery.map_or(Duration::ZERO, |times| times.before() + FILL + times.after());
    let seconds = run.limit.as_secs() + around.as_secs() + SPARE;
    let mut all = vec!["-P".to_owned(), run.entry.beside.to_string()];
    all.extend(["-t".to_owned(), seconds.to_string()]);
    if let Some(congestion) = &run.row.beside_congestion {
        all.extend(["-C".to_owned(), congestion.clone()]);
    }
    if run.recovery.is_some() {
        all.extend(["-i", INTERVAL, "--json-stream"].map(str::to_owned));
    }
    all
}

/// An interval of `longhaul test --json-stream`.
#[derive(Deserialize)]
struct Interval {
    end_seconds: f64,
    throughput_bps: Rate,
}

fn interval(line: &str) -> Option<Interval> {
    #[derive(Deserialize)]
    struct Event {
        event: String,
        data: serde_json::Value,
    }
    let Event { event, data } = serde_json::from_str(line).ok()?;
    (event == "interval").then(|| Interval::deserialize(data).ok()).flatten()
}

/// Returns the samples in the output of the flows, for a tool that started `begun` seconds after
/// them.
fn samples(output: &str, begun: f64) -> Vec<GoodputSample> {
    let all = output.lines().filter_map(interval);
    let sample = |interval: Interval| GoodputSample {
        seconds: interval.end_seconds - begun,
        goodput_bps: interval.throughput_bps,
    };
    all.map(sample).collect()
}

/// Returns the failure of a process that is then stopped, with its last line.
fn broken(what: &str, process: Process) -> RunProblem {
    let Finished { output, .. } = process.finish();
    RunProblem::Failed(format!("{what}: {}", output.last_line().unwrap_or("no output")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(event: &str, end: f64, bps: u64) -> String {
        format!(
            "{{\"data\":{{\"end_seconds\":{end},\"throughput_bps\":{bps},\"x\":1}},\
             \"event\":\"{event}\",\"schema\":\"longhaul.test/1\"}}\n"
        )
    }

    #[test]
    fn the_lines_of_intervals_become_samples() {
        let output = line("interval", 0.2, 5) + "odd\n" + &line("interval", 8.5, 7);
        let found = samples(&(output + &line("result", 9.0, 6)), 8.0);
        let plain: Vec<(f64, u64)> =
            found.iter().map(|sample| (sample.seconds, sample.goodput_bps.bps())).collect();
        assert_eq!(plain, [(-7.8, 5), (0.5, 7)]);
    }

    #[test]
    fn a_link_is_full_by_the_mean_of_the_last_second() {
        let link = Some(Rate::from_bps(1_000_000_000));
        let mut recent = LastSecond::default();
        assert!(!recent.fills(link) && recent.fills(None));
        let mut add = |tick: u32, mbps: u64| {
            let end_seconds = f64::from(tick) / 5.0;
            let throughput_bps = Rate::from_bps(mbps * 1_000_000);
            recent.add(Interval { end_seconds, throughput_bps });
            recent.fills(link)
        };
        assert!((1..=5).all(|tick| !add(tick, 600)));
        // Three of five intervals at the rate of the link are 84 %; the same interval counts once.
        assert!(!add(6, 1000) && !add(6, 1000) && !add(6, 1000));
        assert!(!add(7, 1000) && add(8, 1000));
    }

    #[test]
    fn incomplete_output_of_a_flow_spoils_the_run() {
        let of = |last: u32, truncated| {
            let lines = (1..=last).map(|tick| line("interval", f64::from(tick) / 5.0, 1_000_000));
            let output = ToolOutput {
                exit_code: Some(0),
                stdout: lines.collect(),
                stderr: String::new(),
                truncated,
            };
            figures(&output, Some(5.0), None, [10, 10].map(Duration::from_secs))
        };
        assert!(of(125, false).is_ok());
        let reason = |last, truncated| match of(last, truncated) {
            Err(RunProblem::Disturbed(reason)) => reason,
            _ => panic!("{last} lines, {truncated}"),
        };
        assert!(reason(125, true).contains("too long"), "{}", reason(125, true));
        assert!(reason(100, false).contains("whole measured time"), "{}", reason(100, false));
    }

    #[test]
    fn a_flow_that_does_not_fill_the_link_spoils_the_run() {
        let sample = |tick: i32| GoodputSample {
            seconds: f64::from(tick) / 5.0,
            goodput_bps: Rate::from_bps(630_000_000),
        };
        let figures = |link| {
            FlowFigures::of((-10..100).map(sample).collect(), Some(link), 10.0, 5.0).unwrap()
        };
        assert!(fault(&figures(Rate::from_bps(700_000_000))).is_ok());
        let Err(RunProblem::Disturbed(reason)) = fault(&figures(Rate::from_bps(1_000_000_000)))
        else {
            panic!("63 % of the link");
        };
        assert!(reason.ends_with("started: 63 % in the last second"), "{reason}");
    }
}
