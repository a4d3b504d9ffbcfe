//! Runs a diagnosis: rounds over the steps, each sized by the earlier results.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::diagnosis::{bounded_plan, rate_for_settings};
use longhaul_core::plan::{CopyOptions, SubsetContent};
use longhaul_core::result::{
    BoundedTest, DiagnosedEnds, DiagnosisStep, End, Gap, StepReport, StepRound, SubsetReport,
};
use longhaul_core::text::chain;
use longhaul_core::units::{Bytes, Rate};
use longhaul_core::wire::{RefusalKind, Service};

use super::end::{EndWorker, OpenedEnd};
use super::steps::{CopyStep, LARGEST_SUBSET, StepRunner};
use super::{DiagnosePlan, Openers};
use crate::error::{EngineError, Result};

/// The minimum size that a step copies, if the source is large enough: smaller copies end during slow
/// start.
const LEAST_BYTES: u64 = 8 << 20;
/// The most that a step copies in a round.
const MOST_BYTES: u64 = 8 << 30;
/// A step uses one part in this many of the free space at the sink.
const ROOM_PART: u64 = 3;
/// The shortest step over a path, in round trips: TCP needs them to increase its window.
const TRIPS: u32 = 15;
const TRIPS_AND: Duration = Duration::from_millis(500);

/// A report of the progress of a diagnosis.
#[derive(Debug)]
pub enum DiagnoseProgress<'a> {
    /// A step begins.
    Begun {
        /// The step.
        step: DiagnosisStep,
        /// The round, from 1.
        round: u32,
        /// The expected duration.
        time: Duration,
    },
    /// The present rate of a running step.
    Moving {
        /// The step.
        step: DiagnosisStep,
        /// The rate.
        rate: Rate,
    },
    /// A step ended; this is its report so far.
    Ended(&'a StepReport),
}

/// The measurements of a diagnosis.
#[derive(Debug)]
pub struct DiagnoseOutcome {
    /// The steps, from the source to the whole copy.
    pub steps: Vec<StepReport>,
    /// The test at a bounded rate, if the other tests do not explain their loss.
    pub bounded: Option<BoundedTest>,
    /// The examinations of both hosts.
    pub ends: DiagnosedEnds,
    /// The files to copy.
    pub subset: SubsetReport,
    /// The smallest round-trip time in ms.
    pub rtt_ms: Option<f64>,
    /// The measurements that are missing, with reasons.
    pub gaps: Vec<Gap>,
    /// The first failure.
    pub failure: Option<EngineError>,
    /// True if `stop` was set.
    pub interrupted: bool,
    /// True if a server refused the key, so that no step ran.
    pub refused: bool,
}

/// Runs the diagnosis of `plan`. When `stop` is set, it ends early and returns its results so far.
pub fn run(
    plan: &DiagnosePlan,
    openers: &mut dyn Openers,
    stop: &AtomicBool,
    on: &(dyn Fn(DiagnoseProgress<'_>) + Sync),
) -> DiagnoseOutcome {
    let mut outcome = DiagnoseOutcome {
        steps: plan.steps().map(|step| empty(step, plan.title(step))).collect(),
        bounded: None,
        ends: DiagnosedEnds {
            same_host: plan.way == super::CopyDirection::Local,
            ..DiagnosedEnds::default()
        },
        subset: SubsetReport::default(),
        rtt_ms: None,
        gaps: Vec::new(),
        failure: None,
        interrupted: false,
        refused: false,
    };
    let source = outcome.open_end(plan, openers, End::Sender);
    let sink = outcome.open_end(plan, openers, End::Receiver);
    // Without the right to copy there is no copy to diagnose.
    if outcome.failure.as_ref().is_some_and(is_not_authorized) {
        return DiagnoseOutcome { refused: true, ..outcome };
    }
    let steps = StepRunner {
        plan,
        openers,
        stop,
        time: plan.time / plan.rounds.max(1),
        rtt: None,
        bytes: outcome.subset.bytes.get(),
        files: outcome.subset.files,
    };
    let hopeless =
        outcome.failure.as_ref().filter(|error| is_unreachable(error)).map(|error| chain(error));
    let mut runner = Runner { outcome, steps, source, sink, on, hopeless };
    for round in 1..=plan.rounds {
        for step in plan.steps() {
            if !stop.load(Ordering::Relaxed) {
                runner.step(step, round);
            }
        }
    }
    runner.bounded();
    runner.end()
}

fn empty(step: DiagnosisStep, title: String) -> StepReport {
    StepReport {
        step,
        title,
        throughput_bps: None,
        files_per_second: None,
        rounds: Vec::new(),
        note: String::new(),
    }
}

/// Returns whether the server refuses the key.
fn is_not_authorized(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Refused { kind: RefusalKind::NotAuthorized, .. }
            | EngineError::KeyUnknown { .. }
            | EngineError::KeyChanged { .. }
    )
}

/// Returns whether no session with the host is possible.
fn is_unreachable(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Resolve { .. }
            | EngineError::Connect { .. }
            | EngineError::KeyUnknown { .. }
            | EngineError::KeyChanged { .. }
            | EngineError::Handshake { .. }
            | EngineError::Spawn { .. }
            | EngineError::Login { .. }
    )
}

/// Returns the name of an end in a gap.
fn name_of(end: End) -> &'static str {
    match end {
        End::Sender => "the source's end",
        End::Receiver => "the sink's end",
    }
}

impl DiagnoseOutcome {
    fn open_end(
        &mut self,
        plan: &DiagnosePlan,
        openers: &mut dyn Openers,
        end: End,
    ) -> Option<EndWorker> {
        let options = CopyOptions { subset: Some(LARGEST_SUBSET), ..plan.options.clone() };
        let role = plan.role(end);
        let opened = if plan.way.is_here(end) {
            Ok(EndWorker::local(&role, &options))
        } else {
            let session = openers.open(end, Service::Diagnose);
            session.and_then(|session| EndWorker::remote(session, &role, &options))
        };
        let what = name_of(end);
        match opened {
            Ok(OpenedEnd { worker, view, subset, failure }) => {
                match end {
                    End::Sender => self.ends.source = Some(view),
                    End::Receiver => self.ends.sink = Some(view),
                }
                self.subset = subset.unwrap_or(self.subset);
                if let Some(why) = failure {
                    self.gaps.push(Gap { what: what.to_owned(), why: why.clone() });
                    let path = match end {
                        End::Sender => plan.source.clone(),
                        End::Receiver => plan.target.clone(),
                    };
                    let failed = EngineError::file("use", path.unwrap_or_default());
                    self.failure.get_or_insert(failed(std::io::Error::other(why)));
                }
                Some(worker)
            }
            Err(error) => {
                self.gaps.push(Gap { what: what.to_owned(), why: chain(&error) });
                self.failure.get_or_insert(error);
                None
            }
        }
    }
}

struct Runner<'a> {
    outcome: DiagnoseOutcome,
    steps: StepRunner<'a>,
    source: Option<EndWorker>,
    sink: Option<EndWorker>,
    on: &'a (dyn Fn(DiagnoseProgress<'_>) + Sync),
    /// The reason why no step can use the path.
    hopeless: Option<String>,
}

impl Runner<'_> {
    fn step(&mut self, step: DiagnosisStep, round: u32) {
        let crosses = !matches!(step, DiagnosisStep::Read | DiagnosisStep::Write);
        if crosses && let Some(why) = self.hopeless.clone() {
            self.missed(step, why);
            return;
        }
        if let Some(why) = self.absent_end(step) {
            self.missed(step, why);
            return;
        }
        let on = self.on;
        self.steps.time = self.time(crosses);
        on(DiagnoseProgress::Begun { step, round, time: self.steps.time });
        let begun = Instant::now();
        match self.measure(step) {
            // An interrupted round does not count.
            Ok(_) if self.steps.stop.load(Ordering::Relaxed) => {}
            // Without bytes there is no rate.
            Ok(measured) if measured.bytes.get() == 0 => {
                self.missed(step, "no data was moved in the time of the step".to_owned());
            }
            Ok(measured) => {
                let hosts = [&mut self.source, &mut self.sink];
                let [source_host, sink_host] =
                    hosts.map(|worker| worker.as_mut().and_then(EndWorker::sample));
                let seconds = match measured.seconds {
                    0.0 => begun.elapsed().as_secs_f64(),
                    seconds => seconds,
                };
                self.keep(
                    step,
                    StepRound { number: round, seconds, source_host, sink_host, ..measured },
                );
            }
            Err(EngineError::Interrupted) if self.steps.stop.load(Ordering::Relaxed) => {}
            Err(error) => {
                let full = matches!(error, EngineError::Refused { kind: RefusalKind::Limit, .. });
                let unreachable = full || is_unreachable(&error);
                let why = chain(&error);
                if crosses && unreachable {
                    self.hopeless = Some(why.clone());
                }
                self.outcome.failure.get_or_insert(error);
                self.missed(step, why);
            }
        }
    }

    /// Returns the reason why the end whose host has to work in `step` is absent, if it is.
    fn absent_end(&self, step: DiagnosisStep) -> Option<String> {
        let (end, worker) = match step {
            DiagnosisStep::Read => (End::Sender, &self.source),
            DiagnosisStep::Write | DiagnosisStep::SendWrite => (End::Receiver, &self.sink),
            DiagnosisStep::Whole if self.steps.plan.target.is_some() => (End::Receiver, &self.sink),
            _ => return None,
        };
        let gap = self.outcome.gaps.iter().find(|gap| gap.what == name_of(end));
        gap.filter(|_| worker.is_none()).map(|gap| gap.why.clone())
    }

    /// Returns the time for a step in this round.
    fn time(&self, crosses: bool) -> Duration {
        let planned = self.steps.plan.time / self.steps.plan.rounds.max(1);
        match self.steps.rtt {
            Some(rtt) if crosses => planned.max(TRIPS_AND + rtt * TRIPS),
            _ => planned,
        }
    }

    fn measure(&mut self, step: DiagnosisStep) -> Result<StepRound> {
        let on = self.on;
        let moving = move |rate| on(DiagnoseProgress::Moving { step, rate });
        let streams = self.steps.plan.options.streams.unwrap_or(self.steps.plan.streams);
        let bytes = self.bytes(step);
        match step {
            DiagnosisStep::Read => {
                let worker = self.source.as_mut().ok_or_else(|| unseen("the source's end"))?;
                self.steps.read(worker)
            }
            DiagnosisStep::Write => {
                let worker = self.sink.as_mut().ok_or_else(|| unseen("the sink's end"))?;
                self.steps.write(worker)
            }
            DiagnosisStep::MemoryOne => self.steps.memory(1, &moving),
            DiagnosisStep::Memory => self.steps.memory(streams, &moving),
            DiagnosisStep::Protected => {
                let step = CopyStep::of(SubsetContent::Memory, bytes);
                self.steps.copy(CopyStep { streams: Some(streams), ..step }, &moving)
            }
            DiagnosisStep::ReadSend => {
                self.forget();
                self.steps.copy(CopyStep::of(SubsetContent::Files, bytes), &moving)
            }
            DiagnosisStep::SendWrite => self.copy_to_scratch(SubsetContent::Zeros, bytes, &moving),
            DiagnosisStep::Whole => {
                self.forget();
                match self.steps.plan.target {
                    Some(_) => self.copy_to_scratch(SubsetContent::Files, bytes, &moving),
                    None => self.steps.copy(CopyStep::of(SubsetContent::Files, bytes), &moving),
                }
            }
        }
    }

    fn copy_to_scratch(
        &mut self,
        content: SubsetContent,
        bytes: u64,
        moving: &(dyn Fn(Rate) + Sync),
    ) -> Result<StepRound> {
        let sink = self.sink.as_mut().ok_or_else(|| unseen("the sink's end"))?;
        let target = sink.fresh()?;
        let step = CopyStep { target: Some(target), ..CopyStep::of(content, bytes) };
        let round = self.steps.copy(step, moving);
        // The files are removed at once to free their space.
        sink.fresh()?;
        round
    }

    /// Drops the source's files from the page cache. The step that reads the source reports a
    /// failure.
    fn forget(&mut self) {
        let options =
            CopyOptions { subset: Some(LARGEST_SUBSET), ..self.steps.plan.options.clone() };
        if let Some(source) = &mut self.source {
            let _ = source.forget(&options);
        }
    }

    /// Returns the number of bytes to copy: as many as the slowest part so far would move in the
    /// time.
    fn bytes(&self, step: DiagnosisStep) -> u64 {
        if let Some(size) = self.steps.plan.size {
            return size.get();
        }
        let parts: &[DiagnosisStep] = match step {
            DiagnosisStep::ReadSend => &[DiagnosisStep::Read, DiagnosisStep::Protected],
            DiagnosisStep::SendWrite => &[DiagnosisStep::Protected, DiagnosisStep::Write],
            DiagnosisStep::Whole => &[DiagnosisStep::ReadSend, DiagnosisStep::SendWrite],
            _ => &[DiagnosisStep::Memory],
        };
        let last = |step: &DiagnosisStep| {
            let report = self.outcome.steps.iter().find(|report| report.step == *step)?;
            Some(report.rounds.last()?.throughput_bps.bytes_per_second())
        };
        let own = last(&step);
        let speed = own.or_else(|| parts.iter().filter_map(last).min()).unwrap_or(0);
        let bytes = speed as f64 * self.steps.time.as_secs_f64();
        let room = self.outcome.ends.sink.as_ref().and_then(|sink| sink.free_bytes);
        let room = match step {
            DiagnosisStep::SendWrite | DiagnosisStep::Whole => {
                room.map_or(u64::MAX, Bytes::get) / ROOM_PART
            }
            _ => u64::MAX,
        };
        (bytes as u64).clamp(LEAST_BYTES, MOST_BYTES).min(room)
    }

    fn keep(&mut self, step: DiagnosisStep, round: StepRound) {
        let rtt_ms = round.reason.as_ref().map(|reason| reason.facts.rtt_min_ms);
        if let Some(rtt) = rtt_ms.filter(|rtt| *rtt > 0.0) {
            let least = self.outcome.rtt_ms.map_or(rtt, |known| known.min(rtt));
            self.outcome.rtt_ms = Some(least);
            self.steps.rtt = Duration::try_from_secs_f64(least / 1e3).ok();
        }
        let Some(report) = self.outcome.steps.iter_mut().find(|one| one.step == step) else {
            return;
        };
        if let Some(disk) = &round.disk {
            report.note.clone_from(&disk.how);
        }
        if step == DiagnosisStep::Memory
            && let Some(reason) = &round.reason
        {
            report.title = step.title(reason.facts.streams);
        }
        report.rounds.push(round);
        report.throughput_bps = report.median_rate();
        report.files_per_second = report.median_files_per_second();
        (self.on)(DiagnoseProgress::Ended(report));
    }

    /// Runs the test at a bounded rate if the tests lose segments for an unknown reason.
    fn bounded(&mut self) {
        self.steps.time = self.time(true);
        let plan = bounded_plan(&self.outcome.steps, self.steps.time);
        let Some(plan) = plan.filter(|_| !self.steps.stop.load(Ordering::Relaxed)) else { return };
        match self.steps.bounded(plan) {
            Ok(test) => self.outcome.bounded = Some(test),
            Err(EngineError::Interrupted) if self.steps.stop.load(Ordering::Relaxed) => {}
            Err(error) => {
                let what = "memory to memory, at a bounded rate".to_owned();
                self.outcome.gaps.push(Gap { what, why: chain(&error) });
            }
        }
    }

    fn missed(&mut self, step: DiagnosisStep, why: String) {
        let what = self.steps.plan.title(step);
        if !self.outcome.gaps.iter().any(|gap| gap.what == what) {
            self.outcome.gaps.push(Gap { what, why: why.clone() });
        }
        if let Some(report) = self.outcome.steps.iter_mut().find(|one| one.step == step) {
            if report.rounds.is_empty() {
                report.note = why;
            }
            (self.on)(DiagnoseProgress::Ended(report));
        }
    }

    /// Examines both hosts at the rate that they could reach, and closes both ends.
    fn end(self) -> DiagnoseOutcome {
        let Runner { mut outcome, steps, source, sink, .. } = self;
        outcome.interrupted = steps.stop.load(Ordering::Relaxed);
        let rtt = steps.rtt.unwrap_or_default();
        let rate = rate_for_settings(&outcome.steps);
        for (end, worker) in [(End::Sender, source), (End::Receiver, sink)] {
            let Some(mut worker) = worker else { continue };
            if outcome.interrupted {
                continue;
            }
            let (view, host) = match end {
                End::Sender => (&mut outcome.ends.source, "the source's host"),
                End::Receiver => (&mut outcome.ends.sink, "the sink's host"),
            };
            match worker.examine(rate, rtt) {
                Ok(findings) => {
                    if let Some(view) = view {
                        view.findings = findings;
                    }
                }
                Err(error) => {
                    let what = format!("{host}: its settings");
                    outcome.gaps.push(Gap { what, why: chain(&error) });
                }
            }
        }
        outcome
    }
}

fn unseen(what: &str) -> EngineError {
    EngineError::Failed { peer: what.to_owned(), reason: "not reachable".to_owned(), again: false }
}
