//! The keys of servers: `known_hosts`.

use std::fs;
use std::path::PathBuf;

use super::config_dir::ConfigDir;
use super::private_file::{self, Secrecy, append_line, write_private};
use super::public_key::PublicKey;
use crate::error::{EngineError, Result};

/// The keys of servers in `known_hosts`: one `HOST:PORT longhaul-ed25519 BASE64` per line.
#[derive(Debug, Clone)]
pub struct KnownHosts {
    config: ConfigDir,
    text: String,
}

impl KnownHosts {
    /// Reads the list.
    ///
    /// # Errors
    /// The file exists and cannot be read, or other users can change it.
    pub fn load(config: &ConfigDir) -> Result<Self> {
        let text = private_file::read(config, "known_hosts", Secrecy::Open)?.unwrap_or_default();
        Ok(KnownHosts { config: config.clone(), text })
    }

    /// Returns the first key recorded for `host` (`HOST:PORT`).
    pub fn find(&self, host: &str) -> Option<PublicKey> {
        self.keys_of(host).next()
    }

    /// Returns the keys recorded for `host`: several while the server changes its key.
    pub(super) fn keys_of(&self, host: &str) -> impl Iterator<Item = PublicKey> {
        self.text.lines().filter_map(move |line| entry(line, host))
    }

    /// Records `key` for `host`. Programs that record keys at the same time lose none.
    ///
    /// # Errors
    /// The file cannot be written, or another program holds its lock for 10 s.
    pub fn add(&mut self, host: &str, key: PublicKey) -> Result<()> {
        self.config.create()?;
        let _lock = self.config.lock()?;
        self.append(host, key)
    }

    /// Records the keys `next` of a server whose key `current` is recorded, and removes those that
    /// it has `retired`.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub(super) fn learn(
        &mut self,
        host: &str,
        current: PublicKey,
        next: &[PublicKey],
        retired: &[PublicKey],
    ) -> Result<()> {
        if !self.has_to_learn(host, next, retired) {
            return Ok(());
        }
        let _lock = self.config.lock()?;
        *self = KnownHosts::load(&self.config)?;
        if !self.keys_of(host).any(|key| key == current) {
            return Ok(());
        }
        for &key in next {
            if !self.keys_of(host).any(|known| known == key) {
                self.append(host, key)?;
            }
        }
        let goes = |line: &str| {
            entry(line, host).is_some_and(|key| key != current && retired.contains(&key))
        };
        if self.text.lines().any(goes) {
            self.text = self
                .text
                .lines()
                .filter(|line| !goes(line))
                .map(|line| format!("{line}\n"))
                .collect();
            self.rewrite()?;
        }
        Ok(())
    }

    fn has_to_learn(&self, host: &str, next: &[PublicKey], retired: &[PublicKey]) -> bool {
        let known: Vec<_> = self.keys_of(host).collect();
        next.iter().any(|key| !known.contains(key)) || retired.iter().any(|key| known.contains(key))
    }

    /// Replaces the file; a reader sees the old one or the new one.
    fn rewrite(&self) -> Result<()> {
        let failed = EngineError::file("write", self.file());
        let path = self.file().canonicalize();
        let replaced = path.and_then(|path| {
            let temporary = path.with_extension(format!("new-{}", std::process::id()));
            write_private(&temporary, &self.text)?;
            fs::rename(&temporary, &path)
        });
        replaced.map_err(failed)
    }

    /// Appends a line under the lock.
    fn append(&mut self, host: &str, key: PublicKey) -> Result<()> {
        let line = format!("{host} {key}\n");
        append_line(&self.file(), &line).map_err(EngineError::file("write", self.file()))?;
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(&line);
        Ok(())
    }

    /// Returns the path of the list.
    pub fn file(&self) -> PathBuf {
        self.config.file("known_hosts")
    }
}

/// Returns the key in a line for `host`.
fn entry(line: &str, host: &str) -> Option<PublicKey> {
    let (name, key) = line.split_once(' ')?;
    (name == host).then(|| key.parse().ok())?
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
    fn a_last_line_without_a_newline_keeps_its_pin() {
        let dir = tempfile::tempdir().unwrap();
        let config = ConfigDir::at(dir.path());
        let [first, second] = [(); 2].map(|()| Identity::generate().public());
        fs::write(config.file("known_hosts"), format!("a:1 {first}")).unwrap();
        let mut hosts = KnownHosts::load(&config).unwrap();
        hosts.add("b:1", second).unwrap();
        for hosts in [hosts, KnownHosts::load(&config).unwrap()] {
            assert_eq!((hosts.find("a:1"), hosts.find("b:1")), (Some(first), Some(second)));
        }
    }

    #[test]
    fn concurrent_writers_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let config = ConfigDir::at(dir.path());
        let key = Identity::generate().public();
        // Without a final newline, so that the first writer must add one.
        fs::write(config.file("known_hosts"), format!("first:1 {key}")).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let config = &config;
                scope.spawn(move || {
                    let mut hosts = KnownHosts::load(config).unwrap();
                    for host in 0..20 {
                        hosts.add(&format!("h{writer}-{host}:1"), key).unwrap();
                    }
                });
            }
        });
        let text = fs::read_to_string(config.file("known_hosts")).unwrap();
        assert_eq!(text.lines().count(), 161);
        assert!(text.lines().all(|line| line.ends_with(&key.to_string())), "{text}");
    }
}
