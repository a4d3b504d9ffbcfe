//! `FILE.part`, the file of a recording until the recording is complete.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Opens the empty file `part` for one recorder, which holds a lock on it until it closes it. Empties
/// a file that no recorder holds: its recorder was killed, or its disk was full.
///
/// # Errors
/// Another recorder holds the file, it is not a regular file of this user with one name, or it cannot
/// be created.
pub(super) fn open_part(part: &Path) -> Result<File> {
    let shown = part.display();
    let (file, new) = match OpenOptions::new().write(true).create_new(true).open(part) {
        Ok(file) => (file, true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => (open_existing(part)?, false),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot create the recording {shown}"));
        }
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            bail!("another recording writes to {shown}; give another FILE")
        }
        // Some network file systems have no locks. Only one recorder can create the file.
        Err(_) if new => {}
        Err(error) => {
            let failed = format!("cannot lock {shown}; remove it if no recording writes to it");
            return Err(error).context(failed);
        }
    }
    // The last recorder may have completed its recording meanwhile.
    let opened = file.metadata().with_context(|| format!("cannot examine {shown}"))?;
    if !fs::symlink_metadata(part).is_ok_and(|named| is_same(&named, &opened)) {
        bail!("another recording used {shown} at the same time; repeat the command");
    }
    file.set_len(0).with_context(|| format!("cannot empty {shown}"))?;
    Ok(file)
}

/// Opens the file that an earlier recorder of this user has left. Does not wait for a pipe.
fn open_existing(part: &Path) -> Result<File> {
    let shown = part.display();
    // Checked before it is opened, because opening a device can have side effects.
    let named = fs::symlink_metadata(part).with_context(|| format!("cannot examine {shown}"))?;
    let foreign = || format!("{shown} is not a file of this user; remove it or give another FILE");
    if !is_own(&named) {
        bail!(foreign());
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(flags.bits().cast_signed());
    let file = options.open(part).with_context(|| format!("cannot open the recording {shown}"))?;
    if !file.metadata().is_ok_and(|opened| is_own(&opened) && is_same(&named, &opened)) {
        bail!(foreign());
    }
    Ok(file)
}

/// Returns whether the file is a regular file of this user with one name.
fn is_own(file: &Metadata) -> bool {
    file.is_file() && file.uid() == geteuid().as_raw() && file.nlink() == 1
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_second_recorder_is_refused_until_the_first_ends() {
        let dir = tempfile::tempdir().unwrap();
        let part = dir.path().join("r.part");
        let mut first = open_part(&part).unwrap();
        first.write_all(b"a window").unwrap();
        let refused = open_part(&part).unwrap_err().to_string();
        assert!(refused.contains("another recording") && refused.contains("r.part"), "{refused}");
        assert_eq!(fs::read(&part).unwrap(), b"a window");
        drop(first);
        let second = open_part(&part).unwrap();
        assert_eq!(second.metadata().unwrap().len(), 0, "the killed recording is replaced");
    }

    #[test]
    fn only_a_file_of_this_user_with_one_name_is_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("precious"), "kept").unwrap();
        symlink(at("precious"), at("link.part")).unwrap();
        symlink(at("missing"), at("dangling.part")).unwrap();
        fs::hard_link(at("precious"), at("name.part")).unwrap();
        let (pipe, mode) = (at("pipe.part"), rustix::fs::Mode::from_raw_mode(0o600));
        rustix::fs::mkfifoat(rustix::fs::CWD, pipe, mode).unwrap();
        for name in ["link.part", "dangling.part", "name.part", "pipe.part"] {
            let refused = open_part(&at(name)).unwrap_err().to_string();
            assert!(refused.contains("is not a file of this user"), "{name}: {refused}");
        }
        assert_eq!(fs::read(at("precious")).unwrap(), b"kept");
        assert!(!at("missing").exists());
    }
}
