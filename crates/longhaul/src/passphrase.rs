//! Reads passphrases from the program in `LONGHAUL_ASKPASS`, from the terminal, or from the program
//! in `SSH_ASKPASS`, and passwords also from a pipe.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, IsTerminal as _, Read, Write};
use std::process::{Command, Stdio};

use longhaul_engine::Result as EngineResult;
use longhaul_engine::session::{ConfigDir, Identity};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// The longest passphrase, in bytes.
const LENGTH_LIMIT: usize = 1024;

/// Returns the identity of this user. Creates it at the first use, and reads its passphrase if it
/// is encrypted.
pub(crate) fn identity(config: &ConfigDir) -> EngineResult<Identity> {
    Identity::unlock_or_create(config, &mut |path| ask_for(path))
}

/// Reads the passphrase of the file at `path`; `None` without a terminal, a program or an answer.
pub(crate) fn ask_for(path: &std::path::Path) -> Option<String> {
    ask(&format!("Passphrase of {}: ", path.display()))
}

/// The error without a password.
pub(crate) const NO_PASSWORD: &str = "there is no password; enter it in a terminal, pipe it into this \
                                      command as one line, or set LONGHAUL_ASKPASS to a program that \
                                      prints it";

/// A password and its source.
pub(crate) enum Password {
    /// The first line of a standard input that is not a terminal.
    Piped(String),
    /// The answer to a prompt.
    Typed(String),
}

/// Reads a password: the answer to `prompt` if there is a program in `LONGHAUL_ASKPASS` or standard input
/// is a terminal, otherwise the first line of standard input. `None` without a password.
///
/// # Errors
/// Standard input cannot be read.
pub(crate) fn password(prompt: &str) -> std::io::Result<Option<Password>> {
    let stdin = std::io::stdin();
    if program("LONGHAUL_ASKPASS").is_some() || stdin.is_terminal() {
        return Ok(ask(prompt).filter(|typed| !typed.is_empty()).map(Password::Typed));
    }
    Ok(first_line(stdin.lock())?.map(Password::Piped))
}

/// Returns the first line of `input`; `None` if it is empty, too long or not UTF-8.
fn first_line(input: impl std::io::BufRead) -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    input.take(LENGTH_LIMIT as u64 + 2).read_until(b'\n', &mut line)?;
    let line = String::from_utf8(line).unwrap_or_default();
    let line = line.trim_end_matches(['\r', '\n']);
    Ok(Some(line.to_owned()).filter(|line| !line.is_empty() && line.len() <= LENGTH_LIMIT))
}

/// Returns the program in the environment variable `name`.
fn program(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|program| !program.is_empty())
}

/// Reads the answer to `prompt`, without echo.
pub(crate) fn ask(prompt: &str) -> Option<String> {
    if let Some(program) = program("LONGHAUL_ASKPASS") {
        return by_program(Command::new(program), prompt);
    }
    match OpenOptions::new().read(true).write(true).open("/dev/tty") {
        Ok(terminal) => on_terminal(terminal, prompt),
        Err(_) => by_program(Command::new(program("SSH_ASKPASS")?), prompt),
    }
}

/// Returns the first line that a program prints. The prompt is its argument.
fn by_program(mut program: Command, prompt: &str) -> Option<String> {
    let output = program.arg(prompt).stdin(Stdio::null()).stderr(Stdio::inherit()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    let line = text.lines().next().unwrap_or_default();
    (line.len() <= LENGTH_LIMIT).then(|| line.to_owned())
}

/// A terminal without echo until this is dropped.
struct Silent<'a> {
    terminal: &'a File,
    before: Termios,
}

impl<'a> Silent<'a> {
    /// Disables the echo, and signals from the keyboard: a signal that ended the program would
    /// leave the terminal without echo.
    fn new(terminal: &'a File) -> Option<Self> {
        let before = tcgetattr(terminal).ok()?;
        let mut modes = before.clone();
        modes.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        tcsetattr(terminal, OptionalActions::Flush, &modes).ok()?;
        Some(Silent { terminal, before })
    }
}

impl Drop for Silent<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
        let _ = (&mut &*self.terminal).write_all(b"\n");
    }
}

fn on_terminal(terminal: File, prompt: &str) -> Option<String> {
    let silent = Silent::new(&terminal)?;
    (&terminal).write_all(prompt.as_bytes()).ok()?;
    let mut typed = Vec::new();
    let mut byte = [0];
    while typed.len() <= LENGTH_LIMIT && (&mut &*silent.terminal).read(&mut byte).ok()? == 1 {
        match byte[0] {
            b'\r' | b'\n' => return String::from_utf8(typed).ok(),
            // Ctrl-C, Ctrl-D
            3 | 4 => return None,
            // Backspace, Ctrl-U
            8 | 127 => drop(typed.pop()),
            21 => typed.clear(),
            byte => typed.push(byte),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piped_password_is_one_bounded_line() {
        let read = |input: &[u8]| first_line(input).unwrap();
        for input in ["a secret\n", "a secret\r\n", "a secret", "a secret\nmore\n"] {
            assert_eq!(read(input.as_bytes()).as_deref(), Some("a secret"), "{input:?}");
        }
        let (longest, longer) = ([b'a'; LENGTH_LIMIT], [b'a'; LENGTH_LIMIT + 1]);
        assert_eq!(read(&longest).unwrap().len(), LENGTH_LIMIT);
        for input in [&b""[..], b"\n", b"\xff\n", &longer] {
            assert_eq!(read(input), None);
        }
    }
}
