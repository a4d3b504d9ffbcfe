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

/// Wraps the lines of `text` that are longer than `columns` characters. Their further lines begin with
/// `indent` spaces.
pub(super) fn wrap_lines(text: &str, indent: usize, columns: usize) -> String {
    let fits = |line: &str| line.chars().count() <= columns;
    let wrapped = text.lines().map(|line| match line.get(..indent).filter(|_| !fits(line)) {
        None => line.to_owned(),
        Some(name) => {
            let lines = wrap(&line[indent..], columns.saturating_sub(indent).max(LEAST_TEXT));
            name.to_owned() + &lines.replace('\n', &format!("\n{:indent$}", ""))
        }
    });
    wrapped.collect::<Vec<_>>().join("\n")
}

/// Returns a row of a list: a name in a column of `indent` characters, and a text beside it, wrapped
/// to lines of at most `columns` characters. The row ends with a line feed.
pub(crate) fn list_row(name: &str, indent: usize, text: &str, columns: usize) -> String {
    let wrapped = wrap(text, columns.saturating_sub(indent + 1).max(LEAST_TEXT));
    let mut lines = wrapped.lines();
    let mut row = format!("{name:<indent$} {}\n", lines.next().unwrap_or_default());
    for line in lines {
        row.push_str(&format!("{:indent$} {line}\n", ""));
    }
    row
}

/// The least width of a text beside a name.
const LEAST_TEXT: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_a_list_continues_below_its_text() {
        let row = list_row("lan", 5, "a link with a long description", 26);
        assert_eq!(row, "lan   a link with a long\n      description\n");
        assert_eq!(list_row("longer", 5, "x", 80), "longer x\n");
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("one two three", 7), "one two\nthree");
        assert_eq!(wrap("one two three", 80), "one two three");
        assert_eq!(wrap("monstrous word", 4), "monstrous\nword");
        assert_eq!(wrap("", 4), "");
        assert_eq!(wrap("CPU of 4 % here", 9), "CPU of\n4 % here");
    }

    #[test]
    fn a_long_line_continues_below_its_figures() {
        let text = "sender   here   1 MiB in 1.00 s, RTT 2 ms\nshort";
        let wrapped = wrap_lines(text, 16, 36);
        assert_eq!(wrapped, "sender   here   1 MiB in 1.00 s, RTT\n                2 ms\nshort");
        assert_eq!(wrap_lines(text, 16, 80), text);
    }

    #[test]
    fn times_have_three_digits() {
        assert_eq!(
            [90.06, 0.0519, 227.4, 1.5].map(millis).join(" "),
            "90.1 ms 0.052 ms 227 ms 1.50 ms"
        );
    }
}
