//! Runs short shell scripts locally or over ssh, and aborts them cleanly.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use longhaul_core::text::shell_quoted;

use crate::network::NetworkError;

/// The interval at which a running script is checked.
const TICK: Duration = Duration::from_millis(10);

/// Runs a script with `shell`, a command that reads a script from standard input, so that no other
/// shell interprets it. Returns its output.
///
/// The script is aborted when `give_up` returns true. Ctrl-C at the terminal does not reach it,
/// because cleanup must complete.
///
/// # Errors
/// The shell cannot be started, the script failed (with its last line of output), or it was
/// aborted.
pub fn run_script(
    mut shell: Command,
    script: &str,
    give_up: &dyn Fn() -> bool,
) -> Result<String, NetworkError> {
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = shell.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // The script fits into a pipe's buffer, so this write does not block. If the shell ended
        // early, its output has the reason.
        let _ = input.write_all(script.as_bytes());
    }
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        let output = scope.spawn(|| read(output));
        let errors = scope.spawn(|| read(errors));
        let ended = wait(&mut child, give_up);
        let (output, errors) = (output.join().unwrap_or_default(), errors.join());
        match ended? {
            None => Err("aborted".into()),
            Some(status) if status.success() => Ok(output),
            Some(status) => {
                let errors = errors.unwrap_or_default();
                let words = errors.lines().rfind(|line| !line.trim().is_empty());
                Err(words.map_or_else(|| status.to_string(), |words| words.trim().into()).into())
            }
        }
    })
}

/// Waits for the end of the shell. Returns `None` if the script was aborted.
fn wait(
    child: &mut Child,
    give_up: &dyn Fn() -> bool,
) -> std::io::Result<Option<std::process::ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if give_up() {
            // All descendants are killed, too: they keep the streams open.
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
    // After an error the text read so far is used.
    let _ = stream.map(|mut stream| stream.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns a command as shell words, with the environment variables set for it.
pub(super) fn words(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", name.to_string_lossy(), quote(value)));
        }
    }
    words.push(quote(command.get_program()));
    words.extend(command.get_args().map(quote));
    words.join(" ")
}

fn quote(word: &OsStr) -> String {
    shell_quoted(&word.to_string_lossy()).into_owned()
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
        assert_eq!(sh("sleep 300 & sleep 300", &late), Err("aborted".into()));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_shell_would_take_it() {
        let mut command = Command::new("rsync");
        command.args(["-e", "'ssh' '-F'", "a b", ""]).env("LANG", "C");
        assert_eq!(words(&command), r"LANG=C rsync -e ''\''ssh'\'' '\''-F'\''' 'a b' ''");
    }
}
