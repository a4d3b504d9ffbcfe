//! The content of a probe datagram, in native byte order because both ends run on one machine:
//!
//! | bytes | |
//! |---|---|
//! | 0..8 | checksum of the rest |
//! | 8..16 | number, from 0 |
//! | 16..24 | sending time, nanoseconds of `CLOCK_REALTIME` |
//! | 24.. | filler |

use rustix::time::{ClockId, clock_gettime};

/// The bytes of a datagram before the filler.
pub(super) const HEADER_BYTES: usize = 24;

/// The header of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Header {
    pub(in super::super) number: u64,
    pub(in super::super) sent_nanos: u64,
}

/// Writes the header into `datagram` and keeps the filler. With `verify` the checksum includes the
/// filler.
pub(in super::super) fn seal(datagram: &mut [u8], header: Header, verify: bool) {
    datagram[8..16].copy_from_slice(&header.number.to_ne_bytes());
    datagram[16..24].copy_from_slice(&header.sent_nanos.to_ne_bytes());
    let covered = if verify { datagram.len() } else { HEADER_BYTES };
    let sum = checksum(&datagram[8..covered]);
    datagram[..8].copy_from_slice(&sum.to_ne_bytes());
}

/// Reads the header if its checksum matches all of `bytes`. Without `verify`, `bytes` may be the
/// header only.
pub(super) fn open(bytes: &[u8]) -> Option<Header> {
    let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let header = Header { number: word(8)?, sent_nanos: word(16)? };
    (word(0)? == checksum(&bytes[8..])).then_some(header)
}

/// Returns a checksum whose steps are bijections of the state and of the word. It always detects a
/// change within one word, and misses other changes once in 2^64.
fn checksum(bytes: &[u8]) -> u64 {
    /// 2^64 divided by the golden ratio, made odd.
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |sum: u64, word: u64| (sum ^ word).wrapping_mul(MULTIPLIER).rotate_left(29);
    let (words, rest) = bytes.as_chunks::<8>();
    let sum =
        words.iter().fold(bytes.len() as u64, |sum, word| step(sum, u64::from_ne_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| step(sum, u64::from(*byte)))
}

/// Returns nanoseconds of `CLOCK_REALTIME`, the clock of the kernel's time stamps.
pub(super) fn realtime_nanos() -> u64 {
    nanos(ClockId::Realtime)
}

/// Returns nanoseconds of `CLOCK_MONOTONIC`.
pub(super) fn monotonic_nanos() -> u64 {
    nanos(ClockId::Monotonic)
}

fn nanos(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_bit_is_noticed() {
        let header = Header { number: 7, sent_nanos: 1_700_000_000_000_000_000 };
        let mut datagram: Vec<u8> = (0..61).collect();
        seal(&mut datagram, header, true);
        assert_eq!(open(&datagram), Some(header));
        for bit in 0..datagram.len() * 8 {
            datagram[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&datagram), None, "bit {bit}");
            datagram[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(open(&datagram[..60]), None, "cut");
        assert_eq!(open(&[]), None);
    }

    #[test]
    fn a_header_can_be_checked_separately() {
        let header = Header { number: 1, sent_nanos: 2 };
        let mut datagram = vec![3; 100];
        seal(&mut datagram, header, false);
        assert_eq!(open(&datagram[..HEADER_BYTES]), Some(header));
    }
}
