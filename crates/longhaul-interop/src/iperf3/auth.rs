//! The authentication of a client: its name and password, encrypted with the server's public key.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rsa::pkcs8::DecodePublicKey;
use rsa::{Oaep, Pkcs1v15Encrypt, RsaPublicKey};

use crate::error::{InteropError, Result};

/// The padding of the encrypted credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Padding {
    /// OAEP with SHA-1, since 3.17.
    #[default]
    Oaep,
    /// PKCS #1 v1.5, before 3.17.
    Pkcs1,
}

/// The name and password of a user, and the public key of the server.
#[derive(Clone)]
pub struct Credentials {
    user: String,
    password: String,
    key: RsaPublicKey,
    padding: Padding,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the password.
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Creates credentials with the public key in the PEM file `key`.
    ///
    /// # Errors
    /// The file cannot be read or has no RSA public key.
    pub fn new(user: &str, password: &str, key: &Path, padding: Padding) -> Result<Self> {
        let failed = |source| InteropError::KeyFile { path: PathBuf::from(key), source };
        let text = std::fs::read_to_string(key).map_err(failed)?;
        let parsed = RsaPublicKey::from_public_key_pem(&text);
        let invalid = |_| failed(std::io::ErrorKind::InvalidData.into());
        let key = parsed.map_err(invalid)?;
        Ok(Credentials { user: user.to_owned(), password: password.to_owned(), key, padding })
    }

    /// Returns the encrypted credentials with the present time, in base 64.
    ///
    /// # Errors
    /// Name and password are too long for the key.
    pub(super) fn token(&self) -> Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let plain = plain_text(&self.user, &self.password, now);
        let mut random = rsa::rand_core::OsRng;
        let encrypted = match self.padding {
            Padding::Oaep => {
                self.key.encrypt(&mut random, Oaep::new::<sha1::Sha1>(), plain.as_bytes())
            }
            Padding::Pkcs1 => self.key.encrypt(&mut random, Pkcs1v15Encrypt, plain.as_bytes()),
        };
        let operation = "encrypt the user name and password; they may be too long for the key";
        let failed = |error| InteropError::Host {
            operation,
            source: std::io::Error::other(format!("{error}")),
        };
        Ok(STANDARD.encode(encrypted.map_err(failed)?))
    }
}

/// Returns the text that is encrypted. The spaces are part of the format.
fn plain_text(user: &str, password: &str, seconds: u64) -> String {
    format!("user: {user}\npwd:  {password}\nts:   {seconds}")
}

#[cfg(test)]
mod tests {
    use rsa::RsaPrivateKey;
    use rsa::pkcs8::{EncodePublicKey, LineEnding};

    use super::*;

    #[test]
    fn a_server_reads_the_credentials_with_either_padding() {
        let mut random = rsa::rand_core::OsRng;
        let private = RsaPrivateKey::new(&mut random, 1024).unwrap();
        let pem = private.to_public_key().to_public_key_pem(LineEnding::LF).unwrap();
        let directory = std::env::temp_dir().join(format!("longhaul-auth-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("public.pem");
        std::fs::write(&file, pem).unwrap();
        for padding in [Padding::Oaep, Padding::Pkcs1] {
            let credentials = Credentials::new("mario", "rossi", &file, padding).unwrap();
            assert!(!format!("{credentials:?}").contains("rossi"));
            let token = STANDARD.decode(credentials.token().unwrap()).unwrap();
            let plain = match padding {
                Padding::Oaep => private.decrypt(Oaep::new::<sha1::Sha1>(), &token),
                Padding::Pkcs1 => private.decrypt(Pkcs1v15Encrypt, &token),
            };
            let plain = String::from_utf8(plain.unwrap()).unwrap();
            assert!(plain.starts_with("user: mario\npwd:  rossi\nts:   1"), "{plain}");
        }
        let missing = directory.join("missing.pem");
        assert!(Credentials::new("a", "b", &missing, Padding::Oaep).is_err());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
