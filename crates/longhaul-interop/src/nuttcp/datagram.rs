//! The datagrams of a test over UDP.
//!
//! Data have the length of the test's buffer. Bytes 8 to 15 have the time of sending, if the client
//! requested the one-way delay, and bytes 24 to 31 the number of bytes sent so far, including this
//! datagram. A mark has four bytes and states the start or the end of the data.

use std::time::Duration;

/// The minimum length of a datagram with a count.
pub const LEAST_COUNTED: usize = 32;
/// The time between two end marks.
pub const END_SPACING: Duration = Duration::from_millis(500);
/// The time between the two start marks.
pub const BEGIN_SPACING: Duration = Duration::from_millis(250);
/// A larger count means that the sender has the other byte order.
const LARGEST_COUNT: u64 = 1 << 32;

/// A mark between the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// `BOD0`, and after [`BEGIN_SPACING`] `BOD1`.
    Begin(u8),
    /// `EOD0` right after the data, and then `EOD1` to `EOD4`, each after [`END_SPACING`].
    End(u8),
}

impl Mark {
    /// Returns the datagram.
    #[must_use]
    pub fn bytes(self) -> [u8; 4] {
        let (name, number) = match self {
            Self::Begin(number) => (*b"BOD", number),
            Self::End(number) => (*b"EOD", number),
        };
        [name[0], name[1], name[2], b'0' + number]
    }

    /// Parses a datagram of four bytes.
    #[must_use]
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        let (name, number) = datagram.split_last_chunk::<1>()?;
        let number = number[0].checked_sub(b'0').filter(|number| *number <= 4)?;
        match name {
            b"BOD" if number <= 1 => Some(Self::Begin(number)),
            b"EOD" => Some(Self::End(number)),
            _ => None,
        }
    }
}

/// Writes the number of bytes sent into a datagram of at least [`LEAST_COUNTED`] bytes, in the byte
/// order of this host.
pub fn write_count(datagram: &mut [u8], sent: u64) {
    if let Some(field) = datagram.get_mut(24..32) {
        field.copy_from_slice(&sent.to_ne_bytes());
    }
}

/// Writes the time of sending, as seconds and microseconds since 1970.
pub fn write_time(datagram: &mut [u8], since_1970: Duration) {
    if let Some(field) = datagram.get_mut(8..16) {
        field[..4].copy_from_slice(&(since_1970.as_secs() as u32).to_be_bytes());
        field[4..].copy_from_slice(&since_1970.subsec_micros().to_be_bytes());
    }
}

/// Reads the time of sending; `None` if the sender states none.
#[must_use]
pub fn read_time(datagram: &[u8]) -> Option<Duration> {
    let number = |at: usize| {
        let bytes = datagram.get(at..at + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    };
    let (seconds, micros) = (number(8)?, number(12)?);
    (seconds > 0 && micros < 1_000_000).then(|| Duration::new(u64::from(seconds), micros * 1000))
}

/// The state of a receiver, over all streams of a test.
#[derive(Debug, Clone, Default)]
pub struct Received {
    /// The bytes of all data.
    pub bytes: u64,
    /// The largest count of a datagram: the bytes that were sent.
    pub sent: u64,
    swapped: bool,
    begun: Option<Duration>,
    end: Option<(Duration, bool)>,
    last: Option<(u8, Duration)>,
}

impl Received {
    /// Handles a datagram that arrived at `now`.
    pub fn datagram(&mut self, datagram: &[u8], now: Duration) {
        if datagram.len() <= 4 {
            match Mark::parse(datagram) {
                Some(Mark::Begin(1)) if self.begun.is_none() => self.begun = Some(now),
                Some(Mark::End(0)) => self.end = Some((now, true)),
                Some(Mark::End(number)) => self.last = Some((number, now)),
                _ => {}
            }
            return;
        }
        self.begun.get_or_insert(now);
        // Data that arrive after the end mark postpone the end.
        if let Some((end, _)) = &mut self.end {
            *end = now;
        }
        self.bytes += datagram.len() as u64;
        if let Some(field) = datagram.get(24..32) {
            self.count(field);
        }
    }

    fn count(&mut self, field: &[u8]) {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(field);
        let count = u64::from_ne_bytes(bytes);
        if self.sent == 0 && count > LARGEST_COUNT {
            self.swapped = true;
        }
        let count = if self.swapped { count.swap_bytes() } else { count };
        self.sent = self.sent.max(count);
    }

    /// Returns the time of the first datagram or mark.
    #[must_use]
    pub fn begun(&self) -> Option<Duration> {
        self.begun
    }

    /// Returns the time at which the data ended; `None` before a mark states so. If the first mark
    /// was lost, the time follows from the number of a later one.
    #[must_use]
    pub fn ended(&self) -> Option<Duration> {
        let (number, at) = self.last.or(self.end.map(|(at, _)| (0, at)))?;
        Some(match self.end {
            Some((end, _)) => end,
            None => at.saturating_sub(END_SPACING * u32::from(number)),
        })
    }

    /// Returns true if a mark after the first one arrived, after which no data follow.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.last.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn data(count: u64) -> Vec<u8> {
        let mut datagram = vec![0; 100];
        write_count(&mut datagram, count);
        datagram
    }

    #[test]
    fn marks_are_four_bytes() {
        assert_eq!(Mark::Begin(1).bytes(), *b"BOD1");
        for mark in [Mark::Begin(0), Mark::Begin(1), Mark::End(0), Mark::End(4)] {
            assert_eq!(Mark::parse(&mark.bytes()), Some(mark));
        }
        for other in [&b"EOD5"[..], b"BOD2", b"EOD", b"EOD11", b"EOD/", b""] {
            assert_eq!(Mark::parse(other), None);
        }
    }

    #[test]
    fn the_time_ends_with_the_first_mark_or_the_last_data() {
        let mut received = Received::default();
        for (datagram, at) in [
            (b"BOD0".to_vec(), ms(0)),
            (b"BOD1".to_vec(), ms(250)),
            (data(100), ms(300)),
            (b"EOD0".to_vec(), ms(1300)),
            (data(300), ms(1310)),
            (b"EOD1".to_vec(), ms(1800)),
        ] {
            received.datagram(&datagram, at);
        }
        assert_eq!((received.begun(), received.ended()), (Some(ms(250)), Some(ms(1310))));
        assert_eq!((received.bytes, received.sent), (200, 300));
        assert!(received.is_over());
    }

    #[test]
    fn a_lost_mark_is_replaced_by_the_next_one() {
        let mut received = Received::default();
        received.datagram(&data(100), ms(100));
        assert_eq!((received.ended(), received.is_over()), (None, false));
        received.datagram(b"EOD2", ms(2000));
        assert_eq!((received.begun(), received.ended()), (Some(ms(100)), Some(ms(1000))));
    }

    #[test]
    fn the_byte_order_of_the_sender_is_recognized() {
        let mut received = Received::default();
        for count in [8192u64, 16384] {
            received.datagram(&data(count.swap_bytes()), ms(1));
        }
        assert_eq!(received.sent, 16384);
    }

    #[test]
    fn the_time_of_sending_reads_back() {
        let mut datagram = vec![0; 32];
        assert_eq!(read_time(&datagram), None);
        let time = Duration::new(1_795_000_000, 123_456_000);
        write_time(&mut datagram, time);
        assert_eq!(read_time(&datagram), Some(time));
        assert_eq!(read_time(&datagram[..12]), None);
    }
}
