//! A climb with both ends in this process, whose path is loopback.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_core::plan::{CopyOptions, Protection};
use longhaul_core::result::{End, Rung};
use longhaul_core::wire::{RefusalKind, Service};

use super::{LadderPlan, Openers, Step, Way, climb, serve};
use crate::copy::{self, Tree};
use crate::error::{EngineError, Result};
use crate::flow::{self, FlowLimits};
use crate::serve::{InProcess, Services};
use crate::session::{ServedSession, Session};

/// The far end, for one session.
struct Far {
    /// Copies break.
    broken: bool,
}

impl Services for Far {
    fn refusal(&self, service: Service, _: bool) -> Option<(RefusalKind, String)> {
        let broken = self.broken && service == Service::Copy;
        broken.then(|| (RefusalKind::NotAuthorised, "no copies today".to_owned()))
    }

    fn run(&self, service: Service, session: ServedSession) -> Result<()> {
        let stop = AtomicBool::new(false);
        match service {
            Service::Test => flow::serve(session, &FlowLimits::default()),
            Service::Rung => serve(session, &Tree::anywhere(), &stop),
            _ => copy::serve(session, &Tree::anywhere(), &stop),
        }
    }
}

/// Opens sessions with far ends in this process.
#[derive(Default)]
struct Fars {
    broken: bool,
    started: Vec<InProcess>,
}

impl Openers for Fars {
    fn open(&mut self, _: End, service: Service) -> Result<Session> {
        let (far, session) = InProcess::start(Far { broken: self.broken }, service)?;
        self.started.push(far);
        Ok(session)
    }

    fn done(&mut self) {}
}

impl Drop for Fars {
    fn drop(&mut self) {
        self.started.drain(..).for_each(InProcess::finish);
    }
}

fn plan(way: Way, source: &Path, target: &Path) -> LadderPlan {
    let protection = Protection::Hashed;
    LadderPlan {
        way,
        source: Some(source.to_owned()),
        target: Some(target.to_owned()),
        options: CopyOptions { protection, recursive: true, ..CopyOptions::default() },
        time: Duration::from_millis(300),
        size: None,
        rounds: 1,
        streams: 2,
    }
}

#[test]
fn all_rungs_are_measured_either_way_and_nothing_stays() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    fs::create_dir(&target).unwrap();
    fs::write(&source, vec![7; 5 << 20]).unwrap();
    for way in [Way::Push, Way::Pull, Way::Local] {
        let plan = plan(way, &source, &target);
        let mut openers = Fars::default();
        let seen = std::sync::Mutex::new(Vec::new());
        let climbed = climb(&plan, &mut openers, &AtomicBool::new(false), &|step| {
            if let Step::Ended(report) = step {
                seen.lock().unwrap().push(report.rung);
            }
        });
        drop(openers);
        assert!(climbed.failure.is_none() && !climbed.interrupted, "{:?}", climbed.failure);
        assert_eq!(seen.into_inner().unwrap(), Rung::ALL, "{:?}", plan.way);
        for report in &climbed.rungs {
            let round = &report.rounds[0];
            assert!(round.throughput_bps.bps() > 0 && round.bytes.get() > 0, "{report:?}");
            assert!(round.source_host.is_some() && round.sink_host.is_some());
        }
        // Copies are no more than there is; of memory there is more.
        let of = |rung| climbed.rungs.iter().find(|one| one.rung == rung).unwrap();
        assert_eq!(of(Rung::Whole).rounds[0].bytes.get(), 5 << 20);
        assert!(of(Rung::Whole).rounds[0].copy.is_some());
        assert!(of(Rung::Memory).rounds[0].reason.is_some());
        assert!(!climbed.ends.source.unwrap().findings.is_empty());
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    }
    assert_eq!(fs::read(&source).unwrap(), vec![7; 5 << 20]);
}

#[test]
fn what_is_refused_is_a_gap_and_the_rest_goes_on() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let source = dir.path().join("source");
    fs::write(&source, vec![7; 1 << 20]).unwrap();
    let plan = plan(Way::Push, &source, dir.path());
    let mut openers = Fars { broken: true, started: Vec::new() };
    let climbed = climb(&plan, &mut openers, &AtomicBool::new(false), &|_| {});
    // The far end removes what it made once it hears that the client has gone.
    drop(openers);
    let measured: Vec<_> = climbed
        .rungs
        .iter()
        .filter(|one| one.throughput_bps.is_some())
        .map(|one| one.rung)
        .collect();
    assert_eq!(measured, [Rung::Read, Rung::MemoryOne, Rung::Memory, Rung::Write]);
    assert!(
        climbed.gaps.iter().any(|gap| gap.why.contains("no copies today")),
        "{:?}",
        climbed.gaps
    );
    assert!(matches!(climbed.failure, Some(EngineError::Refused { .. })));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_climb_that_is_stopped_has_what_it_measured() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let source = dir.path().join("source");
    fs::write(&source, vec![7; 1 << 20]).unwrap();
    let plan = plan(Way::Push, &source, dir.path());
    let stop = AtomicBool::new(false);
    let climbed = climb(&plan, &mut Fars::default(), &stop, &|step| {
        if let Step::Ended(report) = step
            && report.rung == Rung::MemoryOne
        {
            stop.store(true, Ordering::Relaxed);
        }
    });
    assert!(climbed.interrupted);
    let measured = climbed.rungs.iter().filter(|one| one.throughput_bps.is_some()).count();
    assert_eq!(measured, 2);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}
