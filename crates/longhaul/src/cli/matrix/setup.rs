use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use longhaul_core::plan::MatrixPlan;
use longhaul_lab::archive::{Archive, Data, Header};
use longhaul_lab::data::{Source, check_room, sources};
use longhaul_lab::drivers::Driver;
use longhaul_lab::plan::{self, Builtin};
use longhaul_lab::{LabError, Network, host};

use super::MatrixArgs;
use crate::exit::{self, Coded};

/// How the names of directories begin that were not named by the user.
const DIR_PREFIX: &str = "longhaul-matrix-";

/// All that a matrix needs, checked.
pub(super) struct Prepared {
    pub(super) plan: MatrixPlan,
    pub(super) out: PathBuf,
    pub(super) archive: Archive,
    /// One for each entry of the plan.
    pub(super) sources: Vec<Option<Source>>,
    /// The directory on the disk that receives the copies.
    pub(super) scratch: PathBuf,
}

/// Settles plan, directory and data. Nothing is run yet, and nothing is written when the plan
/// makes no sense or the disk has no room.
pub(super) fn prepare(
    args: &MatrixArgs,
    drivers: &[Box<dyn Driver>],
    network: &dyn Network,
) -> Result<Prepared, Coded> {
    if args.resume { resume(args, drivers) } else { start(args, drivers, network) }
}

fn start(
    args: &MatrixArgs,
    drivers: &[Box<dyn Driver>],
    network: &dyn Network,
) -> Result<Prepared, Coded> {
    let plan = plan_of(args, drivers)?;
    let sources = sources(&plan).map_err(coded)?;
    let out = args.out.clone().unwrap_or_else(new_dir);
    refuse_used(&out)?;
    let had_out = out.exists();
    let scratch = args.scratch.clone().unwrap_or_else(|| out.clone());
    fs::create_dir_all(&out)
        .with_context(|| format!("cannot create {}", out.display()))
        .and_then(|()| absolute(&scratch))
        .map_err(files)
        .and_then(|scratch| {
            check_room(sources.iter().flatten(), &scratch).map_err(coded)?;
            let largest = sources.iter().flatten().max_by_key(|source| source.bytes);
            let header = header(&plan, largest, &scratch, network);
            let archive = Archive::create(&out, &header).map_err(coded)?;
            Ok((scratch, archive))
        })
        .map(|(scratch, archive)| Prepared { plan, out: out.clone(), archive, sources, scratch })
        .inspect_err(|_| {
            if !had_out {
                // Only when it is empty: then nothing was begun.
                let _ = fs::remove_dir(&out);
            }
        })
}

fn resume(args: &MatrixArgs, drivers: &[Box<dyn Driver>]) -> Result<Prepared, Coded> {
    let out = match &args.out {
        Some(out) => out.clone(),
        None => latest_dir().map_err(|error| Coded::new(exit::USAGE, error))?,
    };
    let archive = Archive::open(&out).map_err(coded)?;
    let plan = archive.header().map_err(coded)?.plan;
    if args.says_what() {
        let given = plan::fingerprint(&plan_of(args, drivers)?);
        let archived = plan::fingerprint(&plan);
        if given != archived {
            return Err(coded(LabError::OtherPlan { path: out, archived, given }));
        }
    }
    plan::check(&plan, drivers).map_err(coded)?;
    let sources = sources(&plan).map_err(coded)?;
    let scratch = absolute(args.scratch.as_ref().unwrap_or(&out)).map_err(files)?;
    check_room(sources.iter().flatten(), &scratch).map_err(coded)?;
    Ok(Prepared { plan, out, archive, sources, scratch })
}

/// The plan with what the arguments change in it.
fn plan_of(args: &MatrixArgs, drivers: &[Box<dyn Driver>]) -> Result<MatrixPlan, Coded> {
    let mut plan = match (&args.plan, args.quick) {
        (Some(file), _) => plan::load(file, drivers),
        (None, true) => Builtin::Quick.plan(drivers),
        (None, false) => Builtin::Default.plan(drivers),
    }
    .map_err(|error| Coded::new(exit::USAGE, error))?;
    if let Some(data) = &args.data {
        plan.disk.data = Some(absolute(data).map_err(files)?.to_string_lossy().into_owned());
    }
    plan.disk.size = args.size.unwrap_or(plan.disk.size);
    plan.repeats = args.repeats.unwrap_or(plan.repeats);
    if !args.only.is_empty() {
        plan::select(&mut plan, &args.only).map_err(coded)?;
    }
    plan::check(&plan, drivers).map_err(coded)?;
    Ok(plan)
}

fn header(
    plan: &MatrixPlan,
    source: Option<&Source>,
    scratch: &Path,
    network: &dyn Network,
) -> Header {
    let now = jiff::Timestamp::now();
    let mut facts = host::facts();
    let mut disk = |name: &str, path: &Path| {
        facts.extend(host::file_system(path).map(|kind| (name.to_owned(), kind)));
    };
    if let Some(source) = source {
        disk("File system of the source", source.path.parent().unwrap_or(&source.path));
        disk("File system of the copies", scratch);
    }
    Header {
        plan: plan.clone(),
        started_at: now.round(jiff::Unit::Second).unwrap_or(now).to_string(),
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        network: network.describe(),
        data: source.map(|source| Data {
            path: source.path.display().to_string(),
            bytes: source.bytes,
            files: source.files,
        }),
        facts,
    }
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

/// `longhaul-matrix-20261121-091500`, by the local clock.
fn new_dir() -> PathBuf {
    let now = jiff::Zoned::now();
    PathBuf::from(now.strftime(&format!("{DIR_PREFIX}%Y%m%d-%H%M%S")).to_string())
}

/// The directory whose name sorts last, which is the latest.
fn latest_dir() -> anyhow::Result<PathBuf> {
    let here = fs::read_dir(".").context("cannot read the current directory")?;
    here.flatten()
        .map(|entry| PathBuf::from(entry.file_name()))
        .filter(|name| name.to_string_lossy().starts_with(DIR_PREFIX) && name.is_dir())
        .max()
        .with_context(|| {
            format!("there is no {DIR_PREFIX}* in this directory to resume; name one with --out")
        })
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    fs::canonicalize(path).with_context(|| format!("cannot use {}", path.display()))
}

fn files(error: anyhow::Error) -> Coded {
    Coded { code: exit::FILES, error }
}

/// The laboratory's error with the exit code that it stands for.
pub(in crate::cli) fn coded(error: LabError) -> Coded {
    let code = match &error {
        LabError::PlanSyntax { .. }
        | LabError::PlanFault { .. }
        | LabError::UnknownTool { .. }
        | LabError::WrongWorkload { .. }
        | LabError::UnknownEntry { .. }
        | LabError::NotEmpty { .. }
        | LabError::OtherPlan { .. } => exit::USAGE,
        LabError::Network { .. } => exit::HOST,
        LabError::Task { .. } | LabError::Helper { .. } => exit::FAILED,
        _ => exit::FILES,
    };
    Coded::new(code, error)
}
