//! Restricts the files that a process may use, by Landlock.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};

use super::only_thread;

/// The access rights of Linux 6.15. An older kernel enforces those that it knows.
const KNOWN: ABI = ABI::V7;

/// The files that a process may open from now on. Each path includes everything beneath it. A path
/// that does not exist is ignored.
#[derive(Debug, Clone, Default)]
pub struct FileRules {
    /// Files that may be read and directories that may be listed.
    pub read: Vec<PathBuf>,
    /// Files and directories that may be read, changed, created and removed.
    pub write: Vec<PathBuf>,
    /// True if device nodes may be created in the writable directories.
    pub devices: bool,
}

/// The extent to which the kernel enforces the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confinement {
    /// The kernel enforces all rules.
    Full,
    /// The kernel enforces the rules that it knows.
    Partial,
}

/// The reason why files are not confined.
#[derive(Debug, thiserror::Error)]
pub enum NotConfined {
    /// The kernel has no Landlock or is older than Linux 5.13.
    #[error("this kernel has no Landlock (Linux 5.13 and later)")]
    Missing,
    /// The kernel has Landlock, but it is disabled.
    #[error("Landlock is not enabled in this kernel (boot option lsm=)")]
    Disabled,
    /// Landlock before Linux 5.19 would forbid hard links between directories.
    #[error(
        "Landlock in this kernel forbids hard links between directories (Linux 5.19 allows them)"
    )]
    Links,
    /// The kernel refused the rules.
    #[error("the kernel refused the Landlock rules: {0}")]
    Refused(String),
}

/// Restricts this process to the files of `rules` by Landlock (landlock(7)): it cannot open,
/// create, remove or execute other files by path. Open files stay usable, and metadata (stat, mode,
/// owner, times) is not covered. The process cannot send signals to other processes.
///
/// # Errors
/// The kernel has no Landlock or refuses the rules; nothing is restricted then.
pub fn confine_files(rules: &FileRules) -> Result<Confinement, NotConfined> {
    only_thread().map_err(|error| NotConfined::Refused(error.to_string()))?;
    match version()? {
        1 if !rules.write.is_empty() => return Err(NotConfined::Links),
        _ => {}
    }
    let status = apply(rules).map_err(|error| NotConfined::Refused(error.to_string()))?;
    match status.ruleset {
        landlock::RulesetStatus::FullyEnforced => Ok(Confinement::Full),
        landlock::RulesetStatus::PartiallyEnforced => Ok(Confinement::Partial),
        landlock::RulesetStatus::NotEnforced => Err(NotConfined::Missing),
    }
}

/// Returns the kernel's Landlock version (linux/landlock.h, `LANDLOCK_CREATE_RULESET_VERSION`).
fn version() -> Result<libc::c_long, NotConfined> {
    const VERSION_FLAG: u32 = 1;
    let nothing = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag the call takes no structure and creates nothing.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, VERSION_FLAG) };
    if version > 0 {
        return Ok(version);
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Err(NotConfined::Disabled),
        error if error.raw_os_error() == Some(libc::ENOSYS) => Err(NotConfined::Missing),
        error => Err(NotConfined::Refused(error.to_string())),
    }
}

fn apply(rules: &FileRules) -> Result<RestrictionStatus, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut write = AccessFs::from_all(KNOWN) & !(AccessFs::Execute | AccessFs::IoctlDev);
    if !rules.devices {
        write &= !(AccessFs::MakeChar | AccessFs::MakeBlock);
    }
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .scope(Scope::Signal)?
        .create()?;
    for (paths, access) in [(&rules.read, read), (&rules.write, write)] {
        for path in paths {
            ruleset = allow(ruleset, path, access)?;
        }
    }
    ruleset.restrict_self()
}

fn allow(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(file) = PathFd::new(path) else { return Ok(ruleset) };
    // A rule for a file may only contain access rights of files.
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(KNOWN) };
    ruleset.add_rule(PathBeneath::new(file, access))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_not_confined_in_part() {
        let error = confine_files(&FileRules::default()).unwrap_err();
        assert!(error.to_string().contains("threads, not one"), "{error}");
    }
}
