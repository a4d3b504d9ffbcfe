//! A mailbox between two threads whose receiver can poll it cheaply or sleep on a descriptor.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::EventfdFlags;

/// The sending end of a mailbox.
pub(super) struct Outbox<T> {
    messages: Sender<T>,
    waker: Arc<Waker>,
}

/// The receiving end of a mailbox. A busy thread polls it at almost no cost. The descriptor wakes a
/// sleeping thread.
#[derive(Debug)]
pub(super) struct Inbox<T> {
    messages: Receiver<T>,
    waker: Arc<Waker>,
}

#[derive(Debug)]
struct Waker {
    signaled: AtomicBool,
    wake: OwnedFd,
}

/// Creates a mailbox.
pub(super) fn mailbox<T>() -> io::Result<(Outbox<T>, Inbox<T>)> {
    let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let waker = Arc::new(Waker { signaled: AtomicBool::new(false), wake });
    let (sender, receiver) = channel();
    let outbox = Outbox { messages: sender, waker: Arc::clone(&waker) };
    Ok((outbox, Inbox { messages: receiver, waker }))
}

impl<T> fmt::Debug for Outbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("waker", &self.waker).finish_non_exhaustive()
    }
}

impl<T> Outbox<T> {
    /// Sends a message. Returns false if the receiver has been dropped.
    pub(super) fn send(&self, message: T) -> bool {
        let sent = self.messages.send(message).is_ok();
        self.waker.signaled.store(true, Ordering::Release);
        // The write fails only after about 2^64 unread writes.
        let _ = rustix::io::write(&self.waker.wake, &1u64.to_ne_bytes());
        sent
    }
}

impl<T> Inbox<T> {
    /// Returns the messages that have arrived since the last call.
    pub(super) fn take(&self) -> impl Iterator<Item = T> {
        let signaled = self.waker.signaled.load(Ordering::Relaxed)
            && self.waker.signaled.swap(false, Ordering::Acquire);
        if signaled {
            let _ = rustix::io::read(&self.waker.wake, &mut [0; 8]);
        }
        std::iter::from_fn(move || signaled.then(|| self.messages.try_recv().ok()).flatten())
    }

    /// Returns a descriptor that is readable when a message has arrived.
    pub(super) fn waker(&self) -> BorrowedFd<'_> {
        self.waker.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn messages_come_once_in_order_and_wake() {
        let (outbox, inbox) = mailbox().unwrap();
        let is_readable = || longhaul_sys::poll::readable(inbox.waker(), Duration::ZERO);
        assert_eq!(inbox.take().count(), 0);
        assert!(!is_readable());
        assert!(outbox.send(1) && outbox.send(2));
        assert!(is_readable());
        assert_eq!(inbox.take().collect::<Vec<_>>(), [1, 2]);
        assert!(!is_readable());
        assert_eq!(inbox.take().count(), 0);
    }

    #[test]
    fn a_message_to_a_dropped_receiver_fails() {
        let (outbox, inbox) = mailbox().unwrap();
        drop(inbox);
        assert!(!outbox.send(()));
    }
}
