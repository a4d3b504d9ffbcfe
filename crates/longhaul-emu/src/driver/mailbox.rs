use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::EventfdFlags;

/// The sending end of a thread's mailbox.
pub(super) struct Outbox<T> {
    letters: Sender<T>,
    bell: Arc<Bell>,
}

/// The receiving end. Looking whether something came costs a thread that is busy next to nothing;
/// one that waits is woken by the descriptor.
#[derive(Debug)]
pub(super) struct Inbox<T> {
    letters: Receiver<T>,
    bell: Arc<Bell>,
}

#[derive(Debug)]
struct Bell {
    rung: AtomicBool,
    wake: OwnedFd,
}

/// A mailbox between two threads.
pub(super) fn mailbox<T>() -> io::Result<(Outbox<T>, Inbox<T>)> {
    let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let bell = Arc::new(Bell { rung: AtomicBool::new(false), wake });
    let (sender, receiver) = channel();
    let outbox = Outbox { letters: sender, bell: Arc::clone(&bell) };
    Ok((outbox, Inbox { letters: receiver, bell }))
}

impl<T> fmt::Debug for Outbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("bell", &self.bell).finish_non_exhaustive()
    }
}

impl<T> Outbox<T> {
    /// Sends a letter; false if nobody is there to read it.
    pub(super) fn send(&self, letter: T) -> bool {
        let sent = self.letters.send(letter).is_ok();
        self.bell.rung.store(true, Ordering::Release);
        // It fails only where it has been written some 2^64 times unread.
        let _ = rustix::io::write(&self.bell.wake, &1u64.to_ne_bytes());
        sent
    }
}

impl<T> Inbox<T> {
    /// The letters that have come, if any may have since the last call.
    pub(super) fn take(&self) -> impl Iterator<Item = T> {
        let rung =
            self.bell.rung.load(Ordering::Relaxed) && self.bell.rung.swap(false, Ordering::Acquire);
        if rung {
            let _ = rustix::io::read(&self.bell.wake, &mut [0; 8]);
        }
        std::iter::from_fn(move || rung.then(|| self.letters.try_recv().ok()).flatten())
    }

    /// Can be read when a letter has come.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn letters_come_once_in_order_and_ring() {
        let (outbox, inbox) = mailbox().unwrap();
        let is_ringing = || longhaul_sys::poll::readable(inbox.bell(), Duration::ZERO);
        assert_eq!(inbox.take().count(), 0);
        assert!(!is_ringing());
        assert!(outbox.send(1) && outbox.send(2));
        assert!(is_ringing());
        assert_eq!(inbox.take().collect::<Vec<_>>(), [1, 2]);
        assert!(!is_ringing());
        assert_eq!(inbox.take().count(), 0);
    }

    #[test]
    fn a_letter_to_nobody_is_known_as_such() {
        let (outbox, inbox) = mailbox().unwrap();
        drop(inbox);
        assert!(!outbox.send(()));
    }
}
