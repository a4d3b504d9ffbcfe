//! The error document of every command with `--json`.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::host::{TestHost, assert_code, text};

/// Commands that fail, with their exit codes and the names of these. The address `CLOSED` is a port
/// without a server. Each command that has `--json` is here.
const FAILING: [(&str, i32, &str); 26] = [
    ("agent --check --json --interval", 2, "usage"),
    ("cache --json --clear=maybe", 2, "usage"),
    ("cp --json data lh://CLOSED/x", 3, "unreachable"),
    ("cp --json-stream data lh://CLOSED/x", 3, "unreachable"),
    ("diagnose --json data", 2, "usage"),
    ("doctor --json 127.0.0.1 --there -e /bin/false", 3, "unreachable"),
    ("doctor --json --recorded missing.host", 5, "files"),
    ("fleet apply --json missing.toml", 5, "files"),
    ("fleet hosts --json", 2, "usage"),
    ("fleet plan --json missing.toml", 5, "files"),
    ("fleet revoke --json west", 2, "usage"),
    ("fleet runs --json", 2, "usage"),
    ("fleet status --json", 2, "usage"),
    ("fleet token --json west", 2, "usage"),
    ("hub user list --json --data data/below-a-file", 5, "files"),
    ("matrix --json missing.toml", 2, "usage"),
    ("path --json no-such-host.invalid", 3, "unreachable"),
    ("report --json missing", 5, "files"),
    ("test --json CLOSED", 3, "unreachable"),
    ("test --json-stream CLOSED", 3, "unreachable"),
    ("test -J CLOSED", 3, "unreachable"),
    ("wan certify --json missing.toml", 2, "usage"),
    ("wan selftest --json --seed many", 2, "usage"),
    ("wan status --json --name none-is-up", 1, "failed"),
    ("watch --json -i none-such0", 2, "usage"),
    ("watch --json-stream -i none-such0", 2, "usage"),
];

/// Asserts that standard output is one document of an error with the documented fields, and that
/// its message is the last line of standard error.
#[track_caller]
fn assert_document(host: &TestHost, line: &str, code: i32, kind: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let output = host.run(&words);
    assert_code(&output, code);
    let found: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{line}: {error}: {}", text(&output.stdout)));
    let fields: BTreeSet<&str> = found.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, BTreeSet::from(["code", "kind", "message", "schema"]), "{line}");
    assert_eq!(found["schema"], "longhaul.error/1", "{line}");
    assert_eq!((found["code"].as_i64(), found["kind"].as_str()), (Some(code.into()), Some(kind)));
    let message = found["message"].as_str().unwrap();
    assert!(!message.is_empty() && !message.contains('\n'), "{line}: {message:?}");
    let printed = text(&output.stderr);
    assert_eq!(printed.lines().last(), Some(&*format!("longhaul: {message}")), "{line}");
    if line.contains("--json-stream") {
        assert_eq!(text(&output.stdout).lines().count(), 1, "{line}");
    }
    let is_json = |word: &&str| matches!(*word, "--json" | "--json-stream" | "-J");
    let without: Vec<&str> = words.into_iter().filter(|word| !is_json(word)).collect();
    assert!(host.run(&without).stdout.is_empty(), "{without:?}");
}

/// Returns the commands whose manual page has the option `--json`, such as `fleet plan`.
fn commands_with_json(host: &TestHost) -> BTreeSet<String> {
    let pages = host.near("man");
    fs::create_dir(&pages).unwrap();
    assert_code(&host.run(&["generate", "man", "man"]), 0);
    let page = |entry: std::io::Result<fs::DirEntry>| {
        let page = fs::read_to_string(entry.unwrap().path()).unwrap();
        let is_option =
            |line: &str| line == "\\fB\\-\\-json\\fR" || line.ends_with(", \\-\\-json\\fR");
        if !page.lines().any(is_option) {
            return None;
        }
        // The line after the heading SYNOPSIS is "\fBlonghaul fleet plan\fR [\fB...".
        let mut lines = page.lines().skip_while(|line| !line.contains("SYNOPSIS"));
        let name = lines.nth(1)?.strip_prefix("\\fBlonghaul ")?.split("\\fR").next()?;
        Some(name.replace('\\', ""))
    };
    fs::read_dir(pages).unwrap().filter_map(page).collect()
}

#[test]
fn every_command_with_json_prints_its_error_as_a_document() {
    let host = TestHost::new();
    host.file("data", 10);
    let closed = format!("127.0.0.1:{}", host.serve().port); // the server is closed at once
    for (line, code, kind) in FAILING {
        assert_document(&host, &line.replace("CLOSED", &closed), code, kind);
    }
    let commands = commands_with_json(&host);
    assert!(commands.len() >= 20, "{commands:?}");
    for command in commands {
        let is_here = FAILING.iter().any(|(line, ..)| line.starts_with(&format!("{command} -")));
        assert!(is_here, "{command} has --json and no line in this test");
        assert_document(&host, &format!("{command} --json --nonsense"), 2, "usage");
    }
}

#[test]
fn standard_output_that_carries_data_has_no_document() {
    let host = TestHost::new();
    let url = host.serve().url("x"); // the server is closed at once
    let output = host.run(&["cp", "--json", &url, "-"]);
    assert_code(&output, 3);
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
}
