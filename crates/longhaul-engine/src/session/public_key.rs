//! Public keys, which identify the users of hosts.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

/// The fixed start of an Ed25519 `SubjectPublicKeyInfo` (RFC 8410, section 4); the key follows.
const SPKI_PREFIX: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
pub(super) const KEY_TYPE: &str = "longhaul-ed25519";

/// An Ed25519 public key, which identifies a user of a host.
///
/// Its text is `longhaul-ed25519 BASE64`, as in the lists of authorized and known keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Returns the key of a TLS raw public key.
    pub(super) fn from_spki(spki: &[u8]) -> Option<Self> {
        let key = spki.strip_prefix(&SPKI_PREFIX)?;
        Some(PublicKey(key.try_into().ok()?))
    }

    /// Returns the key as a TLS raw public key.
    pub(super) fn to_spki(self) -> Vec<u8> {
        [SPKI_PREFIX.as_slice(), &self.0].concat()
    }

    pub(super) fn from_bytes(bytes: [u8; 32]) -> Self {
        PublicKey(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns `SHA256:...` in the style of ssh, which is short enough to compare by eye.
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

    /// Parses `longhaul-ed25519 BASE64`; a comment may follow.
    fn from_str(line: &str) -> std::result::Result<Self, ()> {
        let mut words = line.split_whitespace();
        if words.next() != Some(KEY_TYPE) {
            return Err(());
        }
        let bytes = STANDARD.decode(words.next().ok_or(())?).map_err(|_| ())?;
        Ok(PublicKey(bytes.try_into().map_err(|_| ())?))
    }
}
