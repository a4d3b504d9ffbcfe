//! The intakes that may have packets, so that a thread with little traffic does not read in vain.

use std::time::Duration;

use super::sleeper::WaitEnd;

/// The longest sleep between packets that follow each other closely.
const DENSE: Duration = Duration::from_micros(200);

/// The intakes, by index, that may have packets.
///
/// A thread that saves processor time reads an intake only after the sleeper found it readable, and
/// reads it again without polling while packets follow each other closely. Other threads read every
/// intake in every round: a packet that arrives while the thread spins is then read at once.
#[derive(Debug)]
pub(super) struct ReadyIntakes {
    saves: bool,
    /// A bit per intake.
    expected: u64,
    dense: bool,
}

impl ReadyIntakes {
    pub(super) fn new(saves: bool) -> Self {
        ReadyIntakes { saves, expected: 0, dense: false }
    }

    /// Returns whether any intake may have a packet.
    pub(super) fn expects_any(&self) -> bool {
        !self.saves || self.expected != 0
    }

    /// Returns whether an intake may have a packet.
    pub(super) fn expects(&self, intake: usize) -> bool {
        !self.saves || self.expected & bit(intake) != 0
    }

    /// Records that an intake was read, and whether it had a packet.
    pub(super) fn was_read(&mut self, intake: usize, had_packet: bool) {
        if !had_packet || !self.dense {
            self.expected &= !bit(intake);
        }
    }

    /// Records the end of a wait, for which the sleeper watched the intakes `watched` in this order.
    pub(super) fn woke(&mut self, woken: &WaitEnd, watched: impl Iterator<Item = usize>) {
        let Some(readable) = woken.readable else { return };
        self.dense = woken.slept < DENSE;
        for (place, intake) in watched.enumerate() {
            if readable & bit(place) != 0 {
                self.expected |= bit(intake);
            }
        }
    }
}

fn bit(index: usize) -> u64 {
    1u64.checked_shl(index as u32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn woken(readable: u64, slept_us: u64) -> WaitEnd {
        let slept = Duration::from_micros(slept_us);
        WaitEnd { waited: Duration::ZERO, readable: Some(readable), slept }
    }

    #[test]
    fn a_saving_thread_reads_what_was_found_readable() {
        let mut ready = ReadyIntakes::new(true);
        // Only the second intake is watched, because the device of the first is gone.
        ready.woke(&woken(1, 5000), [1].into_iter());
        assert!(!ready.expects(0) && ready.expects(1));
        ready.was_read(1, true);
        assert!(!ready.expects_any(), "asks again");
        ready.woke(&woken(1, 20), [0, 1].into_iter());
        ready.was_read(0, true);
        assert!(ready.expects(0), "packets follow each other closely");
        ready.was_read(0, false);
        assert!(!ready.expects(0));
        let spun = WaitEnd { readable: None, ..woken(0, 0) };
        ready.woke(&spun, [0, 1].into_iter());
        assert!(!ready.expects(0), "the sleeper did not ask");
    }

    #[test]
    fn other_threads_always_read() {
        let mut ready = ReadyIntakes::new(false);
        ready.was_read(0, false);
        ready.woke(&woken(0, 5000), [0].into_iter());
        assert!(ready.expects(0) && ready.expects_any());
    }
}
