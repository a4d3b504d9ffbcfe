//! The secret of a session, and the keys derived from it.

use longhaul_core::wire::{DataHello, Greeting, GreetingKind, HELLO_BYTES, MAC_BYTES, SessionId};
use ring::rand::{SecureRandom, SystemRandom};
use ring::{hkdf, hmac};

/// The secret of a session, which only its two ends know. Everything that protects its data
/// connections is derived from it (HKDF-SHA-256, RFC 5869), with a label per use.
#[derive(Clone)]
pub struct SessionSecret {
    key: hkdf::Prk,
    material: [u8; 32],
}

/// The 256-bit key of one data connection.
pub struct StreamKey(pub(crate) [u8; 32]);

/// Returns fresh keying material for a session whose channel is not TLS.
pub fn random_keying_material() -> [u8; 32] {
    let mut bytes = [0; 32];
    // ring fails here only if the kernel has no random bytes.
    SystemRandom::new().fill(&mut bytes).expect("the kernel's random number generator answers");
    bytes
}

impl SessionSecret {
    /// Creates the secret from keying material that TLS exports, or from random bytes that ssh
    /// carries.
    pub fn from_keying_material(material: &[u8; 32]) -> Self {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"longhaul session 1");
        SessionSecret { key: salt.extract(material), material: *material }
    }

    /// Returns the keying material. Its holder can take part in the data connections of this
    /// session only.
    pub(crate) fn keying_material(&self) -> [u8; 32] {
        self.material
    }

    /// Returns the session's public name.
    pub fn session_id(&self) -> SessionId {
        SessionId(self.expand(&[b"session id"]))
    }

    /// Returns the key of data connection `stream`; bytes flow in one direction on each.
    pub fn stream_key(&self, stream: u32) -> StreamKey {
        StreamKey(self.expand(&[b"stream key", &stream.to_be_bytes()]))
    }

    /// Returns the first message of data connection `stream`.
    pub fn hello(&self, stream: u32) -> [u8; HELLO_BYTES] {
        let hello = DataHello { session: self.session_id(), stream };
        let tag = hmac::sign(&self.hello_key(), &hello.signed_bytes());
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(tag.as_ref());
        hello.encode(&mac)
    }

    /// Returns whether `mac` proves that `hello` comes from the other end of this session.
    pub fn verify_hello(&self, hello: &DataHello, mac: &[u8; MAC_BYTES]) -> bool {
        hmac::verify(&self.hello_key(), &hello.signed_bytes(), mac).is_ok()
    }

    /// Returns a message that opens UDP flow `stream`, or answers one.
    pub(super) fn greeting(
        &self,
        kind: GreetingKind,
        stream: u32,
        cookie: [u8; 7],
    ) -> [u8; HELLO_BYTES] {
        let greeting = Greeting { kind, session: self.session_id(), stream, cookie };
        let tag = hmac::sign(&self.hello_key(), &greeting.signed_bytes());
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(tag.as_ref());
        greeting.encode(&mac)
    }

    /// Returns whether `mac` proves that `greeting` comes from the other end of this session.
    pub(super) fn verify_greeting(&self, greeting: &Greeting, mac: &[u8; MAC_BYTES]) -> bool {
        greeting.session == self.session_id()
            && hmac::verify(&self.hello_key(), &greeting.signed_bytes(), mac).is_ok()
    }

    /// Returns a mark of `thing` that only the ends of this session can compare.
    pub(crate) fn mark(&self, thing: &[u8]) -> [u8; 16] {
        self.expand(&[b"mark", thing])
    }

    /// Returns the tag of UDP flow `stream` in each of its datagrams.
    pub fn datagram_tag(&self, stream: u32) -> u64 {
        u64::from_be_bytes(self.expand(&[b"datagram tag", &stream.to_be_bytes()]))
    }

    /// Returns a value of this session for signatures by another key of the server.
    pub(super) fn host_key_binding(&self) -> [u8; 32] {
        self.expand(&[b"host key"])
    }

    fn hello_key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.expand::<32>(&[b"hello key"]))
    }

    fn expand<const N: usize>(&self, info: &[&[u8]]) -> [u8; N] {
        struct Length(usize);
        impl hkdf::KeyType for Length {
            fn len(&self) -> usize {
                self.0
            }
        }
        let mut key = [0; N];
        // HKDF-SHA-256 returns up to 255 x 32 bytes; every N here is at most 32.
        self.key
            .expand(info, Length(N))
            .and_then(|okm| okm.fill(&mut key))
            .expect("a short key can be expanded");
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_bound_to_session_and_stream() {
        let ours = SessionSecret::from_keying_material(&[1; 32]);
        let theirs = SessionSecret::from_keying_material(&[2; 32]);
        let (hello, mac) = DataHello::decode(&ours.hello(3)).unwrap();
        assert!(ours.verify_hello(&hello, &mac));
        assert!(!theirs.verify_hello(&hello, &mac));
        assert!(!ours.verify_hello(&DataHello { stream: 4, ..hello }, &mac));
        assert_ne!(ours.stream_key(0).0, ours.stream_key(1).0);
    }
}
