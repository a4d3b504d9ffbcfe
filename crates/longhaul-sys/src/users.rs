//! Names of users and groups (getpwuid_r(3) and related functions) from the host's name service:
//! files, LDAP or another directory.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;

/// The largest record to read; a group lists its members.
const RECORD_LIMIT_BYTES: usize = 1 << 20;
const RECORD_START_BYTES: usize = 4 << 10;

/// Returns the name of the user with this id; `None` if the user does not exist or the name is not
/// UTF-8.
pub fn user_name(uid: u32) -> Option<String> {
    // SAFETY: every pointer is valid for the call, and the buffer has the given length.
    record(|entry, buffer, found| unsafe {
        libc::getpwuid_r(uid, entry, buffer.as_mut_ptr().cast(), buffer.len(), found)
    })
    .map(|(entry, _buffer)| text(entry.pw_name))?
}

/// Returns the id of the user with this name.
pub fn user_id(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: as above; the name ends with a NUL.
    record(|entry, buffer, found| unsafe {
        libc::getpwnam_r(name.as_ptr(), entry, buffer.as_mut_ptr().cast(), buffer.len(), found)
    })
    .map(|(entry, _buffer): (libc::passwd, _)| entry.pw_uid)
}

/// The parts of a user's entry that are needed to run as that user.
pub(crate) struct PasswdEntry {
    pub(crate) name: CString,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Returns the entry of the user with this name.
pub(crate) fn account(name: &str) -> Option<PasswdEntry> {
    let name = CString::new(name).ok()?;
    // SAFETY: as above.
    record(|entry, buffer, found| unsafe {
        libc::getpwnam_r(name.as_ptr(), entry, buffer.as_mut_ptr().cast(), buffer.len(), found)
    })
    .map(|(entry, _buffer): (libc::passwd, _)| (entry.pw_uid, entry.pw_gid))
    .map(|(uid, gid)| PasswdEntry { name, uid, gid })
}

/// Returns the name of the group with this id.
pub fn group_name(gid: u32) -> Option<String> {
    // SAFETY: as above.
    record(|entry, buffer, found| unsafe {
        libc::getgrgid_r(gid, entry, buffer.as_mut_ptr().cast(), buffer.len(), found)
    })
    .map(|(entry, _buffer)| text(entry.gr_name))?
}

/// Returns the id of the group with this name.
pub fn group_id(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: as above.
    record(|entry, buffer, found| unsafe {
        libc::getgrnam_r(name.as_ptr(), entry, buffer.as_mut_ptr().cast(), buffer.len(), found)
    })
    .map(|(entry, _buffer): (libc::group, _)| entry.gr_gid)
}

/// Calls `lookup` with a growing buffer until the record fits. The buffer contains the record's texts
/// and lives as long as the record.
fn record<T>(
    lookup: impl Fn(*mut T, &mut Vec<u8>, *mut *mut T) -> libc::c_int,
) -> Option<(T, Vec<u8>)> {
    let mut bytes = RECORD_START_BYTES;
    loop {
        let mut buffer = vec![0; bytes];
        let mut entry = MaybeUninit::<T>::uninit();
        let mut found = std::ptr::null_mut();
        match lookup(entry.as_mut_ptr(), &mut buffer, &mut found) {
            0 if found.is_null() => return None,
            // SAFETY: the call found a record and has filled the entry in.
            0 => return Some((unsafe { entry.assume_init() }, buffer)),
            libc::ERANGE if bytes < RECORD_LIMIT_BYTES => bytes *= 4,
            libc::EINTR => {}
            _ => return None,
        }
    }
}

fn text(pointer: *const libc::c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: a field of a record ends with a NUL and lives in its buffer, which the caller holds.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_both_ways() {
        assert_eq!(user_name(0).as_deref(), Some("root"));
        assert_eq!(user_id("root"), Some(0));
        assert_eq!(group_name(0).as_deref(), Some("root"));
        assert_eq!(group_id("root"), Some(0));
    }

    #[test]
    fn an_unknown_name_or_number_is_none() {
        assert_eq!(user_name(3_999_999_999), None);
        assert_eq!(user_id("nobody of this name"), None);
        assert_eq!(group_id("no\0group"), None);
    }
}
