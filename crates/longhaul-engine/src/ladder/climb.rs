//! The climb: rounds over the rungs, each sized by what was measured before it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::diagnosis::goal;
use longhaul_core::plan::{CopyOptions, SampleContent};
use longhaul_core::result::{
    End, Ends, Finding, Gap, Rung, RungReport, RungRound, SampleReport, Verdict,
};
use longhaul_core::text::chain;
use longhaul_core::units::{Bytes, Rate};
use longhaul_core::wire::{RefusalKind, Service};

use super::hand::{Hand, Shaken};
use super::plan::{LadderPlan, Openers};
use super::rungs::{LOOK, Rungs};
use crate::error::{EngineError, Result};

/// What is copied at least, where there is so much: less is over before it is under way.
const LEAST_BYTES: u64 = 8 << 20;
/// The most that one rung copies in a round.
const MOST_BYTES: u64 = 8 << 30;
/// Of the sink's room this part is used.
const ROOM_PART: u64 = 3;
/// A rung over a path takes so many of its round trips, in which TCP gathers speed.
const TRIPS: u32 = 15;
const TRIPS_AND: Duration = Duration::from_millis(500);

/// What happens, for whoever shows it.
#[derive(Debug)]
pub enum Step<'a> {
    /// A rung begins.
    Begun {
        /// Which.
        rung: Rung,
        /// Its round, from 1.
        round: u32,
        /// For about so long.
        time: Duration,
    },
    /// How fast it is now.
    Moving {
        /// Which.
        rung: Rung,
        /// Its rate.
        rate: Rate,
    },
    /// It ended, and this is what is known of it.
    Ended(&'a RungReport),
}

/// What a climb found.
#[derive(Debug)]
pub struct Climbed {
    /// The rungs, from the source to the whole.
    pub rungs: Vec<RungReport>,
    /// Both hosts.
    pub ends: Ends,
    /// What there is to copy.
    pub sample: SampleReport,
    /// The least round-trip time.
    pub rtt_ms: Option<f64>,
    /// What could not be measured or seen.
    pub gaps: Vec<Gap>,
    /// The first thing that failed.
    pub failure: Option<EngineError>,
    /// `stop` was set.
    pub interrupted: bool,
}

/// Climbs the ladder of `plan`. When `stop` is set, it ends in order with what it has.
pub fn climb(
    plan: &LadderPlan,
    openers: &mut dyn Openers,
    stop: &AtomicBool,
    on: &(dyn Fn(Step<'_>) + Sync),
) -> Climbed {
    let mut climbed = Climbed {
        rungs: plan.rungs().map(empty).collect(),
        ends: Ends { same_host: plan.way == super::Way::Local, ..Ends::default() },
        sample: SampleReport::default(),
        rtt_ms: None,
        gaps: Vec::new(),
        failure: None,
        interrupted: false,
    };
    let source = climbed.shake(plan, openers, End::Sender);
    let sink = climbed.shake(plan, openers, End::Receiver);
    let rungs = Rungs {
        plan,
        openers,
        stop,
        time: plan.time / plan.rounds.max(1),
        rtt: None,
        bytes: climbed.sample.bytes.get(),
        files: climbed.sample.files,
    };
    let mut climber = Climber { climbed, rungs, source, sink, on, hopeless: None };
    for round in 1..=plan.rounds {
        for rung in plan.rungs() {
            if !stop.load(Ordering::Relaxed) {
                climber.step(rung, round);
            }
        }
    }
    climber.end()
}

fn empty(rung: Rung) -> RungReport {
    RungReport {
        rung,
        title: rung.title().to_owned(),
        throughput_bps: None,
        files_per_second: None,
        rounds: Vec::new(),
        note: String::new(),
    }
}

impl Climbed {
    fn shake(&mut self, plan: &LadderPlan, openers: &mut dyn Openers, end: End) -> Option<Hand> {
        let options = CopyOptions { sample: Some(LOOK), ..plan.options.clone() };
        let role = plan.role(end);
        let shaken = match plan.way.is_here(end) {
            true => Ok(Hand::here(&role, &options)),
            false => openers
                .open(end, Service::Rung)
                .and_then(|session| Hand::there(session, &role, &options)),
        };
        let what = match end {
            End::Sender => "the source's end",
            End::Receiver => "the sink's end",
        };
        match shaken {
            Ok(Shaken { hand, view, sample, failure }) => {
                match end {
                    End::Sender => self.ends.source = Some(view),
                    End::Receiver => self.ends.sink = Some(view),
                }
                self.sample = sample.unwrap_or(self.sample);
                if let Some(why) = failure {
                    self.gaps.push(Gap { what: what.to_owned(), why: why.clone() });
                    let path = match end {
                        End::Sender => plan.source.clone(),
                        End::Receiver => plan.target.clone(),
                    };
                    let failed = EngineError::file("use", path.unwrap_or_default());
                    self.failure.get_or_insert(failed(std::io::Error::other(why)));
                }
                Some(hand)
            }
            Err(error) => {
                self.gaps.push(Gap { what: what.to_owned(), why: chain(&error) });
                self.failure.get_or_insert(error);
                None
            }
        }
    }
}

struct Climber<'a> {
    climbed: Climbed,
    rungs: Rungs<'a>,
    source: Option<Hand>,
    sink: Option<Hand>,
    on: &'a (dyn Fn(Step<'_>) + Sync),
    /// Why nothing can go over the path.
    hopeless: Option<String>,
}

impl Climber<'_> {
    fn step(&mut self, rung: Rung, round: u32) {
        let crosses = !matches!(rung, Rung::Read | Rung::Write);
        if crosses && let Some(why) = self.hopeless.clone() {
            self.missed(rung, why);
            return;
        }
        let on = self.on;
        self.rungs.time = self.time(crosses);
        on(Step::Begun { rung, round, time: self.rungs.time });
        let begun = Instant::now();
        match self.measure(rung) {
            // A round that the user ended is none.
            Ok(_) if self.rungs.stop.load(Ordering::Relaxed) => {}
            Ok(measured) => {
                let hosts = [&mut self.source, &mut self.sink];
                let [source_host, sink_host] = hosts.map(|hand| hand.as_mut().and_then(Hand::look));
                let seconds = match measured.seconds {
                    0.0 => begun.elapsed().as_secs_f64(),
                    seconds => seconds,
                };
                self.keep(
                    rung,
                    RungRound { number: round, seconds, source_host, sink_host, ..measured },
                );
            }
            Err(EngineError::Interrupted) if self.rungs.stop.load(Ordering::Relaxed) => {}
            Err(error) => {
                let unreachable = matches!(
                    error,
                    EngineError::Resolve { .. }
                        | EngineError::Connect { .. }
                        | EngineError::KeyUnknown { .. }
                        | EngineError::KeyChanged { .. }
                        | EngineError::Handshake { .. }
                        | EngineError::Spawn { .. }
                        | EngineError::Refused { kind: RefusalKind::Limit, .. }
                );
                let why = chain(&error);
                if crosses && unreachable {
                    self.hopeless = Some(why.clone());
                }
                self.climbed.failure.get_or_insert(error);
                self.missed(rung, why);
            }
        }
    }

    /// For a rung in this round.
    fn time(&self, crosses: bool) -> Duration {
        let planned = self.rungs.plan.time / self.rungs.plan.rounds.max(1);
        match self.rungs.rtt {
            Some(rtt) if crosses => planned.max(TRIPS_AND + rtt * TRIPS),
            _ => planned,
        }
    }

    fn measure(&mut self, rung: Rung) -> Result<RungRound> {
        let on = self.on;
        let moving = move |rate| on(Step::Moving { rung, rate });
        let streams = self.rungs.plan.options.streams.unwrap_or(self.rungs.plan.streams);
        let bytes = self.bytes(rung);
        match rung {
            Rung::Read => {
                let hand = self.source.as_mut().ok_or_else(|| unseen("the source's end"))?;
                self.rungs.read(hand)
            }
            Rung::Write => {
                let hand = self.sink.as_mut().ok_or_else(|| unseen("the sink's end"))?;
                self.rungs.write(hand)
            }
            Rung::MemoryOne => self.rungs.memory(1, &moving),
            Rung::Memory => self.rungs.memory(streams, &moving),
            Rung::Protected => {
                self.rungs.copy(SampleContent::Memory, bytes, Some(streams), None, &moving)
            }
            Rung::ReadSend => {
                self.forget();
                self.rungs.copy(SampleContent::Files, bytes, None, None, &moving)
            }
            Rung::SendWrite => self.copy_to_scratch(SampleContent::Zeros, bytes, &moving),
            Rung::Whole => {
                self.forget();
                match self.rungs.plan.target {
                    Some(_) => self.copy_to_scratch(SampleContent::Files, bytes, &moving),
                    None => self.rungs.copy(SampleContent::Files, bytes, None, None, &moving),
                }
            }
        }
    }

    fn copy_to_scratch(
        &mut self,
        content: SampleContent,
        bytes: u64,
        moving: &(dyn Fn(Rate) + Sync),
    ) -> Result<RungRound> {
        let sink = self.sink.as_mut().ok_or_else(|| unseen("the sink's end"))?;
        let target = sink.fresh()?;
        let round = self.rungs.copy(content, bytes, None, Some(target), moving);
        // Its room is given back at once.
        sink.fresh()?;
        round
    }

    /// Has the source's page cache forget what is copied next; a source that cannot says so in its
    /// own rung.
    fn forget(&mut self) {
        let options = CopyOptions { sample: Some(LOOK), ..self.rungs.plan.options.clone() };
        if let Some(source) = &mut self.source {
            let _ = source.forget(&options);
        }
    }

    /// How much a copy copies: what the slowest part of it moved so far would move in the time.
    fn bytes(&self, rung: Rung) -> u64 {
        if let Some(size) = self.rungs.plan.size {
            return size.get();
        }
        let parts: &[Rung] = match rung {
            Rung::ReadSend => &[Rung::Read, Rung::Protected],
            Rung::SendWrite => &[Rung::Protected, Rung::Write],
            Rung::Whole => &[Rung::ReadSend, Rung::SendWrite],
            _ => &[Rung::Memory],
        };
        let last = |rung: &Rung| {
            let report = self.climbed.rungs.iter().find(|report| report.rung == *rung)?;
            Some(report.rounds.last()?.throughput_bps.bytes_per_second())
        };
        let own = last(&rung);
        let speed = own.or_else(|| parts.iter().filter_map(last).min()).unwrap_or(0);
        let bytes = speed as f64 * self.rungs.time.as_secs_f64();
        let room = self.climbed.ends.sink.as_ref().and_then(|sink| sink.free_bytes);
        let room = match rung {
            Rung::SendWrite | Rung::Whole => room.map_or(u64::MAX, Bytes::get) / ROOM_PART,
            _ => u64::MAX,
        };
        (bytes as u64).clamp(LEAST_BYTES, MOST_BYTES).min(room)
    }

    fn keep(&mut self, rung: Rung, round: RungRound) {
        let told = round.reason.as_ref().map(|reason| reason.facts.rtt_min_ms);
        if let Some(rtt) = told.filter(|rtt| *rtt > 0.0) {
            let least = self.climbed.rtt_ms.map_or(rtt, |known| known.min(rtt));
            self.climbed.rtt_ms = Some(least);
            self.rungs.rtt = Duration::try_from_secs_f64(least / 1e3).ok();
        }
        let Some(report) = self.climbed.rungs.iter_mut().find(|one| one.rung == rung) else {
            return;
        };
        if let Some(alone) = &round.alone {
            report.note.clone_from(&alone.how);
        }
        if rung == Rung::Memory
            && let Some(reason) = &round.reason
        {
            report.title = format!("memory to memory, {} streams", reason.facts.streams);
        }
        report.rounds.push(round);
        let per_second = |round: &RungRound| {
            let mean = round.bytes.get() as f64 / round.files as f64;
            round.throughput_bps.bps() as f64 / 8.0 / mean.max(1.0)
        };
        let median = report
            .median()
            .map(|round| (round.throughput_bps, (round.files > 1).then(|| per_second(round))));
        report.throughput_bps = median.map(|(rate, _)| rate);
        report.files_per_second = median.and_then(|(_, files)| files);
        (self.on)(Step::Ended(report));
    }

    fn missed(&mut self, rung: Rung, why: String) {
        let what = rung.title().to_owned();
        if !self.climbed.gaps.iter().any(|gap| gap.what == what) {
            self.climbed.gaps.push(Gap { what, why: why.clone() });
        }
        if let Some(report) = self.climbed.rungs.iter_mut().find(|one| one.rung == rung) {
            if report.rounds.is_empty() {
                report.note = why;
            }
            (self.on)(Step::Ended(report));
        }
    }

    /// Examines both hosts for what they could reach, and lets go of them: what was made is removed
    /// here.
    fn end(self) -> Climbed {
        let Climber { mut climbed, rungs, source, sink, .. } = self;
        climbed.interrupted = rungs.stop.load(Ordering::Relaxed);
        let rtt = rungs.rtt.unwrap_or_default();
        let rate = goal(&climbed.rungs);
        for (end, hand) in [(End::Sender, source), (End::Receiver, sink)] {
            let Some(mut hand) = hand else { continue };
            if climbed.interrupted {
                continue;
            }
            let (view, host) = match end {
                End::Sender => (&mut climbed.ends.source, "the source's host"),
                End::Receiver => (&mut climbed.ends.sink, "the sink's host"),
            };
            match hand.examine(rate, rtt) {
                Ok(findings) => {
                    // What another right would show, not what this kernel does not have.
                    let unseen =
                        |one: &&Finding| one.verdict == Verdict::Unseen && !one.commands.is_empty();
                    climbed.gaps.extend(findings.iter().filter(unseen).map(|one| Gap {
                        what: format!("{host}: {}", one.title),
                        why: one.seen.clone(),
                    }));
                    if let Some(view) = view {
                        view.findings = findings;
                    }
                }
                Err(error) => {
                    let what = format!("{host}: its settings");
                    climbed.gaps.push(Gap { what, why: chain(&error) });
                }
            }
        }
        climbed
    }
}

fn unseen(what: &str) -> EngineError {
    EngineError::Failed {
        peer: what.to_owned(),
        reason: "it could not be reached, see above".to_owned(),
        again: false,
    }
}
