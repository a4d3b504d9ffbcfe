//! A child process with a deadline and limits of its output.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::poll::readable_among;

/// The longest wait before the cancellation is checked.
const CHECK: Duration = Duration::from_millis(200);
/// The interval of checks if the kernel has no descriptor of the process.
const CHECK_WITHOUT_DESCRIPTOR: Duration = Duration::from_millis(20);
/// The bytes of one read.
const READ_BYTES: usize = 64 << 10;

/// The limits of a child process.
#[derive(Clone, Copy)]
pub struct ChildLimits<'a> {
    /// The time by which the process, and every other process that has its output open, must end.
    pub deadline: Instant,
    /// The maximum number of bytes on standard output.
    pub output_bytes: usize,
    /// The number of bytes of the standard error that are kept: the last ones.
    pub message_bytes: usize,
    /// Returns true to cancel the process.
    pub cancelled: &'a dyn Fn() -> bool,
}

/// The outcome of a child process.
#[derive(Debug)]
pub enum ChildEnd {
    /// The process ended.
    Exited {
        /// The exit status.
        status: ExitStatus,
        /// The standard output, if it is piped.
        output: Vec<u8>,
        /// The last bytes of the standard error, if it is piped.
        messages: Vec<u8>,
    },
    /// The deadline passed before the process ended.
    OutOfTime,
    /// The caller cancelled the process.
    Cancelled,
    /// The process wrote more bytes than its limit.
    TooLarge,
}

/// Runs `command` within `limits`, and kills the process at the first exceeded limit. Reads the
/// standard output and the standard error if `command` pipes them.
///
/// # Errors
/// The program cannot be started, or its output cannot be read.
pub fn run_child(command: &mut Command, limits: ChildLimits<'_>) -> io::Result<ChildEnd> {
    let mut running = Running(command.spawn()?);
    let child = &mut running.0;
    // The descriptor is readable once the process has ended (pidfd_open(2)).
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok();
    let mut output = Stream::of(child.stdout.take().map(OwnedFd::from));
    let mut messages = Stream::of(child.stderr.take().map(OwnedFd::from));
    loop {
        if output.pipe.is_none()
            && messages.pipe.is_none()
            && let Some(status) = child.try_wait()?
        {
            let (output, messages) = (output.bytes, messages.bytes);
            return Ok(ChildEnd::Exited { status, output, messages });
        }
        if (limits.cancelled)() {
            return Ok(ChildEnd::Cancelled);
        }
        let left = limits.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(ChildEnd::OutOfTime);
        }
        wait(&mut [&mut output, &mut messages], process.as_ref(), left.min(CHECK))?;
        if output.bytes.len() > limits.output_bytes {
            return Ok(ChildEnd::TooLarge);
        }
        messages.keep_last(limits.message_bytes);
    }
}

/// Waits for at most `limit` until one of `streams` has bytes, and reads them; without an open stream
/// until the process ends.
fn wait(streams: &mut [&mut Stream], process: Option<&OwnedFd>, limit: Duration) -> io::Result<()> {
    let mut open: Vec<_> = streams.iter_mut().filter(|stream| stream.pipe.is_some()).collect();
    let pipes: Vec<BorrowedFd<'_>> =
        open.iter().filter_map(|stream| stream.pipe.as_ref().map(AsFd::as_fd)).collect();
    if pipes.is_empty() {
        match process {
            Some(process) => drop(readable_among(&[process], limit)),
            None => thread::sleep(limit.min(CHECK_WITHOUT_DESCRIPTOR)),
        }
        return Ok(());
    }
    let ready = readable_among(&pipes, limit);
    for (stream, _) in open.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
        stream.read()?;
    }
    Ok(())
}

/// A child process that is killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Harmless if the process has ended. The wait collects its exit status.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An output of the process.
struct Stream {
    /// The pipe until its end.
    pipe: Option<File>,
    bytes: Vec<u8>,
}

impl Stream {
    fn of(pipe: Option<OwnedFd>) -> Self {
        Stream { pipe: pipe.map(File::from), bytes: Vec::new() }
    }

    /// Reads the available bytes, at most [`READ_BYTES`], and closes the pipe at its end.
    fn read(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        let length = self.bytes.len();
        self.bytes.resize(length + READ_BYTES, 0);
        let read = pipe.read(&mut self.bytes[length..]);
        self.bytes.truncate(length + read.as_ref().copied().unwrap_or(0));
        match read {
            Ok(0) => self.pipe = None,
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        Ok(())
    }

    fn keep_last(&mut self, most: usize) {
        self.bytes.drain(..self.bytes.len().saturating_sub(most));
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn shell(script: &str, limit: Duration, cancelled: &dyn Fn() -> bool) -> ChildEnd {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let deadline = Instant::now() + limit;
        let limits = ChildLimits { deadline, output_bytes: 100, message_bytes: 4, cancelled };
        run_child(&mut command, limits).unwrap()
    }

    #[test]
    fn the_output_is_bounded_and_the_last_messages_are_kept() {
        const LONG: Duration = Duration::from_secs(60);
        let ended = shell("printf ab; printf 123456 >&2; exit 3", LONG, &|| false);
        let ChildEnd::Exited { status, output, messages } = ended else { panic!("{ended:?}") };
        assert_eq!((status.code(), output, messages), (Some(3), b"ab".into(), b"3456".into()));
        // Both streams are read: neither blocks the process.
        let large = "head -c 1000000 /dev/zero >&2; printf ab";
        assert!(matches!(shell(large, LONG, &|| false), ChildEnd::Exited { .. }));
        assert!(matches!(shell("yes", LONG, &|| false), ChildEnd::TooLarge));
        // A cancellation is checked also while the process writes without an end.
        let begun = Instant::now();
        let cancelled = || begun.elapsed() > Duration::from_millis(50);
        assert!(matches!(shell("yes >&2", LONG, &cancelled), ChildEnd::Cancelled));
    }

    #[test]
    fn a_process_ends_at_its_deadline() {
        let begun = Instant::now();
        let short = Duration::from_millis(200);
        // The second process closes its output and does not end; the third one leaves a child that
        // keeps the pipe open.
        for script in ["exec sleep 300", "exec sleep 300 >&- 2>&-", "sleep 5 & exit 0"] {
            let late = shell(script, short, &|| false);
            assert!(matches!(late, ChildEnd::OutOfTime), "{script}: {late:?}");
        }
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    }
}
