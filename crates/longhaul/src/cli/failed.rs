//! The end of a command that failed: a line on standard error, and a document if JSON was requested.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use longhaul_core::result::ErrorDocument;

use crate::exit::{self, Coded};
use crate::output::{
    document_is_printed, failure_text, print_document, print_document_line, print_message,
    print_notes,
};

/// The format of fatal errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorFormat {
    /// A line on standard error.
    Text,
    /// The line, and a document on standard output.
    Json,
    /// The line, and a document in one line on standard output.
    JsonStream,
    /// A document on standard error, because standard output carries data.
    JsonBesideData,
}

impl ErrorFormat {
    /// Returns the format that a command line requests. It is not parsed, because an error in it is
    /// a fatal error, too.
    pub(super) fn requested(args: &[OsString]) -> Self {
        let words: Vec<&[u8]> = args.iter().skip(1).map(|word| word.as_bytes()).collect();
        // The rest of the line belongs to another program, or has the format of one.
        if matches!(words.first(), Some(&(b"iperf3" | b"nuttcp"))) {
            return ErrorFormat::Text;
        }
        if words.first() == Some(&b"wan".as_slice())
            && matches!(words.get(1), Some(&(b"run" | b"exec")))
        {
            return ErrorFormat::Text;
        }
        let own = words.split(|word| *word == b"--").next().unwrap_or_default();
        let is_test = own.first() == Some(&b"test".as_slice());
        let has = |name: &str| own.contains(&name.as_bytes());
        let is_stream = has("--json-stream");
        let is_json = is_stream
            || has("--json")
            || has("--format=json")
            || own.windows(2).any(|pair| pair == [b"--format".as_slice(), b"json".as_slice()])
            || (is_test && own.iter().any(|word| has_short(word, b'J')));
        match (is_json, is_stream, own.first(), own.last()) {
            (false, ..) => ErrorFormat::Text,
            (true, _, Some(&b"cp"), Some(&b"-")) => ErrorFormat::JsonBesideData,
            (true, true, ..) => ErrorFormat::JsonStream,
            (true, false, ..) => ErrorFormat::Json,
        }
    }

    /// Prints a fatal error.
    pub(super) fn print(self, Coded { code, error }: &Coded) {
        // A reader that closes the pipe, as `head` does, needs no message.
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if (*code, kind) == (exit::OUTPUT, Some(io::ErrorKind::BrokenPipe)) {
            return;
        }
        let text = failure_text(error.as_ref());
        print_message(&text);
        self.print_document(*code, text);
    }

    /// Prints the document of an error with this text.
    pub(super) fn print_document(self, code: u8, text: String) {
        if code == exit::OUTPUT {
            return;
        }
        let document = ErrorDocument::new(code, exit::kind(code), text);
        // The error of the command takes precedence over an error of printing it.
        let _ = match self {
            ErrorFormat::Text => Ok(()),
            // The result document has the error.
            ErrorFormat::Json if document_is_printed() => Ok(()),
            ErrorFormat::Json => print_document(&document),
            ErrorFormat::JsonStream => print_document_line(&document),
            ErrorFormat::JsonBesideData => {
                let line = serde_json::to_string(&document).unwrap_or_default();
                print_notes(&format!("{line}\n"));
                Ok(())
            }
        };
    }
}

/// Returns whether `word` is a group of short options with `option`.
fn has_short(word: &[u8], option: u8) -> bool {
    match word {
        [b'-', options @ ..] => {
            options.iter().all(u8::is_ascii_alphanumeric) && options.contains(&option)
        }
        _ => false,
    }
}

/// Returns the text of an error of the command line in one line, with the command for the list of
/// options; `None` if the answer is the help. `words` is the command line.
pub(super) fn usage_text(
    error: &clap::Error,
    command: &Command,
    words: &[OsString],
) -> Option<String> {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return None;
    }
    let mut text = usage_line(&error.render().to_string());
    if let Some(similar) = similar(error) {
        let _ = write!(text, "; did you mean '{similar}'?");
    }
    let (mut path, mut deepest) = (String::from("longhaul"), command);
    for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
        let Some(next) = deepest.find_subcommand(word) else { break };
        deepest = next;
        path = format!("{path} {}", next.get_name());
    }
    Some(format!("{text} (see '{path} -h')"))
}

/// Returns the existing option or command that an unknown word probably means.
fn similar(error: &clap::Error) -> Option<&str> {
    let string = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        Some(ContextValue::Strings(texts)) => texts.first().map(String::as_str),
        _ => None,
    };
    let pairs = [
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
    ];
    pairs.iter().find_map(|(wrong, right)| {
        let (wrong, right) = (string(*wrong)?, string(*right)?);
        let letters = wrong.trim_start_matches('-').chars().count();
        (distance(wrong, right) <= letters.div_ceil(2)).then_some(right)
    })
}

/// Returns the number of letters to insert, delete or replace that makes `one` into `other`
/// (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, also) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *also);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

/// Returns the first paragraph of an error of the command line in one line.
fn usage_line(text: &str) -> String {
    let first = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim);
    let line = first.collect::<Vec<_>>().join(" ");
    line.trim_start_matches("error: ").trim_end_matches(" found").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_follows_the_longhaul_options_of_the_command_line() {
        for (line, expected) in [
            ("test far", ErrorFormat::Text),
            ("test far --json", ErrorFormat::Json),
            ("test -RJ far", ErrorFormat::Json),
            ("cp --json-stream a b", ErrorFormat::JsonStream),
            ("cp --json far:a -", ErrorFormat::JsonBesideData),
            ("report x --format json", ErrorFormat::Json),
            ("report x --format=json", ErrorFormat::Json),
            ("wan run --rtt 1ms -- iperf3 -c far --json", ErrorFormat::Text),
            ("wan run iperf3 -c far --json", ErrorFormat::Text),
            ("wan status --json", ErrorFormat::Json),
            ("cp -- --json b", ErrorFormat::Text),
            ("", ErrorFormat::Text),
        ] {
            let words = std::iter::once("longhaul").chain(line.split_whitespace());
            let args: Vec<OsString> = words.map(OsString::from).collect();
            assert_eq!(ErrorFormat::requested(&args), expected, "{line}");
        }
    }

    #[test]
    fn an_error_of_the_command_line_is_one_line() {
        let text = "error: unexpected argument '--x' found\n\nUsage: longhaul cp\n";
        assert_eq!(usage_line(text), "unexpected argument '--x'");
        let text = "error: the following arguments were not provided:\n  <SRC>\n\nUsage: x\n";
        assert_eq!(usage_line(text), "the following arguments were not provided: <SRC>");
    }

    #[test]
    fn an_error_names_a_similar_word_and_the_help() {
        for (line, expected) in [
            (
                "wan statsu",
                "unrecognized subcommand 'statsu'; did you mean 'status'? (see 'longhaul wan -h')",
            ),
            (
                "cp --dleete a b",
                "unexpected argument '--dleete'; did you mean '--delete'? (see 'longhaul cp -h')",
            ),
            ("cp --backup a b", "unexpected argument '--backup' (see 'longhaul cp -h')"),
            (
                "test",
                "the following required arguments were not provided: <HOST> (see 'longhaul test -h')",
            ),
        ] {
            let words: Vec<_> = std::iter::once("longhaul").chain(line.split(' ')).collect();
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let mut command = <super::super::Cli as clap::CommandFactory>::command();
            let error = command.try_get_matches_from_mut(words.clone()).unwrap_err();
            assert_eq!(usage_text(&error, &command, &words).unwrap(), expected, "{line}");
        }
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
