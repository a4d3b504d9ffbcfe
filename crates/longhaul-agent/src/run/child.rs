//! A child process with a deadline and bounded output.

use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_fleet::protocol::{MAX_DOCUMENT_BYTES, MAX_MESSAGE_BYTES};
use longhaul_sys::poll;
use longhaul_sys::process::die_with_thread;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The longest wait for the end of a process before the cancellation and the deadline are checked.
const LOOK: Duration = Duration::from_millis(200);
/// The interval without a descriptor of the process.
const SHORT_LOOK: Duration = Duration::from_millis(20);
/// The time in which the output of an ended process must arrive.
const DRAIN: Duration = Duration::from_secs(5);
/// The maximum number of bytes of messages that are kept: the last ones.
const MOST_MESSAGES: usize = 64 << 10;

/// The outcome of a process.
#[derive(Debug)]
pub(crate) enum ChildOutcome {
    /// The process ended.
    Ended {
        /// The exit code; `None` after a signal.
        code: Option<i32>,
        /// The standard output.
        output: Vec<u8>,
        /// The last line of the standard error, at most `MAX_MESSAGE_BYTES`.
        message: Option<String>,
    },
    /// The deadline came first.
    OutOfTime,
    /// The caller cancelled the process.
    Cancelled,
    /// The process wrote more than `MAX_DOCUMENT_BYTES`.
    TooLarge,
}

/// Runs `command` until it ends, `deadline` comes or `cancelled` returns true, and kills it then. It
/// also dies if this thread or process dies.
///
/// # Errors
/// The program cannot be started.
pub(crate) fn run_child(
    mut command: Command,
    deadline: Instant,
    cancelled: &dyn Fn() -> bool,
) -> io::Result<ChildOutcome> {
    die_with_thread(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    // The descriptor is readable once the process has ended (pidfd_open(2)).
    let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let output = child.stdout.take().map(|pipe| read_in_thread(pipe, MAX_DOCUMENT_BYTES, false));
    let messages = child.stderr.take().map(|pipe| read_in_thread(pipe, MOST_MESSAGES, true));
    let (output, messages) = match (output.transpose(), messages.transpose()) {
        (Ok(output), Ok(messages)) => (output, messages),
        (Err(error), _) | (_, Err(error)) => {
            kill(&mut child);
            return Err(error);
        }
    };
    let ended = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if cancelled() {
            kill(&mut child);
            return Ok(ChildOutcome::Cancelled);
        }
        if Instant::now() >= deadline {
            kill(&mut child);
            return Ok(ChildOutcome::OutOfTime);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        match &handle {
            Ok(handle) => drop(poll::readable(handle, LOOK.min(left))),
            Err(_) => thread::sleep(SHORT_LOOK),
        }
    };
    let received = |pipe: Option<mpsc::Receiver<Option<Vec<u8>>>>| {
        pipe.and_then(|pipe| pipe.recv_timeout(DRAIN).ok()).unwrap_or(Some(Vec::new()))
    };
    let Some(output) = received(output) else { return Ok(ChildOutcome::TooLarge) };
    let message = received(messages).and_then(|text| last_line(&text));
    Ok(ChildOutcome::Ended { code: ended.code(), output, message })
}

fn kill(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Reads at most `most` bytes; of more, the last ones if `tail`, and none otherwise.
fn read_in_thread(
    mut pipe: impl Read + Send + 'static,
    most: usize,
    tail: bool,
) -> io::Result<mpsc::Receiver<Option<Vec<u8>>>> {
    let (sender, receiver) = mpsc::channel();
    let read = move || {
        let mut kept = Some(Vec::new());
        let mut piece = vec![0; 16 << 10];
        while let Ok(read @ 1..) = pipe.read(&mut piece) {
            let Some(bytes) = &mut kept else { continue };
            bytes.extend_from_slice(&piece[..read]);
            if bytes.len() > most {
                if tail { drop(bytes.drain(..bytes.len() - most)) } else { kept = None }
            }
        }
        // The receiver is gone if the process was killed.
        let _ = sender.send(kept);
    };
    thread::Builder::new().spawn(read)?;
    Ok(receiver)
}

/// Returns the last meaningful line; for a panic, its location instead of the backtrace.
fn last_line(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let panicked = text.lines().find(|line| line.contains(" panicked at "));
    let line = panicked.or_else(|| text.lines().rev().find(|line| !line.trim().is_empty()))?;
    let mut line = longhaul_core::text::escape(line.trim()).into_owned();
    if line.len() > MAX_MESSAGE_BYTES {
        let end = (0..=MAX_MESSAGE_BYTES).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
        line.truncate(end);
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> ChildOutcome {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run_child(command, Instant::now() + limit, &|| false).unwrap()
    }

    #[test]
    fn output_and_messages_are_bounded() {
        let long = Duration::from_secs(60);
        let ended = shell("echo result; echo one >&2; echo two >&2; exit 3", long);
        let ChildOutcome::Ended { code, output, message } = ended else { panic!("{ended:?}") };
        assert_eq!((code, output.as_slice()), (Some(3), b"result\n".as_slice()));
        assert_eq!(message.as_deref(), Some("two"));
        let panicked =
            "echo \"thread 'main' panicked at a.rs:1:2:\" >&2; echo backtrace >&2; exit 101";
        let ChildOutcome::Ended { message, .. } = shell(panicked, long) else { panic!() };
        assert_eq!(message.as_deref(), Some("thread 'main' panicked at a.rs:1:2:"));
        let large = shell("head -c 5000000 /dev/zero", long);
        assert!(matches!(large, ChildOutcome::TooLarge), "{large:?}");
    }

    #[test]
    fn a_process_ends_at_its_deadline() {
        let late = shell("exec sleep 1000", Duration::from_millis(100));
        assert!(matches!(late, ChildOutcome::OutOfTime), "{late:?}");
        let mut command = Command::new("sleep");
        command.arg("1000");
        let cancelled = run_child(command, Instant::now() + Duration::from_secs(60), &|| true);
        assert!(matches!(cancelled, Ok(ChildOutcome::Cancelled)));
    }
}
