//! Waiting for a descriptor, with a limit.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Waits until `fd` can be read (or accepted from), for `limit` at most. False when the time is
/// up or a signal came: the caller looks again, as it must anyway.
pub fn readable(fd: impl AsFd, limit: Duration) -> bool {
    ready(fd, PollFlags::IN, limit)
}

/// As [`readable`], for a pipe or socket that takes bytes: `PIPE_BUF` of them, 4096 on Linux
/// (pipe(7)), without making the writer wait.
pub fn writable(fd: impl AsFd, limit: Duration) -> bool {
    ready(fd, PollFlags::OUT, limit)
}

fn ready(fd: impl AsFd, what: PollFlags, limit: Duration) -> bool {
    let mut fds = [PollFd::new(&fd, what)];
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    matches!(poll(&mut fds, Some(&limit)), Ok(ready) if ready > 0)
}
