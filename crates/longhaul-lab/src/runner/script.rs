//! Short shell scripts, run here or by ssh at the far end of a real path, and given up in order.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::network::NetworkError;

/// How often a script that runs is looked at.
const TICK: Duration = Duration::from_millis(10);

/// Runs a script by `shell`, a command that reads one from its standard input, so that it passes
/// no other shell on the way; returns what it printed, or fails with its last words.
///
/// It is ended when `give_up` says so. A Ctrl-C at the terminal does not reach it: what cleans up
/// must come to its end.
///
/// # Errors
/// The shell cannot be started, the script failed, or was given up.
pub fn run_script(
    mut shell: Command,
    script: &str,
    give_up: &dyn Fn() -> bool,
) -> Result<String, NetworkError> {
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = shell.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // Shorter than a pipe holds. A shell that ended before it read says why itself.
        let _ = input.write_all(script.as_bytes());
    }
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        let output = scope.spawn(|| read(output));
        let errors = scope.spawn(|| read(errors));
        let ended = wait(&mut child, give_up);
        let (output, errors) = (output.join().unwrap_or_default(), errors.join());
        match ended? {
            None => Err("given up".into()),
            Some(status) if status.success() => Ok(output),
            Some(status) => {
                let errors = errors.unwrap_or_default();
                let words = errors.lines().rfind(|line| !line.trim().is_empty());
                Err(words.map_or_else(|| status.to_string(), |words| words.trim().into()).into())
            }
        }
    })
}

/// `None` when it was given up.
fn wait(
    child: &mut Child,
    give_up: &dyn Fn() -> bool,
) -> std::io::Result<Option<std::process::ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if give_up() {
            // With all that it started: they hold the streams that are read.
            if let Some(group) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(TICK);
    }
}

fn read(stream: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    // What came before an error is all that there is.
    let _ = stream.map(|mut stream| stream.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn sh(script: &str, give_up: &dyn Fn() -> bool) -> Result<String, String> {
        run_script(Command::new("sh"), script, give_up).map_err(|error| error.to_string())
    }

    #[test]
    fn a_script_tells_what_it_printed_or_why_it_failed() {
        assert_eq!(sh("printf 'a\nb'", &|| false).as_deref(), Ok("a\nb"));
        assert_eq!(sh("echo x; echo 'no room' >&2; exit 3", &|| false), Err("no room".into()));
        assert_eq!(sh("exit 3", &|| false), Err("exit status: 3".into()));
        let missing = run_script(Command::new("/no/such/ssh"), "", &|| false);
        assert!(missing.unwrap_err().to_string().contains("No such file"));
    }

    #[test]
    fn one_that_is_given_up_ends_with_its_children() {
        let begun = Instant::now();
        let late = || begun.elapsed() > Duration::from_millis(200);
        assert_eq!(sh("sleep 300 & sleep 300", &late), Err("given up".into()));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
