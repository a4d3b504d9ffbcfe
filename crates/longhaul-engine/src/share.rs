//! A quantity that several sessions share: bytes of buffers, or file descriptors.
//!
//! Half of it is divided evenly, so that every session has a minimum. The other half goes to
//! sessions that need more, at most half of its rest to one session. So the sum never exceeds the
//! total, and every session leaves something to the next one.

use std::sync::{Arc, Mutex};

use crate::lock::lock;

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
pub(crate) struct Portion {
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
    pub(crate) fn take(&self, wanted: u64) -> Portion {
        let mut common = lock(&self.0.common);
        let from_common = wanted.saturating_sub(self.0.each).min(*common / 2);
        *common -= from_common;
        let granted = wanted.min(self.0.each + from_common);
        drop(common);
        Portion { share: self.clone(), from_common, granted }
    }
}

impl Portion {
    /// Returns the size of the portion.
    pub(crate) fn granted(&self) -> u64 {
        self.granted
    }
}

impl Drop for Portion {
    fn drop(&mut self) {
        *lock(&self.share.0.common) += self.from_common;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_sessions_never_exceed_the_total_and_leave_a_minimum() {
        let share = Share::new(1600, 16);
        let greedy: Vec<_> = (0..16).map(|_| share.take(u64::MAX)).collect();
        let granted: Vec<u64> = greedy.iter().map(Portion::granted).collect();
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
}
