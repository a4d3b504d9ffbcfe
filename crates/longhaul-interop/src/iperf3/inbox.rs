//! The bytes received on a control connection, read as state bytes and documents.

use serde_json::Value;

use super::state::State;
use crate::error::Fault;

/// The bytes received on a control connection that are not yet read.
#[derive(Debug, Default)]
pub(super) struct Inbox(Vec<u8>);

impl Inbox {
    /// Adds received bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Takes a state byte; `None` until it has arrived.
    pub(super) fn state(&mut self) -> Result<Option<State>, Fault> {
        let Some(&byte) = self.0.first() else { return Ok(None) };
        self.0.drain(..1);
        let state = State::of(byte).ok_or(Fault::Unexpected(i32::from(byte as i8)))?;
        Ok(Some(state))
    }

    /// Takes a big-endian number of 32 bits; `None` until it has arrived.
    pub(super) fn number(&mut self) -> Option<i32> {
        let number = i32::from_be_bytes(*self.0.first_chunk()?);
        self.0.drain(..4);
        Some(number)
    }

    /// Takes a document of at most `limit` bytes, after its length; `None` until it has arrived.
    pub(super) fn document(&mut self, limit: u32) -> Result<Option<Value>, Fault> {
        let Some(length) = self.0.first_chunk().map(|length| u32::from_be_bytes(*length)) else {
            return Ok(None);
        };
        if length > limit {
            return Err(Fault::TooLong { bytes: length.into(), limit: limit.into() });
        }
        let end = 4 + length as usize;
        let Some(document) = self.0.get(4..end) else { return Ok(None) };
        // The parser limits the depth to 128.
        let value: Value = serde_json::from_slice(document).map_err(|_| Fault::Malformed)?;
        self.0.drain(..end);
        if value.is_object() { Ok(Some(value)) } else { Err(Fault::Malformed) }
    }
}

/// Returns a document with its length.
pub(super) fn frame(document: &impl serde::Serialize) -> Vec<u8> {
    // A structure of numbers and texts cannot fail.
    let text = serde_json::to_vec(document).unwrap_or_default();
    let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
    bytes.extend(text);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(bytes: &[u8], limit: u32) -> Result<Option<Value>, Fault> {
        let mut inbox = Inbox::default();
        inbox.push(bytes);
        inbox.document(limit)
    }

    #[test]
    fn a_document_is_read_when_it_is_complete() {
        let bytes = frame(&serde_json::json!({ "a": 1 }));
        for end in 0..bytes.len() {
            assert_eq!(document(&bytes[..end], 100), Ok(None), "{end}");
        }
        assert_eq!(document(&bytes, 100).unwrap().unwrap()["a"], 1);
    }

    #[test]
    fn a_hostile_document_is_refused_before_it_arrives() {
        let long = document(&[0xff; 4], 8192);
        assert_eq!(long, Err(Fault::TooLong { bytes: u32::MAX.into(), limit: 8192 }));
        let deep = [b'['; 4000];
        let mut bytes = 4000u32.to_be_bytes().to_vec();
        bytes.extend(deep);
        assert_eq!(document(&bytes, 8192), Err(Fault::Malformed));
        assert_eq!(document(&[0, 0, 0, 1, b'7'], 8192), Err(Fault::Malformed));
        assert_eq!(document(&[0, 0, 0, 0], 8192), Err(Fault::Malformed));
    }
}
