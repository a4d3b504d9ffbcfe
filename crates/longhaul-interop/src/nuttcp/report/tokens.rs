//! Splits reports into numbers and their units, or into names and values.

/// Returns the numbers before each unit of a line, such as `0 / 124 ~drop/pkt`.
pub(super) fn quantities(line: &str) -> Vec<(Vec<f64>, &str)> {
    let mut found = Vec::new();
    let mut numbers = Vec::new();
    for token in line.split_ascii_whitespace() {
        match number(token) {
            Some(number) => numbers.push(number),
            None if token == "/" || token == "=" => {}
            None => found.push((std::mem::take(&mut numbers), token)),
        }
    }
    found
}

/// Returns the names and numeric values of a line with `name=value`.
pub(super) fn fields(line: &str) -> impl Iterator<Item = (&str, f64)> {
    line.split_ascii_whitespace()
        .filter_map(|token| token.split_once('='))
        .filter_map(|(name, value)| Some((name, number(value)?)))
}

/// Parses a finite number that begins with a digit or a sign.
fn number(text: &str) -> Option<f64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let valid = digits.starts_with(|c: char| c.is_ascii_digit());
    text.parse().ok().filter(|number: &f64| valid && number.is_finite())
}
