//! The keys that may reach files here: `authorized_keys`.

use std::collections::HashMap;
use std::path::Path;

use super::grant::Grant;
use super::identity::{ConfigDir, KEY_TYPE, PublicKey};
use super::private_file::read_if_present;
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
            let mut grant = Grant::from_options_or_none(line[..at].trim()).map_err(|option| {
                EngineError::KeyOption { file: path.clone(), line: number, option }
            })?;
            grant.comment = comment(&line[at..]);
            // As with ssh, the first line of a key counts.
            keys.entry(key).or_insert(grant);
        }
        // Who has this key is this user already.
        keys.entry(own).or_insert_with(|| Grant { owners: true, ..Grant::default() });
        Ok(AuthorisedKeys(keys))
    }

    /// What `key` is allowed; `None` if it may not reach files.
    pub fn find(&self, key: &PublicKey) -> Option<&Grant> {
        self.0.get(key)
    }

    /// Whether a key has a directory of its own.
    pub fn has_roots(&self) -> bool {
        self.roots().next().is_some()
    }

    /// The directories of single keys.
    pub fn roots(&self) -> impl Iterator<Item = &Path> {
        self.0.values().filter_map(|grant| grant.root.as_deref())
    }

    /// Whether a key other than `own` may set owners.
    pub fn has_owners(&self, own: &PublicKey) -> bool {
        self.0.iter().any(|(key, grant)| key != own && grant.owners)
    }
}

/// The text after the type and the key of a line.
fn comment(key: &str) -> Option<String> {
    let mut rest = key;
    for _ in 0..2 {
        rest = rest.trim_start().split_once(char::is_whitespace)?.1;
    }
    Some(rest.trim().to_owned()).filter(|comment| !comment.is_empty())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::session::{Identity, Rights};

    #[test]
    fn the_own_key_is_authorised_and_a_stranger_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let config = ConfigDir::at(dir.path());
        let [own, friend, stranger] = [(); 3].map(|()| Identity::generate().public());
        fs::write(dir.path().join("authorized_keys"), format!("# people\n{friend} bob\n")).unwrap();
        let keys = AuthorisedKeys::load(&config, own).unwrap();
        assert!(keys.find(&own).is_some() && keys.find(&friend).is_some());
        assert!(keys.find(&stranger).is_none() && !keys.has_roots());
        assert_eq!(keys.find(&friend).unwrap().comment.as_deref(), Some("bob"));
        assert_eq!(keys.find(&own).unwrap().comment, None);
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
