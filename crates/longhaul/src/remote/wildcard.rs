//! Tests whether a path matches a wildcard of a POSIX shell (`*`, `?`, `[...]`).

use longhaul_core::plan::filter::{FilterRule, Filters};
use longhaul_core::wire::FilePath;

/// A wildcard. Its matching is that of rsync patterns, with the rules of a shell for dots and slashes.
pub(super) struct Wildcard {
    /// As sent to the shell: a pattern that begins with '-' begins with './'.
    text: Vec<u8>,
}

impl Wildcard {
    pub(super) fn new(pattern: &[u8]) -> Self {
        let prefix: &[u8] = if pattern.starts_with(b"-") { b"./" } else { b"" };
        Wildcard { text: [prefix, pattern].concat() }
    }

    /// Returns whether a wildcard has matched the directory itself or the one above, which some shells
    /// return for `.*`.
    pub(super) fn is_dots(&self, path: &[u8]) -> bool {
        let (name, pattern) = (components(path).pop(), components(&self.text).pop());
        let hidden = pattern.is_some_and(|pattern| pattern.starts_with(b"."));
        hidden && name != pattern && matches!(name, Some(b"." | b".."))
    }

    /// Returns whether `path` is the pattern itself, or matches it: component by component, and no
    /// wildcard stands for a leading dot. The shell compares characters or bytes, depending on its
    /// language settings, so this function accepts both.
    pub(super) fn matches(&self, path: &[u8]) -> bool {
        let (ours, theirs) = (components(&self.text), components(path));
        let fits = |(ours, theirs): (&&[u8], &&[u8])| {
            ours == theirs
                || !theirs.is_empty()
                    && (!theirs.starts_with(b".") || ours.starts_with(b"."))
                    && !matches!(*theirs, b"." | b"..")
                    && (is_match(ours, theirs) || is_match_of_characters(ours, theirs))
        };
        path == self.text || ours.len() == theirs.len() && ours.iter().zip(&theirs).all(fits)
    }
}

/// Returns the parts between slashes. That before a leading slash is empty.
fn components(text: &[u8]) -> Vec<&[u8]> {
    text.split(|byte| *byte == b'/').collect()
}

/// Returns whether `name`, without a slash, matches `pattern`.
fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    let mut text = Vec::with_capacity(pattern.len() + 1);
    for byte in pattern {
        match byte {
            // The shell gets both quoted. `**` is the same as `*`.
            b'\\' | b'^' => text.extend([b'\\', *byte]),
            b'*' if text.last() == Some(&b'*') => {}
            byte => text.push(*byte),
        }
    }
    let Some(pattern) = FilePath::new(text) else { return false };
    Filters::new(&[FilterRule { include: false, pattern }]).leaves_out(name, false)
}

/// Returns whether `name` matches `pattern` if both consist of characters, not of bytes: each
/// character beyond ASCII becomes one byte, equal ones the same byte.
fn is_match_of_characters(pattern: &[u8], name: &[u8]) -> bool {
    let (Ok(pattern), Ok(name)) = (str::from_utf8(pattern), str::from_utf8(name)) else {
        return false;
    };
    let known: Vec<char> = pattern.chars().filter(|c| !c.is_ascii()).take(MOST_KNOWN).collect();
    let one = |c: char| match (u8::try_from(c), known.iter().position(|other| *other == c)) {
        (Ok(byte), _) if byte.is_ascii() => byte,
        (_, Some(number)) => FIRST_KNOWN + number as u8,
        _ => u8::MAX,
    };
    let bytes = |text: &str| text.chars().map(one).collect::<Vec<u8>>();
    is_match(&bytes(pattern), &bytes(name))
}

/// The bytes that stand for the characters of a pattern beyond ASCII. The last one stands for others.
const FIRST_KNOWN: u8 = 0x80;
const MOST_KNOWN: usize = (u8::MAX - FIRST_KNOWN) as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let wildcard = Wildcard::new(pattern.as_bytes());
        for path in yes {
            assert!(wildcard.matches(path.as_bytes()), "{pattern} should match {path}");
        }
        for path in no {
            assert!(!wildcard.matches(path.as_bytes()), "{pattern} should not match {path}");
        }
    }

    #[test]
    fn a_wildcard_matches_as_in_a_shell() {
        check("*", &["a", "a b"], &["a/b", ".a", "..", ".", "", "/a"]);
        check("**", &["a"], &["a/b"]);
        check(".*", &[".a"], &["a", "..", "."]);
        check("../d/*.h5", &["../d/a.h5"], &["../../d/a.h5", "../d/../a.h5", "d/a.h5"]);
        check("/d*/x", &["/d1/x"], &["d1/x", "/d1/y", "//d1/x"]);
        check("d*/", &["d1/"], &["d1", "d1/x"]);
        check("run[0-9]", &["run1", "run[0-9]"], &["runx", "run12"]);
        check("a[!b]*", &["ac"], &["ab"]);
        check("a[^]x", &["a^x", "a[^]x"], &["abx"]);
        check("[[:upper:]]?", &["Ab"], &["ab"]);
        check("-*", &["./-x"], &["-x"]);
        check("a\\*", &["a\\b"], &["ab"]);
    }

    #[test]
    fn a_question_mark_matches_a_character_or_a_byte() {
        check("?.h5", &["\u{e9}.h5", "e.h5"], &["ee.h5"]);
        check("??.h5", &["\u{e9}.h5", "\u{e9}\u{e9}.h5"], &["\u{e9}\u{e9}\u{e9}.h5"]);
        check("\u{e9}?", &["\u{e9}\u{e8}"], &["\u{e8}\u{e9}", "\u{e9}"]);
    }

    #[test]
    fn only_dots_of_a_wildcard_are_dropped() {
        let is_dots =
            |pattern: &str, path: &str| Wildcard::new(pattern.as_bytes()).is_dots(path.as_bytes());
        assert!(is_dots(".*", "..") && is_dots("x/.*", "x/."));
        assert!(!is_dots("x*/..", "x1/..") && !is_dots(".*", ".a"));
    }
}
