//! Checks, before the first test, that all programs that the tests run are installed.

use std::io::Write;
use std::sync::Once;

/// The script that installs them, with a line `need PROGRAM PACKAGE` per program.
const PACKAGES: &str = include_str!("../../../../.ci/packages");

/// Ends all tests with one message if a program is missing. Without it each test would fail with
/// its own message.
pub(crate) fn check() {
    static CHECKED: Once = Once::new();
    CHECKED.call_once(|| {
        let missing = missing(PACKAGES, &is_installed);
        if !missing.is_empty() {
            let programs: Vec<&str> = missing.iter().map(|(program, _)| *program).collect();
            let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
            packages.dedup();
            // print! and eprintln! would be captured and lost.
            // The only other writer is `output::print`, which tests cannot use.
            #[allow(clippy::disallowed_methods)]
            let _ = writeln!(
                std::io::stderr(),
                "\nthe tests need programs that are not installed: {}\n\n    \
                 apt install {}\n\nor run .ci/test, which installs them",
                programs.join(", "),
                packages.join(" ")
            );
            std::process::exit(1);
        }
    });
}

/// Returns the programs of `script` that are not installed, with their packages.
fn missing<'a>(script: &'a str, is_installed: &dyn Fn(&str) -> bool) -> Vec<(&'a str, &'a str)> {
    let needs = script.lines().filter_map(|line| line.strip_prefix("need "));
    let pairs = needs.filter_map(|need| need.split_once(' '));
    pairs.filter(|(program, _)| !is_installed(program)).collect()
}

/// Returns whether `program` is in PATH or a directory of administrators.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let administrators = ["/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path).chain(administrators).any(|dir| dir.join(program).is_file())
}

#[test]
fn missing_programs_are_listed_with_their_packages() {
    check();
    let found = missing(PACKAGES, &|program| program == "ip");
    assert!(found.len() > 10 && !found.iter().any(|(program, _)| *program == "ip"), "{found:?}");
    assert!(found.contains(&("sshd", "openssh-server")), "{found:?}");
    assert_eq!(missing("# x\nneed a b\n", &|_| false), [("a", "b")]);
    assert!(is_installed("sh") && !is_installed("no-such-program"));
}
