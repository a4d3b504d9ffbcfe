use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};

use super::only_thread;

/// The rights that are asked for: those of Linux 6.15. An older kernel enforces those it knows.
const KNOWN: ABI = ABI::V7;

/// The files that a process may open from now on, each path with all that is beneath it. A path
/// that does not exist is left out.
#[derive(Debug, Clone, Default)]
pub struct FileRules {
    /// What may be read and listed.
    pub read: Vec<PathBuf>,
    /// What may be read, changed, made and removed.
    pub write: Vec<PathBuf>,
    /// Devices may be made there too.
    pub devices: bool,
}

/// How far the kernel enforces the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confinement {
    /// All of them.
    Full,
    /// Those that this kernel knows.
    Partial,
}

/// Why files are not confined.
#[derive(Debug, thiserror::Error)]
pub enum NotConfined {
    /// Built without Landlock, or older than Linux 5.13.
    #[error("this kernel has no Landlock (Linux 5.13 and later)")]
    Missing,
    /// Built with it, and started without.
    #[error("Landlock is not among this kernel's security modules (the option lsm= at boot)")]
    Disabled,
    /// It would forbid hard links between directories.
    #[error("the Landlock of this kernel allows no hard links between directories (Linux 5.19)")]
    Links,
    /// The kernel refuses.
    #[error("the kernel does not take the Landlock rules: {0}")]
    Refused(String),
}

/// Confines this process to the files of `rules` by Landlock (landlock(7)): nothing else can be
/// opened, made, removed or executed by a path. What is open already stays usable, and metadata
/// (stat, mode, owner, times) is not covered. Other processes cannot be sent signals.
///
/// # Errors
/// The kernel has no Landlock or refuses; nothing is confined then.
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

/// The kernel's version of Landlock (linux/landlock.h, `LANDLOCK_CREATE_RULESET_VERSION`).
fn version() -> Result<libc::c_long, NotConfined> {
    const VERSION_FLAG: u32 = 1;
    let nothing = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag the call takes no structure and makes nothing.
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
    // A rule for a file may name the rights of files alone.
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
