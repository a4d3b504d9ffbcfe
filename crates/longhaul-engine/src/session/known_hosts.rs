//! The keys of servers: `known_hosts`.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::identity::{ConfigDir, PublicKey};
use super::private_file::{self, Secrecy};
use crate::error::{EngineError, Result};

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
    /// The file exists and cannot be read, or other users can change it.
    pub fn load(config: &ConfigDir) -> Result<Self> {
        let text = private_file::read(config, "known_hosts", Secrecy::Open)?.unwrap_or_default();
        Ok(KnownHosts { config: config.clone(), text })
    }

    /// The key recorded for `host` (`HOST:PORT`).
    pub fn find(&self, host: &str) -> Option<PublicKey> {
        self.text.lines().find_map(|line| {
            let (name, key) = line.split_once(' ')?;
            (name == host).then(|| key.parse().ok())?
        })
    }

    /// Records `key` for `host`. Programs that record keys at the same time lose none.
    ///
    /// # Errors
    /// The file cannot be written, or another program holds its lock for 10 s.
    pub fn add(&mut self, host: &str, key: PublicKey) -> Result<()> {
        self.config.create()?;
        let line = format!("{host} {key}\n");
        let _lock = self.config.lock()?;
        append_line(&self.file(), &line).map_err(EngineError::file("write", self.file()))?;
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(&line);
        Ok(())
    }

    /// Where the list is.
    pub fn file(&self) -> PathBuf {
        self.config.file("known_hosts")
    }
}

/// Appends `line`, behind a newline when the last line has none: an editor or an interrupted
/// write may have left it so. The write is one call, so that a reader never sees half a line.
fn append_line(path: &Path, line: &str) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use std::fs;

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
        // Without a newline, so that each writer that came first would add one.
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
