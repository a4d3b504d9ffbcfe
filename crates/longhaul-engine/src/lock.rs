use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, also after a panic in another thread. That panic is a bug that has been
/// reported; what the lock guards is valid at every step, and the session it belongs to ends by
/// itself.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
