//! Ends all threads of a copy together.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{EngineError, Result};

/// Ends all threads of a copy together; the first reason is the copy's error. Threads wait in
/// sockets, in the pool and in channels. Each place with an unlimited wait registers a hook that
/// wakes it. The channels between stages close when the threads at their ends end.
#[derive(Default)]
pub(super) struct Cancel {
    cancelled: AtomicBool,
    released: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    reason: Option<EngineError>,
    /// The hooks have run: later ones run at once.
    released: bool,
    hooks: Vec<Box<dyn Fn() + Send>>,
}

impl Cancel {
    /// Cancels the copy for `reason`, unless it was cancelled before.
    pub(super) fn fail(&self, reason: EngineError) {
        self.fail_saying(reason, || ());
    }

    /// Fails the copy as [`fail`](Self::fail) does. Runs `last_words`, which sends the reason to
    /// the peer, before the channel is closed. The reason is stored first, so that the peer's
    /// reaction does not replace it.
    pub(super) fn fail_saying(&self, reason: EngineError, last_words: impl FnOnce()) {
        {
            let mut state = self.lock();
            if self.cancelled.swap(true, Ordering::Relaxed) {
                return;
            }
            state.reason = Some(reason);
        }
        last_words();
        self.release();
    }

    /// Fails with the error of `outcome`, if it is one.
    pub(super) fn check(&self, outcome: Result<()>) {
        if let Err(reason) = outcome {
            self.fail(reason);
        }
    }

    /// Wakes everything that waits, without an error: the copy is complete, and a peer that does
    /// not leave must not be waited for.
    pub(super) fn release(&self) {
        let mut state = self.lock();
        state.released = true;
        self.released.store(true, Ordering::Relaxed);
        state.hooks.iter().for_each(|hook| hook());
    }

    /// Runs `hook` when the copy is cancelled; at once if it was already.
    pub(super) fn on_cancel(&self, hook: impl Fn() + Send + 'static) {
        let mut state = self.lock();
        if state.released || self.is_set() {
            hook();
        }
        state.hooks.push(Box::new(hook));
    }

    /// Returns whether every waiting thread was woken.
    pub(super) fn is_released(&self) -> bool {
        self.released.load(Ordering::Relaxed)
    }

    /// Returns whether the copy was cancelled.
    pub(super) fn is_set(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Returns the reason, once all threads have ended.
    pub(super) fn take_reason(&self) -> EngineError {
        self.lock().reason.take().unwrap_or(EngineError::Interrupted)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn a_hook_that_comes_after_the_release_runs_at_once() {
        let cancel = Cancel::default();
        cancel.release();
        let woken = Arc::new(AtomicBool::new(false));
        let flag = woken.clone();
        cancel.on_cancel(move || flag.store(true, Ordering::Relaxed));
        assert!(woken.load(Ordering::Relaxed) && !cancel.is_set());
    }

    #[test]
    fn the_first_reason_stands_and_every_hook_runs_once() {
        let cancel = Cancel::default();
        let woken = Arc::new(AtomicUsize::new(0));
        let hook = || {
            let woken = woken.clone();
            move || {
                woken.fetch_add(1, Ordering::Relaxed);
            }
        };
        cancel.on_cancel(hook());
        assert!(!cancel.is_set());
        cancel.fail(EngineError::Interrupted);
        cancel.fail(EngineError::NoConfigDir);
        cancel.on_cancel(hook());
        assert_eq!(woken.load(Ordering::Relaxed), 2);
        assert!(matches!(cancel.take_reason(), EngineError::Interrupted));
    }
}
