//! Formats counts, times and long lines.

/// A placeholder for a space without a line break.
const HARD_SPACE: char = '\x1f';

/// Returns the target without the default port.
pub(super) fn short(target: &str) -> String {
    let default = format!(":{}", longhaul_engine::session::DEFAULT_PORT);
    target.strip_suffix(&default).unwrap_or(target).to_owned()
}

pub(in crate::output) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Formats a time with three digits: `90.1 ms`, `0.052 ms`.
pub(in crate::output) fn millis(value: f64) -> String {
    let digits = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.digits$} ms")
}

/// Returns the text of a value, or `-` without one.
pub(super) fn or_dash<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

/// Returns the text of a value, or nothing without one.
pub(super) fn known<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(String::new, text)
}

/// Wraps `text` between words to lines of at most `columns` characters, unless a word is longer.
/// A number stays on the line of its unit.
pub(in crate::output) fn wrap(text: &str, columns: usize) -> String {
    let text = ["%", "ms", "s"].iter().fold(text.to_owned(), |text, unit| {
        text.replace(&format!(" {unit} "), &format!("{HARD_SPACE}{unit} "))
    });
    let mut wrapped = String::with_capacity(text.len() + 4);
    let mut length = 0;
    for word in text.split(' ') {
        let word_length = word.chars().count();
        if length > 0 {
            let fits = length + 1 + word_length <= columns;
            wrapped.push(if fits { ' ' } else { '\n' });
            length = if fits { length + 1 } else { 0 };
        }
        wrapped.push_str(word);
        length += word_length;
    }
    wrapped.replace(HARD_SPACE, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("one two three", 7), "one two\nthree");
        assert_eq!(wrap("one two three", 80), "one two three");
        assert_eq!(wrap("monstrous word", 4), "monstrous\nword");
        assert_eq!(wrap("", 4), "");
        assert_eq!(wrap("CPU of 4 % here", 9), "CPU of\n4 % here");
    }

    #[test]
    fn times_have_three_digits() {
        assert_eq!(
            [90.06, 0.0519, 227.4, 1.5].map(millis).join(" "),
            "90.1 ms 0.052 ms 227 ms 1.50 ms"
        );
    }
}
