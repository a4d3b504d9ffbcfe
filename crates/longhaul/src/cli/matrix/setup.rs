//! Checks the arguments of a matrix: its plan, directory, data, tools and estimated cost.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use longhaul_core::plan::{DataStore, MatrixPlan, MatrixRow};
use longhaul_core::result::Certificate;
use longhaul_lab::archive::{Archive, Data, MatrixHeader, Tool};
use longhaul_lab::data::{CopyData, MemoryStore, check_room, sources};
use longhaul_lab::drivers::Driver;
use longhaul_lab::plan::{self, SHIPPED, Shipped};
use longhaul_lab::runner::{Cost, changed_tool, check_far_room, digest, find_tools};
use longhaul_lab::{LabError, Network, host};

use super::{MatrixArgs, cost};
use crate::exit::{self, Coded};
use crate::output::print_message;

/// The prefix of the default output directory.
const DIR_PREFIX: &str = "longhaul-matrix-";

/// The checked inputs of a matrix. Nothing is written yet.
pub(super) struct Checked {
    pub(super) plan: MatrixPlan,
    pub(super) out: PathBuf,
    /// The detected tools of the plan.
    pub(super) tools: Vec<Tool>,
    /// The data to copy, one element per row of the plan.
    pub(super) sources: Vec<Option<CopyData>>,
    /// The directory for copies, which is emptied before each run and removed at the end.
    pub(super) scratch: PathBuf,
    /// The directory for copies in memory; `None` if no workload copies to memory.
    pub(super) memory_scratch: Option<PathBuf>,
    /// The digest of this program.
    program_digest: Option<String>,
    /// The data in memory, which are removed when this is dropped.
    _memory: Option<MemoryStore>,
    /// The archive of the matrix to resume.
    archive: Option<Archive>,
    /// The state of the output directory.
    place: Place,
}

/// The state of the output directory before the archive is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It has the archive to resume.
    Resumed,
    /// It is an empty directory of the user.
    Empty,
    /// It does not exist.
    Absent,
}

/// Determines and checks plan, directory and data.
pub(super) fn check(args: &MatrixArgs, drivers: &[Box<dyn Driver>]) -> Result<Checked, Coded> {
    let (out, plan, archive, place) = if args.resume {
        let (out, plan, archive) = continued(args, drivers)?;
        (out, plan, Some(archive), Place::Resumed)
    } else {
        let out = args.out.clone().unwrap_or_else(new_dir);
        let out = std::path::absolute(&out).context("cannot find the current directory")?;
        let plan = plan_of(args, drivers)?;
        refuse_used(&out)?;
        let place = if out.exists() { Place::Empty } else { Place::Absent };
        (out, plan, None, place)
    };
    let tools = find_tools(&plan, drivers);
    let program_digest = env::current_exe().ok().and_then(|program| digest(&program));
    if let Some(archive) = archive.as_ref().filter(|_| !args.mix) {
        refuse_other_programs(archive, &out, program_digest.as_deref(), &tools)?;
    }
    let in_memory = |row: &MatrixRow| [row.work.from, row.work.to].contains(&DataStore::Memory);
    let memory = plan.rows().iter().any(in_memory).then(MemoryStore::create);
    let memory = memory.transpose().map_err(coded)?;
    let sources = sources(&plan, memory.as_ref().map(MemoryStore::path)).map_err(coded)?;
    let is_there = |name: &str| tools.iter().any(|t| t.name == name && t.missing.is_none());
    let cost = Cost::of(&plan, drivers, &sources, &is_there);
    print_message(format_args!("{}: {}", plan.name, cost::words(&cost)));
    if plan.real.is_some() && args.scratch.is_some() {
        let advice = "copies go to the directory of [real] in the plan, at the far end";
        return Err(Coded::new(exit::USAGE, anyhow!("--scratch is for emulated paths; {advice}")));
    }
    let disk = args.scratch.as_deref().map(absolute).transpose().map_err(files)?;
    let existing = disk.as_deref().unwrap_or_else(|| nearest_existing(&out));
    let rows = plan.rows();
    let copied = rows.iter().zip(&sources);
    let copied = copied.filter_map(|(row, source)| Some((source.as_ref()?, row.clients)));
    check_room(copied, plan.real.is_none().then_some(existing)).map_err(coded)?;
    cost::check(&cost, args.yes)?;
    let scratch = match disk {
        // A new directory among the files of the user.
        Some(disk) => {
            let name = out.file_name().unwrap_or_default().to_string_lossy().into_owned();
            disk.join(format!("{name}-scratch"))
        }
        None => out.join("scratch"),
    };
    let memory_scratch = memory.as_ref().map(|memory| memory.path().join("copies"));
    let (tools, _memory) = (tools, memory);
    Ok(Checked {
        plan,
        out,
        tools,
        sources,
        scratch,
        memory_scratch,
        program_digest,
        _memory,
        archive,
        place,
    })
}

impl Checked {
    /// Checks that the far end of a real path has enough space for the copies.
    pub(super) fn check_far_room(&self, network: &mut dyn Network) -> Result<(), Coded> {
        let rows = self.plan.rows();
        let copied = rows.iter().zip(&self.sources);
        let copied: Vec<(&CopyData, u32)> =
            copied.filter_map(|(row, source)| Some((source.as_ref()?, row.clients))).collect();
        check_far_room(network, &self.plan, copied).map_err(|error| self.coded(error))
    }

    /// Creates the archive, or returns the one to resume.
    pub(super) fn archive(&mut self, network: &dyn Network) -> Result<Archive, Coded> {
        match self.archive.take() {
            Some(archive) => Ok(archive),
            None => Archive::create(&self.out, &self.header(network)).map_err(coded),
        }
    }

    /// Removes the output directory after `error` if this process has created the archive and nothing
    /// was run. Returns `error` with its exit code.
    pub(super) fn undo(&self, archive: Archive, error: LabError) -> Coded {
        let unused = archive.runs().is_ok_and(|runs| runs.is_empty());
        if unused && self.place != Place::Resumed {
            // The first error is the reason.
            let _ = archive.discard(self.place == Place::Absent);
        }
        self.coded(error)
    }

    /// Returns an error of the lab with its exit code. On a real path an error of the network is one
    /// of ssh.
    fn coded(&self, error: LabError) -> Coded {
        match error {
            LabError::Network { .. } if self.plan.real.is_some() => {
                Coded::new(exit::UNREACHABLE, error)
            }
            error => coded(error),
        }
    }

    fn header(&self, network: &dyn Network) -> MatrixHeader {
        let now = jiff::Timestamp::now();
        let largest = self.sources.iter().flatten().max_by_key(|source| source.bytes);
        let mut facts = host::facts();
        let mut disk = |name: &str, path: &Path| {
            facts.extend(host::file_system(path).map(|kind| (name.to_owned(), kind)));
        };
        if let Some(source) = largest {
            disk("File system of the source", source.path.parent().unwrap_or(&source.path));
            match &self.plan.real {
                None => disk("File system of the copies", nearest_existing(&self.scratch)),
                Some(real) => {
                    let place = format!("{} at {}", real.directory(), real.far);
                    facts.push(("Directory of the copies".to_owned(), place));
                }
            }
        }
        MatrixHeader {
            plan: self.plan.clone(),
            started_at: now.round(jiff::Unit::Second).unwrap_or(now).to_string(),
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            program_digest: self.program_digest.clone(),
            network: network.describe(),
            data: largest.map(|source| Data {
                path: source.path.display().to_string(),
                bytes: source.bytes,
                files: source.files,
            }),
            facts,
        }
    }
}

/// Returns the archive to resume and its plan. If the arguments select a plan, it must be the same.
fn continued(
    args: &MatrixArgs,
    drivers: &[Box<dyn Driver>],
) -> Result<(PathBuf, MatrixPlan, Archive), Coded> {
    let out = match &args.out {
        Some(out) => out.clone(),
        None => latest_dir().map_err(|error| Coded::new(exit::USAGE, error))?,
    };
    let archive = Archive::open_to_continue(&out).map_err(coded)?;
    let out = absolute(&out).map_err(files)?;
    let plan = archive.header().map_err(coded)?.plan;
    if args.selects_plan() {
        let given = plan::fingerprint(&plan_of(args, drivers)?);
        let archived = plan::fingerprint(&plan);
        if given != archived {
            return Err(coded(LabError::OtherPlan { path: out, archived, given }));
        }
    }
    plan::check(&plan, drivers).map_err(coded)?;
    Ok((out, plan, archive))
}

/// Rejects an archive whose runs used another version of longhaul or of a tool.
fn refuse_other_programs(
    archive: &Archive,
    out: &Path,
    own: Option<&str>,
    tools: &[Tool],
) -> Result<(), Coded> {
    let contents = archive.contents().map_err(coded)?;
    let before = contents.header.program_digest.as_deref();
    let other_own = before.zip(own).filter(|(before, own)| before != own).map(|_| "longhaul");
    match other_own.or_else(|| changed_tool(&contents.tools, tools)) {
        Some(program) => {
            let (path, program) = (out.to_owned(), program.to_owned());
            Err(coded(LabError::OtherProgram { path, program }))
        }
        None => Ok(()),
    }
}

/// Returns the plan with the changes of the arguments. A name without a dot or slash selects a
/// shipped plan, unless such a file exists.
pub(super) fn plan_of(args: &MatrixArgs, drivers: &[Box<dyn Driver>]) -> Result<MatrixPlan, Coded> {
    let usage = |error| Coded::new(exit::USAGE, error);
    let shipped = |name: &str| {
        let known = || SHIPPED.map(|plan| plan.name).join(", ");
        let plan = Shipped::named(name)
            .ok_or_else(|| usage(anyhow!("no plan '{name}'; the shipped plans are {}", known())))?;
        plan.plan(drivers).map_err(coded)
    };
    let mut plan = match &args.plan {
        Some(file) => match file.to_str() {
            Some(name) if !name.contains(['.', '/']) && !file.is_file() => shipped(name)?,
            _ => plan::load(file, drivers).map_err(|error| usage(error.into()))?,
        },
        None => shipped(args.shipped())?,
    };
    plan.scale = args.scale.unwrap_or(plan.scale);
    let omitted = match (&args.far, &mut plan.real) {
        (Some(far), Some(real)) => {
            (real.far, real.address) = (far.clone(), None);
            vec![]
        }
        (Some(far), None) => plan::over_real_path(&mut plan, far, drivers),
        (None, _) => vec![],
    };
    let data = args.data.clone().or(plan.disk.data.take().map(PathBuf::from));
    if let Some(data) = data {
        // Absolute, so that the matrix can be resumed from another directory.
        plan.disk.data = Some(absolute(&data).map_err(files)?.to_string_lossy().into_owned());
    }
    plan.disk.size = args.size.unwrap_or(plan.disk.size);
    plan.repeats = args.repeats.unwrap_or(plan.repeats);
    if !args.only.is_empty() {
        plan::select(&mut plan, &args.only).map_err(coded)?;
    }
    plan::check(&plan, drivers).map_err(coded)?;
    if !omitted.is_empty() {
        print_message(format_args!(
            "omitted the tools that work over emulated paths only: {}",
            omitted.join(", ")
        ));
    }
    Ok(plan)
}

fn refuse_used(out: &Path) -> Result<(), Coded> {
    let used = match fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => {
            let source = anyhow::Error::from(error);
            return Err(files(source.context(format!("cannot use {}", out.display()))));
        }
    };
    if used { Err(coded(LabError::NotEmpty { path: out.to_owned() })) } else { Ok(()) }
}

/// Returns a name such as `longhaul-matrix-20261121-091500`, in local time.
fn new_dir() -> PathBuf {
    let now = jiff::Zoned::now();
    PathBuf::from(now.strftime(&format!("{DIR_PREFIX}%Y%m%d-%H%M%S")).to_string())
}

/// Returns the latest output directory: the last one in the order of names.
fn latest_dir() -> anyhow::Result<PathBuf> {
    let here = fs::read_dir(".").context("cannot read the current directory")?;
    here.flatten()
        .map(|entry| PathBuf::from(entry.file_name()))
        .filter(|name| name.to_string_lossy().starts_with(DIR_PREFIX) && name.is_dir())
        .max()
        .with_context(|| {
            format!("no {DIR_PREFIX}* to resume in this directory; name one with --out")
        })
}

/// Returns the directory, or its nearest ancestor that exists.
fn nearest_existing(dir: &Path) -> &Path {
    dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(dir)
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    fs::canonicalize(path).with_context(|| format!("cannot use {}", path.display()))
}

fn files(error: anyhow::Error) -> Coded {
    Coded { code: exit::FILES, error }
}

/// Reads the output of `longhaul wan selftest --json`.
pub(in crate::cli) fn certificate(path: &Path) -> Result<Certificate, Coded> {
    let cannot = || format!("cannot read the certificate {}", path.display());
    let text = fs::read_to_string(path).with_context(cannot).map_err(files)?;
    let found: Certificate = serde_json::from_str(&text)
        .with_context(|| {
            format!("{} is not the output of 'longhaul wan selftest --json'", path.display())
        })
        .map_err(files)?;
    if found.schema != Certificate::SCHEMA {
        let error = anyhow::anyhow!(
            "{} has the schema {}; this version reads {}",
            path.display(),
            found.schema,
            Certificate::SCHEMA
        );
        return Err(files(error));
    }
    Ok(found)
}

/// Returns an error of the lab with its exit code.
pub(in crate::cli) fn coded(error: LabError) -> Coded {
    let code = match &error {
        LabError::PlanSyntax { .. }
        | LabError::PlanFault { .. }
        | LabError::UnknownTool { .. }
        | LabError::WrongWorkload { .. }
        | LabError::NoTrees { .. }
        | LabError::NoSetting { .. }
        | LabError::NotReal { .. }
        | LabError::OtherProgram { .. }
        | LabError::UnknownEntry { .. }
        | LabError::NotEmpty { .. }
        | LabError::OtherPlan { .. } => exit::USAGE,
        LabError::Network { .. } => exit::HOST,
        LabError::Task { .. } | LabError::Helper { .. } => exit::FAILED,
        _ => exit::FILES,
    };
    Coded::new(code, error)
}
