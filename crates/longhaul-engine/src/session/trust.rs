use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use super::identity::{ConfigDir, PublicKey};
use crate::error::{EngineError, Result};

/// The keys that may reach files here: the host's own and those in `authorized_keys`, one
/// `longhaul-ed25519 BASE64 comment` a line; lines that begin with `#` are comments.
#[derive(Debug, Clone)]
pub struct AuthorisedKeys(HashSet<PublicKey>);

impl AuthorisedKeys {
    /// Reads the list; `own` is always in it, so that everything on one machine works.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub fn load(config: &ConfigDir, own: PublicKey) -> Result<Self> {
        let text = read_if_present(config.file("authorized_keys"))?;
        let mut keys: HashSet<_> = text.lines().filter_map(|line| line.parse().ok()).collect();
        keys.insert(own);
        Ok(AuthorisedKeys(keys))
    }

    /// Whether `key` may reach files.
    pub fn contains(&self, key: &PublicKey) -> bool {
        self.0.contains(key)
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
    use crate::session::Identity;

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
        assert!(keys.contains(&own) && keys.contains(&friend));
        assert!(!keys.contains(&stranger));
    }
}
