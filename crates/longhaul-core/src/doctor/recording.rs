//! A recording of everything that was read from a host, as text. It can be examined elsewhere and
//! kept as a fixture. `docs/design/host-recording.md` describes the format.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::Cause;

/// The first line of a recording.
const HEAD: &str = "longhaul.host/1";
/// The kinds of questions.
const KINDS: [&str; 5] = ["file", "head", "list", "link", "call"];

/// The questions to a host and its answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostRecording {
    entries: BTreeMap<(String, String), RecordedAnswer>,
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedAnswer {
    /// The text.
    Text(String),
    /// The user lacks the permission.
    Denied,
    /// Another error, as text.
    Failed(String),
}

impl HostRecording {
    /// Returns the answer to the question `name` of `kind`; `None` means that the host has no such
    /// object.
    pub fn get(&self, kind: &str, name: &str) -> Option<&RecordedAnswer> {
        self.entries.get(&(kind.to_owned(), name.to_owned()))
    }

    /// Records an answer: the text, or the cause of its absence.
    pub fn note(&mut self, kind: &str, name: &str, answer: Result<&str, &Cause>) {
        let entry = match answer {
            Ok(text) => RecordedAnswer::Text(text.to_owned()),
            Err(Cause::Absent) => return,
            Err(Cause::Denied) => RecordedAnswer::Denied,
            Err(Cause::Failed(how)) => RecordedAnswer::Failed(how.clone()),
        };
        self.entries.insert((kind.to_owned(), name.to_owned()), entry);
    }
}

impl fmt::Display for HostRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        for ((kind, name), entry) in &self.entries {
            match entry {
                RecordedAnswer::Denied => writeln!(f, "denied {kind} {name}")?,
                RecordedAnswer::Failed(how) => writeln!(f, "failed {kind} {name}\n {how}")?,
                RecordedAnswer::Text(text) => {
                    writeln!(f, "{kind} {name}")?;
                    text.lines().try_for_each(|line| writeln!(f, " {line}"))?;
                }
            }
        }
        Ok(())
    }
}

/// The reason why a text is not a recording.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// The first line does not identify a recording.
    #[error("not a host recording: the first line is not '{HEAD}'")]
    NotOne,
    /// A line is neither a query nor part of an answer.
    #[error("line {line} of the recording is neither a query nor part of an answer")]
    Line {
        /// The line number, from 1.
        line: usize,
    },
}

impl FromStr for HostRecording {
    type Err = RecordingError;

    fn from_str(text: &str) -> Result<Self, RecordingError> {
        let mut lines = text.lines().enumerate().peekable();
        if lines.next().is_none_or(|(_, line)| line != HEAD) {
            return Err(RecordingError::NotOne);
        }
        let mut recording = HostRecording::default();
        while let Some((at, line)) = lines.next() {
            let bad = RecordingError::Line { line: at + 1 };
            // Hand-written recordings may have comments.
            if line.starts_with('#') || line.is_empty() {
                continue;
            }
            let (first, rest) = line.split_once(' ').ok_or(bad.clone())?;
            let (how, kind, name) = match first {
                "denied" | "failed" => {
                    let (kind, name) = rest.split_once(' ').ok_or(bad.clone())?;
                    (first, kind, name)
                }
                kind => ("", kind, rest),
            };
            if !KINDS.contains(&kind) {
                return Err(bad);
            }
            let mut answer = String::new();
            while let Some((_, line)) = lines.next_if(|(_, line)| line.starts_with(' ')) {
                answer.push_str(if answer.is_empty() { "" } else { "\n" });
                answer.push_str(&line[1..]);
            }
            let entry = match how {
                "denied" => RecordedAnswer::Denied,
                "failed" => RecordedAnswer::Failed(answer),
                _ => RecordedAnswer::Text(answer),
            };
            recording.entries.insert((kind.to_owned(), name.to_owned()), entry);
        }
        Ok(recording)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_read_as_it_was_written() {
        let mut recording = HostRecording::default();
        recording.note("file", "proc/a b", Ok("one\n two"));
        recording.note("list", "sys/empty", Ok(""));
        recording.note("file", "sys/secret", Err(&Cause::Denied));
        recording.note("call", "clock", Err(&Cause::Failed("no such clock".into())));
        recording.note("file", "sys/missing", Err(&Cause::Absent));
        let text = recording.to_string();
        assert_eq!(text.parse::<HostRecording>().unwrap(), recording, "{text}");
        assert_eq!(
            recording.get("file", "proc/a b"),
            Some(&RecordedAnswer::Text("one\n two".into()))
        );
        assert_eq!(recording.get("file", "sys/missing"), None);
    }

    #[test]
    fn nonsense_is_named() {
        assert_eq!("".parse::<HostRecording>(), Err(RecordingError::NotOne));
        let at = |text: &str| format!("{HEAD}\n{text}").parse::<HostRecording>().unwrap_err();
        assert_eq!(at("# a comment\nfile"), RecordingError::Line { line: 3 });
        assert_eq!(at("socket x"), RecordingError::Line { line: 2 });
        assert_eq!(at(" an answer to nothing"), RecordingError::Line { line: 2 });
    }
}
