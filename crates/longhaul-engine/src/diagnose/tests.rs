//! Diagnoses over loopback with both ends in this process.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_core::plan::{CopyOptions, Protection};
use longhaul_core::result::{DiagnosisStep, End, StepReport};
use longhaul_core::wire::{RefusalKind, Service};

use super::{CopyDirection, DiagnosePlan, DiagnoseProgress, Openers, run, serve};
use crate::copy::{self, Tree};
use crate::error::{EngineError, Result};
use crate::serve::{InProcess, Services};
use crate::session::{ServedSession, Session};
use crate::test::{self, TestLimits};

/// The server of one session.
struct FarServer {
    /// True if copies are refused.
    broken: bool,
}

impl Services for FarServer {
    fn refusal(&self, service: Service, _: bool) -> Option<(RefusalKind, String)> {
        let broken = self.broken && service == Service::Copy;
        broken.then(|| (RefusalKind::NotAuthorized, "no copies today".to_owned()))
    }

    fn run(&self, service: Service, session: ServedSession) -> Result<()> {
        let stop = AtomicBool::new(false);
        match service {
            Service::Test => test::serve(session, &TestLimits::default()),
            Service::Diagnose => serve(session, &Tree::anywhere(), &stop),
            _ => copy::serve(session, &Tree::anywhere(), &stop),
        }
    }
}

/// Opens sessions with servers in this process.
#[derive(Default)]
struct FarServers {
    broken: bool,
    started: Vec<InProcess>,
}

impl Openers for FarServers {
    fn open(&mut self, _: End, service: Service) -> Result<Session> {
        let (far, session) = InProcess::start(FarServer { broken: self.broken }, service)?;
        self.started.push(far);
        Ok(session)
    }

    fn done(&mut self) {}
}

impl Drop for FarServers {
    fn drop(&mut self) {
        self.started.drain(..).for_each(InProcess::finish);
    }
}

fn plan(way: CopyDirection, source: &Path, target: &Path) -> DiagnosePlan {
    let protection = Protection::Hashed;
    DiagnosePlan {
        way,
        source: Some(source.to_owned()),
        target: Some(target.to_owned()),
        options: CopyOptions { protection, recursive: true, ..CopyOptions::default() },
        time: Duration::from_millis(100),
        size: None,
        rounds: 1,
        streams: 2,
    }
}

#[test]
fn every_step_is_measured_and_nothing_remains() {
    let dir = tempfile::tempdir().unwrap();
    let source = &dir.path().join("source");
    fs::write(source, vec![7; 5 << 20]).unwrap();
    let measured = |way: CopyDirection| {
        let target = dir.path().join(format!("{way:?}"));
        fs::create_dir(&target).unwrap();
        let plan = plan(way, source, &target);
        let once = || {
            let mut openers = FarServers::default();
            let seen = std::sync::Mutex::new(Vec::new());
            let outcome = run(&plan, &mut openers, &AtomicBool::new(false), &|step| {
                if let DiagnoseProgress::Ended(report) = step {
                    seen.lock().unwrap().push(report.step);
                }
            });
            drop(openers);
            assert!(outcome.failure.is_none() && !outcome.interrupted, "{:?}", outcome.failure);
            assert_eq!(seen.into_inner().unwrap(), DiagnosisStep::ALL, "{:?}", plan.way);
            // A host that withholds the processor can leave a step without a byte in its time.
            let moved = |report: &StepReport| report.rounds[0].bytes.get() > 0;
            outcome.steps.iter().all(moved).then_some(outcome)
        };
        let outcome =
            (0..5).find_map(|_| once()).expect("one of five diagnoses measures all steps");
        for report in &outcome.steps {
            let round = &report.rounds[0];
            assert!(round.throughput_bps.bps() > 0 && round.bytes.get() > 0, "{report:?}");
            assert!(round.source_host.is_some() && round.sink_host.is_some());
        }
        // A copy has at most the source's bytes; memory has more.
        let of = |step| outcome.steps.iter().find(|one| one.step == step).unwrap();
        assert_eq!(of(DiagnosisStep::Whole).rounds[0].bytes.get(), 5 << 20);
        assert!(of(DiagnosisStep::Whole).rounds[0].copy.is_some());
        assert!(of(DiagnosisStep::Memory).rounds[0].reason.is_some());
        assert!(!outcome.ends.source.unwrap().findings.is_empty());
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    };
    std::thread::scope(|scope| {
        for way in [CopyDirection::Push, CopyDirection::Pull, CopyDirection::Local] {
            scope.spawn(move || measured(way));
        }
    });
    assert_eq!(fs::read(source).unwrap(), vec![7; 5 << 20]);
}

#[test]
fn a_refused_step_is_a_gap_and_the_others_run() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::write(&source, vec![7; 1 << 20]).unwrap();
    let plan = plan(CopyDirection::Push, &source, dir.path());
    let mut openers = FarServers { broken: true, started: Vec::new() };
    let outcome = run(&plan, &mut openers, &AtomicBool::new(false), &|_| {});
    // The server removes its directory when it notices that the client has left.
    drop(openers);
    let measured: Vec<_> = outcome
        .steps
        .iter()
        .filter(|one| one.throughput_bps.is_some())
        .map(|one| one.step)
        .collect();
    assert_eq!(
        measured,
        [
            DiagnosisStep::Read,
            DiagnosisStep::MemoryOne,
            DiagnosisStep::Memory,
            DiagnosisStep::Write
        ]
    );
    assert!(
        outcome.gaps.iter().any(|gap| gap.why.contains("no copies today")),
        "{:?}",
        outcome.gaps
    );
    assert!(matches!(outcome.failure, Some(EngineError::Refused { .. })));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_stopped_diagnosis_has_its_measurements() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::write(&source, vec![7; 1 << 20]).unwrap();
    let plan = plan(CopyDirection::Push, &source, dir.path());
    let stop = AtomicBool::new(false);
    let outcome = run(&plan, &mut FarServers::default(), &stop, &|step| {
        if let DiagnoseProgress::Ended(report) = step
            && report.step == DiagnosisStep::MemoryOne
        {
            stop.store(true, Ordering::Relaxed);
        }
    });
    assert!(outcome.interrupted);
    let measured = outcome.steps.iter().filter(|one| one.throughput_bps.is_some()).count();
    assert_eq!(measured, 2);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}
