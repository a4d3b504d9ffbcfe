//! Signed requests to a hub.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longhaul_engine::session::Identity;
use longhaul_fleet::protocol::{
    AGENT_HEADER, COUNTER_HEADER, DIGEST_HEADER, SIGNATURE_HEADER, body_digest,
    signed_text_of_digest,
};

/// The key of an agent, and the id of its enrollment.
pub(crate) struct Signer<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) agent: &'a str,
}

impl Signer<'_> {
    /// Returns the names and values of the headers of a request with `body` and a `counter`.
    ///
    /// # Errors
    /// The key cannot sign.
    pub(crate) fn headers(
        &self,
        (method, path): (&str, &str),
        counter: u64,
        body: &[u8],
    ) -> io::Result<[(&'static str, String); 4]> {
        let digest = body_digest(body);
        let text = signed_text_of_digest(method, path, counter, &digest);
        let signature = self.identity.sign(text.as_bytes())?;
        Ok([
            (AGENT_HEADER, self.agent.to_owned()),
            (COUNTER_HEADER, counter.to_string()),
            (DIGEST_HEADER, digest),
            (SIGNATURE_HEADER, STANDARD.encode(signature)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use longhaul_fleet::protocol::{signature_holds, signed_text};

    use super::*;

    #[test]
    fn the_hub_can_verify_the_headers() {
        let identity = Identity::generate();
        let signer = Signer { identity: &identity, agent: "a1" };
        let [agent, counter, _, signature] =
            signer.headers(("GET", "/agent/v1/check"), 7, b"").unwrap();
        assert_eq!((agent.1.as_str(), counter.1.as_str()), ("a1", "7"));
        let key = identity.public().to_string();
        let key = key.split_once(' ').unwrap().1;
        let text = signed_text("GET", "/agent/v1/check", 7, b"");
        assert!(signature_holds(key, &text, &signature.1));
        let other = signed_text("POST", "/agent/v1/check", 7, b"");
        assert!(!signature_holds(key, &other, &signature.1));
    }
}
