//! Frames of the control channel.

use std::io::{self, Read, Write};

use serde::{Serialize, de::DeserializeOwned};

/// The largest control message, 1 MiB. File lists are sent in batches well below it.
pub const FRAME_LIMIT_BYTES: usize = 1 << 20;

/// The memory allocated for a message before its bytes arrive. Most messages are shorter.
const FIRST_BYTES: usize = 16 << 10;

/// The reason why a control message could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The peer closed the channel between two messages.
    #[error("the peer closed the control channel")]
    Closed,
    /// The channel failed.
    #[error("the control channel failed")]
    Io(#[from] io::Error),
    /// The length exceeds [`FRAME_LIMIT_BYTES`]; usually the peer is not longhaul.
    #[error("a control message of {0} bytes exceeds the limit; is the peer longhaul?")]
    TooLong(usize),
    /// The body is not the expected message.
    #[error("a control message could not be parsed")]
    Malformed(#[source] serde_json::Error),
}

/// Writes one message: its length as a big-endian `u32`, then its JSON. Does not flush.
///
/// # Errors
/// The message exceeds the limit, or the writer fails.
pub fn write_frame<T: Serialize>(writer: &mut impl Write, message: &T) -> Result<(), FrameError> {
    let mut body = vec![0; 4];
    serde_json::to_writer(&mut body, message).map_err(FrameError::Malformed)?;
    let length = body.len() - 4;
    if length > FRAME_LIMIT_BYTES {
        return Err(FrameError::TooLong(length));
    }
    body[..4].copy_from_slice(&(length as u32).to_be_bytes());
    // A single write makes the message one TLS record and, if it fits, one segment.
    writer.write_all(&body)?;
    Ok(())
}

/// Reads one message.
///
/// # Errors
/// [`FrameError::Closed`] if the peer closed the channel between messages; otherwise the channel
/// failed or the message is invalid.
pub fn read_frame<T: DeserializeOwned>(reader: &mut impl Read) -> Result<T, FrameError> {
    let mut length = [0; 4];
    let mut have = 0;
    while have < length.len() {
        match reader.read(&mut length[have..]) {
            Ok(0) if have == 0 => return Err(FrameError::Closed),
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > FRAME_LIMIT_BYTES {
        return Err(FrameError::TooLong(length));
    }
    // Memory is allocated as bytes arrive, because a peer can claim any length.
    let mut body = Vec::with_capacity(length.min(FIRST_BYTES));
    reader.take(length as u64).read_to_end(&mut body)?;
    if body.len() < length {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    serde_json::from_slice(&body).map_err(FrameError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_written() {
        let mut wire = Vec::new();
        write_frame(&mut wire, &("hello", 7)).unwrap();
        let (word, number): (String, u32) = read_frame(&mut wire.as_slice()).unwrap();
        assert_eq!((word.as_str(), number), ("hello", 7));
    }

    #[test]
    fn the_end_between_messages_is_not_an_error_of_the_channel() {
        assert!(matches!(read_frame::<u8>(&mut [].as_slice()), Err(FrameError::Closed)));
        assert!(matches!(read_frame::<u8>(&mut [0, 0].as_slice()), Err(FrameError::Io(_))));
    }

    #[test]
    fn a_frame_length_allocates_no_memory_in_advance() {
        let http = b"GET / HTTP/1.1\r\n";
        assert!(matches!(read_frame::<u8>(&mut http.as_slice()), Err(FrameError::TooLong(_))));
    }
}
