//! Secrets: random ones, their hashes, identifiers, and the hashes of passwords.

use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
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

/// The parameters that OWASP recommends for Argon2id: 19 MiB, two passes, one lane.
const COST: (u32, u32, u32) = (19 * 1024, 2, 1);
/// The highest cost of a stored hash that the hub computes.
const MOST: (u32, u32, u32) = (256 * 1024, 16, 4);

/// The minimum number of characters of a password.
pub const LEAST_CHARACTERS: usize = 10;
/// The maximum number of bytes of a password.
pub(crate) const MOST_BYTES: usize = 1024;

/// Returns the hash of a password with a random salt.
pub(crate) fn hash_password(password: &str) -> Result<String, NoRandom> {
    let salt = random::<16>()?;
    let hash = derive(password, &salt, COST).ok_or(NoRandom)?;
    let (memory, passes, lanes) = COST;
    let (salt, hash) = (STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(hash));
    Ok(format!("$argon2id$v=19$m={memory},t={passes},p={lanes}${salt}${hash}"))
}

/// Returns whether a password matches the hash. No password matches a malformed hash.
pub(crate) fn has_hash(password: &str, stored: &str) -> bool {
    let Some((cost, salt, hash)) = parse(stored) else { return false };
    derive(password, &salt, cost).is_some_and(|found| {
        let digest = |bytes: &[u8]| ring::digest::digest(&ring::digest::SHA256, bytes);
        digest(&found).as_ref() == digest(&hash).as_ref()
    })
}

type Cost = (u32, u32, u32);

fn parse(stored: &str) -> Option<(Cost, Vec<u8>, Vec<u8>)> {
    let mut parts = stored.strip_prefix("$argon2id$v=19$")?.split('$');
    let (cost, salt, hash) = (parts.next()?, parts.next()?, parts.next()?);
    let mut numbers = cost.split(',').zip(["m=", "t=", "p="]);
    let mut number = || {
        let (part, name) = numbers.next()?;
        part.strip_prefix(name)?.parse::<u32>().ok()
    };
    let cost = (number()?, number()?, number()?);
    let bounded = cost.0 <= MOST.0 && cost.1 <= MOST.1 && cost.2 <= MOST.2;
    bounded.then_some(())?;
    Some((cost, STANDARD_NO_PAD.decode(salt).ok()?, STANDARD_NO_PAD.decode(hash).ok()?))
}

fn derive(password: &str, salt: &[u8], (memory, passes, lanes): Cost) -> Option<[u8; 32]> {
    let params = Params::new(memory, passes, lanes, Some(32)).ok()?;
    let mut hash = [0; 32];
    let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    argon.hash_password_into(password.as_bytes(), salt, &mut hash).ok()?;
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_belongs_to_one_password() {
        let hash = hash_password("correct horse").unwrap();
        assert!(has_hash("correct horse", &hash), "{hash}");
        assert!(!has_hash("correct hors", &hash));
        assert_ne!(hash, hash_password("correct horse").unwrap());
        for malformed in ["", "$argon2id$v=19$m=99999999,t=2,p=1$AAAA$AAAA", "$argon2id$v=19$$$"] {
            assert!(!has_hash("", malformed), "{malformed}");
        }
    }
}
