//! The selection of files by rsync's include and exclude rules.
//!
//! Rules are tried in order, and the first one with a matching pattern decides; a path without a
//! match is copied. An excluded directory is not read. Paths are those of the copy: relative to the
//! target, starting with the name given on the command line (or with the directory's contents for
//! `dir/.`), like rsync's transfer root.
//!
//! Not supported: rsync's merge files, protect and hide rules, and modifiers.

use serde::{Deserialize, Serialize};

use crate::wire::FilePath;

/// The maximum number of rules that a peer may send.
pub(super) const RULES_LIMIT: usize = 10_000;
/// The longest pattern: the longest path (`PATH_MAX`, linux/limits.h).
pub(super) const PATTERN_LIMIT_BYTES: usize = 4096;

/// A rule as the user wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterRule {
    /// True if matching paths are copied.
    pub include: bool,
    /// The pattern in rsync's syntax.
    pub pattern: FilePath,
}

/// The reason why a text is not a list of rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// No pattern follows `+` or `-`.
    #[error("a filter rule has no pattern")]
    Empty,
    /// A pattern with a NUL or over 4096 bytes.
    #[error("a filter pattern is too long or contains a NUL")]
    Pattern,
    /// More than 10000 rules.
    #[error("more than {RULES_LIMIT} filter rules")]
    TooMany,
}

/// The rules in the given order, collected from options and files.
#[derive(Debug, Clone, Default)]
pub struct FilterList {
    rules: Vec<FilterRule>,
}

impl FilterList {
    /// Adds the rule `text` of an `--include` or `--exclude`. As in rsync, `+ ` or `- ` before the
    /// pattern overrides the kind, and a single `!` removes all previous rules.
    ///
    /// # Errors
    /// The rule is invalid or there are too many.
    pub fn add(&mut self, text: &[u8], include: bool) -> Result<(), FilterError> {
        let (include, pattern) = match text {
            b"!" => {
                self.rules.clear();
                return Ok(());
            }
            [b'+', b' ', rest @ ..] => (true, rest),
            [b'-', b' ', rest @ ..] => (false, rest),
            text => (include, text),
        };
        if pattern.is_empty() {
            return Err(FilterError::Empty);
        }
        if self.rules.len() >= RULES_LIMIT {
            return Err(FilterError::TooMany);
        }
        let pattern = Some(pattern)
            .filter(|pattern| pattern.len() <= PATTERN_LIMIT_BYTES)
            .and_then(FilePath::new)
            .ok_or(FilterError::Pattern)?;
        self.rules.push(FilterRule { include, pattern });
        Ok(())
    }

    /// Adds the rules of a file, one per line. Empty lines and lines that begin with `#` or `;` are
    /// skipped.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub fn add_lines(&mut self, text: &[u8], include: bool) -> Result<(), FilterError> {
        text.split(|byte| *byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
            .filter(|line| !line.is_empty() && !b"#;".contains(&line[0]))
            .try_for_each(|line| self.add(line, include))
    }

    /// Returns the rules.
    pub fn into_rules(self) -> Vec<FilterRule> {
        self.rules
    }
}

/// Compiled rules.
#[derive(Debug, Clone, Default)]
pub struct Filters {
    rules: Vec<(bool, Pattern)>,
}

impl Filters {
    /// Compiles the rules.
    pub fn new(rules: &[FilterRule]) -> Self {
        let ready = |rule: &FilterRule| (rule.include, Pattern::new(rule.pattern.as_bytes()));
        Filters { rules: rules.iter().map(ready).collect() }
    }

    /// Checks that [`FilterList`] would accept the rules, because a peer may send others.
    ///
    /// # Errors
    /// There are too many rules, or one is too long.
    pub fn check(rules: &[FilterRule]) -> Result<(), FilterError> {
        if rules.len() > RULES_LIMIT {
            return Err(FilterError::TooMany);
        }
        if rules.iter().any(|rule| rule.pattern.as_bytes().len() > PATTERN_LIMIT_BYTES) {
            Err(FilterError::Pattern)
        } else {
            Ok(())
        }
    }

    /// Returns whether the rules exclude `path`, relative to the target. The caller must also
    /// exclude the contents of an excluded directory.
    pub fn leaves_out(&self, path: &[u8], is_dir: bool) -> bool {
        let first = self.rules.iter().find(|(_, pattern)| pattern.matches(path, is_dir));
        first.is_some_and(|(include, _)| !include)
    }
}

/// A parsed pattern.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    tokens: Vec<Token>,
    dir_only: bool,
    place: Place,
    /// True if the pattern ends with `/***`: it matches the directory itself, too.
    with_directory: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// `?`: any byte except a slash.
    One,
    /// `[...]`
    Class(Class),
    /// `*`: any bytes except slashes.
    Star,
    /// `**`: any bytes.
    StarStar,
    /// A class without a closing bracket, which matches nothing.
    Never,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Class {
    negated: bool,
    ranges: Vec<(u8, u8)>,
}

/// The part of a path that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The whole path: the pattern begins with a slash.
    Anchored,
    /// The last component.
    Name,
    /// As many last components as the pattern has.
    Tail(usize),
    /// The whole path with a leading slash: the pattern begins with `**`.
    Rooted,
    /// Any part of the path that starts at a component: the pattern contains `**`.
    AnyStart,
}

impl Pattern {
    /// Parses a pattern; every text is valid.
    pub(super) fn new(text: &[u8]) -> Self {
        let wild = text.iter().any(|byte| b"*?[".contains(byte));
        let find = |needle: &[u8]| text.windows(needle.len()).position(|window| window == needle);
        let star_star = if wild { find(b"**") } else { None };
        let with_directory = wild && text.ends_with(b"***");
        let dir_only = text.len() > 1 && text.ends_with(b"/");
        let text = if dir_only { &text[..text.len() - 1] } else { text };
        let slashes = text.iter().filter(|byte| **byte == b'/').count();
        let (place, body) = match text {
            [b'/', rest @ ..] => (Place::Anchored, rest),
            _ if star_star == Some(0) => (Place::Rooted, text),
            _ if star_star.is_some() => (Place::AnyStart, text),
            _ if slashes > 0 => (Place::Tail(slashes + 1), text),
            _ => (Place::Name, text),
        };
        // Without a wildcard a backslash is an ordinary character.
        let tokens =
            if wild { tokens(body) } else { body.iter().map(|byte| Token::Byte(*byte)).collect() };
        Pattern { tokens, dir_only, place, with_directory }
    }

    /// Returns whether `path`, without leading and trailing slash, matches.
    pub(super) fn matches(&self, path: &[u8], is_dir: bool) -> bool {
        if self.dir_only && !is_dir {
            return false;
        }
        let mut text = Vec::new();
        let path = if self.place == Place::Rooted || (self.with_directory && is_dir) {
            text.extend((self.place == Place::Rooted).then_some(b'/'));
            text.extend_from_slice(path);
            text.extend((self.with_directory && is_dir).then_some(b'/'));
            &text
        } else {
            path
        };
        let starts = || {
            let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            slashes.map(|(at, _)| at + 1)
        };
        match self.place {
            Place::Anchored | Place::Rooted => self.matches_all(path),
            Place::Name => self.matches_all(&path[starts().next_back().unwrap_or(0)..]),
            Place::Tail(1) => self.matches_all(path),
            Place::Tail(parts) => {
                let count = starts().count() + 1;
                match count.cmp(&parts) {
                    std::cmp::Ordering::Less => false,
                    std::cmp::Ordering::Equal => self.matches_all(path),
                    std::cmp::Ordering::Greater => starts()
                        .nth(count - parts - 1)
                        .is_some_and(|start| self.matches_all(&path[start..])),
                }
            }
            Place::AnyStart => {
                self.matches_all(path) || starts().any(|start| self.matches_all(&path[start..]))
            }
        }
    }

    /// Runs the tokens as a finite automaton over `text`: it tracks all positions in the pattern
    /// that the bytes so far can reach.
    fn matches_all(&self, text: &[u8]) -> bool {
        let tokens = &self.tokens;
        let skip_stars = |reached: &mut [bool]| {
            for at in 0..tokens.len() {
                if reached[at] && matches!(tokens[at], Token::Star | Token::StarStar) {
                    reached[at + 1] = true;
                }
            }
        };
        let mut reached = vec![false; tokens.len() + 1];
        reached[0] = true;
        skip_stars(&mut reached);
        let mut next = vec![false; tokens.len() + 1];
        for byte in text {
            next.fill(false);
            for (at, token) in tokens.iter().enumerate().filter(|(at, _)| reached[*at]) {
                match token {
                    Token::StarStar => next[at] = true,
                    Token::Star => next[at] |= *byte != b'/',
                    token => next[at + 1] |= token.takes(*byte),
                }
            }
            skip_stars(&mut next);
            std::mem::swap(&mut reached, &mut next);
            if !reached.contains(&true) {
                return false;
            }
        }
        reached[tokens.len()]
    }
}

impl Token {
    fn takes(&self, byte: u8) -> bool {
        match self {
            Token::Byte(wanted) => *wanted == byte,
            Token::One => byte != b'/',
            Token::Class(class) => {
                let within = class.ranges.iter().any(|(low, high)| (*low..=*high).contains(&byte));
                byte != b'/' && within != class.negated
            }
            Token::Star | Token::StarStar | Token::Never => false,
        }
    }
}

fn tokens(mut text: &[u8]) -> Vec<Token> {
    let mut tokens = Vec::new();
    while let [first, rest @ ..] = text {
        text = rest;
        tokens.push(match first {
            b'*' => {
                let more = text.iter().take_while(|byte| **byte == b'*').count();
                text = &text[more..];
                if more > 0 { Token::StarStar } else { Token::Star }
            }
            b'?' => Token::One,
            b'[' => match class(text) {
                Some((class, rest)) => {
                    text = rest;
                    Token::Class(class)
                }
                None => Token::Never,
            },
            b'\\' => match text {
                [escaped, rest @ ..] => {
                    text = rest;
                    Token::Byte(*escaped)
                }
                [] => Token::Byte(b'\\'),
            },
            byte => Token::Byte(*byte),
        });
    }
    tokens
}

/// Parses a class after its opening bracket. Returns the class and the rest of the text.
fn class(text: &[u8]) -> Option<(Class, &[u8])> {
    let (negated, mut text) = match text {
        [b'!' | b'^', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let mut ranges: Vec<(u8, u8)> = Vec::new();
    let mut first = true;
    loop {
        match text {
            [] => return None,
            // As the first character the bracket is a member of the class, not its end.
            [b']', rest @ ..] if !first => return Some((Class { negated, ranges }, rest)),
            [b'[', b':', rest @ ..] => {
                let end = rest.windows(2).position(|window| window == b":]")?;
                ranges.extend_from_slice(named(&rest[..end])?);
                text = &rest[end + 2..];
            }
            [low, b'-', high, rest @ ..] if *low != b'\\' && *high != b']' => {
                let (high, rest) = match (high, rest) {
                    (b'\\', [escaped, rest @ ..]) => (escaped, rest),
                    _ => (high, rest),
                };
                ranges.push((*low, *high));
                text = rest;
            }
            [b'\\', escaped, rest @ ..] => {
                ranges.push((*escaped, *escaped));
                text = rest;
            }
            [byte, rest @ ..] => {
                ranges.push((*byte, *byte));
                text = rest;
            }
        }
        first = false;
    }
}

/// Returns the POSIX class for ASCII bytes.
fn named(name: &[u8]) -> Option<&'static [(u8, u8)]> {
    Some(match name {
        b"alnum" => &[(b'0', b'9'), (b'A', b'Z'), (b'a', b'z')],
        b"alpha" => &[(b'A', b'Z'), (b'a', b'z')],
        b"blank" => &[(b' ', b' '), (b'\t', b'\t')],
        b"cntrl" => &[(0, 31), (127, 127)],
        b"digit" => &[(b'0', b'9')],
        b"graph" => &[(33, 126)],
        b"lower" => &[(b'a', b'z')],
        b"print" => &[(32, 126)],
        b"punct" => &[(33, 47), (58, 64), (91, 96), (123, 126)],
        b"space" => &[(9, 13), (b' ', b' ')],
        b"upper" => &[(b'A', b'Z')],
        b"xdigit" => &[(b'0', b'9'), (b'A', b'F'), (b'a', b'f')],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_match_decides() {
        let mut list = FilterList::default();
        list.add(b"*.c", true).unwrap();
        list.add_lines(b"# comment\n\n; too\n+ keep.me\n- *\n", false).unwrap();
        let filters = Filters::new(&list.into_rules());
        assert!(!filters.leaves_out(b"a/x.c", false));
        assert!(!filters.leaves_out(b"keep.me", false));
        assert!(filters.leaves_out(b"x.o", false));
        assert!(!Filters::default().leaves_out(b"x.o", false));
    }

    #[test]
    fn a_bang_clears_the_rules() {
        let mut list = FilterList::default();
        list.add(b"x", false).unwrap();
        list.add(b"!", false).unwrap();
        assert!(list.into_rules().is_empty());
    }

    #[test]
    fn nonsense_is_refused() {
        let mut list = FilterList::default();
        assert_eq!(list.add(b"", false), Err(FilterError::Empty));
        assert_eq!(list.add(b"- ", true), Err(FilterError::Empty));
        assert_eq!(list.add(&[b'x'; 5000], true), Err(FilterError::Pattern));
        let rule = FilterRule { include: true, pattern: FilePath::new("x").unwrap() };
        assert_eq!(Filters::check(&vec![rule; RULES_LIMIT + 1]), Err(FilterError::TooMany));
    }

    fn matches(pattern: &str, path: &str) -> bool {
        let (path, is_dir) = match path.strip_suffix('/') {
            Some(path) => (path, true),
            None => (path, false),
        };
        Pattern::new(pattern.as_bytes()).matches(path.as_bytes(), is_dir)
    }

    #[track_caller]
    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        for path in yes {
            assert!(matches(pattern, path), "{pattern} should match {path}");
        }
        for path in no {
            assert!(!matches(pattern, path), "{pattern} should not match {path}");
        }
    }

    /// Tests the examples of rsync(1), "PATTERN MATCHING RULES" and "FILTER RULES".
    #[test]
    fn the_manuals_examples() {
        check("*.o", &["a.o", "x/y/a.o"], &["a.oo", "a.o/b"]);
        check("/foo", &["foo", "foo/"], &["bar/foo", "foo/bar"]);
        check("foo/", &["foo/", "a/foo/"], &["foo", "a/foo"]);
        check("/foo/*/bar", &["foo/x/bar"], &["foo/bar", "foo/x/y/bar", "a/foo/x/bar"]);
        check("/foo/**/bar", &["foo/x/bar", "foo/x/y/bar"], &["foo/bar", "a/foo/x/bar"]);
        check("foo/bar", &["foo/bar", "a/foo/bar"], &["bar", "afoo/bar", "foo/bar/x"]);
        check("bar/***", &["bar/", "a/bar/", "bar/x", "a/bar/x/y"], &["bar", "barx/y"]);
        check("/a/**", &["a/b", "a/b/c"], &["a", "a/", "x/a/b"]);
        check("**/foo", &["foo", "a/foo", "a/b/foo"], &["afoo"]);
        check("*", &["a", "a/b/c"], &[]);
        check("home/*", &["home/me", "x/home/me"], &["home", "home/me/x"]);
    }

    #[test]
    fn wildcards_stop_at_slashes_unless_doubled() {
        check("a*b", &["ab", "axxb", "q/ab"], &["a/b"]);
        check("a**b", &["ab", "a/b", "q/a/x/b"], &["ac"]);
        check("/a?c", &["abc"], &["a/c", "ac"]);
        check("**", &["a", "a/b"], &[]);
        check("sub/**.o", &["sub/a.o", "sub/x/a.o", "q/sub/x.o"], &["a.o"]);
    }

    #[test]
    fn classes() {
        check("f[0-9a]", &["f0", "fa"], &["fb", "f"]);
        check("f[!0-9]", &["fx"], &["f5"]);
        check("f[^a]", &["fx"], &["fa"]);
        check("f[]x]", &["f]", "fx"], &["f["]);
        check("f[[:upper:]_]", &["fA", "f_"], &["fa"]);
        check("/a[/]b", &[], &["a/b"]);
        check("f[a", &[], &["f[a", "fa"]);
        check("f[a-]", &["fa", "f-"], &["fb"]);
        check("f[\\]]", &["f]"], &["f\\"]);
    }

    #[test]
    fn backslashes_escape_only_beside_wildcards() {
        check("a\\b", &["a\\b"], &["ab"]);
        check("a\\*b", &["a*b"], &["a\\b", "axb"]);
        check("a\\[*", &["a[x"], &["ax"]);
    }

    #[test]
    fn no_pattern_takes_long() {
        let pattern = "*a".repeat(200);
        let path = "a".repeat(4000);
        let start = std::time::Instant::now();
        matches(&pattern, &format!("{path}b"));
        assert!(start.elapsed() < std::time::Duration::from_secs(5));
    }
}
