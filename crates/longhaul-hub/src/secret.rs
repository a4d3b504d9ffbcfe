//! Random secrets, their hashes, and identifiers.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};

/// The kernel's random generator failed.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the kernel returned no random bytes")]
pub(crate) struct NoRandom;

/// Returns a secret of 256 random bits in base64url: 43 characters.
pub(crate) fn secret() -> Result<String, NoRandom> {
    Ok(URL_SAFE_NO_PAD.encode(random::<32>()?))
}

/// Returns random bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], NoRandom> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| NoRandom)?;
    Ok(bytes)
}

/// Returns the hash that the store keeps of a random secret. A secret of 256 bits needs no salt.
pub(crate) fn hash(secret: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, secret.as_bytes()))
}

/// Returns an identifier that sorts by `at_ms`: 11 hexadecimal digits of the time and 10 random
/// ones.
pub(crate) fn id(at_ms: i64) -> Result<String, NoRandom> {
    let random = random::<5>()?;
    let tail: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{:011x}-{tail}", at_ms.max(0)))
}

/// Returns whether two secrets are equal, in constant time.
pub(crate) fn same(a: &str, b: &str) -> bool {
    digest(&SHA256, a.as_bytes()).as_ref() == digest(&SHA256, b.as_bytes()).as_ref()
}
