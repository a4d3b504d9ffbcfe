//! Waits for descriptors with a time limit.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Waits until `fd` is readable (or has a connection to accept), for at most `limit`. Returns false
/// after the limit or a signal; the caller must check again in both cases.
pub fn readable(fd: impl AsFd, limit: Duration) -> bool {
    ready(fd, PollFlags::IN, limit)
}

/// Waits until one of `fds` is readable or has an error, for at most `limit`. Returns for each whether
/// it is; none after the limit or a signal.
pub fn readable_among<F: AsFd>(fds: &[F], limit: Duration) -> Vec<bool> {
    let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    match poll(&mut polled, Some(&limit)) {
        Ok(_) => polled.iter().map(|one| !one.revents().is_empty()).collect(),
        Err(_) => vec![false; fds.len()],
    }
}

/// Waits until a pipe or socket accepts `PIPE_BUF` bytes, 4096 on Linux (pipe(7)), without
/// blocking. Limit and result are those of [`readable`].
pub fn writable(fd: impl AsFd, limit: Duration) -> bool {
    ready(fd, PollFlags::OUT, limit)
}

/// Returns whether the peer of a connected socket has closed or reset the connection. Bytes
/// received before that may still be unread.
pub fn is_closed(socket: impl AsFd) -> bool {
    // POLLHUP and POLLERR are always reported (poll(2)).
    ready(socket, PollFlags::RDHUP, Duration::ZERO)
}

fn ready(fd: impl AsFd, what: PollFlags, limit: Duration) -> bool {
    let mut fds = [PollFd::new(&fd, what)];
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    matches!(poll(&mut fds, Some(&limit)), Ok(ready) if ready > 0)
}
