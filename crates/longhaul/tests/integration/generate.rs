//! Tests of the man pages and completions.

use crate::host::{TestHost, assert_code, names, text};

const COMMANDS: [&str; 9] =
    ["cp", "doctor", "key", "matrix", "path", "report", "serve", "test", "wan"];

#[test]
fn every_command_has_a_man_page() {
    let host = TestHost::new();
    assert_code(&host.run(&["generate", "man", "."]), 0);
    let pages = names(&host.near(""));
    for command in COMMANDS {
        let page = format!("longhaul-{command}.1");
        assert!(pages.contains(&page), "{page} is not in {pages:?}");
    }
    let cp = std::fs::read_to_string(host.near("longhaul-cp.1")).unwrap();
    assert!(
        cp.contains("bwlimit") && cp.contains(".SH EXAMPLES") && cp.contains(".SH NOTES"),
        "{cp}"
    );
    let output = host.run(&["generate", "man", "/no/such/directory"]);
    assert_code(&output, 5);
}

#[test]
fn every_shell_completes_every_command() {
    let host = TestHost::new();
    for shell in ["bash", "zsh", "fish"] {
        let output = host.run(&["generate", "completions", shell]);
        assert_code(&output, 0);
        let script = text(&output.stdout);
        for word in COMMANDS.iter().chain(&["cleartext", "stability", "ultrascience"]) {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
        for word in ["stdio", "relay"] {
            assert!(!script.contains(word), "{shell} offers {word}");
        }
    }
}
