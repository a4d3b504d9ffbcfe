//! A child process of a run, and the last line of its messages.

use std::io;
use std::process::{Command, Stdio};
use std::time::Instant;

use longhaul_fleet::protocol::{MAX_DOCUMENT_BYTES, MAX_MESSAGE_BYTES};
use longhaul_sys::child::{self, ChildEnd, ChildLimits};
use longhaul_sys::process::die_with_thread;

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
    let limits = ChildLimits {
        deadline,
        output_bytes: MAX_DOCUMENT_BYTES,
        message_bytes: MOST_MESSAGES,
        cancelled,
    };
    Ok(match child::run_child(&mut command, limits)? {
        ChildEnd::Exited { status, output, messages } => {
            ChildOutcome::Ended { code: status.code(), output, message: last_line(&messages) }
        }
        ChildEnd::OutOfTime => ChildOutcome::OutOfTime,
        ChildEnd::Cancelled => ChildOutcome::Cancelled,
        ChildEnd::TooLarge => ChildOutcome::TooLarge,
    })
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
    use std::time::Duration;

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
