//! The bytes that a key may store below its root: the option `quota`.
//!
//! The count below a root is an upper bound: the result of the last count of the files, and all
//! claims of uploads since. Claims of an upload stay in it until a later count, so that replaced
//! and deleted files, and failed uploads, never admit more than there is room for. An upload that
//! arrives while the files are counted waits for that count and shares its failure.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longhaul_core::units::Bytes;

use crate::lock;

/// The time after the last upload after which a new upload counts the files again.
const KEPT: Duration = Duration::from_secs(60);
/// The shortest time between two counts while no upload ends.
const PAUSE: Duration = Duration::from_secs(10);

/// The quota of a key. Clones, and the quotas of keys with the same root, share one count.
#[derive(Debug, Clone)]
pub(crate) struct KeyQuota {
    limit: u64,
    stored: Arc<Stored>,
}

/// The files below a root cannot be counted; with the reason as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CountError(pub(crate) String);

/// The bytes below a root.
#[derive(Debug, Default)]
struct Stored {
    state: Mutex<State>,
    /// Locked while files are counted.
    counting: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// The upper bound.
    bytes: u64,
    /// The time of the last count.
    counted: Option<Instant>,
    /// The number of running uploads, and the bytes that they have claimed.
    uploads: usize,
    running: u64,
    /// The sum of all claims.
    claimed: u64,
    /// The end of the last upload.
    ended: Option<Instant>,
    /// The end and the error of the last count that failed.
    failed: Option<(Instant, CountError)>,
}

/// A claim that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OverQuota {
    pub(crate) needs: Bytes,
    pub(crate) left: Bytes,
    pub(crate) limit: Bytes,
}

/// The bytes of the files below a root.
pub(crate) type CountResult = Result<u64, CountError>;

impl KeyQuota {
    /// Begins an upload; `count` returns the bytes of the files below the root. [`end`](Self::end)
    /// must follow.
    ///
    /// # Errors
    /// The files cannot be counted; the upload must be refused.
    pub(crate) fn begin(&self, count: impl FnOnce() -> CountResult) -> Result<(), CountError> {
        self.begin_at(Instant::now(), count)
    }

    /// Begins an upload that arrived at `arrived`: a count that failed since then is its failure, too.
    fn begin_at(
        &self,
        arrived: Instant,
        count: impl FnOnce() -> CountResult,
    ) -> Result<(), CountError> {
        let _counting = lock(&self.stored.counting);
        let outdated = {
            let state = lock(&self.stored.state);
            if let Some((at, error)) = &state.failed
                && *at >= arrived
            {
                return Err(error.clone());
            }
            state.is_outdated()
        };
        // No upload runs, and none begins meanwhile.
        let counted = outdated.then(count).transpose();
        let mut state = lock(&self.stored.state);
        match counted {
            Ok(None) => {}
            Ok(Some(bytes)) => {
                state.bytes = bytes;
                state.counted = Some(Instant::now());
            }
            Err(error) => {
                state.failed = Some((Instant::now(), error.clone()));
                return Err(error);
            }
        }
        state.uploads += 1;
        Ok(())
    }

    /// Ends an upload that has claimed `claimed` bytes.
    pub(crate) fn end(&self, claimed: u64) {
        let mut state = lock(&self.stored.state);
        state.uploads -= 1;
        state.running -= claimed;
        state.ended = Some(Instant::now());
    }

    /// Claims `bytes` for a running upload. If they do not fit, `count` is called once more.
    pub(crate) fn claim(
        &self,
        bytes: u64,
        count: impl FnOnce() -> CountResult,
    ) -> Result<(), OverQuota> {
        self.with_room(bytes, count, |state| {
            state.bytes += bytes;
            state.running += bytes;
            state.claimed = state.claimed.wrapping_add(bytes);
        })
    }

    /// Fails if `bytes` more would not fit.
    pub(crate) fn check(
        &self,
        bytes: u64,
        count: impl FnOnce() -> CountResult,
    ) -> Result<(), OverQuota> {
        self.with_room(bytes, count, |_| ())
    }

    fn with_room(
        &self,
        bytes: u64,
        count: impl FnOnce() -> CountResult,
        then: impl Fn(&mut State),
    ) -> Result<(), OverQuota> {
        let attempt = || {
            let mut state = lock(&self.stored.state);
            let left = self.limit.saturating_sub(state.bytes);
            if bytes > left {
                let [needs, left, limit] = [bytes, left, self.limit].map(Bytes::new);
                return Err(OverQuota { needs, left, limit });
            }
            then(&mut state);
            Ok(())
        };
        attempt().or_else(|_| {
            self.count_again(count);
            attempt()
        })
    }

    /// Counts the files while uploads run, unless they were counted recently and no upload has
    /// ended since.
    fn count_again(&self, count: impl FnOnce() -> CountResult) {
        let _counting = lock(&self.stored.counting);
        let (running, claimed) = {
            let state = lock(&self.stored.state);
            if state.was_just_counted() {
                return;
            }
            (state.running, state.claimed)
        };
        let counted = count();
        let mut state = lock(&self.stored.state);
        state.counted = Some(Instant::now());
        if let Ok(found) = counted {
            // The count may or may not include what running uploads write.
            let since = state.claimed.wrapping_sub(claimed);
            let most = found.saturating_add(running).saturating_add(since);
            state.bytes = state.bytes.min(most);
        }
    }
}

impl State {
    fn is_outdated(&self) -> bool {
        let rested = self.ended.is_none_or(|ended| ended.elapsed() >= KEPT);
        self.counted.is_none() || self.uploads == 0 && rested
    }

    fn was_just_counted(&self) -> bool {
        let Some(counted) = self.counted else { return false };
        let ended = self.ended.is_some_and(|ended| ended >= counted);
        !ended && counted.elapsed() < PAUSE
    }
}

/// The counts of the roots that have a quota.
#[derive(Debug, Default)]
pub(super) struct Quotas(HashMap<PathBuf, Arc<Stored>>);

impl Quotas {
    /// Returns the quota of a key with this `root`.
    pub(super) fn of(&mut self, root: &Path, limit: Bytes) -> KeyQuota {
        // The other roots would be counted again in any case.
        self.0.retain(|_, stored| {
            Arc::strong_count(stored) > 1
                || lock(&stored.state).ended.is_some_and(|ended| ended.elapsed() < KEPT)
        });
        let stored = self.0.entry(root.to_owned()).or_default();
        KeyQuota { limit: limit.get(), stored: Arc::clone(stored) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota() -> KeyQuota {
        Quotas::default().of(Path::new("/data"), Bytes::new(100))
    }

    fn not_counted() -> CountResult {
        panic!("there is no need to count")
    }

    /// Makes the last count an old one.
    fn age(quota: &KeyQuota) {
        let past = Instant::now().checked_sub(PAUSE);
        lock(&quota.stored.state).counted = Some(past.expect("the host runs for longer"));
    }

    #[test]
    fn uploads_of_a_key_share_its_quota() {
        let mut quotas = Quotas::default();
        let mut quota = |root| quotas.of(Path::new(root), Bytes::new(100));
        let (first, second, other) = (quota("/a"), quota("/a"), quota("/b"));
        first.begin(|| Ok(30)).unwrap();
        second.begin(not_counted).unwrap();
        other.begin(|| Ok(0)).unwrap();
        first.claim(40, not_counted).unwrap();
        second.check(30, not_counted).unwrap();
        let over = second.claim(31, not_counted).unwrap_err();
        let [needs, left, limit] = [31, 30, 100].map(Bytes::new);
        assert_eq!(over, OverQuota { needs, left, limit });
        second.claim(30, not_counted).unwrap();
        assert!(first.claim(1, not_counted).is_err());
        other.claim(100, not_counted).unwrap();
    }

    #[test]
    fn a_count_while_uploads_run_never_forgets_a_claim() {
        let quota = quota();
        quota.begin(|| Ok(60)).unwrap();
        quota.claim(30, not_counted).unwrap();
        age(&quota);
        // 50 were deleted. The claimed bytes are not on the disk, and another claim arrives during
        // the count.
        let count = || {
            quota.claim(5, not_counted).unwrap();
            Ok(10)
        };
        quota.claim(50, count).unwrap();
        assert_eq!(lock(&quota.stored.state).bytes, 10 + 30 + 5 + 50);
        assert!(quota.claim(6, not_counted).is_err(), "a count was just taken");
        age(&quota);
        assert!(quota.claim(6, || Err(CountError("no".to_owned()))).is_err());
        age(&quota);
        assert!(quota.claim(6, || Ok(u64::MAX)).is_err());
    }

    #[test]
    fn uploads_that_wait_for_a_count_share_its_failure() {
        let quota = quota();
        let failure = CountError("/data/x cannot be read".to_owned());
        let arrived = Instant::now();
        let error = failure.clone();
        assert_eq!(quota.begin(|| Err(error)).unwrap_err(), failure);
        // It arrived before the count failed, and waited for it.
        assert_eq!(quota.begin_at(arrived, not_counted).unwrap_err(), failure);
        // A later upload counts again.
        quota.begin(|| Ok(0)).unwrap();
        quota.claim(100, not_counted).unwrap();
    }

    #[test]
    fn claims_stay_until_a_later_count() {
        let quota = quota();
        assert!(quota.begin(|| Err(CountError("no".to_owned()))).is_err());
        quota.begin(|| Ok(0)).unwrap();
        quota.claim(70, not_counted).unwrap();
        quota.end(70);
        quota.begin(not_counted).unwrap();
        quota.claim(20, not_counted).unwrap();
        // An upload has ended since the last count, and half of its claim is on the disk.
        quota.claim(40, || Ok(35)).unwrap();
        assert_eq!(lock(&quota.stored.state).bytes, 35 + 20 + 40);
        assert!(quota.claim(40, not_counted).is_err());
        quota.end(60);
        lock(&quota.stored.state).ended = Instant::now().checked_sub(KEPT);
        quota.begin(|| Ok(0)).unwrap();
        quota.claim(100, not_counted).unwrap();
    }
}
