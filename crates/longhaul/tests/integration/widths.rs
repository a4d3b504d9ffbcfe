//! The width of text on terminals of 60 to 200 columns.

use crate::host::{PROGRAM, TestHost, assert_code, text};

const WIDTHS: [usize; 4] = [60, 80, 132, 200];

#[test]
fn help_fits_a_narrow_terminal() {
    let host = TestHost::new();
    for command in
        ["cp", "test", "serve", "diagnose", "doctor", "path", "matrix", "report", "watch"]
    {
        for help in ["-h", "--help"] {
            let output = host.longhaul(&[command, help]).env("COLUMNS", "60").output().unwrap();
            assert_code(&output, 0);
            let shown = text(&output.stdout);
            let long = shown.lines().find(|line| line.chars().count() > 60);
            assert_eq!(long, None, "{command} {help}");
        }
    }
}

/// Returns the lines of a command on a terminal of `columns` columns, without colors.
fn on_columns(host: &TestHost, columns: usize, command: &str) -> Vec<String> {
    let command = format!("stty rows 50 cols {columns}; {PROGRAM} {command}");
    let output = host.command("script", &["-qec", &command, "/dev/null"]).output().unwrap();
    // A line of progress replaces itself after a carriage return.
    let shown = text(&output.stdout).replace("\r\n", "\n").replace('\r', "\n");
    let mut plain = String::new();
    let mut parts = shown.split("\x1b[");
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let end = part.find(|letter: char| letter.is_ascii_alphabetic()).map_or(0, |at| at + 1);
        plain.push_str(&part[end..]);
    }
    plain.lines().map(str::to_owned).collect()
}

/// Asserts that the result of a command fits the terminal at each width, that one line begins with
/// `expected`, and that a wide terminal has longer lines.
#[track_caller]
fn assert_fits(host: &TestHost, command: &str, expected: &str) {
    let mut longest = 0;
    for columns in WIDTHS {
        let lines = on_columns(host, columns, &format!("{command} 2>/dev/null"));
        assert!(lines.iter().any(|line| line.starts_with(expected)), "{lines:#?}");
        // A word that is longer than a line is not divided.
        let divisible = |line: &str| line.trim().trim_end_matches(" \\").contains(' ');
        let long = lines.iter().find(|line| line.chars().count() > columns && divisible(line));
        assert_eq!(long, None, "{command} on {columns} columns");
        longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    }
    assert!(longest > 80, "{command} does not use 200 columns: {longest}");
}

#[test]
fn text_fits_terminals_of_60_to_200_columns() {
    const RECORDED: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../longhaul-sys/tests/hosts/server-untuned.host");
    let host = TestHost::new();
    let server = host.serve();
    host.file("data", 1 << 20);
    let (address, url) = (format!("127.0.0.1:{}", server.port), server.url(""));
    for (command, expected) in [
        (format!("doctor --recorded {RECORDED} --disk /srv"), "PROBLEMS"),
        (format!("path {address} -q -t 0.2 -c 20"), "capacity"),
        (format!("test {address} -t 0.3 -i 0.1 -b 50M"), "receiver there"),
        (format!("test {address} -u -t 0.3 -i 0.1 -b 50M"), "datagrams"),
        (format!("cp --stats data {url}"), "verified"),
        (format!("diagnose --time 0.5s --rounds 1 data {url}"), "source read, no network"),
        ("matrix --list-plans".to_owned(), "quick"),
    ] {
        assert_fits(&host, &command, expected);
    }
}

#[test]
fn the_progress_of_a_copy_fits_the_terminal() {
    let host = TestHost::new();
    let server = host.serve();
    host.file("data", 8 << 20);
    for columns in WIDTHS {
        let copy = format!("cp --bwlimit 80M data {}", server.url(&columns.to_string()));
        let lines = on_columns(&host, columns, &copy);
        let is_bar = |line: &&String| line.contains(['\u{2588}', '\u{2591}']);
        let bars: Vec<_> = lines.iter().filter(is_bar).collect();
        assert!(bars.len() > 1, "{lines:#?}");
        let widest = bars.iter().map(|line| line.chars().count()).max().unwrap();
        assert_eq!(widest, columns, "{bars:#?}");
    }
}
