//! Waits for descriptors with a time limit.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Waits until `fd` is readable (or has a connection to accept), for at most `limit`. Returns false
/// after the limit or a signal; the caller checks again in both cases.
pub fn readable(fd: impl AsFd, limit: Duration) -> bool {
    ready(fd, PollFlags::IN, limit)
}

/// Waits like [`readable`] until a pipe or socket accepts `PIPE_BUF` bytes, 4096 on Linux
/// (pipe(7)), without blocking.
pub fn writable(fd: impl AsFd, limit: Duration) -> bool {
    ready(fd, PollFlags::OUT, limit)
}

fn ready(fd: impl AsFd, what: PollFlags, limit: Duration) -> bool {
    let mut fds = [PollFd::new(&fd, what)];
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    matches!(poll(&mut fds, Some(&limit)), Ok(ready) if ready > 0)
}
