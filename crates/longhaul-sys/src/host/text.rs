//! Parses texts of `/proc`.

use std::fs;

/// Returns the text of a file, or an empty text for an unreadable file: in a container any file of
/// `/proc` may be missing.
pub(super) fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the number in column `at` of `line`, counted from 0; 0 if the column is missing.
pub(super) fn number(line: &str, at: usize) -> u64 {
    line.split_ascii_whitespace().nth(at).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Returns the counter `name` of `group` in a file such as `/proc/net/snmp` or `netstat`, in which
/// a line of names precedes a line of values.
pub(super) fn counter(text: &str, group: &str, name: &str) -> u64 {
    let mut lines = text
        .lines()
        .filter(|line| line.strip_prefix(group).is_some_and(|rest| rest.starts_with(": ")));
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        if let Some(at) = names.split_ascii_whitespace().position(|word| word == name) {
            return number(values, at);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_name() {
        let text = "TcpExt: A PruneCalled B\nTcpExt: 1 22 3\nIpExt: A X\nIpExt: 7 8\n";
        assert_eq!(counter(text, "TcpExt", "PruneCalled"), 22);
        assert_eq!(counter(text, "IpExt", "A"), 7);
        assert_eq!(counter(text, "TcpExt", "Missing"), 0);
        assert_eq!(counter("", "Tcp", "A"), 0);
    }
}
