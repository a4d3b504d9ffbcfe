//! The key pair of a user of a host.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::signature::Ed25519KeyPair;

use super::agent::Agent;
use super::config_dir::ConfigDir;
use super::key_file::{KeyFile, Seed, decrypt, encode, pair_of, public_of};
use super::private_file::{self, Secrecy, append_line, write_private};
use super::public_key::PublicKey;
use super::secret::random_keying_material;
use crate::error::{EngineError, Result};

/// The key pair of this user of this host. Clones share it.
#[derive(Clone)]
pub struct Identity {
    public: PublicKey,
    signer: Signer,
    /// The key that this server will have next, which it announces.
    next: Option<Arc<Identity>>,
    /// The keys that this server had before.
    retired: Vec<PublicKey>,
}

/// The signer of a key.
#[derive(Clone)]
enum Signer {
    Pair(Arc<Ed25519KeyPair>),
    Agent(Agent),
}

/// A function that asks the user for the passphrase of the file at the path; `None` if nobody can
/// be asked or the user cancels.
pub type AskPassphrase<'a> = &'a mut dyn FnMut(&Path) -> Option<String>;

/// The number of attempts at a passphrase.
const PASSPHRASE_TRIES: u32 = 3;
const FILE: &str = "identity";
const NEXT_FILE: &str = "identity.next";
const RETIRED_FILE: &str = "retired_keys";

impl Identity {
    /// Loads the user's identity, and creates it at the first use.
    ///
    /// # Errors
    /// The file cannot be read or created, has other contents, is exposed to other users, or is
    /// encrypted and no agent has its key.
    pub fn load_or_create(config: &ConfigDir) -> Result<Self> {
        Identity::unlock_or_create(config, &mut |_| None)
    }

    /// Loads the user's identity; `None` if there is none yet. Writes nothing.
    ///
    /// # Errors
    /// As [`load_or_create`](Self::load_or_create).
    pub fn load(config: &ConfigDir) -> Result<Option<Self>> {
        let key = KeyFile::read(config, FILE)?;
        key.map(|key| Identity::unlock(&config.file(FILE), key, &mut |_| None)).transpose()
    }

    /// As [`load_or_create`](Self::load_or_create), with the passphrase of an encrypted file from
    /// `ask`. If an ssh-agent has the key, it signs, and `ask` is not called.
    ///
    /// # Errors
    /// As [`load_or_create`](Self::load_or_create), or the passphrase is wrong.
    pub fn unlock_or_create(config: &ConfigDir, ask: AskPassphrase<'_>) -> Result<Self> {
        loop {
            if let Some(key) = KeyFile::read(config, FILE)? {
                return Identity::unlock(&config.file(FILE), key, ask);
            }
            config.create()?;
            store_new(&config.file(FILE), &random_keying_material(), None)?;
        }
    }

    /// As [`unlock_or_create`](Self::unlock_or_create), for a server, which announces its next and
    /// its earlier keys.
    ///
    /// # Errors
    /// As [`unlock_or_create`](Self::unlock_or_create), for both keys.
    pub fn of_server(config: &ConfigDir, ask: AskPassphrase<'_>) -> Result<Self> {
        // Both files have one passphrase unless somebody has changed one of them.
        let mut last: Option<(PathBuf, String)> = None;
        let mut remember = |path: &Path| {
            let passphrase = match last.take() {
                Some((of, passphrase)) if of != path => passphrase,
                _ => ask(path)?,
            };
            last = Some((path.to_owned(), passphrase.clone()));
            Some(passphrase)
        };
        let identity = Identity::unlock_or_create(config, &mut remember)?;
        let next = match KeyFile::read(config, NEXT_FILE)? {
            Some(key) => Some(Identity::unlock(&config.file(NEXT_FILE), key, &mut remember)?),
            None => None,
        };
        let retired = private_file::read(config, RETIRED_FILE, Secrecy::Open)?.unwrap_or_default();
        let retired = retired.lines().filter_map(|line| line.parse().ok()).collect();
        Ok(identity.announcing(next, retired))
    }

    /// Returns the public half of the user's identity, which is created at the first use; needs no
    /// passphrase.
    ///
    /// # Errors
    /// As [`load_or_create`](Self::load_or_create), except for the passphrase.
    pub fn public_of(config: &ConfigDir) -> Result<PublicKey> {
        match KeyFile::read(config, FILE)? {
            Some(key) => Ok(key.public()),
            None => Identity::load_or_create(config).map(|identity| identity.public),
        }
    }

    /// Returns the passphrase of the file, if it has one.
    ///
    /// # Errors
    /// As [`set_passphrase`](Self::set_passphrase).
    pub fn unlock_file(config: &ConfigDir, ask: AskPassphrase<'_>) -> Result<()> {
        Identity::public_of(config)?;
        match KeyFile::read(config, FILE)? {
            Some(key) => seed_of(&config.file(FILE), key, ask).map(drop),
            None => Ok(()),
        }
    }

    /// Encrypts the identity, and the next one if there is one, with `passphrase`; decrypts them if
    /// that is `None`.
    ///
    /// # Errors
    /// As [`unlock_or_create`](Self::unlock_or_create), or a file has only a public key.
    pub fn set_passphrase(
        config: &ConfigDir,
        passphrase: Option<&str>,
        ask: AskPassphrase<'_>,
    ) -> Result<PublicKey> {
        let public = Identity::public_of(config)?;
        let _lock = config.lock()?;
        for name in [FILE, NEXT_FILE] {
            if let Some(key) = KeyFile::read(config, name)? {
                let path = config.file(name);
                let seed = seed_of(&path, key, ask)?;
                replace(&path, &seed, passphrase)?;
            }
        }
        Ok(public)
    }

    /// Creates the next key, unless there is one, with the passphrase of the present one.
    ///
    /// # Errors
    /// As [`set_passphrase`](Self::set_passphrase).
    pub fn prepare_next(config: &ConfigDir, ask: AskPassphrase<'_>) -> Result<PublicKey> {
        Identity::public_of(config)?;
        let _lock = config.lock()?;
        let path = config.file(NEXT_FILE);
        loop {
            if let Some(key) = KeyFile::read(config, NEXT_FILE)? {
                return Ok(key.public());
            }
            let mut passphrase = None;
            if let Some(key @ KeyFile::Encrypted(..)) = KeyFile::read(config, FILE)? {
                seed_of(&config.file(FILE), key, &mut |path| {
                    passphrase = ask(path);
                    passphrase.clone()
                })?;
            }
            store_new(&path, &random_keying_material(), passphrase.as_deref())?;
        }
    }

    /// Replaces the present key by the next one, keeps it as `identity.old` and lists it as
    /// retired. Returns the new key.
    ///
    /// # Errors
    /// There is no next key, or a file cannot be written.
    pub fn switch_to_next(config: &ConfigDir) -> Result<PublicKey> {
        let old = Identity::public_of(config)?;
        let _lock = config.lock()?;
        let (path, next, kept) =
            (config.file(FILE), config.file(NEXT_FILE), config.file("identity.old"));
        let Some(key) = KeyFile::read(config, NEXT_FILE)? else {
            return Err(EngineError::NoNextKey(next));
        };
        let retired = config.file(RETIRED_FILE);
        append_line(&retired, &format!("{old}\n")).map_err(EngineError::file("write", retired))?;
        let _ = fs::remove_file(&kept);
        fs::hard_link(&path, &kept)
            .and_then(|()| fs::rename(&next, &path))
            .map_err(EngineError::file("replace", path))?;
        Ok(key.public())
    }

    /// Creates an identity in memory only.
    pub fn generate() -> Self {
        Identity::from_seed(&random_keying_material())
    }

    fn from_seed(seed: &Seed) -> Self {
        let signer = Signer::Pair(Arc::new(pair_of(seed)));
        Identity { public: public_of(seed), signer, next: None, retired: Vec::new() }
    }

    /// Returns the key of a file, from an agent if one has it.
    fn unlock(path: &Path, key: KeyFile, ask: AskPassphrase<'_>) -> Result<Self> {
        let public = key.public();
        let agent = || Agent::of_user().filter(|agent| agent.holds(public).unwrap_or(false));
        let agent = if matches!(key, KeyFile::Plain(_)) { None } else { agent() };
        match agent {
            Some(agent) => {
                let signer = Signer::Agent(agent);
                Ok(Identity { public, signer, next: None, retired: Vec::new() })
            }
            None => seed_of(path, key, ask).map(|seed| Identity::from_seed(&seed)),
        }
    }

    /// Returns the identity of a server that announces `next` and its earlier keys `retired`.
    pub(super) fn announcing(self, next: Option<Identity>, retired: Vec<PublicKey>) -> Self {
        Identity { next: next.map(Arc::new), retired, ..self }
    }

    /// Returns the public half.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    pub(super) fn next(&self) -> Option<&Identity> {
        self.next.as_deref()
    }

    pub(super) fn retired(&self) -> &[PublicKey] {
        &self.retired
    }

    /// Signs `message` with Ed25519 and returns the signature.
    ///
    /// # Errors
    /// The agent is gone or refuses.
    pub fn sign(&self, message: &[u8]) -> io::Result<[u8; 64]> {
        match &self.signer {
            Signer::Pair(pair) => {
                Ok(pair.sign(message).as_ref().try_into().expect("a signature has 64 bytes"))
            }
            Signer::Agent(agent) => agent.sign(self.public, message),
        }
    }
}

/// Returns the private key in a file.
fn seed_of(path: &Path, key: KeyFile, ask: AskPassphrase<'_>) -> Result<Seed> {
    let path = || path.to_owned();
    match key {
        KeyFile::Plain(seed) => Ok(seed),
        KeyFile::Public(public) => {
            Err(EngineError::NoAgentKey { path: path(), fingerprint: public.fingerprint() })
        }
        KeyFile::Encrypted(key, public) => {
            for _ in 0..PASSPHRASE_TRIES {
                let passphrase = ask(&path()).ok_or_else(|| EngineError::Locked(path()))?;
                if let Some(seed) = decrypt(&key, public, &passphrase) {
                    return Ok(seed);
                }
            }
            Err(EngineError::WrongPassphrase(path()))
        }
    }
}

impl KeyFile {
    /// Reads the key in the file `name`; `None` if there is no such file.
    fn read(config: &ConfigDir, name: &str) -> Result<Option<Self>> {
        let Some(text) = private_file::read(config, name, Secrecy::Open)? else {
            return Ok(None);
        };
        let key = KeyFile::parse(&text);
        if !matches!(key, Some(KeyFile::Public(_))) {
            private_file::read(config, name, Secrecy::Secret)?;
        }
        key.map(Some).ok_or_else(|| EngineError::BadKey(config.file(name)))
    }
}

/// Writes a key beside `path` and links it into place, so that two programs that start together use
/// the same key.
fn store_new(path: &Path, seed: &Seed, passphrase: Option<&str>) -> Result<()> {
    put(path, seed, passphrase, |temporary| match fs::hard_link(temporary, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    })
}

/// Writes a key beside `path` and renames it into place.
fn replace(path: &Path, seed: &Seed, passphrase: Option<&str>) -> Result<()> {
    put(path, seed, passphrase, |temporary| fs::rename(temporary, path))
}

fn put(
    path: &Path,
    seed: &Seed,
    passphrase: Option<&str>,
    place: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<()> {
    let temporary = path.with_extension(format!("new-{}", std::process::id()));
    let text = encode(seed, passphrase).map_err(io::Error::other);
    let made =
        text.and_then(|text| write_private(&temporary, &text)).and_then(|()| place(&temporary));
    let _ = fs::remove_file(&temporary);
    made.map_err(EngineError::file("create", path))
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

    #[test]
    fn a_passphrase_is_set_changed_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let config = ConfigDir::at(dir.path());
        let public = Identity::load_or_create(&config).unwrap().public();
        let file = config.file("identity");
        Identity::set_passphrase(&config, Some("one"), &mut |_| None).unwrap();
        assert!(!fs::read_to_string(&file).unwrap().contains("BEGIN PRIVATE"));
        let locked = Identity::load_or_create(&config);
        assert!(matches!(locked, Err(EngineError::Locked(_))), "{locked:?}");
        let mut asked = 0;
        let wrong = Identity::unlock_or_create(&config, &mut |_| {
            asked += 1;
            Some("two".to_owned())
        });
        assert!(matches!(wrong, Err(EngineError::WrongPassphrase(_))) && asked == 3, "{wrong:?}");
        let one = &mut |_: &Path| Some("one".to_owned());
        assert_eq!(Identity::unlock_or_create(&config, one).unwrap().public(), public);
        assert_eq!(Identity::public_of(&config).unwrap(), public);
        let next = Identity::prepare_next(&config, one).unwrap();
        let mut asked = Vec::new();
        let server = Identity::of_server(&config, &mut |path| {
            asked.push(path.to_owned());
            Some("one".to_owned())
        });
        assert_eq!(server.unwrap().next().unwrap().public(), next);
        assert_eq!(asked, std::slice::from_ref(&file), "both have one passphrase");
        Identity::set_passphrase(&config, None, one).unwrap();
        assert_eq!(Identity::load_or_create(&config).unwrap().public(), public);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn the_next_key_takes_the_place_of_the_present_one() {
        let dir = tempfile::tempdir().unwrap();
        let config = ConfigDir::at(dir.path());
        let old = Identity::load_or_create(&config).unwrap().public();
        let none = Identity::switch_to_next(&config);
        assert!(matches!(none, Err(EngineError::NoNextKey(_))), "{none:?}");
        let ask = &mut |_: &Path| None;
        let next = Identity::prepare_next(&config, ask).unwrap();
        assert_eq!(Identity::prepare_next(&config, ask).unwrap(), next, "it is made once");
        assert_eq!(Identity::switch_to_next(&config).unwrap(), next);
        let server = Identity::of_server(&config, ask).unwrap();
        assert_eq!((server.public(), server.retired()), (next, &[old][..]));
        assert!(server.next().is_none() && config.file("identity.old").exists());
    }

    #[test]
    fn a_public_key_without_an_agent_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let config = ConfigDir::at(dir.path());
        let key = Identity::generate().public();
        fs::write(config.file("identity"), format!("{key} me\n")).unwrap();
        let none = Identity::load_or_create(&config);
        assert!(matches!(none, Err(EngineError::NoAgentKey { .. })), "{none:?}");
        assert_eq!(Identity::public_of(&config).unwrap(), key);
    }
}
