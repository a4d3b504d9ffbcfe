//! Applies attributes at the sink, and counts those that it cannot apply.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

use longhaul_core::plan::{CopyOptions, OwnerMode};
use longhaul_core::result::{Kept, NotKept};
use longhaul_core::wire::copy::{Entry, Owner, Xattr};
use longhaul_sys::users;
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags, chmod, chown, chownat,
    fchmod, fchown, fremovexattr, fsetxattr, fstat, futimens, openat, setxattr, utimensat,
};
use rustix::io::Errno;

use super::{ACL_ACCESS, CAPABILITY, by_descriptor, is_acl, is_carried};
use crate::lock;

/// The attributes of an entry, besides its bytes.
#[derive(Debug, Clone, Default)]
pub(in crate::copy) struct Attributes {
    pub(in crate::copy) mode: u32,
    pub(in crate::copy) mtime_seconds: i64,
    pub(in crate::copy) mtime_ns: u32,
    more: Option<Arc<ExtraAttributes>>,
}

/// Attributes that few entries have.
#[derive(Debug)]
struct ExtraAttributes {
    owner: Option<Owner>,
    xattrs: Vec<Xattr>,
}

impl Attributes {
    /// Takes the attributes of `entry`.
    pub(in crate::copy) fn of(entry: &mut Entry) -> Self {
        let (owner, xattrs) = (entry.owner.take(), std::mem::take(&mut entry.xattrs));
        let more = (owner.is_some() || !xattrs.is_empty())
            .then(|| Arc::new(ExtraAttributes { owner, xattrs }));
        Attributes {
            mode: entry.mode,
            mtime_seconds: entry.mtime_seconds,
            mtime_ns: entry.mtime_ns,
            more,
        }
    }

    fn owner(&self) -> Option<&Owner> {
        self.more.as_ref()?.owner.as_ref()
    }

    fn xattrs(&self) -> &[Xattr] {
        self.more.as_ref().map_or(&[], |more| &more.xattrs)
    }

    fn times(&self) -> Timestamps {
        let time =
            Timespec { tv_sec: self.mtime_seconds, tv_nsec: self.mtime_ns.min(999_999_999).into() };
        Timestamps { last_access: time, last_modification: time }
    }
}

/// The reason for attributes that a server sets only for keys with the option `owners`.
pub(in crate::copy) const NO_OWNERS: &str = "the server sets owners, set-id bits, capabilities and devices only for keys with the option \
     'owners'";

/// Applies attributes to entries at the sink, and counts those that it cannot apply.
pub(in crate::copy) struct Keeper {
    preserve: bool,
    owner: OwnerMode,
    xattrs: bool,
    /// Owners, set-id bits and file capabilities may be given.
    may_own: bool,
    umask: u32,
    users: Mutex<HashMap<String, Option<u32>>>,
    groups: Mutex<HashMap<String, Option<u32>>>,
    missed: Mutex<BTreeMap<Kept, NotKept>>,
}

impl Keeper {
    /// Creates a keeper for a copy with `options`. The client may choose owners if `may_own` is
    /// true.
    pub(in crate::copy) fn new(options: &CopyOptions, may_own: bool) -> Self {
        Keeper {
            preserve: options.preserve,
            owner: options.tree.owner,
            xattrs: options.tree.xattrs,
            may_own,
            umask: umask(),
            users: Mutex::default(),
            groups: Mutex::default(),
            missed: Mutex::default(),
        }
    }

    /// Returns whether a new file needs only the source's mode, reduced by the umask, at its
    /// creation.
    pub(in crate::copy) fn is_plain(&self) -> bool {
        !self.preserve && self.owner == OwnerMode::Ignore && !self.xattrs
    }

    /// Gives an open file or directory its attributes. `existing` is the mode of the file that it
    /// replaces, which stays unless modes are preserved. `shown` is its path, for messages.
    pub(in crate::copy) fn apply_attributes(
        &self,
        file: impl AsFd,
        attributes: &Attributes,
        existing: Option<u32>,
        shown: &Path,
    ) {
        let file = file.as_fd();
        // In this order: a change of owner clears capabilities and set-user-id bits.
        let owned = match attributes.owner().map(|owner| (owner, fstat(file))) {
            Some((owner, Ok(stat))) => {
                self.change_owner(&stat, owner, shown, |uid, gid| fchown(file, uid, gid))
            }
            _ => false,
        };
        if self.xattrs {
            for Xattr { name, value } in attributes.xattrs() {
                let name = name.as_bytes();
                let what = if is_acl(name) { Kept::Acls } else { Kept::Xattrs };
                if name == CAPABILITY && !self.may_own {
                    self.miss(what, shown, format!("file capabilities are dropped; {NO_OWNERS}"));
                    continue;
                }
                let set = if is_carried(name) {
                    fsetxattr(file, name, value, XattrFlags::empty())
                } else {
                    Err(Errno::PERM)
                };
                self.note(what, shown, set);
            }
            // The default list of the directory has given one to a file that has none at the
            // source.
            if !attributes.xattrs().iter().any(|xattr| xattr.name.as_bytes() == ACL_ACCESS) {
                let _ = fremovexattr(file, ACL_ACCESS);
            }
        }
        self.note_set_id(attributes, shown);
        let mode = Mode::from_raw_mode(self.mode(attributes, existing, owned));
        self.note(Kept::Mode, shown, fchmod(file, mode));
        if self.preserve {
            self.note(Kept::Times, shown, futimens(file, &attributes.times()));
        }
    }

    /// Gives a link or a special file, which cannot be opened, its attributes. It is `name` in
    /// `dir` and was just made there.
    pub(in crate::copy) fn apply_to_node(
        &self,
        (dir, name): (impl AsFd, &OsStr),
        is_link: bool,
        attributes: &Attributes,
        shown: &Path,
    ) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let node: OwnedFd = openat(&dir, name, flags, Mode::empty())?;
        let path = by_descriptor(&node);
        let owned = match attributes.owner() {
            Some(owner) => self.change_owner(&fstat(&node)?, owner, shown, |uid, gid| {
                if is_link {
                    chownat(&dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
                } else {
                    chown(&path, uid, gid)
                }
            }),
            None => false,
        };
        if !is_link {
            for Xattr { name, value } in attributes.xattrs().iter().filter(|_| self.xattrs) {
                let name = name.as_bytes();
                if is_carried(name) && (self.may_own || name != CAPABILITY) {
                    let set = setxattr(&path, name, value, XattrFlags::empty());
                    self.note(if is_acl(name) { Kept::Acls } else { Kept::Xattrs }, shown, set);
                }
            }
            self.note_set_id(attributes, shown);
            let mode = Mode::from_raw_mode(self.mode(attributes, None, owned));
            self.note(Kept::Mode, shown, chmod(&path, mode));
        }
        if self.preserve {
            let times = attributes.times();
            self.note(Kept::Times, shown, utimensat(&dir, name, &times, AtFlags::SYMLINK_NOFOLLOW));
        }
        Ok(())
    }

    /// Lets this user list, enter and write to the directory `name` in `dir`, which was just made
    /// with these rights: the umask can have removed some.
    pub(in crate::copy) fn open_to_owner(&self, dir: impl AsFd, name: &OsStr) -> io::Result<()> {
        if self.umask & 0o700 == 0 {
            return Ok(());
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made: OwnedFd = openat(dir, name, flags, Mode::empty())?;
        Ok(chmod(by_descriptor(&made), Mode::from_raw_mode(0o700))?)
    }

    /// Returns the attributes that could not be kept so far.
    pub(in crate::copy) fn not_kept(&self) -> Vec<NotKept> {
        lock(&self.missed).values().cloned().collect()
    }

    /// Returns the mode of a file. It is the source's mode if modes are preserved; else that of the
    /// replaced file, or the source's mode reduced by the umask. The set-user-id and set-group-id
    /// bits are kept only with the owner.
    fn mode(&self, attributes: &Attributes, existing: Option<u32>, owned: bool) -> u32 {
        let mask = if owned { 0o7777 } else { 0o777 };
        match (self.preserve, existing) {
            (true, _) => attributes.mode & mask,
            (false, Some(mode)) => mode,
            (false, None) => attributes.mode & 0o777 & !self.umask,
        }
    }

    /// Gives the owner and the group as far as they differ; true when both are as they should be.
    fn change_owner(
        &self,
        stat: &Stat,
        owner: &Owner,
        shown: &Path,
        change: impl Fn(Option<Uid>, Option<Gid>) -> rustix::io::Result<()>,
    ) -> bool {
        let by_name = self.owner == OwnerMode::Names;
        let find = |known: &Mutex<HashMap<_, _>>, name: &Option<String>, lookup: fn(&str) -> _| {
            let name = name.as_ref().filter(|_| by_name)?;
            *lock(known).entry(name.clone()).or_insert_with(|| lookup(name))
        };
        let uid = find(&self.users, &owner.user, users::user_id).unwrap_or(owner.uid);
        let gid = find(&self.groups, &owner.group, users::group_id).unwrap_or(owner.gid);
        // The largest number means no change to chown(2), and belongs to no user.
        let valid = uid != u32::MAX && gid != u32::MAX;
        if !self.may_own {
            if (stat.st_uid, stat.st_gid) != (uid, gid) {
                self.miss(Kept::Owner, shown, NO_OWNERS.to_owned());
            }
            return false;
        }
        let mut done = valid;
        // The group first: once the file is given away, only root may change it.
        if valid && stat.st_gid != gid {
            let changed = change(None, Some(Gid::from_raw(gid)));
            done &= changed.is_ok();
            self.note(Kept::Group, shown, changed);
        }
        if valid && stat.st_uid != uid {
            let changed = change(Some(Uid::from_raw(uid)), None);
            done &= changed.is_ok();
            self.note(Kept::Owner, shown, changed);
        }
        done
    }

    fn note(&self, what: Kept, shown: &Path, outcome: rustix::io::Result<()>) {
        if let Err(error) = outcome {
            self.miss(what, shown, io::Error::from(error).to_string());
        }
    }

    /// Counts an attribute that is not kept; the first one is the example.
    fn miss(&self, what: Kept, shown: &Path, reason: String) {
        let mut missed = lock(&self.missed);
        let example = shown.display().to_string();
        let entry =
            missed.entry(what).or_insert_with(|| NotKept { what, count: 0, example, reason });
        entry.count += 1;
    }

    /// Counts set-id bits that come with the owner and are dropped with it.
    fn note_set_id(&self, attributes: &Attributes, shown: &Path) {
        if !self.may_own && attributes.owner().is_some() && attributes.mode & 0o6000 != 0 {
            self.miss(Kept::Mode, shown, format!("set-id bits are dropped; {NO_OWNERS}"));
        }
    }
}

/// Returns the process's umask without changing it, which umask(2) cannot.
fn umask() -> u32 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
            u32::from_str_radix(line.trim(), 8).ok()
        })
        .unwrap_or(0o022)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_is_open_to_its_owner_under_any_umask() {
        let dir = tempfile::tempdir().unwrap();
        let (parent, made) = (std::fs::File::open(dir.path()).unwrap(), dir.path().join("made"));
        std::fs::create_dir(&made).unwrap();
        std::fs::set_permissions(&made, PermissionsExt::from_mode(0o100)).unwrap();
        let mut keeper = Keeper::new(&CopyOptions::default(), true);
        for (umask, mode) in [(0o022, 0o100), (0o622, 0o700)] {
            keeper.umask = umask;
            keeper.open_to_owner(&parent, OsStr::new("made")).unwrap();
            assert_eq!(made.metadata().unwrap().permissions().mode() & 0o777, mode);
        }
    }
}
