//! Lists of filter rules.

use serde::{Deserialize, Serialize};

use super::pattern::Pattern;
use crate::wire::FilePath;

/// The most rules that a peer may send.
pub(super) const RULES_LIMIT: usize = 10_000;
/// The longest pattern: the longest path (`PATH_MAX`, linux/limits.h).
pub(super) const PATTERN_LIMIT_BYTES: usize = 4096;

/// A rule as it was given.
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

/// Rules in the given order, while they are collected from options and files.
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
        match rules.iter().any(|rule| rule.pattern.as_bytes().len() > PATTERN_LIMIT_BYTES) {
            true => Err(FilterError::Pattern),
            false => Ok(()),
        }
    }

    /// Returns whether the rules exclude `path`, relative to the target. The walk handles excluded
    /// parent directories.
    pub fn leaves_out(&self, path: &[u8], is_dir: bool) -> bool {
        let first = self.rules.iter().find(|(_, pattern)| pattern.matches(path, is_dir));
        first.is_some_and(|(include, _)| !include)
    }
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
    fn a_bang_forgets() {
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
}
