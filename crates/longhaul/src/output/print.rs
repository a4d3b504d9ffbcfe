//! The only writers to standard output and standard error.
//!
//! They escape hostile characters, so that text of a peer, a file system or another program cannot
//! move the cursor or forge a line. They never panic. Errors of standard error are ignored. Errors
//! of standard output are returned; the program then ends with [`exit::OUTPUT`], unless its work
//! failed, too.

// A lint forbids these calls everywhere else.
#![allow(clippy::disallowed_methods)]

use std::fmt::Display;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::text::{escape, escape_json, escape_lines};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::style;
use super::test::words::wrap;
use crate::exit::{self, Coded};

/// True once this process has printed a JSON document.
static DOCUMENT_PRINTED: AtomicBool = AtomicBool::new(false);

/// Prints a message on standard error: one line after the name of the program.
pub(crate) fn print_message(what: impl Display) {
    print_note(format_args!("longhaul: {what}"));
}

/// Prints one line on standard error. On a terminal it breaks between words, and a warning is
/// colored.
pub(crate) fn print_note(what: impl Display) {
    let line = line(what);
    let text = match error_size() {
        Some((columns, _)) => on_terminal(&line, columns, error_is_colored()),
        None => line,
    };
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Returns an escaped line for a terminal.
fn on_terminal(line: &str, columns: usize, color: bool) -> String {
    let wrapped = wrap(line, columns.clamp(LEAST_COLUMNS, MOST_COLUMNS));
    match wrapped.split_once(WARNING).filter(|_| color) {
        Some((before, after)) if before.is_empty() || before == "longhaul: " => {
            let word = style::styled(style::Style::Advice, WARNING, true);
            let word = style::apply(&word, |text| text.into());
            format!("{before}{word}{after}")
        }
        _ => wrapped,
    }
}

const WARNING: &str = "warning:";

/// Returns `what` as one line.
fn line(what: impl Display) -> String {
    format!("{}\n", escape(&what.to_string()))
}

/// Prints lines of text on standard error.
pub(crate) fn print_notes(text: &str) {
    let _ = io::stderr().lock().write_all(shown(text).as_bytes());
}

/// Prints lines of text, with their [styles](style), on standard output.
///
/// # Errors
/// Standard output does not accept them.
pub(crate) fn print_result(text: &str) -> Result<(), Coded> {
    write_out(&shown(text))
}

/// Prints a document on standard output, for people and programs.
///
/// # Errors
/// Standard output does not accept it.
pub(crate) fn print_document(value: &impl Serialize) -> Result<(), Coded> {
    let text = serde_json::to_string_pretty(value).map_err(anyhow::Error::from)?;
    print_json(&text)
}

/// Prints a document on standard output, in one line.
///
/// # Errors
/// Standard output does not accept it.
pub(crate) fn print_document_line(value: &impl Serialize) -> Result<(), Coded> {
    let text = serde_json::to_string(value).map_err(anyhow::Error::from)?;
    print_json(&text)
}

/// Returns whether this process has printed a JSON document.
pub(crate) fn document_is_printed() -> bool {
    DOCUMENT_PRINTED.load(Ordering::Relaxed)
}

/// Prints a JSON document, which is text already, on standard output.
///
/// # Errors
/// Standard output does not accept it.
pub(crate) fn print_json(document: &str) -> Result<(), Coded> {
    DOCUMENT_PRINTED.store(true, Ordering::Relaxed);
    write_out(&(escape_json(document.trim_end()) + "\n"))
}

/// Returns the exit code of work that ended with `code` and printed its result. An error of the
/// work takes precedence over an error of printing.
///
/// # Errors
/// The work succeeded and its result was not printed.
pub(crate) fn after_printing(code: u8, printed: Result<(), Coded>) -> Result<u8, Coded> {
    match code {
        exit::OK => printed.map(|()| exit::OK),
        code => Ok(code),
    }
}

/// Returns whether standard output is a terminal.
pub(crate) fn output_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Returns whether standard error is a terminal.
pub(crate) fn error_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Returns whether standard output is a terminal that shows colors. NO_COLOR disables them
/// (no-color.org).
pub(crate) fn output_is_colored() -> bool {
    output_is_terminal() && may_color()
}

/// Returns whether standard error is a terminal that shows colors, as
/// [`output_is_colored`].
pub(crate) fn error_is_colored() -> bool {
    error_is_terminal() && may_color()
}

fn may_color() -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

/// The width of text if standard output is not a terminal.
const PLAIN_COLUMNS: usize = 80;
/// The narrowest and the widest text.
const LEAST_COLUMNS: usize = 60;
const MOST_COLUMNS: usize = 200;

/// Returns the width of text on standard output: that of the terminal, from 60 to 200 columns.
pub(crate) fn text_columns() -> usize {
    terminal_columns().map_or(PLAIN_COLUMNS, |columns| columns.clamp(LEAST_COLUMNS, MOST_COLUMNS))
}

/// Returns the width of commands on standard output: that of the terminal. Elsewhere a command is one
/// line, for programs.
pub(crate) fn command_columns() -> usize {
    terminal_columns().map_or(usize::MAX, |_| text_columns())
}

#[cfg(not(test))]
fn terminal_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(size.ws_col.into()).filter(|columns| *columns > 0)
}

#[cfg(test)]
thread_local! {
    static COLUMNS: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
}

/// Tests have the same text on every terminal.
#[cfg(test)]
fn terminal_columns() -> Option<usize> {
    COLUMNS.get()
}

/// Returns the result of `text` on a terminal of this width.
#[cfg(test)]
pub(crate) fn on_columns<T>(columns: usize, text: impl FnOnce() -> T) -> T {
    COLUMNS.set(Some(columns));
    let shown = text();
    COLUMNS.set(None);
    shown
}

/// Returns the columns and lines of the terminal of standard error, if any.
pub(crate) fn error_size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
    let (columns, lines) = (size.ws_col.into(), size.ws_row.into());
    (columns > 0 && lines > 0).then_some((columns, lines))
}

/// Returns standard output for binary data: frames and files. The standard library's handle would
/// buffer the data after the last line feed.
///
/// # Errors
/// The process has no free descriptor.
pub(crate) fn raw_output() -> io::Result<File> {
    io::stdout().as_fd().try_clone_to_owned().map(File::from)
}

/// Returns standard error for a child process.
///
/// # Errors
/// The process has no free descriptor.
pub(crate) fn raw_error() -> io::Result<OwnedFd> {
    io::stderr().as_fd().try_clone_to_owned()
}

/// Returns `print_document` with every string escaped, for a renderer, so that no string begins a new
/// line. A document that cannot be converted to JSON is returned unchanged.
pub(crate) fn with_escaped_text<T: Serialize + DeserializeOwned + Clone>(document: &T) -> T {
    let value = serde_json::to_value(document).map(escaped_strings);
    value.and_then(serde_json::from_value).unwrap_or_else(|_| document.clone())
}

fn escaped_strings(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::String(text) => Value::String(escape(&text).into_owned()),
        Value::Array(values) => Value::Array(values.into_iter().map(escaped_strings).collect()),
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(name, value)| (escape(&name).into_owned(), escaped_strings(value)))
                .collect(),
        ),
        value => value,
    }
}

fn shown(text: &str) -> String {
    style::apply(text, |part| escape_lines(part))
}

fn write_out(text: &str) -> Result<(), Coded> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(output_error)
}

/// Returns the error of a failed write to standard output, with its exit code.
pub(crate) fn output_error(error: io::Error) -> Coded {
    let error = anyhow::Error::from(error).context("cannot write to standard output");
    Coded::new(exit::OUTPUT, error)
}

#[cfg(test)]
mod tests {
    use longhaul_engine::EngineError;

    use super::*;
    use crate::output::failure_text;
    use crate::output::style::Style;

    #[test]
    fn only_styles_of_the_program_reach_the_terminal() {
        let heading = style::styled(Style::Bad, "failed", true);
        let text = format!("{heading}: \x1b[2J\u{fdd0}\u{202e}x\r\n");
        // `with_escaped_text` escapes the marks in text of peers before it gets here.
        let reason = with_escaped_text(&"\u{fdd0}\x1b\n".to_owned());
        assert_eq!(reason, "%EF%B7%90%1B%0A");
        let shown = shown(&text);
        assert!(shown.starts_with("\x1b[31mfailed\x1b[0m: %1B[2J"), "{shown}");
        assert!(shown.ends_with("%E2%80%AEx%0D\n"), "{shown}");
    }

    /// Returns whether an error has a text of a peer or a path. The match makes a missing kind a
    /// compile error.
    fn has_text(error: &EngineError) -> bool {
        match error {
            EngineError::Address(_)
            | EngineError::Resolve { .. }
            | EngineError::Connect { .. }
            | EngineError::LocalAddress { .. }
            | EngineError::OtherFamily { .. }
            | EngineError::DataConnect { .. }
            | EngineError::DataMissing { .. }
            | EngineError::Listen { .. }
            | EngineError::Handshake { .. }
            | EngineError::HandshakeRefusal { .. }
            | EngineError::KeyChanged { .. }
            | EngineError::KeyUnknown { .. }
            | EngineError::BadKey(_)
            | EngineError::Locked(_)
            | EngineError::WrongPassphrase(_)
            | EngineError::NoAgentKey { .. }
            | EngineError::NoNextKey(_)
            | EngineError::Exposed { .. }
            | EngineError::Lapsed { .. }
            | EngineError::KeyOption { .. }
            | EngineError::Refused { .. }
            | EngineError::Control { .. }
            | EngineError::Protocol { .. }
            | EngineError::InvalidEntry { .. }
            | EngineError::Data { .. }
            | EngineError::File { .. }
            | EngineError::NoSpace { .. }
            | EngineError::Spawn { .. }
            | EngineError::FarProgram { .. }
            | EngineError::Login { .. }
            | EngineError::FarTimeout { .. }
            | EngineError::Failed { .. }
            | EngineError::System { .. } => true,
            // These have no text of a peer except its name, which is escaped as above.
            EngineError::NoConfigDir
            | EngineError::SocketOption(_)
            | EngineError::NoCpu { .. }
            | EngineError::OverQuota { .. }
            | EngineError::Stalled { .. }
            | EngineError::Interrupted => false,
        }
    }

    /// Returns an error of each kind that concerns a key, with hostile texts.
    fn key_errors(text: &str) -> Vec<EngineError> {
        let (words, path) = (|| text.to_owned(), || std::path::PathBuf::from(text));
        vec![
            EngineError::KeyChanged {
                host: words(),
                known: words(),
                offered: words(),
                file: path(),
            },
            EngineError::KeyUnknown { host: words(), offered: words() },
            EngineError::BadKey(path()),
            EngineError::Locked(path()),
            EngineError::WrongPassphrase(path()),
            EngineError::NoAgentKey { path: path(), fingerprint: words() },
            EngineError::NoNextKey(path()),
            EngineError::Exposed {
                path: path(),
                exposure: longhaul_engine::session::Exposure::Writable { mode: 0o666 },
            },
            EngineError::Lapsed {
                peer: words(),
                lapse: longhaul_engine::session::KeyLapse::Expired,
            },
            EngineError::KeyOption {
                file: path(),
                line: 1,
                option: words(),
                fault: longhaul_engine::session::OptionFault::Unknown,
            },
        ]
    }

    /// Returns an error of each kind with hostile texts.
    fn engine_errors(text: &str) -> Vec<EngineError> {
        let (words, path) = (|| text.to_owned(), || std::path::PathBuf::from(text));
        let source = || io::Error::other(text.to_owned());
        let kind = longhaul_core::wire::RefusalKind::Files;
        let mut errors = vec![
            EngineError::Address(words()),
            EngineError::Resolve { host: words(), source: source() },
            EngineError::Connect { address: words(), source: source() },
            EngineError::LocalAddress { address: words(), source: source() },
            EngineError::OtherFamily { host: words(), local: words(), ipv6: false },
            EngineError::DataConnect { stream: 0, address: words(), source: source() },
            EngineError::DataMissing { peer: words() },
            EngineError::NoSpace {
                path: path(),
                needs: longhaul_core::units::Bytes::new(2),
                free: longhaul_core::units::Bytes::new(1),
                reserve: longhaul_core::units::Bytes::new(1),
            },
            EngineError::Listen { address: words(), source: source() },
            EngineError::Handshake { peer: words(), source: source() },
            EngineError::HandshakeRefusal {
                peer: words(),
                reason: longhaul_engine::HandshakeRefusal::Closed,
            },
            EngineError::Refused { peer: words(), kind, reason: words() },
            EngineError::Control {
                peer: words(),
                source: longhaul_core::wire::FrameError::Io(source()),
            },
            EngineError::Protocol { peer: words(), what: "x" },
            EngineError::Data { stream: 0, source: source() },
            EngineError::File { operation: "read", path: path(), source: source() },
            EngineError::Spawn { program: words(), source: source() },
            EngineError::FarProgram { host: words(), program: words() },
            EngineError::Login { host: words() },
            EngineError::FarTimeout { host: words(), seconds: 1 },
            EngineError::Failed { peer: words(), reason: words(), again: false },
            EngineError::System { operation: "x", source: source() },
        ];
        errors.extend(key_errors(text));
        assert!(errors.iter().all(has_text));
        errors
    }

    #[test]
    fn hostile_texts_in_errors_are_escaped() {
        for error in engine_errors("x\r\n\u{1b}[2J\u{7f}\u{9b}\u{202e}\u{2028}\u{200b}y") {
            let line = line(failure_text(&error));
            let text = line.strip_suffix('\n').expect("it ends the line");
            assert!(!text.contains(longhaul_core::text::is_hostile), "{text:?}");
            assert!(text.contains("%0D%0A%1B[2J"), "{text}");
        }
    }

    #[test]
    fn a_note_breaks_between_words_and_only_a_warning_is_colored() {
        let line = format!("longhaul: warning: {}\n", "words ".repeat(30).trim_end());
        let plain = on_terminal(&line, 70, false);
        assert!(plain.lines().count() > 1 && plain.lines().all(|line| line.len() <= 70), "{plain}");
        assert_eq!(plain.replace('\n', " ").trim_end(), line.trim_end());
        let colored = on_terminal(&line, 70, true);
        assert!(colored.starts_with("longhaul: \x1b[1;33mwarning:\x1b[0m words"), "{colored:?}");
        let other = "longhaul: no such file: warning: x\n";
        assert_eq!(on_terminal(other, 70, true), other);
    }

    #[test]
    fn an_error_of_the_work_takes_precedence_over_one_of_printing() {
        let unprinted = || Err(Coded::new(exit::OUTPUT, anyhow::anyhow!("full")));
        assert_eq!(after_printing(exit::PARTIAL, unprinted()).unwrap(), exit::PARTIAL);
        assert_eq!(after_printing(exit::OK, unprinted()).unwrap_err().code, exit::OUTPUT);
        assert_eq!(after_printing(exit::OK, Ok(())).unwrap(), exit::OK);
    }
}
