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

/// The minimum width of a text beside a name.
const LEAST_TEXT: usize = 20;

/// Returns `text` beside `figures`, which begin its first line, wrapped to lines of at most `columns`
/// characters. If the text does not fit beside the figures, it follows on lines with an indentation
/// of `indent`.
pub(in crate::output) fn beside(
    figures: &str,
    text: &str,
    indent: usize,
    columns: usize,
) -> String {
    let at = figures.chars().count();
    let room = columns.saturating_sub(at);
    let widest = |wrapped: &str| wrapped.lines().map(|line| line.chars().count()).max();
    let wrapped = wrap(text, room.max(1));
    if room >= LEAST_TEXT && widest(&wrapped).is_none_or(|width| width <= room) {
        return format!("{figures}{}\n", wrapped.replace('\n', &format!("\n{:at$}", "")));
    }
    let wrapped = wrap(text, columns.saturating_sub(indent));
    let gap = format!("\n{:indent$}", "");
    format!("{}{gap}{}\n", figures.trim_end(), wrapped.replace('\n', &gap))
}

/// Returns the lines of a table whose cells are aligned to the right, and whose first column, the
/// names, to the left. `widths` are those of the columns on a terminal of 80 characters. On a narrower
/// one columns are only as wide as their cells, and those that do not fit follow in a second table.
pub(in crate::output) fn table(rows: &[Vec<String>], widths: &[usize], columns: usize) -> String {
    let widest = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let narrow = widths.iter().sum::<usize>() > columns;
    let width = |at: usize, wide: usize| match (narrow, at) {
        (false, _) => wide,
        (true, 0) => widest(0),
        (true, _) => widest(at) + 2,
    };
    let widths: Vec<usize> = widths.iter().enumerate().map(|(at, wide)| width(at, *wide)).collect();
    let mut text = String::new();
    let mut first = 1;
    while first < widths.len() {
        let mut used = widths[0];
        let fits = |width: &&usize| {
            used += **width;
            used <= columns
        };
        let count = widths[first..].iter().take_while(fits).count().max(1);
        for row in rows {
            let mut line = format!("{:<1$}", row[0], widths[0]);
            for at in first..first + count {
                line.push_str(&format!("{:>1$}", row[at], widths[at]));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        first += count;
    }
    text
}

/// Returns the lines of a shell command of at most `columns` characters. A line whose command
/// continues ends with a backslash. Quoted words are not divided. A comment has separate lines.
pub(in crate::output) fn command_lines(command: &str, columns: usize) -> Vec<String> {
    if command.chars().count() <= columns {
        return vec![command.to_owned()];
    }
    let words = shell_words(command);
    let comment = words.iter().position(|word| word.starts_with('#')).unwrap_or(words.len());
    let (words, comment) = words.split_at(comment);
    let mut lines: Vec<String> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        // All lines but the last one end with a space and a backslash.
        let end = if at + 1 < words.len() { 2 } else { 0 };
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() + end <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            Some(line) => {
                line.push_str(" \\");
                lines.push(format!("  {word}"));
            }
            None => lines.push((*word).to_owned()),
        }
    }
    let comment = comment.join(" ");
    let comment = wrap(comment.trim_start_matches(['#', ' ']), columns.saturating_sub(2));
    lines.extend(comment.lines().map(|line| format!("# {line}")));
    lines
}

/// Returns the words of a shell command, with their quotes.
fn shell_words(command: &str) -> Vec<&str> {
    let mut quote = None;
    let is_gap = |letter: char| {
        match (letter, quote) {
            ('\'' | '"', None) => quote = Some(letter),
            (_, Some(open)) if letter == open => quote = None,
            _ => {}
        }
        letter == ' ' && quote.is_none()
    };
    command.split(is_gap).filter(|word| !word.is_empty()).collect()
}

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
    fn a_text_without_room_beside_its_figures_is_below() {
        let text = beside("  there  UDP  ", "limit of the router 2001:db8::1", 4, 40);
        assert_eq!(text, "  there  UDP  limit of the router\n              2001:db8::1\n");
        let text = beside("  there  UDP  ", "limit of the router 2001:db8::1", 4, 30);
        assert_eq!(text, "  there  UDP\n    limit of the router\n    2001:db8::1\n");
    }

    #[test]
    fn a_table_that_is_too_wide_has_narrow_columns_and_then_two_parts() {
        let rows = [["name", "a", "bb", "ccc"], ["x", "1", "22", "333"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        let at = |columns| table(&rows, &[6, 5, 5, 5], columns);
        assert_eq!(at(80), "name      a   bb  ccc\nx         1   22  333\n");
        assert_eq!(at(20), "name  a  bb  ccc\nx     1  22  333\n");
        assert_eq!(at(12), "name  a  bb\nx     1  22\nname  ccc\nx     333\n");
    }

    #[test]
    fn a_long_command_continues_after_a_backslash() {
        let command = "sudo sh -c 'echo one two three' && sudo reboot";
        assert_eq!(command_lines(command, 80), [command]);
        assert_eq!(
            command_lines(command, 34),
            ["sudo sh -c 'echo one two three' \\", "  && sudo reboot"]
        );
        assert_eq!(
            command_lines("a-word-that-is-longer b", 8),
            ["a-word-that-is-longer \\", "  b"]
        );
        assert_eq!(command_lines(command, usize::MAX), [command]);
        assert_eq!(
            command_lines("lspci -s 0:1    # another slot", 24),
            ["lspci -s 0:1", "# another slot"]
        );
    }

    #[test]
    fn times_have_three_digits() {
        assert_eq!(
            [90.06, 0.0519, 227.4, 1.5].map(millis).join(" "),
            "90.1 ms 0.052 ms 227 ms 1.50 ms"
        );
    }
}
