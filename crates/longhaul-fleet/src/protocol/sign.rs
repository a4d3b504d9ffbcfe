//! The signatures of requests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use ring::signature::{ED25519, UnparsedPublicKey};

/// Returns the text that an agent signs: the method, the path with its query, the counter, and the
/// SHA-256 of the body in lower-case hexadecimal, separated by line feeds.
pub fn signed_text(method: &str, path: &str, counter: u64, body: &[u8]) -> String {
    let hash = digest(&SHA256, body);
    let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{method}\n{path}\n{counter}\n{hex}")
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
