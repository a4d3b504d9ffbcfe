//! Reduces the rights of this process: its user, the files that it may open, access to its memory.
//!
//! A process must call these functions while it has one thread; threads started later inherit the
//! restrictions. No restriction can be removed later.

use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities, set_no_new_privs};

use crate::users;

/// Returns an error if this process has another thread, which would keep its rights.
fn only_thread() -> io::Result<()> {
    match std::fs::read_dir("/proc/self/task")?.count() {
        1 => Ok(()),
        threads => Err(io::Error::other(format!("this process has {threads} threads, not one"))),
    }
}

/// A user and a group to which a process started as root can switch permanently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserAccount {
    /// The user's name, which determines the supplementary groups; `None` for a numeric id without
    /// an entry.
    name: Option<CString>,
    uid: u32,
    gid: u32,
}

/// The reason why a text is not a valid account.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserAccountError {
    /// The user does not exist.
    #[error("there is no user '{0}'")]
    NoUser(String),
    /// The group does not exist.
    #[error("there is no group '{0}'")]
    NoGroup(String),
    /// A numeric user id without an entry has no group.
    #[error("user {0} has no entry and therefore no group; add a group as USER:GROUP")]
    GroupMissing(u32),
    /// The account is root, which keeps all rights.
    #[error("'{0}' is root, which keeps all rights")]
    Root(String),
}

impl UserAccount {
    /// Looks up the account `USER[:GROUP]`, each part a name or a number.
    ///
    /// # Errors
    /// The account does not exist or is root.
    pub fn find(text: &str) -> Result<Self, UserAccountError> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let no_user = || UserAccountError::NoUser(user.to_owned());
        let by_name = users::account(user);
        let entry = by_name.or_else(|| users::account(&users::user_name(user.parse().ok()?)?));
        let (name, uid, own) = match entry {
            Some(entry) => (Some(entry.name), entry.uid, Some(entry.gid)),
            None => (None, number(user).ok_or_else(no_user)?, None),
        };
        let gid = match group {
            Some(group) => users::group_id(group)
                .or_else(|| number(group))
                .ok_or_else(|| UserAccountError::NoGroup(group.to_owned()))?,
            None => own.ok_or(UserAccountError::GroupMissing(uid))?,
        };
        if uid == 0 || gid == 0 {
            return Err(UserAccountError::Root(text.to_owned()));
        }
        Ok(UserAccount { name, uid, gid })
    }

    /// Returns the user id.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Switches to this account: user, group, supplementary groups, no capabilities, and no further
    /// privileges for programs executed later (`PR_SET_NO_NEW_PRIVS`).
    ///
    /// # Errors
    /// The kernel refuses, rights of root remain, or the process has other threads. The process
    /// must then exit, because it may have lost only some of its rights.
    pub fn assume(&self) -> io::Result<()> {
        only_thread()?;
        self.set_groups()?;
        let (uid, gid) = (self.uid, self.gid);
        // SAFETY: the arguments are numbers. The functions of the C library change all threads
        // (nptl(7)); the bare system calls would change only one.
        check(unsafe { libc::setresgid(gid, gid, gid) })?;
        // SAFETY: as above.
        check(unsafe { libc::setresuid(uid, uid, uid) })?;
        rustix::thread::set_no_new_privs(true)?;
        self.verify()
    }

    fn set_groups(&self) -> io::Result<()> {
        // SAFETY: the name ends with a NUL; the list has the one element that is counted.
        check(unsafe {
            match &self.name {
                Some(name) => libc::initgroups(name.as_ptr(), self.gid),
                None => libc::setgroups(1, &self.gid),
            }
        })
    }

    /// Returns an error if any right of root remains.
    fn verify(&self) -> io::Result<()> {
        let left = |what: &str| Err(io::Error::other(format!("{what} of root remains")));
        let status = std::fs::read_to_string("/proc/self/status")?;
        let line = |name: &str| {
            let rest = status.lines().find_map(|line| line.strip_prefix(name));
            rest.into_iter().flat_map(str::split_whitespace).collect::<Vec<_>>()
        };
        let all_are = |name: &str, number: u32| {
            let ids = line(name);
            ids.len() == 4 && ids.iter().all(|id| id.parse() == Ok(number))
        };
        if !all_are("Uid:", self.uid) {
            return left("a user id");
        }
        if !all_are("Gid:", self.gid) || line("Groups:").contains(&"0") {
            return left("a group");
        }
        let none =
            |name: &str| line(name).first().is_some_and(|set| set.bytes().all(|b| b == b'0'));
        if !["CapPrm:", "CapEff:", "CapAmb:"].into_iter().all(none) {
            return left("a capability");
        }
        // SAFETY: the arguments are numbers.
        if unsafe { libc::setresuid(u32::MAX, 0, u32::MAX) } == 0 {
            return left("a saved user id");
        }
        Ok(())
    }
}

fn number(text: &str) -> Option<u32> {
    // The system calls interpret the largest number as "unchanged".
    text.parse().ok().filter(|number| *number != u32::MAX)
}

fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The access rights of Linux 6.15. An older kernel enforces the rights that it supports.
const KNOWN: ABI = ABI::V7;

/// The files that a process may open from now on. Each path includes everything below it. A path
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

/// The part of the rules that the kernel enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confinement {
    /// The kernel enforces all rules.
    Full,
    /// The kernel enforces only the rules that it supports.
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
/// create, remove or execute other files by path. Open files stay usable, and operations on
/// metadata (stat, mode, owner, times) are not restricted. The process cannot send signals to other
/// processes.
///
/// # Errors
/// The kernel has no Landlock or rejects the rules. In this case there is no restriction.
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
    // A rule for a file may contain only access rights of files.
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(KNOWN) };
    ruleset.add_rule(PathBeneath::new(file, access))
}

/// Drops all capabilities except those in `keep`. Programs executed later cannot regain them.
///
/// # Errors
/// The kernel refuses, or the process has other threads.
pub fn keep_capabilities(keep: CapabilitySet) -> io::Result<()> {
    only_thread()?;
    let mut sets = capabilities(None)?;
    sets.permitted &= keep;
    sets.effective &= keep;
    sets.inheritable = CapabilitySet::empty();
    set_capabilities(None, sets)?;
    Ok(set_no_new_privs(true)?)
}

/// Prevents core files, and access by other processes of the same user to the memory of this
/// process and the keys in it (`PR_SET_DUMPABLE`, `RLIMIT_CORE`).
///
/// # Errors
/// The kernel refuses.
pub fn hide_memory() -> io::Result<()> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none)?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_names_or_numbers_and_never_root() {
        let nobody = UserAccount::find("nobody").unwrap();
        assert_eq!(UserAccount::find(&nobody.uid.to_string()), Ok(nobody.clone()));
        assert!(nobody.uid() > 0 && nobody.name.is_some());
        let bare = UserAccount::find("3999999999:3999999998").unwrap();
        assert_eq!((bare.uid, bare.gid, bare.name), (3_999_999_999, 3_999_999_998, None));
        for (text, error) in [
            ("no such user", UserAccountError::NoUser("no such user".into())),
            ("", UserAccountError::NoUser(String::new())),
            ("4294967295:1", UserAccountError::NoUser("4294967295".into())),
            ("nobody:no such group", UserAccountError::NoGroup("no such group".into())),
            ("3999999999", UserAccountError::GroupMissing(3_999_999_999)),
            ("root", UserAccountError::Root("root".into())),
            ("0", UserAccountError::Root("0".into())),
            ("nobody:root", UserAccountError::Root("nobody:root".into())),
        ] {
            assert_eq!(UserAccount::find(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_process_with_threads_keeps_its_user() {
        // The process of a test has other threads.
        let error = UserAccount::find("nobody").unwrap().assume().unwrap_err();
        assert!(error.to_string().contains("threads, not one"), "{error}");
    }

    #[test]
    fn a_process_with_threads_is_not_confined_in_part() {
        let error = confine_files(&FileRules::default()).unwrap_err();
        assert!(error.to_string().contains("threads, not one"), "{error}");
    }
}
