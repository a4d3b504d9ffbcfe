//! Files that grant rights: the identity, `authorized_keys` and `known_hosts`.
//!
//! Such a file is accepted only if no other user can change it, by the rules of sshd's
//! `StrictModes`: the file and every directory above it, up to the home directory or `/`, belong to
//! root or the user, and neither the group nor others may write to them. A directory with the
//! sticky bit is accepted, because nobody can replace the files of others in it. Only the owner may
//! read the identity.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::config_dir::ConfigDir;
use super::exposure::Exposure;
use crate::error::{EngineError, Result};

/// The longest file that is read: some 100,000 keys.
const LENGTH_LIMIT: u64 = 16 << 20;
/// The owner that the kernel shows for users without a mapping in the user namespace
/// (`/proc/sys/kernel/overflowuid`).
const OVERFLOW_UID: u32 = 65534;

/// The permitted readers of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Secrecy {
    /// Anyone.
    Open,
    /// Its owner only.
    Secret,
}

/// Reads the text of the file `name`; `None` if there is none.
///
/// # Errors
/// The file cannot be read, is too long, or other users can change it (or read it, if it is
/// secret).
pub(super) fn read(config: &ConfigDir, name: &str, secrecy: Secrecy) -> Result<Option<String>> {
    let path = config.file(name);
    // Opening a FIFO must not block.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(EngineError::file("read", path)(error)),
    };
    check(config, &path, &file, secrecy)?;
    let mut text = String::new();
    file.take(LENGTH_LIMIT + 1)
        .read_to_string(&mut text)
        .and_then(|read| {
            if read as u64 > LENGTH_LIMIT {
                Err(io::ErrorKind::FileTooLarge.into())
            } else {
                Ok(Some(text))
            }
        })
        .map_err(EngineError::file("read", path))
}

/// Reads the text of a file with a secret, by the same rules as the identity: only its owner may
/// read it, and no other user may change it or a directory above it.
///
/// # Errors
/// The file cannot be read, or other users can read or change it.
pub fn secret_text(path: &Path) -> Result<String> {
    text_of(path, Secrecy::Secret)
}

/// Reads the text of a file that grants rights, by the same rules as `authorized_keys`: anyone may
/// read it, and no other user may change it or a directory above it.
///
/// # Errors
/// The file cannot be read, or other users can change it.
pub fn trusted_text(path: &Path) -> Result<String> {
    text_of(path, Secrecy::Open)
}

fn text_of(path: &Path, secrecy: Secrecy) -> Result<String> {
    let failed = |error: io::Error| EngineError::file("read", path)(error);
    let absolute = std::path::absolute(path).map_err(EngineError::file("read", path))?;
    let parts = absolute.parent().zip(absolute.file_name().and_then(|name| name.to_str()));
    let (parent, name) = parts.ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?;
    let text = read(&ConfigDir::at(parent), name, secrecy)?;
    // The kernel's error, so that the words are those for other missing files.
    text.ok_or_else(|| failed(rustix::io::Errno::NOENT.into()))
}

/// Appends `line`, after a newline if the last line has none because of an editor or an interrupted
/// write. The write is one call, so that a reader never sees half a line.
pub(super) fn append_line(path: &Path, line: &str) -> io::Result<()> {
    let mut file =
        OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(path)?;
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    let start = if last == [b'\n'] { "" } else { "\n" };
    file.write_all(format!("{start}{line}").as_bytes())?;
    file.sync_all()
}

/// Writes a file that only its owner may read; an existing one is replaced.
pub(super) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Checks that the open `file` at `path` is accepted.
fn check(config: &ConfigDir, path: &Path, file: &File, secrecy: Secrecy) -> Result<()> {
    let read = || EngineError::file("read", path);
    let meta = file.metadata().map_err(read())?;
    let owners = Owners::of(config);
    let exposed = |path: &Path| {
        let path = path.to_owned();
        move |exposure| EngineError::Exposed { path, exposure }
    };
    if !meta.is_file() {
        return Err(exposed(path)(Exposure::NoFile));
    }
    owners.check(&meta).map_err(exposed(path))?;
    let mode = meta.mode() & 0o7777;
    if secrecy == Secrecy::Secret && mode & 0o077 != 0 {
        return Err(exposed(path)(Exposure::Readable { mode }));
    }
    let real = path.canonicalize().map_err(read())?;
    let top = home().filter(|home| real.starts_with(home));
    for dir in real.ancestors().skip(1) {
        let meta = dir.metadata().map_err(EngineError::file("read", dir))?;
        owners.check_directory(&meta).map_err(exposed(dir))?;
        if top.as_deref() == Some(dir) {
            break;
        }
    }
    Ok(())
}

fn home() -> Option<PathBuf> {
    let home = PathBuf::from(std::env::var_os("HOME")?);
    home.canonicalize().ok().filter(|home| home.parent().is_some())
}

/// The users whose files are accepted.
struct Owners {
    user: u32,
    also: Option<u32>,
}

impl Owners {
    fn of(config: &ConfigDir) -> Self {
        Owners { user: rustix::process::geteuid().as_raw(), also: config.also_owned_by() }
    }

    fn check(&self, meta: &Metadata) -> std::result::Result<(), Exposure> {
        let (found, mode) = (meta.uid(), meta.mode() & 0o7777);
        if found != 0 && found != self.user && Some(found) != self.also {
            return Err(Exposure::Owner { found, wanted: self.user });
        }
        if mode & 0o022 != 0 { Err(Exposure::Writable { mode }) } else { Ok(()) }
    }

    fn check_directory(&self, meta: &Metadata) -> std::result::Result<(), Exposure> {
        match self.check(meta) {
            // Root's directories have this owner in a user namespace without root.
            Err(Exposure::Owner { found: OVERFLOW_UID, .. }) if !has_root() => Ok(()),
            Err(Exposure::Writable { mode }) if mode & 0o1000 != 0 => Ok(()),
            checked => checked,
        }
    }
}

/// Returns whether this user namespace maps every user including root.
fn has_root() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    struct Place {
        dir: tempfile::TempDir,
        config: ConfigDir,
    }

    impl Place {
        /// Creates a directory `longhaul` in another one, with a file of mode 600.
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let config = ConfigDir::at(dir.path().join("longhaul"));
            config.create().unwrap();
            fs::write(config.file("list"), "text").unwrap();
            let place = Place { dir, config };
            place.mode("longhaul/list", 0o600);
            place
        }

        fn mode(&self, name: &str, mode: u32) {
            fs::set_permissions(self.dir.path().join(name), Permissions::from_mode(mode)).unwrap();
        }

        fn read(&self, secrecy: Secrecy) -> std::result::Result<String, (PathBuf, Exposure)> {
            match read(&self.config, "list", secrecy) {
                Ok(text) => Ok(text.unwrap()),
                Err(EngineError::Exposed { path, exposure }) => Err((path, exposure)),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn a_file_that_only_its_owner_can_change_counts() {
        let place = Place::new();
        assert_eq!(place.read(Secrecy::Secret), Ok("text".to_owned()));
        place.mode("longhaul/list", 0o644);
        assert_eq!(place.read(Secrecy::Open), Ok("text".to_owned()));
        let exposed = (place.config.file("list"), Exposure::Readable { mode: 0o644 });
        assert_eq!(place.read(Secrecy::Secret), Err(exposed));
        assert!(matches!(read(&place.config, "none", Secrecy::Open), Ok(None)));
    }

    #[test]
    fn a_secret_is_read_from_any_directory_if_only_its_owner_can_read_it() {
        let place = Place::new();
        assert_eq!(secret_text(&place.config.file("list")).unwrap(), "text");
        place.mode("longhaul/list", 0o640);
        let exposed = secret_text(&place.config.file("list")).unwrap_err();
        assert!(matches!(exposed, EngineError::Exposed { .. }), "{exposed}");
        let missing = secret_text(&place.config.file("none")).unwrap_err();
        assert!(missing.to_string().contains("none"), "{missing}");
    }

    #[test]
    fn write_permission_of_others_is_refused_up_to_the_top() {
        for (name, mode) in
            [("longhaul/list", 0o620), ("longhaul/list", 0o602), ("longhaul", 0o720), (".", 0o707)]
        {
            let place = Place::new();
            place.mode(name, mode);
            let (path, exposure) = place.read(Secrecy::Open).unwrap_err();
            assert_eq!(path, place.dir.path().join(name).canonicalize().unwrap());
            assert_eq!(exposure, Exposure::Writable { mode }, "{name}");
            let sentence = exposure.about(&path).to_string();
            assert!(sentence.contains(&format!("(mode {mode:04o})")), "{sentence}");
        }
        let place = Place::new();
        place.mode(".", 0o1777);
        assert!(place.read(Secrecy::Open).is_ok(), "the sticky bit keeps files in place");
    }

    /// Runs as root, like every test that needs two users.
    #[test]
    #[ignore = "needs root"]
    fn a_file_or_directory_of_another_user_is_refused() {
        for name in ["longhaul/list", "longhaul", "."] {
            let place = Place::new();
            chown(place.dir.path().join(name), Some(12345), None).unwrap();
            let (path, exposure) = place.read(Secrecy::Open).unwrap_err();
            assert_eq!(path, place.dir.path().join(name).canonicalize().unwrap());
            assert_eq!(exposure, Exposure::Owner { found: 12345, wanted: 0 });
            assert!(exposure.about(&path).to_string().contains("belongs to user 12345, not 0"));
            let config = place.config.clone().trusting(12345);
            assert!(read(&config, "list", Secrecy::Open).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_symbolic_link_counts_as_what_it_leads_to() {
        let place = Place::new();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::rename(place.config.file("list"), elsewhere.path().join("list")).unwrap();
        std::os::unix::fs::symlink(elsewhere.path().join("list"), place.config.file("list"))
            .unwrap();
        assert!(place.read(Secrecy::Secret).is_ok());
        fs::set_permissions(elsewhere.path(), Permissions::from_mode(0o777)).unwrap();
        assert_eq!(place.read(Secrecy::Secret).unwrap_err().0, elsewhere.path());
    }

    #[test]
    fn only_a_regular_file_is_read() {
        let place = Place::new();
        fs::remove_file(place.config.file("list")).unwrap();
        fs::create_dir(place.config.file("list")).unwrap();
        assert_eq!(place.read(Secrecy::Open).unwrap_err().1, Exposure::NoFile);
    }
}
