//! The identity of an agent: the one-time token `SECRET.PIN`, the enrollment, and the signatures of requests.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

/// A token: the one-time secret of a host, and the pin of the hub's key.
///
/// `Debug` does not print the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct EnrollToken {
    /// The secret, which the hub knows as a hash: 16 to 128 characters of `A-Za-z0-9_-`.
    pub secret: String,
    /// The pin of the hub's key, see [`key_pin`]. `None` if the chain of the certificate is
    /// verified.
    pub pin: Option<String>,
}

/// An invalid token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token is not SECRET or SECRET.PIN")]
pub struct InvalidToken;

/// Returns the pin of a key: the SHA-256 of the DER `SubjectPublicKeyInfo` of its certificate, in
/// base64url without padding.
pub fn key_pin(spki_der: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, spki_der))
}

impl fmt::Display for EnrollToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.secret)?;
        self.pin.as_deref().map_or(Ok(()), |pin| write!(f, ".{pin}"))
    }
}

impl fmt::Debug for EnrollToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnrollToken").field("pin", &self.pin).finish_non_exhaustive()
    }
}

impl FromStr for EnrollToken {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        let (secret, pin) = match text.trim().split_once('.') {
            Some((secret, pin)) => (secret, Some(pin)),
            None => (text.trim(), None),
        };
        let plain =
            |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
        let good_pin = |pin: &str| URL_SAFE_NO_PAD.decode(pin).is_ok_and(|hash| hash.len() == 32);
        if !(16..=128).contains(&secret.len()) || !plain(secret) || !pin.is_none_or(good_pin) {
            return Err(InvalidToken);
        }
        Ok(EnrollToken { secret: secret.to_owned(), pin: pin.map(str::to_owned) })
    }
}

/// The request of a new agent, which a one-time token authenticates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrollRequest {
    /// The secret part of the token.
    pub secret: String,
    /// The name of the agent's host; it must be the name of the token.
    pub host: String,
    /// The agent's Ed25519 public key: 32 bytes in base64.
    pub public_key: String,
    /// The version of longhaul.
    pub version: String,
}

/// The answer to an enrollment, and to a check of one.
///
/// The same key may repeat an enrollment with the same token within ten minutes, because an answer can
/// be lost. The hub then returns the same id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrollResponse {
    /// The agent's id, which its later requests state.
    pub agent: String,
    /// The name of the agent's host in the mesh.
    pub host: String,
    /// The version of the hub.
    pub hub_version: String,
}

/// Returns the text that an agent signs: the method, the path with its query, the counter, and the
/// SHA-256 of the body in lower-case hexadecimal, separated by line feeds.
pub fn signed_text(method: &str, path: &str, counter: u64, body: &[u8]) -> String {
    signed_text_of_digest(method, path, counter, &body_digest(body))
}

/// Returns the text of [`signed_text`] for a body whose digest is known. The header
/// `longhaul-digest` contains this digest, so that the hub can verify the signature before it reads
/// the body.
pub fn signed_text_of_digest(method: &str, path: &str, counter: u64, digest: &str) -> String {
    format!("{method}\n{path}\n{counter}\n{digest}")
}

/// Returns the SHA-256 of a body in lower-case hexadecimal.
pub fn body_digest(body: &[u8]) -> String {
    digest(&SHA256, body).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns whether `signature` (base64) is the signature of `text` by the Ed25519 `public_key`
/// (base64).
pub fn signature_holds(public_key: &str, text: &str, signature: &str) -> bool {
    let (Ok(key), Ok(signature)) = (STANDARD.decode(public_key), STANDARD.decode(signature)) else {
        return false;
    };
    UnparsedPublicKey::new(&ED25519, key).verify(text.as_bytes(), &signature).is_ok()
}

#[cfg(test)]
mod tests {
    use ring::signature::{Ed25519KeyPair, KeyPair as _};

    use super::*;

    #[test]
    fn a_token_has_a_secret_and_a_pin() {
        let pin = key_pin(b"key");
        let token: EnrollToken = format!("0123456789abcdef.{pin}\n").parse().unwrap();
        assert_eq!(token.pin.as_deref(), Some(pin.as_str()));
        assert_eq!(token.to_string(), format!("0123456789abcdef.{pin}"));
        assert!(!format!("{token:?}").contains("0123456789abcdef"));
        assert_eq!("0123456789abcdef".parse::<EnrollToken>().unwrap().pin, None);
        for wrong in
            ["", "short", "0123456789abcdef.pin", "0123456789abcde/.", "a b c d e f g h i j"]
        {
            assert_eq!(wrong.parse::<EnrollToken>(), Err(InvalidToken), "{wrong}");
        }
    }

    #[test]
    fn a_signature_belongs_to_one_request() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let key = STANDARD.encode(pair.public_key());
        let text = signed_text("POST", "/agent/v1/sync?wait=25", 9, b"{}");
        assert_eq!(
            text,
            "POST\n/agent/v1/sync?wait=25\n9\n\
             44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        );
        let signature = STANDARD.encode(pair.sign(text.as_bytes()));
        assert!(signature_holds(&key, &text, &signature));
        let other = signed_text("POST", "/agent/v1/sync?wait=25", 10, b"{}");
        assert!(!signature_holds(&key, &other, &signature));
        assert!(!signature_holds("AAAA", &text, &signature));
        assert!(!signature_holds(&key, &text, "not base64"));
    }
}
