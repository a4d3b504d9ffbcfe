//! The key of authenticated sessions: HMAC-SHA-256, truncated to 128 bits (RFC 8762, section 4.4).

use std::fmt;

use ring::hmac;

/// The bytes of a truncated HMAC.
pub(super) const TAG_BYTES: usize = 16;
/// The shortest and the longest key in bytes. A longer key would be hashed first (RFC 2104).
const KEY_BYTES: std::ops::RangeInclusive<usize> = 16..=64;

/// A key that sender and reflector share.
#[derive(Clone)]
pub struct StampKey(hmac::Key);

impl fmt::Debug for StampKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StampKey")
    }
}

/// The text is not a key of 16 to 64 bytes in hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a key of 32 to 128 hexadecimal digits")]
pub struct InvalidKey;

impl StampKey {
    /// Parses a key: 32 to 128 hexadecimal digits, with white space around them.
    ///
    /// # Errors
    /// The text has another form.
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        let digits = text.trim().as_bytes();
        let value = |digit: u8| (digit as char).to_digit(16).ok_or(InvalidKey);
        let (pairs, rest) = digits.as_chunks::<2>();
        if !rest.is_empty() || !KEY_BYTES.contains(&pairs.len()) {
            return Err(InvalidKey);
        }
        let bytes: Result<Vec<u8>, _> =
            pairs.iter().map(|[high, low]| Ok((value(*high)? << 4 | value(*low)?) as u8)).collect();
        Ok(StampKey(hmac::Key::new(hmac::HMAC_SHA256, &bytes?)))
    }

    /// Returns the truncated HMAC of the concatenated `parts`.
    #[must_use]
    pub fn tag(&self, parts: &[&[u8]]) -> [u8; TAG_BYTES] {
        let mut context = hmac::Context::with_key(&self.0);
        parts.iter().for_each(|part| context.update(part));
        let tag = context.sign();
        tag.as_ref()[..TAG_BYTES].try_into().expect("a tag of SHA-256 has 32 bytes")
    }

    /// Returns whether `tag` is that of `parts`. The time does not depend on the first difference.
    #[must_use]
    pub fn verify(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        let wanted = self.tag(parts);
        let differences = wanted.iter().zip(tag).fold(0, |sum, (one, other)| sum | (one ^ other));
        tag.len() == TAG_BYTES && std::hint::black_box(differences) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_is_that_of_the_rfc() {
        // RFC 4231, test case 1 has a key of 20 bytes 0x0b; test case 5 truncates to 128 bits.
        let key = StampKey::parse(&"0b".repeat(20)).unwrap();
        let wanted = [
            0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53, 0x5c, 0xa8, 0xaf, 0xce, 0xaf, 0x0b,
            0xf1, 0x2b,
        ];
        assert_eq!(key.tag(&[b"Hi", b" There"]), wanted);
        let key = StampKey::parse(&format!(" {}\n", "0C".repeat(20))).unwrap();
        let tag = key.tag(&[b"Test With Truncation"]);
        assert_eq!(tag[..4], [0xa3, 0xb6, 0x16, 0x74]);
        assert!(key.verify(&[b"Test With", b" Truncation"], &tag));
        assert!(!key.verify(&[b"Test with Truncation"], &tag));
        assert!(!key.verify(&[b"Test With Truncation"], &tag[..15]));
        assert!(!key.verify(&[b"Test With Truncation"], &[]));
    }

    #[test]
    fn a_key_that_is_short_or_has_other_digits_is_refused() {
        for text in
            ["", "0b", &"0b".repeat(15), &"0b".repeat(65), &"0g".repeat(16), &"0".repeat(33)]
        {
            assert!(StampKey::parse(text).is_err(), "{text}");
        }
        assert_eq!(format!("{:?}", StampKey::parse(&"0b".repeat(16)).unwrap()), "StampKey");
    }
}
