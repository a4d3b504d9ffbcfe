//! One measurement of one step.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use longhaul_core::diagnosis::BoundedPlan;
use longhaul_core::plan::{
    CopyOptions, CopySubset, Direction, SubsetContent, TestLength, TestPlan,
};
use longhaul_core::result::{
    BoundedTest, CopyEvidence, CopyResult, DiskStepReport, End, StepRound, TestResult, TestSample,
};
use longhaul_core::units::{Bytes, Rate};
use longhaul_core::wire::{RefusalKind, Service};

use super::end::EndWorker;
use super::pace::{Opened, Trace, follow};
use super::write::Writing;
use super::{CopyDirection, DiagnosePlan, Openers};
use crate::copy::{
    self, CopyProgress, CopyRun, CopySecret, DIRECT_FROM_BYTES, FetchTarget, Reconnect,
    RemoteFiles, SourcePlan, SourceRoot, Tree, between, pull, push,
};
use crate::error::{EngineError, Result};
use crate::session::Session;
use crate::test;

/// The time limit of a copy, as a multiple of its planned time.
const TIME_FACTOR: f64 = 1.6;
/// The additional time for opening and closing a session.
const SESSION_TIME: Duration = Duration::from_millis(800);
/// The additional round trips for opening and closing a session.
const SESSION_TRIPS: u32 = 8;
/// The largest subset that is counted at a source.
pub(super) const LARGEST_SUBSET: CopySubset =
    CopySubset { bytes: Bytes::gib(64), files: 20_000, content: SubsetContent::Files };
/// The minimum number of blocks of a copy, unless blocks would be too small.
const LEAST_BLOCKS: u64 = 64;
const LEAST_BLOCK: Bytes = Bytes::kib(128);
/// The maximum number of connections that a copy chooses.
const MOST_CHOSEN: u32 = 16;
/// The start of a bounded test that does not count: the kernel does not pace the first window, and
/// its losses can need a retransmission timeout.
const FIRST_FLIGHT: Duration = Duration::from_millis(500);
/// The maximum number of bytes that the step at the sink writes in a round.
const MOST_WRITTEN: u64 = 8 << 30;

/// The data that all steps share.
pub(super) struct StepRunner<'a> {
    pub(super) plan: &'a DiagnosePlan,
    pub(super) openers: &'a mut dyn Openers,
    pub(super) stop: &'a AtomicBool,
    /// The time of a round; longer than planned if the round trip requires it.
    pub(super) time: Duration,
    pub(super) rtt: Option<Duration>,
    /// The bytes of the subset.
    pub(super) bytes: u64,
    pub(super) files: u64,
}

/// A copy that is a step of a diagnosis.
pub(super) struct CopyStep {
    pub(super) content: SubsetContent,
    pub(super) bytes: u64,
    /// The number of connections; `None` lets the copy choose.
    pub(super) streams: Option<u32>,
    /// The target; `None` drops the bytes.
    pub(super) target: Option<PathBuf>,
}

impl CopyStep {
    /// Returns a copy of `bytes` that drops them.
    pub(super) fn of(content: SubsetContent, bytes: u64) -> Self {
        CopyStep { content, bytes, streams: None, target: None }
    }
}

impl StepRunner<'_> {
    pub(super) fn read(&mut self, source: &mut EndWorker) -> Result<StepRound> {
        let subset =
            CopySubset { bytes: self.plan.size.unwrap_or(LARGEST_SUBSET.bytes), ..LARGEST_SUBSET };
        let options = CopyOptions { subset: Some(subset), ..self.plan.options.clone() };
        let report = source.read(&options, self.time, self.stop)?;
        Ok(disk_round(report))
    }

    pub(super) fn write(&mut self, sink: &mut EndWorker) -> Result<StepRound> {
        let most = self.plan.size.map_or(MOST_WRITTEN, Bytes::get);
        // Large files become one file, so that there is enough to write; small files stay as they
        // are.
        let large = self.files == 0 || self.bytes / self.files >= DIRECT_FROM_BYTES;
        let (bytes, files) = if large { (most, 1) } else { (self.bytes.min(most), self.files) };
        let durable = self.plan.options.durable;
        let writing = Writing { bytes, files, durable, time: self.time, rate: None };
        Ok(disk_round(sink.write(writing, self.stop)?))
    }

    /// Measures memory to memory as `longhaul test` does.
    pub(super) fn memory(&mut self, streams: u32, on: &(dyn Fn(Rate) + Sync)) -> Result<StepRound> {
        let begun = Instant::now();
        let result = self.test(streams, None, on)?;
        Ok(tested(result, begun.elapsed()))
    }

    /// Runs the test at a bounded rate.
    pub(super) fn bounded(&mut self, plan: BoundedPlan) -> Result<BoundedTest> {
        let BoundedPlan { rate, time } = plan;
        let usual = std::mem::replace(&mut self.time, time + FIRST_FLIGHT);
        let result = self.test(1, Some(rate), &|_| ());
        self.time = usual;
        let result = result?;
        let (segments, retransmits) = segments_from(&result, FIRST_FLIGHT.as_secs_f64());
        Ok(BoundedTest {
            bound_bps: rate,
            throughput_bps: result.summary.throughput_bps,
            streams: 1,
            segments,
            retransmits,
        })
    }

    fn test(
        &mut self,
        streams: u32,
        rate_bps: Option<Rate>,
        on: &(dyn Fn(Rate) + Sync),
    ) -> Result<TestResult> {
        let plan = TestPlan {
            amount: TestLength::Time(self.time),
            streams,
            rate_bps,
            interval: Duration::from_millis(250).max(self.time / 12),
            direction: match self.plan.way {
                CopyDirection::Pull => Direction::Reverse,
                _ => Direction::Forward,
            },
            ..TestPlan::new()
        };
        let sample = |sample: &TestSample| on(sample.throughput_bps);
        let result = match &self.plan.way {
            CopyDirection::Between(None) => Err(EngineError::Refused {
                peer: "the source's host".to_owned(),
                kind: RefusalKind::Invalid,
                reason: "the test runs only between servers".to_owned(),
            }),
            CopyDirection::Between(Some(sink)) => {
                let session = self.openers.open(End::Sender, Service::ThirdParty)?;
                test::run_third(session, sink, &plan, self.stop, sample)
            }
            way => {
                let session = self.openers.open(way.other(), Service::Test)?;
                test::run(session, &plan, self.stop, sample)
            }
        };
        self.openers.done();
        result
    }

    /// Runs a copy, and reports its rate to `on`.
    pub(super) fn copy(&mut self, step: CopyStep, on: &(dyn Fn(Rate) + Sync)) -> Result<StepRound> {
        let CopyStep { content, bytes, streams, target } = step;
        let subset = CopySubset { bytes: Bytes::new(bytes), files: LARGEST_SUBSET.files, content };
        let content = match self.plan.source {
            None => SubsetContent::Memory,
            Some(_) => content,
        };
        let options = CopyOptions {
            subset: Some(CopySubset { content, ..subset }),
            streams: self.plan.options.streams.or(streams),
            block_bytes: block_of(bytes, self.plan.options.block_bytes),
            ..self.plan.options.clone()
        };
        let rtt = self.rtt.unwrap_or_default();
        let limit = self.time.mul_f64(TIME_FACTOR) + SESSION_TIME + rtt * SESSION_TRIPS;
        let (progress, opened) = (CopyProgress::default(), Opened::default());
        let target = target.unwrap_or_else(|| "/dev/null".into());
        let (outcome, trace) =
            follow((&progress, &opened), (limit, rtt), self.stop, on, |enough| {
                self.one(&target, &options, (&progress, &opened), enough)
            });
        self.openers.done();
        match outcome {
            // Nothing could be read or written.
            Ok(result) if result.summary.bytes.get() == 0 => Err(nothing(&result)),
            Ok(result) => Ok(copied(&result, options.block_bytes, &trace)),
            Err(EngineError::Interrupted) if trace.cut && trace.bytes().get() > 0 => {
                let streams = u64::from(options.streams.unwrap_or(MOST_CHOSEN));
                Ok(cut(&trace, Bytes::new(streams * options.block_bytes.get())))
            }
            Err(error) => Err(error),
        }
    }

    fn one(
        &mut self,
        target: &Path,
        options: &CopyOptions,
        (progress, opened): (&CopyProgress, &Opened),
        enough: &AtomicBool,
    ) -> Result<CopyResult> {
        // Without a source path the bytes come from memory.
        let path = self.plan.source.clone().unwrap_or_else(|| "memory".into());
        let run = CopyRun { options, progress, stop: enough };
        let (way, openers) = (&self.plan.way, &mut *self.openers);
        let files = RemoteFiles { paths: std::slice::from_ref(&path), names: None };
        // A step is never resumed, so its secret is random.
        let secret = CopySecret::random();
        if let CopyDirection::Between(_) = way {
            // The same opener opens both sessions, one after the other.
            let openers = std::cell::RefCell::new(openers);
            let mut to = || openers.borrow_mut().open(End::Receiver, Service::Copy);
            let mut from =
                || openers.borrow_mut().open(End::Sender, Service::Copy).inspect(|_| opened.note());
            let line = line(&mut to, &secret);
            let ends = copy::ThirdPartyEnds { source: &mut from, files, target };
            return between(line, ends, run, &|_| ());
        }
        let mut connect = || openers.open(way.other(), Service::Copy).inspect(|_| opened.note());
        let line = line(&mut connect, &secret);
        match way {
            CopyDirection::Pull => pull(line, files, FetchTarget::Path(target), run),
            _ => {
                let roots = vec![SourceRoot::Path(path.clone())];
                let plan = SourcePlan { tree: Tree::anywhere(), roots };
                push(line, &plan, target, run)
            }
        }
    }
}

/// Returns a connection that is not repeated after a failure.
fn line<'a>(
    connect: &'a mut dyn FnMut() -> Result<Session>,
    secret: &'a CopySecret,
) -> Reconnect<'a> {
    Reconnect { connect, give_up: Duration::ZERO, lost: &|_| (), secret, past: None }
}

/// Returns the block size for a copy of `bytes`, at most `most`. A short copy needs smaller blocks
/// than a long one to use all connections evenly.
fn block_of(bytes: u64, most: Bytes) -> Bytes {
    let page = longhaul_sys::memory::DIRECT_ALIGN as u64;
    let block = (bytes / LEAST_BLOCKS).max(LEAST_BLOCK.get()) / page * page;
    Bytes::new(block.min(most.get()))
}

fn disk_round(report: DiskStepReport) -> StepRound {
    let elapsed = Duration::try_from_secs_f64(report.seconds).unwrap_or_default();
    StepRound {
        throughput_bps: Rate::mean(report.bytes, elapsed),
        bytes: report.bytes,
        files: report.files,
        seconds: report.seconds,
        disk: Some(report),
        ..StepRound::default()
    }
}

fn tested(result: TestResult, elapsed: Duration) -> StepRound {
    let (late_loss_percent, peak_queue_ms) = (late_loss(&result), peak_queue_ms(&result));
    let summary = result.summary;
    let steady = summary.steady.as_ref();
    StepRound {
        throughput_bps: steady.map_or(summary.throughput_bps, |steady| steady.throughput_bps),
        mean_bps: Some(summary.throughput_bps),
        ramp_up_seconds: steady.map(|steady| steady.ramp_up_seconds),
        bytes: summary.receiver.bytes,
        seconds: elapsed.as_secs_f64(),
        reason: summary.reason.map(Box::new),
        late_loss_percent,
        peak_queue_ms,
        ..StepRound::default()
    }
}

/// Returns the percentage of segments that were retransmitted in the second half of a test.
fn late_loss(result: &TestResult) -> Option<f64> {
    let half = result.intervals.last()?.end_seconds / 2.0;
    let (segments, retransmits) = segments_from(result, half);
    (segments > 0).then(|| 100.0 * retransmits as f64 / segments as f64)
}

/// Returns the number of segments that were sent in the intervals from `seconds` on, and the number
/// of those that were retransmissions.
fn segments_from(result: &TestResult, seconds: f64) -> (u64, u64) {
    let part = result.intervals.iter().filter(|interval| interval.start_seconds >= seconds);
    let senders = part.flat_map(|interval| &interval.streams).filter_map(|one| one.sender.as_ref());
    senders.fold((0, 0), |(segments, again), sender| {
        (segments + sender.segments, again + sender.retransmits)
    })
}

/// Returns the highest queueing delay of an interval in ms: that of the stream with the least delay,
/// because all streams pass the same queue.
fn peak_queue_ms(result: &TestResult) -> Option<f64> {
    let least = result.streams.iter().filter_map(|stream| stream.rtt_min_ms).reduce(f64::min)?;
    let delay = |interval: &TestSample| {
        let senders = interval.streams.iter().filter_map(|one| one.sender.as_ref());
        senders.map(|sender| (sender.rtt_mean_ms - least).max(0.0)).reduce(f64::min)
    };
    result.intervals.iter().filter_map(delay).reduce(f64::max)
}

fn nothing(result: &CopyResult) -> EngineError {
    let reason = match result.failures.first() {
        Some(failure) => format!("{}: {}", failure.path, failure.reason),
        None => "there is nothing to copy".to_owned(),
    };
    EngineError::Failed { peer: "the copy".to_owned(), reason, again: false }
}

fn copied(result: &CopyResult, block: Bytes, trace: &Trace) -> StepRound {
    let evidence = CopyEvidence {
        limit: result.limit,
        path: result.path.clone(),
        source: result.source.clone(),
        sink: result.sink.clone(),
    };
    StepRound {
        bytes: result.summary.bytes,
        files: result.summary.files,
        copy: Some(Box::new(evidence)),
        ..cut(trace, Bytes::new(u64::from(result.summary.streams) * block.get()))
    }
}

fn cut(trace: &Trace, in_flight: Bytes) -> StepRound {
    let pace = trace.pace(in_flight);
    StepRound {
        throughput_bps: pace.steady.map_or(pace.mean, |steady| steady.rate),
        mean_bps: Some(pace.mean),
        ramp_up_seconds: pace.steady.map(|steady| steady.ramp_up.as_secs_f64()),
        bytes: trace.bytes(),
        files: trace.files,
        seconds: trace.elapsed.as_secs_f64(),
        cut: trace.cut,
        ..StepRound::default()
    }
}
