//! The header of iperf3's datagrams, big-endian:
//!
//! ```text
//!  0   4  seconds of the sender's clock
//!  4   4  microseconds
//!  8   4  number of the datagram, from 1; 8 bytes with udp_counters_64bit
//! ```

use longhaul_engine::test::{DatagramFormat, ReceivedDatagram, SentDatagram};

/// The header of iperf3's datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramHeader {
    /// True for numbers of 64 bits.
    pub long: bool,
}

impl DatagramFormat for DatagramHeader {
    fn header_bytes(&self) -> usize {
        // iperf3 sends no shorter datagram in either format.
        16
    }

    fn write(&self, datagram: &mut [u8], header: &SentDatagram) {
        let seconds = header.time.as_secs() as u32;
        datagram[..4].copy_from_slice(&seconds.to_be_bytes());
        datagram[4..8].copy_from_slice(&header.time.subsec_micros().to_be_bytes());
        let number = header.number + 1;
        if self.long {
            datagram[8..16].copy_from_slice(&number.to_be_bytes());
        } else {
            datagram[8..12].copy_from_slice(&(number as u32).to_be_bytes());
        }
    }

    fn read(&self, datagram: &[u8], expected: u64) -> ReceivedDatagram {
        self.parse(datagram, expected).unwrap_or(ReceivedDatagram::Other)
    }
}

impl DatagramHeader {
    fn parse(self, datagram: &[u8], expected: u64) -> Option<ReceivedDatagram> {
        let field = |at: usize| Some(u32::from_be_bytes(*datagram.get(at..)?.first_chunk()?));
        let (seconds, micros) = (field(0)?, field(4)?);
        let number = if self.long {
            u64::from_be_bytes(*datagram.get(8..)?.first_chunk()?)
        } else {
            nearest(field(8)?, expected)
        };
        let sent_ns = u64::from(seconds) * 1_000_000_000 + u64::from(micros) * 1000;
        // A number of 2^63 would leave no room for the following ones.
        let number = number.checked_sub(1).filter(|number| *number < 1 << 62)?;
        Some(ReceivedDatagram::Data { number: Some(number), sent_ns: Some(sent_ns) })
    }
}

/// Returns the number next to `expected` whose lower half is `short`.
fn nearest(short: u32, expected: u64) -> u64 {
    // The number from 1 that is expected.
    let expected = expected + 1;
    let ahead = short.wrapping_sub(expected as u32) as i32;
    expected.saturating_add_signed(ahead.into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn number(format: DatagramHeader, datagram: &[u8], expected: u64) -> Option<u64> {
        match format.read(datagram, expected) {
            ReceivedDatagram::Data { number, .. } => number,
            _ => None,
        }
    }

    #[test]
    fn headers_are_read_as_written() {
        for long in [false, true] {
            let format = DatagramHeader { long };
            let mut datagram = [0; 16];
            let time = Duration::from_micros(3_000_007);
            format.write(&mut datagram, &SentDatagram { number: 41, time, bytes: 0 });
            let expected =
                ReceivedDatagram::Data { number: Some(41), sent_ns: Some(3_000_007_000) };
            assert_eq!(format.read(&datagram, 40), expected);
            assert_eq!(format.read(&datagram[..11], 40), ReceivedDatagram::Other);
        }
        let mut datagram = [0; 16];
        let header = SentDatagram { number: 0, time: Duration::from_secs(1), bytes: 0 };
        DatagramHeader { long: false }.write(&mut datagram, &header);
        assert_eq!(datagram[..12], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn short_numbers_wrap() {
        let format = DatagramHeader { long: false };
        let mut datagram = [0; 16];
        let wrap = 1 << 32;
        for n in [wrap - 2, wrap - 1, wrap, wrap + 1, 3 * wrap + 5] {
            let header = SentDatagram { number: n, time: Duration::ZERO, bytes: 0 };
            format.write(&mut datagram, &header);
            for expected in [n - 100, n, n + 100] {
                assert_eq!(number(format, &datagram, expected), Some(n), "{n} {expected}");
            }
        }
        assert_eq!(number(DatagramHeader { long: true }, &[0xff; 16], 0), None);
        assert_eq!(number(format, &[0; 16], 0), None, "numbers begin with 1");
    }
}
