//! The control channel of nuttcp: its lines, with a bound on their length, and the state machines of a
//! client and a server without I/O.

mod client;
mod server;

pub use client::{Client, ClientError, ClientEvent};
pub use server::{Refusal, Server};

use std::collections::VecDeque;

use super::Version;

/// The longest line: the option line of version 8.2.2 has about 600 bytes.
pub const LONGEST_LINE: usize = 4096;
/// The maximum number of lines that wait for their reader.
const MOST_WAITING: usize = 1024;

/// A fault of the bytes on a control channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// A line is longer than [`LONGEST_LINE`].
    #[error("a line has more than {LONGEST_LINE} bytes")]
    Long,
    /// More lines arrived at once than the protocol has.
    #[error("more than {MOST_WAITING} lines arrived at once")]
    Many,
    /// A line has a byte outside printable ASCII.
    #[error("a line has the byte {0:#04x}")]
    Byte(u8),
}

/// Splits bytes into lines of printable ASCII.
#[derive(Debug, Default)]
struct Lines {
    part: Vec<u8>,
    complete: VecDeque<String>,
}

impl Lines {
    /// Adds bytes in the order of their arrival.
    ///
    /// # Errors
    /// A line is too long or is not text, or too many lines wait.
    fn push(&mut self, bytes: &[u8]) -> Result<(), LineError> {
        for &byte in bytes {
            match byte {
                b'\n' => self.complete_line()?,
                b' '..=b'~' | b'\t' => self.part.push(byte),
                // A carriage return carries no meaning, and some relays add it.
                b'\r' => {}
                other => return Err(LineError::Byte(other)),
            }
            if self.part.len() > LONGEST_LINE {
                return Err(LineError::Long);
            }
        }
        Ok(())
    }

    /// Removes the oldest complete line, without its end.
    fn pop(&mut self) -> Option<String> {
        self.complete.pop_front()
    }

    fn complete_line(&mut self) -> Result<(), LineError> {
        if self.complete.len() == MOST_WAITING {
            return Err(LineError::Many);
        }
        let line = std::mem::take(&mut self.part);
        self.complete.push_back(line.into_iter().map(char::from).collect());
        Ok(())
    }
}

/// Returns the line with which each end states its version.
fn hello() -> String {
    format!("HELO nuttcp v{}\n", Version::OURS)
}

/// Parses the line with which the other end states its version.
fn parse_hello(line: &str) -> Option<Version> {
    Version::parse(line.strip_prefix("HELO nuttcp ")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_independent_of_the_pieces_in_which_they_arrive() {
        let text = b"HELO nuttcp v6.1.2\r\nOK v6.1.2\n\nDONE";
        for size in 1..text.len() {
            let mut lines = Lines::default();
            text.chunks(size).for_each(|piece| lines.push(piece).unwrap());
            let complete: Vec<_> = std::iter::from_fn(|| lines.pop()).collect();
            assert_eq!(complete, ["HELO nuttcp v6.1.2", "OK v6.1.2", ""]);
        }
    }

    #[test]
    fn a_peer_cannot_fill_the_memory() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(&[b'a'; LONGEST_LINE]), Ok(()));
        assert_eq!(lines.push(b"a"), Err(LineError::Long));
        assert_eq!(Lines::default().push(&[b'\n'; 2000]), Err(LineError::Many));
        assert_eq!(Lines::default().push(b"\x16\x03\x01"), Err(LineError::Byte(0x16)));
    }
}
