//! The attributes of an entry: mode, times, owner, extended attributes, access control lists.
//!
//! The source reads them ([`Capture`]), the sink applies them ([`Keeper`]). The sink may be unable
//! to apply an attribute, because it lacks a privilege or the file system lacks the attribute. It
//! then counts and reports the attribute, and the file does not fail.
//!
//! A copy has the extended attributes of the user, the file capabilities and the access control
//! lists. It does not have the other ones (`trusted.*`, `security.selinux`), which each host
//! decides on.

mod keeper;

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;

use longhaul_core::plan::{OwnerMode, TreeOptions};
use longhaul_core::wire::FilePath;
use longhaul_core::wire::copy::{Owner, XATTRS_LIMIT_BYTES, Xattr};
use longhaul_sys::users;
use rustix::buffer::spare_capacity;
use rustix::fs::{getxattr, listxattr};
use rustix::io::Errno;

use crate::copy::tree::{FileKind, Metadata};

pub(super) use keeper::{Attributes, Keeper, NO_OWNERS};

/// Capabilities of a program, as good as set-id bits.
const CAPABILITY: &[u8] = b"security.capability";
/// Access control list of a file.
const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The access control list that new files in a directory get.
const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// Returns whether an extended attribute is copied.
fn is_carried(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name == CAPABILITY || is_acl(name)
}

fn is_acl(name: &[u8]) -> bool {
    name == ACL_ACCESS || name == ACL_DEFAULT
}

/// Returns a path to an open file for calls that take no descriptor (proc(5)). It remains valid if
/// the file is renamed or removed.
pub(super) fn by_descriptor(fd: impl std::os::fd::AsFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// The longest list of names and the longest value (linux/limits.h: `XATTR_LIST_MAX`,
/// `XATTR_SIZE_MAX`).
const XATTR_MAX_BYTES: usize = 64 << 10;

/// Reads the attributes of the source's files.
pub(in crate::copy) struct Capture {
    owner: OwnerMode,
    xattrs: bool,
    users: HashMap<u32, Option<String>>,
    groups: HashMap<u32, Option<String>>,
}

impl Capture {
    pub(in crate::copy) fn new(options: &TreeOptions) -> Self {
        Capture {
            owner: options.owner,
            xattrs: options.xattrs,
            users: HashMap::new(),
            groups: HashMap::new(),
        }
    }

    /// Returns the owner of a file, if it is to be kept.
    pub(in crate::copy) fn owner(&mut self, metadata: &Metadata) -> Option<Owner> {
        let Metadata { uid, gid, .. } = *metadata;
        match self.owner {
            OwnerMode::Ignore => None,
            OwnerMode::Numbers => Some(Owner { uid, gid, user: None, group: None }),
            OwnerMode::Names => {
                let user = self.users.entry(uid).or_insert_with(|| users::user_name(uid)).clone();
                let group =
                    self.groups.entry(gid).or_insert_with(|| users::group_name(gid)).clone();
                Some(Owner { uid, gid, user, group })
            }
        }
    }

    /// Returns the extended attributes of an open file, or of a handle on it, if they are to be
    /// kept.
    pub(in crate::copy) fn xattrs(
        &self,
        fd: impl AsFd,
        metadata: &Metadata,
    ) -> io::Result<Vec<Xattr>> {
        // A link has none that a user may see.
        if !self.xattrs || metadata.kind == FileKind::Symlink {
            return Ok(Vec::new());
        }
        let path = by_descriptor(fd);
        let mut names = Vec::with_capacity(XATTR_MAX_BYTES);
        match listxattr(&path, spare_capacity(&mut names)) {
            Ok(_) => {}
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        let mut xattrs = Vec::new();
        let mut total = 0;
        for name in names.split(|byte| *byte == 0).filter(|name| is_carried(name)) {
            let mut value = Vec::with_capacity(XATTR_MAX_BYTES);
            match getxattr(&path, name, spare_capacity(&mut value)) {
                Ok(_) => {}
                // Removed meanwhile.
                Err(Errno::NODATA) => continue,
                Err(error) => return Err(error.into()),
            }
            value.shrink_to_fit();
            total += name.len() + value.len();
            if total > XATTRS_LIMIT_BYTES {
                return Err(Errno::TOOBIG.into());
            }
            // A name from the kernel holds no NUL.
            xattrs.extend(FilePath::new(name).map(|name| Xattr { name, value }));
        }
        Ok(xattrs)
    }
}
