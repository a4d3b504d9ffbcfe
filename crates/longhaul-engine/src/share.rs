//! Limits that sessions share: counted ones such as descriptors, and memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_core::units::Bytes;

use crate::lock;

/// The quantity; clones are the same quantity.
#[derive(Debug, Clone)]
pub(crate) struct Share(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The minimum of every session.
    each: u64,
    /// The rest for sessions that need more.
    common: Mutex<u64>,
}

/// The part of one session, which is returned when dropped.
#[derive(Debug)]
pub(crate) struct SessionPart {
    share: Share,
    from_common: u64,
    granted: u64,
}

impl Share {
    /// Divides `total` among `sessions` at once. The caller ensures that no more sessions have a
    /// portion.
    pub(crate) fn new(total: u64, sessions: usize) -> Self {
        let sessions = u64::try_from(sessions).unwrap_or(u64::MAX).max(1);
        let each = total / 2 / sessions;
        Share(Arc::new(Inner { each, common: Mutex::new(total - each * sessions) }))
    }

    /// Takes up to `wanted` for one session, or as much as is left.
    pub(crate) fn take(&self, wanted: u64) -> SessionPart {
        let mut common = lock(&self.0.common);
        let from_common = wanted.saturating_sub(self.0.each).min(*common / 2);
        *common -= from_common;
        let granted = wanted.min(self.0.each + from_common);
        drop(common);
        SessionPart { share: self.clone(), from_common, granted }
    }
}

impl SessionPart {
    /// Returns the size of the portion.
    pub(crate) fn granted(&self) -> u64 {
        self.granted
    }
}

impl Drop for SessionPart {
    fn drop(&mut self) {
        *lock(&self.share.0.common) += self.from_common;
    }
}

/// The default memory for the buffers of all anonymous sessions: two tests of the largest kind at
/// half size, and 16 MiB for each of 16.
const DEFAULT_MEMORY: Bytes = Bytes::mib(512);
/// The default number of sessions that share it.
const DEFAULT_SESSIONS: usize = 16;

/// The memory of all sessions of one kind, and whether others wait; clones are the same pool.
#[derive(Debug, Clone)]
pub struct SessionPool {
    total: Bytes,
    memory: Share,
    waiting: Arc<AtomicBool>,
}

impl SessionPool {
    /// Creates a pool of `memory` for the buffers of `sessions` at once.
    pub fn new(memory: Bytes, sessions: usize) -> Self {
        let share = Share::new(memory.get(), sessions);
        SessionPool { total: memory, memory: share, waiting: Arc::default() }
    }

    /// Takes up to `wanted` bytes for the buffers of one session.
    pub(crate) fn memory(&self, wanted: u64) -> SessionPart {
        self.memory.take(wanted)
    }

    /// Returns whether an anonymous client waits for a session.
    pub(crate) fn is_contended(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn set_waiting(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }
}

impl Default for SessionPool {
    fn default() -> Self {
        SessionPool::new(DEFAULT_MEMORY, DEFAULT_SESSIONS)
    }
}

impl PartialEq for SessionPool {
    /// Returns whether both have the same size.
    fn eq(&self, other: &Self) -> bool {
        self.total == other.total
    }
}

impl Eq for SessionPool {}

/// The rest of the quota; clones are the same quota.
#[derive(Debug, Clone)]
pub(crate) struct Quota(Arc<Mutex<u64>>);

/// A part of a quota, which is returned when dropped.
#[derive(Debug)]
pub(crate) struct QuotaPart {
    quota: Quota,
    count: u64,
}

impl Quota {
    /// Creates a quota of `total`.
    pub(crate) fn new(total: u64) -> Self {
        Quota(Arc::new(Mutex::new(total)))
    }

    /// Takes `count`; `None` if fewer are left.
    pub(crate) fn take(&self, count: u64) -> Option<QuotaPart> {
        let mut left = lock(&self.0);
        *left = left.checked_sub(count)?;
        drop(left);
        Some(QuotaPart { quota: self.clone(), count })
    }
}

impl Drop for QuotaPart {
    fn drop(&mut self) {
        *lock(&self.quota.0) += self.count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_sessions_never_exceed_the_total_and_leave_a_minimum() {
        let share = Share::new(1600, 16);
        let greedy: Vec<_> = (0..16).map(|_| share.take(u64::MAX)).collect();
        let granted: Vec<u64> = greedy.iter().map(SessionPart::granted).collect();
        assert_eq!(granted[..3], [50 + 400, 50 + 200, 50 + 100]);
        assert!(granted.iter().all(|granted| *granted >= 50), "{granted:?}");
        assert!(granted.iter().sum::<u64>() <= 1600, "{granted:?}");
        drop(greedy);
        assert_eq!(share.take(u64::MAX).granted(), 450);
    }

    #[test]
    fn a_small_request_takes_nothing_from_the_others() {
        let share = Share::new(1600, 16);
        let small: Vec<_> = (0..16).map(|_| share.take(50)).collect();
        assert!(small.iter().all(|portion| portion.granted() == 50));
        assert_eq!(share.take(450).granted(), 450);
    }

    #[test]
    fn taken_parts_are_returned() {
        let quota = Quota::new(10);
        let first = quota.take(7).unwrap();
        assert!(quota.take(4).is_none());
        let second = quota.take(3).unwrap();
        drop(first);
        assert!(quota.take(8).is_none());
        drop(second);
        assert!(quota.take(10).is_some());
    }
}
