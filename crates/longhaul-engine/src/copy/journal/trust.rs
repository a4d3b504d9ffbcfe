//! Tells the files that only this user can have written from others.

use rustix::fs::{FileType, Stat};
use rustix::process::geteuid;

/// Returns whether only this user can have written the file: a regular file of this user with one
/// name, without write permission for the group and others. An access control list that grants more
/// shows in the bits of the group.
pub(in crate::copy) fn is_own(stat: &Stat) -> bool {
    is_of_user(stat) && stat.st_nlink == 1 && stat.st_mode & 0o022 == 0
}

/// Returns whether the file is a regular file of this user. Others may be able to write to it.
pub(in crate::copy) fn is_of_user(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_uid == geteuid().as_raw()
}
