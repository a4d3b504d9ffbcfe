//! The end of a diagnosis at the host of its files.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use longhaul_core::doctor::{DiskFacts, Target, examine, summary};
use longhaul_core::plan::CopyOptions;
use longhaul_core::result::{
    DiskStepReport, EndView, Finding, HostUse, SubsetReport, TargetSource,
};
use longhaul_core::units::Rate;
use longhaul_sys::cpu::HostTimes;
use longhaul_sys::doctor::{FactSource, Query, read_facts};
use longhaul_sys::host::{CoreTimes, boot_id, core_times, throttled};
use twox_hash::XxHash3_64;

use super::scratch::{Scratch, directory_of, free_bytes};
use super::write::{Writing, write};
use crate::copy::{SourcePlan, SourceRoot, Tree, forget, read, subset_of_source};
use crate::doctor::core_speeds;
use crate::error::{EngineError, Result};
use crate::session::{DEFAULT_PORT, Throttle};

/// The duration of the measurement of each speed of a core.
const CORE_TIME: Duration = Duration::from_millis(120);

/// The role of an end.
#[derive(Debug, Clone)]
pub(super) enum Role {
    /// The source, with the paths to read.
    Source(Vec<PathBuf>),
    /// The sink, with the target of the copy; `None` if the bytes are dropped.
    Sink(Option<PathBuf>),
}

/// An end at this host.
pub(super) struct LocalEnd {
    plan: SourcePlan,
    scratch: Option<Scratch>,
    watch: HostLoadWatch,
    /// The directory's path as the system knows it.
    directory: String,
    /// The directory's path as the client named it.
    shown: String,
}

/// A local end that was opened, with the first examination of its host.
pub(super) struct OpenedLocalEnd {
    pub(super) local_end: LocalEnd,
    pub(super) view: EndView,
    pub(super) subset: Option<SubsetReport>,
    /// The reason why nothing can be read or written here.
    pub(super) failure: Option<EngineError>,
}

impl LocalEnd {
    /// Examines the host and the files to copy, or creates a directory to write to. After a failure
    /// the host can still be examined.
    pub(super) fn open(tree: &Tree, role: &Role, options: &CopyOptions) -> OpenedLocalEnd {
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
        let subset = match role {
            Role::Source(paths) if !paths.is_empty() => {
                subset_of_source(&plan, options).map_err(&mut note).ok()
            }
            _ => None,
        };
        let scratch = match role {
            Role::Sink(Some(target)) => Scratch::make(tree, target).map_err(&mut note).ok(),
            _ => None,
        };
        let mut view = examine_host(&directory);
        view.directory.clone_from(&shown);
        view.free_bytes = free;
        let watch = HostLoadWatch::new();
        let local_end = LocalEnd { plan, scratch, watch, directory, shown };
        OpenedLocalEnd { local_end, view, subset, failure }
    }

    pub(super) fn read(
        &self,
        options: &CopyOptions,
        time: Duration,
        rate: Option<Rate>,
        stop: &AtomicBool,
    ) -> Result<DiskStepReport> {
        read(&self.plan, options, time, &Throttle::new(rate), stop)
    }

    pub(super) fn write(&mut self, writing: Writing, stop: &AtomicBool) -> Result<DiskStepReport> {
        let scratch = self.scratch.as_mut().ok_or_else(no_directory)?;
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
        self.scratch.as_mut().ok_or_else(no_directory)?.fresh()
    }

    pub(super) fn sample(&mut self) -> HostUse {
        self.watch.sample()
    }

    /// Returns the findings of `longhaul doctor` for this rate and round-trip time.
    pub(super) fn examine(&self, rate: Rate, rtt: Duration) -> Vec<Finding> {
        let facts = read_facts(&FactSource::host(), &query(&self.directory));
        let target = Target {
            rate,
            rate_from: TargetSource::Measured,
            rtt,
            rtt_from: TargetSource::Measured,
            to: None,
            port: DEFAULT_PORT,
        };
        let mut findings = examine(&facts, &[], &target);
        // Clients must not learn the location of a server's root.
        for finding in findings.iter_mut().filter(|one| one.subject == self.directory) {
            finding.subject.clone_from(&self.shown);
        }
        findings
    }
}

fn no_directory() -> EngineError {
    let source = std::io::ErrorKind::NotFound.into();
    EngineError::File { operation: "write at", path: Path::new("the sink").to_owned(), source }
}

/// Returns the path of an open directory.
fn real_path(fd: i32) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    Some(path.to_string_lossy().into_owned())
}

fn query(directory: &str) -> Query {
    let disks = if directory.is_empty() { Vec::new() } else { vec![directory.to_owned()] };
    Query { disks, ..Query::default() }
}

/// Examines the host and the disk under `directory`.
fn examine_host(directory: &str) -> EndView {
    let facts = read_facts(&FactSource::host(), &query(directory));
    let disk = facts.disks.first();
    let of = |get: fn(&DiskFacts) -> Option<String>| disk.and_then(get);
    let [memory_copy_bps, seal_bps] = core_speeds(CORE_TIME);
    EndView {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        about: Some(summary(&facts)),
        // Hashed, because other programs may derive secrets from the identifier.
        boot: boot_id().map(|id| format!("{:016x}", XxHash3_64::oneshot(id.as_bytes()))),
        directory: String::new(),
        file_system: of(|disk| disk.mount.as_ref().ok().map(|mount| mount.kind.clone())),
        device: of(|disk| disk.device.clone().ok().flatten()),
        free_bytes: None,
        memory_copy_bps,
        seal_bps,
        findings: Vec::new(),
    }
}

/// Samples the load of this host.
pub(super) struct HostLoadWatch {
    at: Instant,
    times: Option<HostTimes>,
    cores: Vec<(u32, CoreTimes)>,
    throttled: Option<Duration>,
}

impl HostLoadWatch {
    pub(super) fn new() -> Self {
        HostLoadWatch {
            at: Instant::now(),
            times: HostTimes::now().ok(),
            cores: core_times(),
            throttled: throttled(),
        }
    }

    /// Returns the load since the last call.
    pub(super) fn sample(&mut self) -> HostUse {
        let before = std::mem::replace(self, HostLoadWatch::new());
        let seconds = (self.at - before.at).as_secs_f64().max(1e-3);
        let shares = self.times.zip(before.times);
        let interrupts = self.cores.iter().map(|(core, now)| {
            let earlier = before.cores.iter().find(|(other, _)| other == core);
            let earlier = earlier.map_or_else(CoreTimes::default, |(_, times)| *times);
            (*core, now.interrupts.saturating_sub(earlier.interrupts).as_secs_f64() / seconds)
        });
        let (interrupts_core, interrupts) =
            interrupts.max_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or_default();
        let held = self.throttled.unwrap_or_default();
        let held = held.saturating_sub(before.throttled.unwrap_or_default());
        HostUse {
            busy: shares.map_or(0.0, |(now, then)| now.busy_since(&then)),
            stolen: shares.map_or(0.0, |(now, then)| now.stolen_since(&then)),
            interrupts_core,
            interrupts: interrupts.min(1.0),
            throttled: (held.as_secs_f64() / seconds).min(1.0),
        }
    }
}
