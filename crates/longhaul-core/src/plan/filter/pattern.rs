//! One pattern, matched like rsync's `rule_matches` and `wildmatch` (exclude.c, lib/wildmatch.c),
//! but in time bounded by pattern length times path length, because patterns come from peers too.

/// A parsed pattern.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    tokens: Vec<Token>,
    dir_only: bool,
    place: Place,
    /// True if it ends with `/***`: the directory itself matches too.
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
    /// A class without an end, which matches nothing.
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
    /// The last components, as many as the pattern has.
    Tail(usize),
    /// The whole path with a leading slash: the pattern begins with `**`.
    Rooted,
    /// The path from any component on: there is a `**` inside the pattern.
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

    /// Runs the tokens as a finite automaton over `text`, tracking all positions in the pattern
    /// that the bytes so far can have reached.
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

/// Parses a class after its opening bracket. Returns it with the rest of the text.
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
            // As the first character it is a member, not the end.
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

    /// The examples of rsync(1), "PATTERN MATCHING RULES" and "FILTER RULES".
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
