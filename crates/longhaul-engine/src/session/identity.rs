//! The key pair of a user of a host, and the directory where it is kept.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};

use super::private_file::{self, Secrecy};
use crate::error::{EngineError, Result};

/// The fixed start of an Ed25519 `SubjectPublicKeyInfo` (RFC 8410, section 4); the key follows.
const SPKI_PREFIX: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// The wait for another program that writes files of the directory.
const LOCK_LIMIT: Duration = Duration::from_secs(10);
const LOCK_CHECK: Duration = Duration::from_millis(20);
pub(super) const KEY_TYPE: &str = "longhaul-ed25519";

/// Who a longhaul is: an Ed25519 public key.
///
/// In text it is `longhaul-ed25519 BASE64`, as it stands in the authorised and known lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// The key in a TLS raw public key.
    pub(super) fn from_spki(spki: &[u8]) -> Option<Self> {
        let key = spki.strip_prefix(&SPKI_PREFIX)?;
        Some(PublicKey(key.try_into().ok()?))
    }

    /// The key as a TLS raw public key.
    pub(super) fn to_spki(self) -> Vec<u8> {
        [SPKI_PREFIX.as_slice(), &self.0].concat()
    }

    /// `SHA256:...`, in ssh's manner: short enough to compare by eye.
    pub fn fingerprint(&self) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, &self.0);
        format!("SHA256:{}", STANDARD_NO_PAD.encode(digest))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{KEY_TYPE} {}", STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fingerprint())
    }
}

impl FromStr for PublicKey {
    type Err = ();

    /// Reads `longhaul-ed25519 BASE64`, with anything after it as a comment.
    fn from_str(line: &str) -> std::result::Result<Self, ()> {
        let mut words = line.split_whitespace();
        if words.next() != Some(KEY_TYPE) {
            return Err(());
        }
        let bytes = STANDARD.decode(words.next().ok_or(())?).map_err(|_| ())?;
        Ok(PublicKey(bytes.try_into().map_err(|_| ())?))
    }
}

/// Where the identity, the authorised keys and the known hosts are kept:
/// `$XDG_CONFIG_HOME/longhaul` or `~/.config/longhaul`.
#[derive(Debug, Clone)]
pub struct ConfigDir {
    path: PathBuf,
    also_owned_by: Option<u32>,
}

impl ConfigDir {
    /// The user's own.
    ///
    /// # Errors
    /// Neither `XDG_CONFIG_HOME` nor `HOME` is set to an absolute path.
    pub fn of_user() -> Result<Self> {
        let base = |name: &str| {
            std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
        };
        base("XDG_CONFIG_HOME")
            .or_else(|| base("HOME").map(|home| home.join(".config")))
            .map(|base| ConfigDir::at(base.join("longhaul")))
            .ok_or(EngineError::NoConfigDir)
    }

    /// One elsewhere.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        ConfigDir { path: path.into(), also_owned_by: None }
    }

    /// The same where files of the user `uid` count as well as those of root and of this user: a
    /// server that is started by root and goes on as `uid`.
    pub fn trusting(self, uid: u32) -> Self {
        ConfigDir { also_owned_by: Some(uid), ..self }
    }

    pub(super) fn also_owned_by(&self) -> Option<u32> {
        self.also_owned_by
    }

    /// The file `name` in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes the directory, for the user alone.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(&self) -> Result<()> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)
            .map_err(EngineError::file("create", &self.path))
    }

    /// Keeps other programs from writing its files until the value is dropped.
    ///
    /// # Errors
    /// Another program holds the lock for 10 s.
    pub(super) fn lock(&self) -> Result<File> {
        let failed = |source| EngineError::file("lock", &self.path)(source);
        let dir = File::open(&self.path).map_err(failed)?;
        let deadline = Instant::now() + LOCK_LIMIT;
        loop {
            match dir.try_lock() {
                Ok(()) => return Ok(dir),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    thread::sleep(LOCK_CHECK);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(failed(io::ErrorKind::TimedOut.into()));
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
    }
}

/// The key pair that proves who this user of this host is.
pub struct Identity {
    pkcs8: Vec<u8>,
    public: PublicKey,
}

impl Identity {
    /// The user's identity, made at the first use.
    ///
    /// # Errors
    /// The file cannot be read or made, holds something else, or is exposed to other users.
    pub fn load_or_create(config: &ConfigDir) -> Result<Self> {
        let path = config.file("identity");
        loop {
            if let Some(text) = private_file::read(config, "identity", Secrecy::Secret)? {
                let pkcs8 = STANDARD.decode(text.trim()).ok();
                return pkcs8
                    .and_then(Identity::from_pkcs8)
                    .ok_or_else(|| EngineError::BadKey(path.clone()));
            }
            config.create()?;
            Identity::generate().store(&path)?;
        }
    }

    /// A new identity, held in memory alone.
    pub fn generate() -> Self {
        // ring fails here only when the kernel gives no random bytes, when nothing else works.
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .expect("the kernel's random number generator answers");
        Identity::from_pkcs8(pkcs8.as_ref().to_vec()).expect("ring reads the key it made")
    }

    fn from_pkcs8(pkcs8: Vec<u8>) -> Option<Self> {
        let pair = Ed25519KeyPair::from_pkcs8(&pkcs8).ok()?;
        let public = PublicKey(pair.public_key().as_ref().try_into().ok()?);
        Some(Identity { pkcs8, public })
    }

    /// Writes the key beside `path` and links it into place, so that of two programs that start
    /// together one makes the key and both use it.
    fn store(&self, path: &Path) -> Result<()> {
        let temporary = path.with_extension(format!("new-{}", std::process::id()));
        let write = |mut file: File| {
            file.write_all(STANDARD.encode(&self.pkcs8).as_bytes())?;
            file.sync_all()
        };
        let made = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(write)
            .and_then(|()| match fs::hard_link(&temporary, path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => Ok(()),
            });
        let _ = fs::remove_file(&temporary);
        made.map_err(EngineError::file("create", path))
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    pub(super) fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.public).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_identity_is_made_once_for_the_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let config = ConfigDir::at(dir.path().join("longhaul"));
        let first = Identity::load_or_create(&config).unwrap();
        let again = Identity::load_or_create(&config).unwrap();
        assert_eq!(first.public(), again.public());
        let mode = fs::metadata(config.file("identity")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path().join("longhaul")).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_identity_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("identity");
        fs::write(&file, "rubbish").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let config = ConfigDir::at(dir.path());
        assert!(matches!(Identity::load_or_create(&config), Err(EngineError::BadKey(_))));
        assert_eq!(fs::read(file).unwrap(), b"rubbish");
    }

    #[test]
    fn a_public_key_comes_back_from_its_text_and_from_tls() {
        let key = Identity::generate().public();
        assert_eq!(format!("{key} alice@dtn1").parse(), Ok(key));
        assert_eq!(PublicKey::from_spki(&key.to_spki()), Some(key));
        assert!("ssh-ed25519 AAAA".parse::<PublicKey>().is_err());
    }
}
