//! One end of a copy, where its files are: does there what needs no other end.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longhaul_core::doctor::{DiskFacts, Target, examine, summary};
use longhaul_core::plan::CopyOptions;
use longhaul_core::result::{AloneReport, EndView, Finding, HostUse, SampleReport, TargetSource};
use longhaul_core::units::Rate;
use longhaul_sys::doctor::{Query, Source, read_facts};

use super::scratch::{Scratch, directory_of, free_bytes};
use super::watch::HostWatch;
use super::write::{Writing, write};
use crate::copy::{SourcePlan, SourceRoot, Tree, forget, look, read};
use crate::doctor::core_speeds;
use crate::error::{EngineError, Result};
use crate::session::DEFAULT_PORT;

/// For how long a core is asked what it copies in memory, and what it seals.
const CORE_TIME: Duration = Duration::from_millis(120);

/// Which end this is.
#[derive(Debug, Clone)]
pub(super) enum Role {
    /// What is read.
    Source(Vec<PathBuf>),
    /// Where to a copy would go; `None` where bytes are dropped.
    Sink(Option<PathBuf>),
}

/// The place where one end works.
pub(super) struct LocalEnd {
    plan: SourcePlan,
    scratch: Option<Scratch>,
    watch: HostWatch,
    /// A path of the directory that the system knows.
    directory: String,
    /// The same as the client named it.
    shown: String,
}

/// A local end that was opened, and what was seen.
pub(super) struct Opened {
    pub(super) local_end: LocalEnd,
    pub(super) view: EndView,
    pub(super) sample: Option<SampleReport>,
    /// Why nothing can be read or written here.
    pub(super) failure: Option<EngineError>,
}

impl LocalEnd {
    /// Looks at the host and at what there is to copy, or makes a directory to write to. Where that
    /// fails, the host is there to be looked at all the same.
    pub(super) fn open(tree: &Tree, role: &Role, options: &CopyOptions) -> Opened {
        let (directory, paths) = match role {
            Role::Source(paths) => (paths.first().map(|path| directory_of(tree, path)), &paths[..]),
            Role::Sink(target) => (target.as_ref().map(|path| directory_of(tree, path)), &[][..]),
        };
        let roots = paths.iter().cloned().map(SourceRoot::Path).collect();
        let plan = SourcePlan { tree: tree.clone(), roots };
        let handle = directory.as_ref().map(|path| tree.open_dir(path));
        let (real, free) = match &handle {
            Some(Ok(dir)) => (real_path(dir.as_raw_fd()), free_bytes(dir, tree.min_free())),
            _ => (None, None),
        };
        let shown = directory.unwrap_or_default().to_string_lossy().into_owned();
        let directory = real.unwrap_or_else(|| shown.clone());
        let mut failure = None;
        let mut note = |error| failure = Some(error);
        let sample = match role {
            Role::Source(paths) if !paths.is_empty() => {
                look(&plan, options).map_err(&mut note).ok()
            }
            _ => None,
        };
        let scratch = match role {
            Role::Sink(Some(target)) => Scratch::make(tree, target).map_err(&mut note).ok(),
            _ => None,
        };
        let mut view = see(&directory);
        view.directory.clone_from(&shown);
        view.free_bytes = free;
        let watch = HostWatch::new();
        let local_end = LocalEnd { plan, scratch, watch, directory, shown };
        Opened { local_end, view, sample, failure }
    }

    pub(super) fn read(
        &self,
        options: &CopyOptions,
        time: Duration,
        stop: &AtomicBool,
    ) -> Result<AloneReport> {
        read(&self.plan, options, time, stop)
    }

    pub(super) fn write(&mut self, writing: Writing, stop: &AtomicBool) -> Result<AloneReport> {
        let scratch = self.scratch.as_mut().ok_or_else(nowhere)?;
        scratch.fresh()?;
        let (dir, path) = scratch.directory()?;
        let written = write((&dir, &path), writing, self.plan.tree.min_free(), stop);
        scratch.fresh()?;
        written
    }

    pub(super) fn forget(&self, options: &CopyOptions) -> Result<()> {
        forget(&self.plan, options)
    }

    pub(super) fn fresh(&mut self) -> Result<PathBuf> {
        self.scratch.as_mut().ok_or_else(nowhere)?.fresh()
    }

    pub(super) fn look(&mut self) -> HostUse {
        self.watch.look()
    }

    /// What `longhaul doctor` finds here for this rate over this time.
    pub(super) fn examine(&self, rate: Rate, rtt: Duration) -> Vec<Finding> {
        let facts = read_facts(&Source::host(), &query(&self.directory));
        let target = Target {
            rate,
            rate_from: TargetSource::Measured,
            rtt,
            rtt_from: TargetSource::Measured,
            to: None,
            port: DEFAULT_PORT,
        };
        let mut findings = examine(&facts, &[], &target);
        // Where a server's root is, is its own affair.
        for finding in findings.iter_mut().filter(|one| one.subject == self.directory) {
            finding.subject.clone_from(&self.shown);
        }
        findings
    }
}

fn nowhere() -> EngineError {
    let source = std::io::ErrorKind::NotFound.into();
    EngineError::File { operation: "write at", path: Path::new("the sink").to_owned(), source }
}

/// The path that the kernel knows an open directory by.
fn real_path(fd: i32) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    Some(path.to_string_lossy().into_owned())
}

fn query(directory: &str) -> Query {
    let disks = if directory.is_empty() { Vec::new() } else { vec![directory.to_owned()] };
    Query { disks, ..Query::default() }
}

/// The host, and the disk under `directory`.
fn see(directory: &str) -> EndView {
    let facts = read_facts(&Source::host(), &query(directory));
    let disk = facts.disks.first();
    let of = |get: fn(&DiskFacts) -> Option<String>| disk.and_then(get);
    let [memory_copy_bps, seal_bps] = core_speeds(CORE_TIME);
    EndView {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        about: Some(summary(&facts)),
        directory: String::new(),
        file_system: of(|disk| disk.mount.as_ref().ok().map(|mount| mount.kind.clone())),
        device: of(|disk| disk.device.clone().ok().flatten()),
        free_bytes: None,
        memory_copy_bps,
        seal_bps,
        findings: Vec::new(),
    }
}
