//! Runs a command with a limit of time and of output.

use std::io::{self, ErrorKind, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_sys::poll::readable;

/// The interval at which the end of a command is checked after its output has ended.
const TICK: Duration = Duration::from_millis(5);
/// The bytes of one read.
const READ_BYTES: usize = 64 << 10;

/// The limits of a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Within {
    pub(super) time: Duration,
    /// The maximum number of bytes on standard output.
    pub(super) bytes: usize,
}

/// A child process that is killed when it is dropped.
struct Running(Child);

impl Within {
    /// Runs `command` to its end. Returns its exit status and its standard output.
    ///
    /// # Errors
    /// The command cannot be started, runs longer (`TimedOut`) or prints more (`FileTooLarge`).
    pub(super) fn run(self, command: &mut Command) -> io::Result<(ExitStatus, Vec<u8>)> {
        let deadline = Instant::now() + self.time;
        let mut running = Running(command.stdout(Stdio::piped()).spawn()?);
        let mut output = Vec::new();
        if let Some(mut pipe) = running.0.stdout.take() {
            let mut buffer = vec![0; READ_BYTES];
            loop {
                while !readable(&pipe, left_until(deadline)?) {}
                match pipe.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(got) if output.len() + got > self.bytes => {
                        return Err(ErrorKind::FileTooLarge.into());
                    }
                    Ok(got) => output.extend_from_slice(&buffer[..got]),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        loop {
            if let Some(status) = running.0.try_wait()? {
                return Ok((status, output));
            }
            left_until(deadline)?;
            thread::sleep(TICK);
        }
    }
}

/// Returns the time until `deadline`.
///
/// # Errors
/// The deadline has passed.
fn left_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Harmless if the command has ended. The wait collects its exit status.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, time: Duration) -> io::Result<(Option<i32>, Vec<u8>)> {
        let mut shell = Command::new("sh");
        let ended = Within { time, bytes: 100 }.run(shell.args(["-c", script]))?;
        Ok((ended.0.code(), ended.1))
    }

    #[test]
    fn a_command_has_a_limit_of_time_and_of_output() {
        const LONG: Duration = Duration::from_secs(60);
        assert_eq!(run("printf ab; exit 3", LONG).unwrap(), (Some(3), b"ab".to_vec()));
        assert_eq!(run("yes", LONG).unwrap_err().kind(), ErrorKind::FileTooLarge);
        let begun = Instant::now();
        let short = Duration::from_millis(200);
        // The second command closes its output and does not end; the third one leaves a child that
        // keeps the pipe open.
        for script in ["exec sleep 300", "exec sleep 300 >&-", "sleep 5 & exit 0"] {
            assert_eq!(run(script, short).unwrap_err().kind(), ErrorKind::TimedOut, "{script}");
        }
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    }
}
