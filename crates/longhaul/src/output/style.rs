//! Colors and cursor movements, as marks in the text: noncharacters of Unicode, which are escaped
//! in text of peers. Printing replaces the marks with ECMA-48 sequences.

use std::borrow::Cow;

/// An appearance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// A check that passed.
    Good,
    /// A check that failed.
    Bad,
    /// The heading of problems.
    Problems,
    /// The heading of advice.
    Advice,
    /// The heading of facts that could not be read.
    Unseen,
    /// The heading of findings without problems.
    InOrder,
    /// The heading of measurements.
    Measured,
}

const END: char = '\u{fdd7}';
const CLEAR: char = '\u{fdd8}';

/// Returns a mark that clears the terminal and moves the cursor to its top.
pub(crate) fn clear() -> String {
    CLEAR.to_string()
}

/// Returns `text` in `style` if `color` is set.
pub(crate) fn styled(style: Style, text: &str, color: bool) -> String {
    if color { format!("{}{text}{END}", style.mark()) } else { text.to_owned() }
}

/// Returns `text` with its marks replaced and the parts between them passed through `escape`.
pub(super) fn apply<'a>(text: &'a str, escape: impl Fn(&'a str) -> Cow<'a, str>) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, mark)) = rest.char_indices().find(|(_, c)| sequence(*c).is_some()) {
        shown.push_str(&escape(&rest[..at]));
        shown.push_str(sequence(mark).unwrap_or_default());
        rest = &rest[at + mark.len_utf8()..];
    }
    shown.push_str(&escape(rest));
    shown
}

impl Style {
    fn mark(self) -> char {
        match self {
            Style::Good => '\u{fdd0}',
            Style::Bad => '\u{fdd1}',
            Style::Problems => '\u{fdd2}',
            Style::Advice => '\u{fdd3}',
            Style::Unseen => '\u{fdd4}',
            Style::InOrder => '\u{fdd5}',
            Style::Measured => '\u{fdd6}',
        }
    }
}

/// Returns the ECMA-48 sequence of a mark: SGR, CUP and ED.
fn sequence(mark: char) -> Option<&'static str> {
    Some(match mark {
        '\u{fdd0}' => "\x1b[32m",
        '\u{fdd1}' => "\x1b[31m",
        '\u{fdd2}' => "\x1b[1;31m",
        '\u{fdd3}' => "\x1b[1;33m",
        '\u{fdd4}' => "\x1b[1;36m",
        '\u{fdd5}' => "\x1b[1;32m",
        '\u{fdd6}' => "\x1b[1;34m",
        END => "\x1b[0m",
        CLEAR => "\x1b[H\x1b[J",
        _ => return None,
    })
}
