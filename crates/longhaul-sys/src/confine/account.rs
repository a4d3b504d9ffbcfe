//! The account that a process started as root switches to.

use std::ffi::CString;
use std::io;

use super::only_thread;
use crate::users;

/// A user and a group to which a process started as root can switch permanently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The user's name, which determines the supplementary groups; `None` for a number without an
    /// entry.
    name: Option<CString>,
    uid: u32,
    gid: u32,
}

/// The reason why `USER[:GROUP]` is not an account to run as.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccountError {
    /// There is no such user.
    #[error("there is no user '{0}'")]
    NoUser(String),
    /// There is no such group.
    #[error("there is no group '{0}'")]
    NoGroup(String),
    /// A user number without an entry has no group.
    #[error("user {0} has no entry and therefore no group; add a group as USER:GROUP")]
    GroupMissing(u32),
    /// The account is root, which keeps all rights.
    #[error("'{0}' is root, which keeps all rights")]
    Root(String),
}

impl Account {
    /// Looks up the account `USER[:GROUP]`, each part a name or a number.
    ///
    /// # Errors
    /// The account does not exist or is root.
    pub fn find(text: &str) -> Result<Self, AccountError> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let no_user = || AccountError::NoUser(user.to_owned());
        let by_name = users::account(user);
        let entry = by_name.or_else(|| users::account(&users::user_name(user.parse().ok()?)?));
        let (name, uid, own) = match entry {
            Some(entry) => (Some(entry.name), entry.uid, Some(entry.gid)),
            None => (None, number(user).ok_or_else(no_user)?, None),
        };
        let gid = match group {
            Some(group) => users::group_id(group)
                .or_else(|| number(group))
                .ok_or_else(|| AccountError::NoGroup(group.to_owned()))?,
            None => own.ok_or(AccountError::GroupMissing(uid))?,
        };
        if uid == 0 || gid == 0 {
            return Err(AccountError::Root(text.to_owned()));
        }
        Ok(Account { name, uid, gid })
    }

    /// Returns the user id.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Switches to this account: user, group, supplementary groups, no capabilities, and no further
    /// privileges for programs executed later (`PR_SET_NO_NEW_PRIVS`).
    ///
    /// # Errors
    /// The kernel refuses, root rights remain, or the process has other threads. The process must
    /// exit then, because it may have lost only part of its rights.
    pub fn assume(&self) -> io::Result<()> {
        only_thread()?;
        self.set_groups()?;
        let (uid, gid) = (self.uid, self.gid);
        // SAFETY: these calls take only numbers. The C library's functions, not the bare system
        // calls, change all threads (nptl(7)).
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
        // SAFETY: takes a number alone.
        if unsafe { libc::setresuid(u32::MAX, 0, u32::MAX) } == 0 {
            return left("a saved user id");
        }
        Ok(())
    }
}

fn number(text: &str) -> Option<u32> {
    // The calls interpret the largest number as "unchanged".
    text.parse().ok().filter(|number| *number != u32::MAX)
}

fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_names_or_numbers_and_never_root() {
        let nobody = Account::find("nobody").unwrap();
        assert_eq!(Account::find(&nobody.uid.to_string()), Ok(nobody.clone()));
        assert!(nobody.uid() > 0 && nobody.name.is_some());
        let bare = Account::find("3999999999:3999999998").unwrap();
        assert_eq!((bare.uid, bare.gid, bare.name), (3_999_999_999, 3_999_999_998, None));
        for (text, error) in [
            ("no such user", AccountError::NoUser("no such user".into())),
            ("", AccountError::NoUser(String::new())),
            ("4294967295:1", AccountError::NoUser("4294967295".into())),
            ("nobody:no such group", AccountError::NoGroup("no such group".into())),
            ("3999999999", AccountError::GroupMissing(3_999_999_999)),
            ("root", AccountError::Root("root".into())),
            ("0", AccountError::Root("0".into())),
            ("nobody:root", AccountError::Root("nobody:root".into())),
        ] {
            assert_eq!(Account::find(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_process_with_threads_keeps_its_user() {
        // The test's thread is not the only one.
        let error = Account::find("nobody").unwrap().assume().unwrap_err();
        assert!(error.to_string().contains("threads, not one"), "{error}");
    }
}
