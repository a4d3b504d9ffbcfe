//! A limited number of things, such as file descriptors, that takers return when they end.

use std::sync::{Arc, Mutex};

use crate::lock::lock;

/// The rest of the quota; clones are the same quota.
#[derive(Debug, Clone)]
pub(crate) struct Quota(Arc<Mutex<u64>>);

/// A part of a quota, which is returned when dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    quota: Quota,
    count: u64,
}

impl Quota {
    /// Creates a quota of `total`.
    pub(crate) fn new(total: u64) -> Self {
        Quota(Arc::new(Mutex::new(total)))
    }

    /// Takes `count`; `None` if fewer are left.
    pub(crate) fn take(&self, count: u64) -> Option<Taken> {
        let mut left = lock(&self.0);
        *left = left.checked_sub(count)?;
        drop(left);
        Some(Taken { quota: self.clone(), count })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        *lock(&self.quota.0) += self.count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
