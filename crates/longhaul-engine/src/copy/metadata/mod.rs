//! The attributes of an entry: mode, times, owner, extended attributes, access control lists.
//!
//! The source reads them ([`Capture`]), the sink applies them ([`Keeper`]). An attribute that the
//! sink cannot keep, because it lacks a privilege or the file system lacks the attribute, fails no
//! file: it is counted and reported.
//!
//! Of the extended attributes those of the user, the file capabilities and the access control
//! lists are carried. The others (`trusted.*`, `security.selinux`) are a host's own business, and
//! a peer has no say in them.

mod capture;
mod keeper;

pub(super) use capture::Capture;
pub(super) use keeper::{Attributes, Keeper, NO_OWNERS};

/// Capabilities of a program, as good as set-id bits.
const CAPABILITY: &[u8] = b"security.capability";
/// Access control list of a file.
const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// Access control list of a directory that new files in it get.
const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// Returns whether an extended attribute is copied.
fn is_carried(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name == CAPABILITY || is_acl(name)
}

fn is_acl(name: &[u8]) -> bool {
    name == ACL_ACCESS || name == ACL_DEFAULT
}

/// The path by which the calls that take no descriptor reach one (proc(5)): it stays with the
/// file, whatever becomes of its name.
fn by_descriptor(fd: impl std::os::fd::AsFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}
