//! The data ports of a server's tests, which its clients choose.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use super::channel::Deadline;

/// The interval at which a waiting test checks its client.
const LOOK: Duration = Duration::from_millis(100);

/// The data ports that tests of this server use. Over TCP a port is free again as soon as its
/// connections are accepted.
#[derive(Debug, Default)]
pub(super) struct PortLocks {
    taken: Mutex<HashSet<u16>>,
    changed: Condvar,
}

/// Data ports of one test; they are free again when dropped.
#[derive(Debug)]
pub(super) struct PortLock<'a> {
    locks: &'a PortLocks,
    ports: RangeInclusive<u16>,
}

impl PortLocks {
    /// Waits up to `limit` until all of `ports` are free, while `waits` returns true.
    pub(super) fn take(
        &self,
        ports: RangeInclusive<u16>,
        limit: Duration,
        waits: impl Fn() -> bool,
    ) -> Option<PortLock<'_>> {
        let deadline = Deadline::after(limit);
        let mut taken = self.taken.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        while ports.clone().any(|port| taken.contains(&port)) {
            if deadline.is_over() || !waits() {
                return None;
            }
            let waited = self.changed.wait_timeout(taken, LOOK);
            taken = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        taken.extend(ports.clone());
        Some(PortLock { locks: self, ports })
    }
}

impl Drop for PortLock<'_> {
    fn drop(&mut self) {
        let mut taken = self.locks.taken.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        taken.retain(|port| !self.ports.contains(port));
        self.locks.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_ports_wait_for_each_other() {
        let locks = PortLocks::default();
        let first = locks.take(5101..=5104, LOOK, || true).unwrap();
        assert!(locks.take(5105..=5105, LOOK, || true).is_some());
        assert!(locks.take(5104..=5106, LOOK, || true).is_none());
        assert!(locks.take(5104..=5106, Duration::from_secs(3600), || false).is_none());
        drop(first);
        assert!(locks.take(5104..=5106, LOOK, || true).is_some());
    }
}
