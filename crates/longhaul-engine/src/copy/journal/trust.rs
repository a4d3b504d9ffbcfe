//! Which files in a directory that others may write to are believed.

use rustix::fs::{FileType, Stat};
use rustix::process::geteuid;

/// Whether nobody but this user can have written the file: a regular file of this user under one
/// name, without write permission for the group and others. An access control list that grants
/// more shows in the bits of the group.
pub(in crate::copy) fn is_own(stat: &Stat) -> bool {
    is_of_user(stat) && stat.st_nlink == 1 && stat.st_mode & 0o022 == 0
}

/// Whether the file is a regular file of this user, which others may be able to write to.
pub(in crate::copy) fn is_of_user(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_uid == geteuid().as_raw()
}
