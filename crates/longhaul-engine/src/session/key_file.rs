//! The formats of identity files: a private key in OpenSSH's format, encrypted or not; the public
//! half of a key that an ssh-agent has; or the base64 of a PKCS #8 key, as earlier versions wrote
//! it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{Ed25519KeyPair, KeyPair};
use ssh_key::private::{Ed25519Keypair, Ed25519PrivateKey, KeypairData};
use ssh_key::public::Ed25519PublicKey;
use ssh_key::{Cipher, Kdf, LineEnding, PrivateKey};

use super::public_key::PublicKey;
use super::secret::random_keying_material;

const OPENSSH: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
/// The length of a salt, and rounds of bcrypt, as in OpenSSH 9.4 and later.
const SALT_BYTES: usize = 16;
const ROUNDS: u32 = if cfg!(test) { 4 } else { 24 };
/// The position of the private key in a PKCS #8 file of ring (RFC 8410, section 7).
const PKCS8_SEED: std::ops::Range<usize> = 16..48;

/// The private half of an Ed25519 key (RFC 8032, section 5.1.5).
pub(super) type Seed = [u8; 32];

/// The contents of an identity file.
pub(super) enum KeyFile {
    /// A private key.
    Plain(Seed),
    /// A private key with a passphrase.
    Encrypted(Box<PrivateKey>, PublicKey),
    /// A public key.
    Public(PublicKey),
}

impl KeyFile {
    /// Parses a file; `None` if it has no Ed25519 key.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.starts_with(OPENSSH) {
            let key = PrivateKey::from_openssh(text).ok()?;
            let public = PublicKey::from_bytes(key.public_key().key_data().ed25519()?.0);
            return if key.is_encrypted() {
                Some(KeyFile::Encrypted(Box::new(key), public))
            } else {
                seed_of(&key, public).map(KeyFile::Plain)
            };
        }
        if let Ok(key) = text.parse() {
            return Some(KeyFile::Public(key));
        }
        if let Ok(key) = ssh_key::PublicKey::from_openssh(text) {
            return Some(KeyFile::Public(PublicKey::from_bytes(key.key_data().ed25519()?.0)));
        }
        seed_of_pkcs8(&STANDARD.decode(text).ok()?).map(KeyFile::Plain)
    }

    /// Returns the public half.
    pub(super) fn public(&self) -> PublicKey {
        match self {
            KeyFile::Plain(seed) => public_of(seed),
            KeyFile::Encrypted(_, public) | KeyFile::Public(public) => *public,
        }
    }
}

/// Returns the private key of an encrypted file; `None` if the passphrase is wrong.
pub(super) fn decrypt(key: &PrivateKey, public: PublicKey, passphrase: &str) -> Option<Seed> {
    seed_of(&key.decrypt(passphrase).ok()?, public)
}

/// Returns a private key as a file, encrypted if there is a passphrase.
pub(super) fn encode(seed: &Seed, passphrase: Option<&str>) -> ssh_key::Result<String> {
    let pair = Ed25519Keypair {
        public: Ed25519PublicKey(*public_of(seed).bytes()),
        private: Ed25519PrivateKey::from_bytes(seed),
    };
    let mut key = PrivateKey::new(KeypairData::Ed25519(pair), "longhaul")?;
    if let Some(passphrase) = passphrase {
        let random = random_keying_material();
        let (salt, rest) = random.split_at(SALT_BYTES);
        let kdf = Kdf::Bcrypt { salt: salt.to_vec(), rounds: ROUNDS };
        let check = u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]);
        key = key.encrypt_with(Cipher::Aes256Ctr, kdf, check, passphrase)?;
    }
    Ok(key.to_openssh(LineEnding::LF)?.to_string())
}

/// Returns the public half of a private key.
pub(super) fn public_of(seed: &Seed) -> PublicKey {
    let pair = pair_of(seed);
    let bytes = pair.public_key().as_ref().try_into().expect("an Ed25519 key has 32 bytes");
    PublicKey::from_bytes(bytes)
}

/// Returns the key pair for signatures.
pub(super) fn pair_of(seed: &Seed) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(seed).expect("any 32 bytes are an Ed25519 key")
}

fn seed_of(key: &PrivateKey, public: PublicKey) -> Option<Seed> {
    let seed = key.key_data().ed25519()?.private.to_bytes();
    (public_of(&seed) == public).then_some(seed)
}

fn seed_of_pkcs8(pkcs8: &[u8]) -> Option<Seed> {
    let pair = Ed25519KeyPair::from_pkcs8(pkcs8).ok()?;
    let seed: Seed = pkcs8.get(PKCS8_SEED)?.try_into().ok()?;
    (public_of(&seed).bytes() == pair.public_key().as_ref()).then_some(seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that version 0.1 wrote.
    const FIRST_FORMAT: &str = "MFECAQEwBQYDK2VwBCIEIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH\
                                BwcHgSEA6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuSQh7qaRRG0iw=";

    fn seed(text: &str) -> Seed {
        match KeyFile::parse(text) {
            Some(KeyFile::Plain(seed)) => seed,
            _ => panic!("no private key in {text}"),
        }
    }

    #[test]
    fn a_key_of_the_first_format_is_read() {
        assert_eq!(seed(FIRST_FORMAT), [7; 32]);
        let random = ring::rand::SystemRandom::new();
        let made = ring::signature::Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let read = KeyFile::parse(&STANDARD.encode(&made)).map(|key| *key.public().bytes());
        let pair = Ed25519KeyPair::from_pkcs8(made.as_ref()).unwrap();
        assert_eq!(read.as_ref().map(<[u8; 32]>::as_slice), Some(pair.public_key().as_ref()));
    }

    #[test]
    fn a_key_comes_back_with_its_passphrase_and_no_other() {
        assert_eq!(seed(&encode(&[3; 32], None).unwrap()), [3; 32]);
        let text = encode(&[3; 32], Some("correct horse")).unwrap();
        let Some(KeyFile::Encrypted(key, public)) = KeyFile::parse(&text) else {
            panic!("{text}");
        };
        assert_eq!(public, public_of(&[3; 32]), "readable without the passphrase");
        assert_eq!(decrypt(&key, public, "correct horse"), Some([3; 32]));
        assert_eq!(decrypt(&key, public, "correct horsf"), None);
        assert_eq!(decrypt(&key, public_of(&[4; 32]), "correct horse"), None);
    }

    #[test]
    fn a_public_key_is_one_for_an_agent() {
        let public = public_of(&[9; 32]);
        let ssh = ssh_key::PublicKey::from(Ed25519PublicKey(*public.bytes()));
        for text in [format!("{public} me"), format!("{} me\n", ssh.to_openssh().unwrap())] {
            assert!(matches!(KeyFile::parse(&text), Some(KeyFile::Public(key)) if key == public));
        }
        for text in ["", "rubbish", "ssh-ed25519 AAAA"] {
            assert!(KeyFile::parse(text).is_none(), "{text}");
        }
    }
}
