use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use super::grant::Grant;
use super::identity::{ConfigDir, KEY_TYPE, PublicKey};
use crate::error::{EngineError, Result};

/// The keys that may reach files here and what each is allowed: the host's own and those in
/// `authorized_keys`, one `[OPTIONS] longhaul-ed25519 BASE64 comment` a line; lines that begin
/// with `#` are comments. `docs/guide/serve.md` has the options.
#[derive(Debug, Clone)]
pub struct AuthorisedKeys(HashMap<PublicKey, Grant>);

impl AuthorisedKeys {
    /// Reads the list; `own` is always in it, so that everything on one machine works.
    ///
    /// # Errors
    /// The file exists and cannot be read, or the options of a key are none.
    pub fn load(config: &ConfigDir, own: PublicKey) -> Result<Self> {
        let path = config.file("authorized_keys");
        let text = read_if_present(path.clone())?;
        let mut keys = HashMap::new();
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            let Some(at) = line.find(KEY_TYPE).filter(|_| !line.starts_with('#')) else { continue };
            let Ok(key) = line[at..].parse() else { continue };
            let grant = Grant::from_options_or_none(line[..at].trim()).map_err(|option| {
                EngineError::KeyOption { file: path.clone(), line: number, option }
            })?;
            // As with ssh, the first line of a key counts.
            keys.entry(key).or_insert(grant);
        }
        keys.entry(own).or_default();
        Ok(AuthorisedKeys(keys))
    }

    /// What `key` is allowed; `None` if it may not reach files.
    pub fn find(&self, key: &PublicKey) -> Option<&Grant> {
        self.0.get(key)
    }

    /// Whether a key has a directory of its own.
    pub fn has_roots(&self) -> bool {
        self.0.values().any(|grant| grant.root.is_some())
    }
}

/// The keys of servers, in `known_hosts`: `HOST:PORT longhaul-ed25519 BASE64` a line.
#[derive(Debug, Clone)]
pub struct KnownHosts {
    config: ConfigDir,
    text: String,
}

impl KnownHosts {
    /// Reads the list.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub fn load(config: &ConfigDir) -> Result<Self> {
        let text = read_if_present(config.file("known_hosts"))?;
        Ok(KnownHosts { config: config.clone(), text })
    }

    /// The key recorded for `host` (`HOST:PORT`).
    pub fn find(&self, host: &str) -> Option<PublicKey> {
        self.text.lines().find_map(|line| {
            let (name, key) = line.split_once(' ')?;
            (name == host).then(|| key.parse().ok())?
        })
    }

    /// Records `key` for `host`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, host: &str, key: PublicKey) -> Result<()> {
        self.config.create()?;
        let line = format!("{host} {key}\n");
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.file())
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .map_err(EngineError::file("write", self.file()))?;
        self.text.push_str(&line);
        Ok(())
    }

    /// Where the list is.
    pub fn file(&self) -> PathBuf {
        self.config.file("known_hosts")
    }
}

fn read_if_present(path: PathBuf) -> Result<String> {
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(EngineError::file("read", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Identity, Rights};

    #[test]
    fn a_host_is_known_once_it_was_added() {
        let dir = tempfile::tempdir().unwrap();
        let config = ConfigDir::at(dir.path());
        let key = Identity::generate().public();
        let mut hosts = KnownHosts::load(&config).unwrap();
        assert_eq!(hosts.find("far:5210"), None);
        hosts.add("far:5210", key).unwrap();
        assert_eq!(hosts.find("far:5210"), Some(key));
        assert_eq!(KnownHosts::load(&config).unwrap().find("far:5210"), Some(key));
        assert_eq!(hosts.find("far:52"), None);
    }

    #[test]
    fn the_own_key_is_authorised_and_a_stranger_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let config = ConfigDir::at(dir.path());
        let [own, friend, stranger] = [(); 3].map(|()| Identity::generate().public());
        fs::write(dir.path().join("authorized_keys"), format!("# people\n{friend} bob\n")).unwrap();
        let keys = AuthorisedKeys::load(&config, own).unwrap();
        assert!(keys.find(&own).is_some() && keys.find(&friend).is_some());
        assert!(keys.find(&stranger).is_none() && !keys.has_roots());
    }

    #[test]
    fn options_stand_before_a_key_and_slips_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let config = ConfigDir::at(dir.path());
        let [own, alice, bob] = [(); 3].map(|()| Identity::generate().public());
        let file = dir.path().join("authorized_keys");
        let lines = format!("root=\"/data/a b\",read-only {alice}\n# x {bob}\nwrite-only {own}\n");
        fs::write(&file, &lines).unwrap();
        let keys = AuthorisedKeys::load(&config, own).unwrap();
        let grant = keys.find(&alice).unwrap();
        assert_eq!(grant.root.as_deref(), Some("/data/a b".as_ref()));
        assert_eq!(grant.rights, Rights::ReadOnly);
        assert!(keys.find(&bob).is_none() && keys.has_roots());
        assert_eq!(keys.find(&own).unwrap().rights, Rights::WriteOnly);
        fs::write(&file, format!("{lines}readonly {bob}\n")).unwrap();
        let slip = AuthorisedKeys::load(&config, own).unwrap_err();
        assert!(matches!(&slip, EngineError::KeyOption { line: 4, .. }), "{slip}");
    }
}
