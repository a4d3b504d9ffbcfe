//! Text for people: errors with their causes, and the escaping of text that comes from a peer, a file
//! system or another program.
//!
//! Escaping has one form: each byte of a hostile character is `%XX`.

use std::borrow::Cow;
use std::fmt::{self, Write};

use std::error::Error;

/// Returns `error` and its causes in one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// Returns `sentence` with a capital first letter.
pub fn capitalized(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Quotes `word` for a POSIX shell. A word without special characters remains as it is. A word that begins
/// with `=` is quoted, because zsh replaces it with the path of a program.
pub fn shell_quoted(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+%".contains(c);
    if !word.is_empty() && !word.starts_with('=') && word.chars().all(plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', "'\\''")))
}

/// Returns the name of `known` with the smallest distance to `name`, at most two changes.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let ranked = known.into_iter().map(|known| (distance(name, known), known));
    ranked.filter(|(changes, _)| *changes <= 2).min().map(|(_, known)| known)
}

/// The edit distance (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, byte) in one.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, with) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(byte != with);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

/// Returns whether `c` can move the cursor, change the order of the text, or hide: control
/// characters (C0, DEL, C1), line separators, bidirectional controls, invisible and other format
/// characters (Unicode's general categories Cc, Cf, Zl and Zp, and the invisible letters), and
/// noncharacters.
pub fn is_hostile(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    c.is_control()
        || matches!(c as u32,
            0x00ad | 0x034f | 0x0600..=0x0605 | 0x061c | 0x06dd | 0x070f | 0x0890..=0x0891 | 0x08e2
            | 0x115f..=0x1160 | 0x17b4..=0x17b5 | 0x180b..=0x180f
            | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0x3164
            | 0xfdd0..=0xfdef | 0xfeff | 0xffa0 | 0xfff0..=0xfffb
            | 0x110bd | 0x110cd | 0x13430..=0x1343f | 0x1bca0..=0x1bca3 | 0x1d173..=0x1d17a
            | 0xe0000..=0xe0fff)
        || (c as u32) & 0xfffe == 0xfffe
}

/// Returns `text` without hostile characters. A line feed counts as hostile, so the result is a
/// single line.
pub fn escape(text: &str) -> Cow<'_, str> {
    escape_if(text, is_hostile)
}

/// Lines of text without hostile characters other than the line feeds between them.
pub fn escape_lines(text: &str) -> Cow<'_, str> {
    escape_if(text, |c| c != '\n' && is_hostile(c))
}

/// Returns the bytes of a name as legible and reversible text: hostile characters, bytes that are
/// not UTF-8, and `%` are written `%XX`.
pub fn escape_name(bytes: &[u8]) -> String {
    escape_name_if(bytes, |_| false)
}

/// Escapes like [`escape_name`], and writes double quotes as `%22`, for a place between double
/// quotes.
pub fn escape_quoted(bytes: &[u8]) -> String {
    escape_name_if(bytes, |c| c == '"')
}

/// Returns an equivalent JSON document in which hostile characters are JSON escapes.
pub fn escape_json(document: &str) -> Cow<'_, str> {
    let hostile = |c| c != '\n' && is_hostile(c);
    if !document.contains(hostile) {
        return Cow::Borrowed(document);
    }
    let mut text = String::with_capacity(document.len() + 16);
    for c in document.chars() {
        if hostile(c) {
            // Outside strings a document has no such characters.
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                let _ = write!(text, "\\u{unit:04x}");
            });
        } else {
            text.push(c);
        }
    }
    Cow::Owned(text)
}

/// Shows a value in one line, escaped.
#[derive(Debug, Clone, Copy)]
pub struct Escaped<T>(pub T);

impl<T: fmt::Display> fmt::Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&escape(&self.0.to_string()))
    }
}

fn escape_if(text: &str, hostile: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&hostile) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if hostile(c) { push_bytes(c, &mut escaped) } else { escaped.push(c) }
    }
    Cow::Owned(escaped)
}

fn escape_name_if(bytes: &[u8], also: impl Fn(char) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            let spelt = c == '%' || also(c) || is_hostile(c);
            if spelt { push_bytes(c, &mut text) } else { text.push(c) }
        }
        chunk.invalid().iter().for_each(|byte| push_byte(*byte, &mut text));
    }
    text
}

fn push_bytes(c: char, text: &mut String) {
    c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| push_byte(byte, text));
}

fn push_byte(byte: u8, text: &mut String) {
    let _ = write!(text, "%{byte:02X}");
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug)]
    struct Caused(&'static str, Option<Box<Caused>>);

    impl fmt::Display for Caused {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Caused {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn causes_follow_their_error() {
        let cause = Caused("cannot open it", Some(Box::new(Caused("no such file", None))));
        assert_eq!(chain(&cause), "cannot open it: no such file");
        assert_eq!(chain(&Caused("that is all", None)), "that is all");
    }

    #[test]
    fn a_misspelled_name_has_a_nearest_name() {
        let known = ["between", "name", "count"];
        assert_eq!(nearest("betwen", known), Some("between"));
        assert_eq!(nearest("weather", known), None);
    }

    #[test]
    fn only_special_words_are_quoted() {
        assert_eq!(shell_quoted("me@far:/data/run-1"), "me@far:/data/run-1");
        assert_eq!(shell_quoted("my file's"), r"'my file'\''s'");
        assert_eq!(shell_quoted(""), "''");
        assert_eq!(shell_quoted("~/x"), "'~/x'");
        assert_eq!(shell_quoted("=ls"), "'=ls'");
    }

    #[test]
    fn a_sentence_begins_with_a_capital() {
        assert_eq!(capitalized("élan is lost"), "Élan is lost");
        assert_eq!(capitalized(""), "");
    }

    #[test]
    fn deceptive_characters_are_escaped() {
        for (raw, expected) in [
            ("a\x1b[31m\x07\x7f", "a%1B[31m%07%7F"),
            ("x\r\ny\tz", "x%0D%0Ay%09z"),
            ("\u{9b}2J", "%C2%9B2J"),
            ("gpj.\u{202e}exe", "gpj.%E2%80%AEexe"),
            ("\u{2028}\u{2029}\u{200b}\u{feff}", "%E2%80%A8%E2%80%A9%E2%80%8B%EF%BB%BF"),
            ("\u{e0041}\u{fdd0}", "%F3%A0%81%81%EF%B7%90"),
            (
                "caf\u{e9} 100 % \u{4e2d}\u{6587} \u{1f600}",
                "caf\u{e9} 100 % \u{4e2d}\u{6587} \u{1f600}",
            ),
        ] {
            assert_eq!(escape(raw), expected);
        }
        assert_eq!(escape_lines("a\nb\rc\n"), "a\nb%0Dc\n");
        assert_eq!(escape_name(b"100%\xff\x1b\""), "100%25%FF%1B\"");
        assert_eq!(escape_quoted(b"a\" b"), "a%22 b");
        assert_eq!(format!("{:>6}|", Escaped("\x01")), "   %01|");
    }

    #[test]
    fn nothing_else_changes_and_nothing_is_copied_for_it() {
        assert!(matches!(escape("an ordinary line"), Cow::Borrowed(_)));
        assert!(matches!(escape_json("{\n  \"a\": 1\n}"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn no_hostile_character_is_left(text in "\\PC*|.*|(?s).*") {
            prop_assert!(!escape(&text).contains(is_hostile));
            prop_assert!(!escape_lines(&text).contains(|c| c != '\n' && is_hostile(c)));
            prop_assert!(!escape_name(text.as_bytes()).contains(is_hostile));
        }

        #[test]
        fn a_document_means_the_same(texts in proptest::collection::vec(any::<String>(), 0..4)) {
            let document = serde_json::to_string_pretty(&texts).unwrap();
            let escaped = escape_json(&document);
            prop_assert!(!escaped.contains(|c| c != '\n' && is_hostile(c)));
            let read: Vec<String> = serde_json::from_str(&escaped).unwrap();
            prop_assert_eq!(read, texts);
        }
    }
}
