//! The fields within the blocks of a TCP stream: a server that sends states its retransmits.

use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_engine::test::{BlockFormat, BlockState};

use crate::nuttcp::{Parameters, Version, format};

/// The mark of a sender that counts the retransmits of its connection.
const OF_CONNECTION: u32 = 0x5254_524E;
/// The mark of a sender that counts the retransmits of its host.
const OF_HOST: u32 = 0x4852_5452;
/// The position of the fields in a block.
const FIELDS: std::ops::Range<u64> = 24..32;
/// The first version in which later blocks have the congestion window instead of the mark.
const WITH_CWND: Version = Version::new(8, 0, 1);

/// The fields of the blocks of one end.
#[derive(Debug)]
pub(super) struct Marks {
    block_bytes: u64,
    /// True if this end writes the fields.
    writes: bool,
    /// True if blocks after the first have the congestion window.
    with_cwnd: bool,
    /// The mark of the first block; 0 before it.
    mark: AtomicU64,
    /// The last retransmits and congestion window in KB.
    last: (AtomicU64, AtomicU64),
}

impl Marks {
    /// Returns the fields of a test with a peer of version `peer`. Only a server that sends one
    /// stream writes them.
    pub(super) fn new(parameters: &Parameters, peer: Version, at_server: bool) -> Self {
        let wanted = parameters.format & format::NO_RETRANSMITS == 0;
        let one = parameters.streams == 1 && parameters.buffer_bytes >= 32;
        Self {
            block_bytes: parameters.buffer_bytes.into(),
            writes: at_server && one && wanted && !parameters.client_sends,
            with_cwnd: peer >= WITH_CWND && parameters.format & format::NO_CWND == 0,
            mark: AtomicU64::new(0),
            last: (AtomicU64::new(0), AtomicU64::new(0)),
        }
    }

    /// Returns the retransmits that the sender stated last; `None` if it states none.
    pub(super) fn retransmits(&self) -> Option<u64> {
        let stated = self.mark.load(Ordering::Acquire) != 0;
        stated.then(|| self.last.0.load(Ordering::Relaxed))
    }

    /// Returns true if the retransmits are those of the host.
    pub(super) fn of_host(&self) -> bool {
        let mark = self.mark.load(Ordering::Acquire) as u32;
        mark == OF_HOST || mark.swap_bytes() == OF_HOST
    }

    /// Returns the congestion window in KB that the sender stated last.
    pub(super) fn cwnd_kb(&self) -> Option<u64> {
        let cwnd = self.last.1.load(Ordering::Relaxed);
        (self.with_cwnd && cwnd > 0 && !self.of_host()).then_some(cwnd)
    }

    fn take(&self, fields: [u8; 8]) {
        let number = |at: usize| {
            u32::from_ne_bytes([fields[at], fields[at + 1], fields[at + 2], fields[at + 3]])
        };
        let (first, second) = (number(0), number(4));
        let is_mark = |value: u32| value == OF_CONNECTION || value == OF_HOST;
        let known = self.mark.load(Ordering::Relaxed) as u32;
        if known == 0 {
            if is_mark(second) || is_mark(second.swap_bytes()) {
                self.last.0.store(u64::from(ordered(first, second)), Ordering::Relaxed);
                self.mark.store(second.into(), Ordering::Release);
            }
            return;
        }
        self.last.0.store(ordered(first, known).into(), Ordering::Relaxed);
        if second != known {
            self.last.1.store(ordered(second, known).into(), Ordering::Relaxed);
        }
    }
}

/// Returns `value` in the byte order of this host. The byte order of `mark` shows that of the
/// sender.
fn ordered(value: u32, mark: u32) -> u32 {
    if mark == OF_CONNECTION || mark == OF_HOST { value } else { value.swap_bytes() }
}

impl BlockFormat for Marks {
    fn needs_state(&self) -> bool {
        self.writes
    }

    fn write(&self, block: &mut [u8], state: BlockState) {
        if block.len() >= 16 {
            block[8..16].fill(0);
        }
        let Some(fields) = block.get_mut(24..32) else { return };
        let second = match (self.writes, state.number) {
            (false, _) => 0,
            (true, 1..) if self.with_cwnd => (state.cwnd_bytes / 1024) as u32,
            (true, _) => OF_CONNECTION,
        };
        let first = if self.writes { state.retransmits as u32 } else { 0 };
        fields[..4].copy_from_slice(&first.to_ne_bytes());
        fields[4..].copy_from_slice(&second.to_ne_bytes());
    }

    fn read(&self, bytes: &[u8], offset: u64) {
        // The last block of which all fields are in these bytes; the first one has the mark.
        let end = offset + bytes.len() as u64;
        let first = offset.div_ceil(self.block_bytes) * self.block_bytes;
        let last = end.saturating_sub(FIELDS.end) / self.block_bytes * self.block_bytes;
        for start in [first, last] {
            let at = (start + FIELDS.start).checked_sub(offset).map(|at| at as usize);
            let fields = at.and_then(|at| bytes.get(at..)?.first_chunk::<8>());
            if let Some(fields) = fields.filter(|_| start >= offset) {
                self.take(*fields);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Parameters {
        Parameters { buffer_bytes: 100, client_sends: false, ..Parameters::default() }
    }

    fn sent(peer: Version, states: &[(u64, u64)]) -> Vec<u8> {
        let marks = Marks::new(&parameters(), peer, true);
        assert!(marks.needs_state());
        let mut bytes = Vec::new();
        for (number, (retransmits, cwnd_bytes)) in states.iter().enumerate() {
            let mut block = vec![7; 100];
            let (retransmits, cwnd_bytes) = (*retransmits, *cwnd_bytes);
            marks.write(&mut block, BlockState { number: number as u64, retransmits, cwnd_bytes });
            bytes.extend(block);
        }
        bytes
    }

    #[test]
    fn a_receiver_reads_the_last_fields_from_any_pieces() {
        let bytes = sent(Version::OURS, &[(0, 1024), (3, 4096), (9, 8192)]);
        for size in [300, 100, 150, 64] {
            let marks = Marks::new(&parameters(), Version::OURS, false);
            let mut offset = 0;
            for piece in bytes.chunks(size) {
                marks.read(piece, offset);
                offset += piece.len() as u64;
            }
            assert_eq!((marks.retransmits(), marks.cwnd_kb()), (Some(9), Some(8)), "{size}");
            assert!(!marks.of_host());
        }
    }

    #[test]
    fn an_old_peer_keeps_the_mark_instead_of_the_window() {
        let bytes = sent(Version::OLDEST, &[(0, 1024), (3, 4096)]);
        assert_eq!(bytes[128..132], OF_CONNECTION.to_ne_bytes());
        let marks = Marks::new(&parameters(), Version::OLDEST, false);
        marks.read(&bytes, 0);
        assert_eq!((marks.retransmits(), marks.cwnd_kb()), (Some(3), None));
    }

    #[test]
    fn the_other_byte_order_and_no_mark_are_recognized() {
        let mut block = vec![0; 100];
        block[24..28].copy_from_slice(&5u32.swap_bytes().to_ne_bytes());
        block[28..32].copy_from_slice(&OF_HOST.swap_bytes().to_ne_bytes());
        let marks = Marks::new(&parameters(), Version::OLDEST, false);
        marks.read(&block, 0);
        assert_eq!((marks.retransmits(), marks.of_host()), (Some(5), true));
        let none = Marks::new(&parameters(), Version::OURS, false);
        none.read(&[0; 100], 0);
        assert_eq!(none.retransmits(), None);
    }
}
