//! The first message of a data connection.

use std::fmt;

/// The id of a session: 16 random bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The length of a data connection's first message in bytes.
pub const HELLO_BYTES: usize = 64;
/// The length of its authenticator, HMAC-SHA-256, in bytes.
pub const MAC_BYTES: usize = 32;

const MAGIC: [u8; 4] = *b"LHD1";
const SIGNED_BYTES: usize = HELLO_BYTES - MAC_BYTES;

/// The first 64 bytes of a data connection, which bind it to its session:
///
/// ```text
///  0   4  magic "LHD1" (a TLS client begins with 0x16, so one port serves both)
///  4  16  session id
/// 20   4  stream number, big-endian
/// 24   8  zero
/// 32  32  HMAC-SHA-256 of bytes 0 to 31 under the session's key
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHello {
    /// The session of the stream.
    pub session: SessionId,
    /// The number of the stream, from 0.
    pub stream: u32,
}

/// The reason why the first bytes of a data connection were rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// The magic number is wrong.
    #[error("not a longhaul data connection")]
    Magic,
    /// A reserved field is not zero.
    #[error("a data connection of a later version")]
    Reserved,
}

impl DataHello {
    /// Returns the bytes that the authenticator covers.
    pub fn signed_bytes(&self) -> [u8; SIGNED_BYTES] {
        let mut bytes = [0; SIGNED_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..20].copy_from_slice(&self.session.0);
        bytes[20..24].copy_from_slice(&self.stream.to_be_bytes());
        bytes
    }

    /// Returns the whole message.
    pub fn encode(&self, mac: &[u8; MAC_BYTES]) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..SIGNED_BYTES].copy_from_slice(&self.signed_bytes());
        bytes[SIGNED_BYTES..].copy_from_slice(mac);
        bytes
    }

    /// Parses a message. The caller looks up the session and verifies the authenticator.
    ///
    /// # Errors
    /// The bytes are not a hello of this version.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<(Self, [u8; MAC_BYTES]), HelloError> {
        if bytes[..4] != MAGIC {
            return Err(HelloError::Magic);
        }
        if bytes[24..SIGNED_BYTES] != [0; 8] {
            return Err(HelloError::Reserved);
        }
        let mut session = [0; 16];
        session.copy_from_slice(&bytes[4..20]);
        let mut stream = [0; 4];
        stream.copy_from_slice(&bytes[20..24]);
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(&bytes[SIGNED_BYTES..]);
        let hello = DataHello { session: SessionId(session), stream: u32::from_be_bytes(stream) };
        Ok((hello, mac))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_decoded_as_encoded() {
        let hello = DataHello { session: SessionId([7; 16]), stream: 3 };
        let mac = [9; MAC_BYTES];
        assert_eq!(DataHello::decode(&hello.encode(&mac)), Ok((hello, mac)));
    }

    #[test]
    fn an_unknown_opening_is_distinguished() {
        assert_eq!(DataHello::decode(&[0x16; HELLO_BYTES]), Err(HelloError::Magic));
        let mut later = DataHello { session: SessionId([7; 16]), stream: 3 }.encode(&[0; 32]);
        later[30] = 1;
        assert_eq!(DataHello::decode(&later), Err(HelloError::Reserved));
    }
}
