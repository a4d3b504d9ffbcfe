//! The change of a server's key: it announces the next one, and clients that trust the present key
//! record both.
//!
//! The announcement comes within TLS, from the holder of the present key. The next key signs it
//! together with the present key and a value that only this session has, so that a server cannot
//! announce the key of another.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longhaul_core::wire::{HostKey, HostKeys};
use ring::signature::{ED25519, UnparsedPublicKey};

use super::config_dir::ConfigDir;
use super::identity::Identity;
use super::known_hosts::KnownHosts;
use super::public_key::PublicKey;
use super::secret::SessionSecret;

const CONTEXT: &[u8] = b"longhaul host key 1\0";
/// The maximum number of keys of an announcement that are read.
const NEXT_LIMIT: usize = 4;
const RETIRED_LIMIT: usize = 16;

/// Returns the announcement of `identity` in one session; `None` if there is none.
pub(super) fn announce(identity: &Identity, secret: &SessionSecret) -> Option<HostKeys> {
    let next = identity.next().and_then(|next| {
        let signed = next.sign(&statement(identity.public(), next.public(), secret)).ok()?;
        Some(HostKey { key: next.public().to_string(), proof: STANDARD.encode(signed) })
    });
    let keys: Vec<_> = next.into_iter().collect();
    let retired: Vec<_> = identity.retired().iter().map(PublicKey::to_string).collect();
    (!keys.is_empty() || !retired.is_empty()).then_some(HostKeys { keys, retired })
}

/// Records the keys that a trusted server announces.
pub(super) struct Learner {
    pub(super) config: ConfigDir,
    /// The name under which the server is known.
    pub(super) host: String,
    /// The recorded key that it has shown.
    pub(super) current: PublicKey,
    pub(super) secret: SessionSecret,
}

impl Learner {
    /// Records an announcement. A failure does not end the session: the present key stays trusted.
    pub(super) fn learn(&self, announced: &HostKeys) {
        let next: Vec<_> =
            announced.keys.iter().take(NEXT_LIMIT).filter_map(|key| self.proved(key)).collect();
        let retired = announced.retired.iter().take(RETIRED_LIMIT);
        let retired: Vec<_> = retired.filter_map(|key| key.parse().ok()).collect();
        if let Ok(mut known) = KnownHosts::load(&self.config) {
            let _ = known.learn(&self.host, self.current, &next, &retired);
        }
    }

    /// Returns the announced key if its holder has signed for this session.
    fn proved(&self, announced: &HostKey) -> Option<PublicKey> {
        let key: PublicKey = announced.key.parse().ok()?;
        let proof = STANDARD.decode(&announced.proof).ok()?;
        let statement = statement(self.current, key, &self.secret);
        UnparsedPublicKey::new(&ED25519, key.bytes()).verify(&statement, &proof).ok()?;
        Some(key)
    }
}

fn statement(current: PublicKey, next: PublicKey, secret: &SessionSecret) -> Vec<u8> {
    [CONTEXT, current.bytes(), next.bytes(), &secret.host_key_binding()].concat()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Client {
        _dir: tempfile::TempDir,
        learner: Learner,
    }

    impl Client {
        fn new(current: PublicKey, secret: &SessionSecret) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let config = ConfigDir::at(dir.path());
            let mut known = KnownHosts::load(&config).unwrap();
            known.add("other:1", current).unwrap();
            known.add("far:1", current).unwrap();
            let (host, secret) = ("far:1".to_owned(), secret.clone());
            Client { _dir: dir, learner: Learner { config, host, current, secret } }
        }

        fn known(&self, host: &str) -> Vec<PublicKey> {
            KnownHosts::load(&self.learner.config).unwrap().keys_of(host).collect()
        }
    }

    #[test]
    fn the_next_key_is_learned_and_the_retired_one_forgotten() {
        let (current, next) = (Identity::generate(), Identity::generate());
        let secret = SessionSecret::from_keying_material(&[1; 32]);
        let client = Client::new(current.public(), &secret);
        assert_eq!(announce(&current, &secret), None);
        let before = current.clone().announcing(Some(next.clone()), Vec::new());
        let announced = announce(&before, &secret).unwrap();
        client.learner.learn(&announced);
        client.learner.learn(&announced);
        assert_eq!(client.known("far:1"), [current.public(), next.public()]);

        let after = next.clone().announcing(None, vec![current.public()]);
        let learner = Learner { current: next.public(), ..client.learner };
        learner.learn(&announce(&after, &secret).unwrap());
        let client = Client { learner, ..client };
        assert_eq!(client.known("far:1"), [next.public()]);
        assert_eq!(client.known("other:1"), [current.public()], "another name is another server");
        let mode = std::os::unix::fs::MetadataExt::mode(
            &fs::metadata(client.learner.config.file("known_hosts")).unwrap(),
        );
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_key_without_a_proof_for_this_session_is_not_learned() {
        let (current, next) = (Identity::generate(), Identity::generate());
        let [ours, others] = [[1; 32], [2; 32]].map(|m| SessionSecret::from_keying_material(&m));
        let client = Client::new(current.public(), &ours);
        let server = current.clone().announcing(Some(next.clone()), Vec::new());
        let mut announced = announce(&server, &ours).unwrap();
        announced.keys[0].key = Identity::generate().public().to_string();
        let replayed = announce(&server, &others).unwrap();
        let another = Identity::generate().announcing(Some(next), Vec::new());
        for announced in [announced, replayed, announce(&another, &ours).unwrap()] {
            client.learner.learn(&announced);
            assert_eq!(client.known("far:1"), [current.public()], "{announced:?}");
        }
        let nonsense = HostKey { key: "x".to_owned(), proof: "%".to_owned() };
        let retired = vec![current.public().to_string(), "y".to_owned()];
        client.learner.learn(&HostKeys { keys: vec![nonsense], retired });
        assert_eq!(client.known("far:1"), [current.public()], "the key in use stays");
    }
}
