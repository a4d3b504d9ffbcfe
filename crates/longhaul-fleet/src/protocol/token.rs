//! The text of an enrolment token: `SECRET.PIN`.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};

/// A token: the one-time secret of a host, and the pin of the hub's key.
///
/// `Debug` does not print the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct EnrolToken {
    /// The secret, which the hub knows as a hash: 16 to 128 characters of `A-Za-z0-9_-`.
    pub secret: String,
    /// The pin of the hub's key, see [`key_pin`]. `None` if the certificate is verified by its
    /// chain.
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

impl fmt::Display for EnrolToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.secret)?;
        self.pin.as_deref().map_or(Ok(()), |pin| write!(f, ".{pin}"))
    }
}

impl fmt::Debug for EnrolToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnrolToken").field("pin", &self.pin).finish_non_exhaustive()
    }
}

impl FromStr for EnrolToken {
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
        Ok(EnrolToken { secret: secret.to_owned(), pin: pin.map(str::to_owned) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_a_secret_and_a_pin() {
        let pin = key_pin(b"key");
        let token: EnrolToken = format!("0123456789abcdef.{pin}\n").parse().unwrap();
        assert_eq!(token.pin.as_deref(), Some(pin.as_str()));
        assert_eq!(token.to_string(), format!("0123456789abcdef.{pin}"));
        assert!(!format!("{token:?}").contains("0123456789abcdef"));
        assert_eq!("0123456789abcdef".parse::<EnrolToken>().unwrap().pin, None);
        for wrong in
            ["", "short", "0123456789abcdef.pin", "0123456789abcde/.", "a b c d e f g h i j"]
        {
            assert_eq!(wrong.parse::<EnrolToken>(), Err(InvalidToken), "{wrong}");
        }
    }
}
