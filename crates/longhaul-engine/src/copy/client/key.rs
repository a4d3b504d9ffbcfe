//! The key of a copy: the same for the same command, and known only to its user.
//!
//! The key names the journal of a copy. It is a keyed BLAKE3 hash of the command under a secret of
//! the user, so that another user cannot compute it and create a journal in advance. The input is a
//! list of parts, each a tag, a length and bytes. `docs/design/journal.md` defines the parts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use longhaul_core::wire::copy::CopyKey;
use rustix::fs::{FileType, Mode, OFlags, fstat};

use super::RemoteFiles;
use crate::copy::source::{SourcePlan, SourceRoot};
use crate::session::{ConfigDir, random_keying_material};

/// The file in the configuration directory that holds the secret.
const FILE: &str = "copy-secret";
/// The version of the encoding, the first part of every key.
const ENCODING: &[u8] = b"longhaul copy key 2";

/// The secret that the keys of a user's copies depend on.
#[derive(Clone)]
pub struct CopySecret([u8; 32]);

impl CopySecret {
    /// Returns the user's secret, and creates it at the first use. Without a usable configuration
    /// directory it is random, so the same command does not find the journal of an earlier one.
    pub fn of_user() -> Self {
        ConfigDir::of_user().map_or_else(|_| Self::random(), |config| Self::load_or_create(&config))
    }

    /// Returns the secret in `config`, and creates it if there is none. A file that others may read
    /// or write is replaced. If the secret cannot be stored, it is random.
    pub fn load_or_create(config: &ConfigDir) -> Self {
        let path = config.file(FILE);
        let loaded = read(&path).or_else(|_| {
            config.create().map_err(io::Error::other)?;
            create(&path)?;
            read(&path)
        });
        loaded.map_or_else(|_| Self::random(), CopySecret)
    }

    /// Returns a secret that is not stored.
    pub fn random() -> Self {
        CopySecret(random_keying_material())
    }
}

/// Reads the secret if the file is the user's and closed to others.
fn read(path: &Path) -> io::Result<[u8; 32]> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let stat = fstat(&file)?;
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let own = stat.st_uid == rustix::process::geteuid().as_raw();
    if !regular || !own || stat.st_mode & 0o077 != 0 || stat.st_size != 32 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut secret = [0; 32];
    file.read_exact(&mut secret)?;
    Ok(secret)
}

/// Makes a secret. Of two programs that start together one makes it and both use it: a file is
/// replaced only if it cannot be used.
fn create(path: &Path) -> io::Result<()> {
    let [a, b, c, d, ..] = random_keying_material();
    let random = u32::from_be_bytes([a, b, c, d]);
    let temporary = path.with_extension(format!("new-{random:08x}"));
    let written =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary).and_then(
            |mut file| {
                file.write_all(&random_keying_material())?;
                file.sync_all()
            },
        );
    let placed = written.and_then(|()| match fs::hard_link(&temporary, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match read(path) {
            Ok(_) => Ok(()),
            Err(_) => fs::rename(&temporary, path),
        },
        linked => linked,
    });
    let _ = fs::remove_file(&temporary);
    placed
}

/// Gathers the parts of a key.
pub(super) struct KeyMaker(blake3::Hasher);

impl KeyMaker {
    /// Creates the maker of keys for a copy in `direction`, from this host and working directory.
    pub(super) fn new(secret: &CopySecret, direction: &str) -> Self {
        let maker = KeyMaker(blake3::Hasher::new_keyed(&secret.0));
        let directory = std::env::current_dir().unwrap_or_default();
        maker
            .part(b'v', ENCODING)
            .part(b'd', direction.as_bytes())
            .part(b'h', rustix::system::uname().nodename().to_bytes())
            .path(b'w', &directory)
    }

    /// Adds the server: host and port, or the destination of ssh.
    pub(super) fn server(self, peer: &str) -> Self {
        self.part(b's', peer.as_bytes())
    }

    /// Adds the sources of a copy from this host.
    pub(super) fn plan(self, plan: &SourcePlan) -> Self {
        plan.roots.iter().fold(self, |maker, root| match root {
            SourceRoot::Path(path) => maker.path(b'p', path),
            SourceRoot::Zero(bytes) => maker.part(b'z', &bytes.get().to_be_bytes()),
            SourceRoot::Feed(_) => maker.part(b'f', b""),
            SourceRoot::Listed { base, names } => maker.path(b'p', base).names(names),
        })
    }

    /// Adds the sources of a copy from a server.
    pub(super) fn files(self, files: &RemoteFiles<'_>) -> Self {
        let maker = files.paths.iter().fold(self, |maker, path| maker.path(b'p', path));
        match files.names {
            Some(names) => maker.names(names),
            None => maker,
        }
    }

    /// Returns the key of a copy to `target`.
    pub(super) fn to(self, target: &Path) -> CopyKey {
        let digest = self.path(b't', target).0.finalize();
        let mut first = [0; 16];
        first.copy_from_slice(&digest.as_bytes()[..16]);
        CopyKey::new(u128::from_be_bytes(first))
    }

    fn names(self, names: &[PathBuf]) -> Self {
        names.iter().fold(self, |maker, name| maker.path(b'n', name))
    }

    fn path(self, tag: u8, path: &Path) -> Self {
        self.part(tag, path.as_os_str().as_bytes())
    }

    fn part(mut self, tag: u8, bytes: &[u8]) -> Self {
        self.0.update(&[tag]).update(&(bytes.len() as u64).to_be_bytes()).update(bytes);
        self
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use longhaul_core::units::Bytes;

    use super::*;
    use crate::copy::tree::Tree;

    fn key(secret: &CopySecret, server: &str, roots: Vec<SourceRoot>, target: &str) -> CopyKey {
        let plan = SourcePlan { tree: Tree::anywhere(), roots };
        KeyMaker::new(secret, "push").server(server).plan(&plan).to(Path::new(target))
    }

    #[test]
    fn every_part_of_the_command_and_the_secret_change_the_key() {
        let path = |path: &str| vec![SourceRoot::Path(path.into())];
        let secret = CopySecret::random();
        let first = key(&secret, "h:5210", path("a"), "t");
        assert_eq!(first, key(&secret, "h:5210", path("a"), "t"));
        let zero = vec![SourceRoot::Zero(Bytes::new(7))];
        let both = vec![SourceRoot::Path("a".into()), SourceRoot::Path("t".into())];
        let others = [
            key(&CopySecret::random(), "h:5210", path("a"), "t"),
            key(&secret, "h:5211", path("a"), "t"),
            key(&secret, "h:5210", path("b"), "t"),
            key(&secret, "h:5210", path("a"), "u"),
            key(&secret, "h:5210", path("at"), ""),
            key(&secret, "h:5210", zero, "t"),
            key(&secret, "h:5210", both, ""),
        ];
        assert!(others.iter().all(|other| *other != first));
        let files = RemoteFiles { paths: &["a".into()], names: None };
        let pulled = KeyMaker::new(&secret, "pull").server("h:5210").files(&files);
        assert_ne!(pulled.to(Path::new("t")), first, "the direction counts");
        let some = RemoteFiles { paths: &["a".into()], names: Some(&["b".into()]) };
        let all = RemoteFiles { paths: &["a".into(), "b".into()], names: None };
        let of = |files| KeyMaker::new(&secret, "pull").files(files).to(Path::new("t"));
        assert_ne!(of(&some), of(&all), "a name in a list is not a path");
    }

    #[test]
    fn the_encoding_of_a_key_is_fixed() {
        let maker = KeyMaker(blake3::Hasher::new_keyed(&[7; 32])).part(b'v', ENCODING);
        let plan = SourcePlan { tree: Tree::anywhere(), roots: vec![SourceRoot::Path("a".into())] };
        let key = maker.server("h:5210").plan(&plan).to(Path::new("t"));
        assert_eq!(
            key.as_str(),
            FIXED,
            "an interrupted copy must find its journal after an update"
        );
    }

    const FIXED: &str = "9dbc6317b82f196d5da0eb5585a07d45";

    #[test]
    fn the_secret_is_made_once_for_the_user_only() {
        let dir = tempfile::tempdir().unwrap();
        let config = ConfigDir::at(dir.path().join("longhaul"));
        let first = CopySecret::load_or_create(&config);
        assert_eq!(CopySecret::load_or_create(&config).0, first.0);
        let file = config.file(FILE);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path().join("longhaul")).unwrap().count(), 1);
    }

    #[test]
    fn a_secret_that_others_could_know_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let config = ConfigDir::at(dir.path());
        let file = config.file(FILE);
        let known = CopySecret::load_or_create(&config);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let new = CopySecret::load_or_create(&config);
        assert_ne!(new.0, known.0);
        fs::remove_file(&file).unwrap();
        fs::write(dir.path().join("theirs"), [1; 32]).unwrap();
        std::os::unix::fs::symlink(dir.path().join("theirs"), &file).unwrap();
        assert_ne!(CopySecret::load_or_create(&config).0, [1; 32], "a link is not followed");
        assert_eq!(CopySecret::load_or_create(&config).0.len(), 32);
        assert_eq!(fs::read(dir.path().join("theirs")).unwrap(), [1; 32]);
    }
}
