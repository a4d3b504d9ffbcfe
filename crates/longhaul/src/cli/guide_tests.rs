//! Checks that the command line accepts every command of the README and of the guide.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;

use super::{Cli, habits, help};

/// The words that end a command in a line of shell.
const ENDS: [&str; 8] = ["|", ">", ">>", "2>", "&", "&&", "||", ";"];
/// Lines of output that begin with the name of the program.
const OUTPUT: [&str; 3] = ["longhaul watch  ", "longhaul test    ", "longhaul cp  "];
/// The token of an agent in place of the `T` of the pages.
const TOKEN: &str = "0123456789abcdef";
/// The minimum number of commands that the pages have, so that the check cannot become empty.
const LEAST: usize = 120;

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = fs::read_dir(root.join("docs/guide")).expect("the guide exists");
    let mut pages: Vec<_> = guide.map(|entry| entry.unwrap().path()).collect();
    pages.push(root.join("README.md"));
    pages.sort();
    pages
}

/// Returns the commands of an indented line: a command of longhaul, perhaps after a prompt or after
/// variables.
fn command_of(line: &str) -> Option<Vec<String>> {
    let text = line.strip_prefix("    ")?.trim_start();
    let text = after_prompt(text);
    if OUTPUT.iter().any(|output| text.starts_with(output)) {
        return None;
    }
    let mut words = words(text);
    let is_before = |word: &String| word == "sudo" || word.split_once('=').is_some();
    while words.first().is_some_and(is_before) {
        words.remove(0);
    }
    // "longhaul 0.1.0" is the output of --version.
    let second = words.get(1)?.chars().next()?;
    (words[0] == "longhaul" && !second.is_ascii_digit()).then_some(words)
}

/// Returns a line without its prompt: `$`, `#`, or the name of a host before `$`.
fn after_prompt(line: &str) -> &str {
    match line.split_once(['$', '#']) {
        Some((host, rest)) if rest.starts_with(' ') && host.chars().all(char::is_alphanumeric) => {
            rest.trim_start()
        }
        _ => line,
    }
}

/// Splits a line at spaces as a shell does: with quotes and a comment, up to the end of the command.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (' ', None) => words.extend(word.take()),
            ('#', None) if word.is_none() => break,
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    let end = words.iter().position(|word| ENDS.contains(&word.as_str()));
    words.truncate(end.unwrap_or(words.len()));
    words
}

/// Returns the error for a command and for the commands in its words, if there is one, and counts
/// them.
fn check(words: &[String], count: &mut usize) -> Result<(), String> {
    *count += 1;
    for word in words.iter().filter(|word| word.starts_with("longhaul ")) {
        check(&self::words(word), count)?;
    }
    if let Some(at) = words.iter().position(|word| word == "--") {
        let inner = &words[at + 1..];
        if inner.first().is_some_and(|word| word == "longhaul") {
            check(inner, count)?;
        }
    }
    let filled = |word: &String| OsString::from(if word == "T" { TOKEN } else { word });
    let args: Vec<OsString> = words.iter().map(filled).collect();
    let translated = habits::translate(args, &Cli::command()).map_err(|e| e.error.to_string())?;
    let parsed = help::with_examples(Cli::command()).try_get_matches_from(translated.args);
    parsed.map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn every_command_of_the_guide_is_accepted() {
    let (mut count, mut failed) = (0, Vec::new());
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap().replace("\\\n", " ");
        for words in text.lines().filter_map(command_of) {
            if let Err(error) = check(&words, &mut count) {
                failed.push(format!("{}: {}\n{error}", page.display(), words.join(" ")));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(count >= LEAST, "only {count} commands");
}

#[test]
fn the_units_accept_the_exit_code_of_sigterm() {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist");
    let terminated = crate::exit::SIGNAL_BASE + 15;
    for name in ["agent", "hub", "serve"] {
        let unit = fs::read_to_string(dist.join(format!("longhaul-{name}.service"))).unwrap();
        let expected = format!("SuccessExitStatus={terminated}");
        assert!(unit.lines().any(|line| line == expected), "{name}");
    }
}

#[test]
fn a_command_ends_like_one_of_a_shell() {
    let split = |line| words(line).join("|");
    assert_eq!(split("longhaul key > key.pub"), "longhaul|key");
    assert_eq!(split("longhaul cp 'a b' c   # a comment"), "longhaul|cp|a b|c");
    let command = command_of("    $ LC_ALL=C longhaul test far -t 5");
    assert_eq!(command.unwrap().join(" "), "longhaul test far -t 5");
    let command = command_of("    hub$   longhaul hub            # prints a password");
    assert_eq!(command.unwrap().join(" "), "longhaul hub");
    assert_eq!(command_of("    longhaul 0.1.0"), None);
    assert!(check(&words("longhaul test far --nonsense"), &mut 0).is_err());
    assert!(check(&words("longhaul wan run --far 'longhaul serve --no' -- true"), &mut 0).is_err());
}

/// The commands with a table of exit codes in the guide: the command, the page and the heading above
/// the meanings.
const EXIT_TABLES: [(&str, &str, &str); 10] = [
    ("agent", "agent", "meaning"),
    ("cp", "cp", "meaning"),
    ("diagnose", "diagnose", "meaning"),
    ("doctor", "doctor", "meaning"),
    ("fleet", "hub", "meaning of `longhaul fleet`"),
    ("hub", "hub", "meaning of `longhaul hub`"),
    ("matrix", "matrix", "meaning"),
    ("path", "path", "meaning"),
    ("serve", "serve", "meaning"),
    ("test", "test", "meaning"),
];

#[test]
fn the_help_lists_the_exit_codes_of_the_guide() {
    let mut cli = help::with_examples(Cli::command());
    cli.build();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
    for (name, page, heading) in EXIT_TABLES {
        let page = fs::read_to_string(root.join(format!("{page}.md"))).unwrap();
        let heading = format!("| exit code | {heading} |");
        let rows = page.lines().skip_while(|line| *line != heading).skip(2);
        let rows = rows.map_while(|line| line.strip_prefix("| ")?.split_once(" | "));
        let guide: BTreeSet<u8> = rows
            .flat_map(|(codes, _)| codes.split(", "))
            .map(|code| code.parse().unwrap())
            .collect();
        let mut command = cli.find_subcommand(name).unwrap().clone();
        let long = command.render_long_help().to_string();
        let long = long.split_whitespace().collect::<Vec<_>>().join(" ");
        let (_, listed) = long.split_once("Exit codes: ").unwrap();
        let listed = listed.split_once(". ").map_or(listed, |(listed, _)| listed);
        let first = |item: &str| item.split_whitespace().next()?.parse().ok();
        let help: BTreeSet<u8> = listed.split(',').filter_map(first).collect();
        assert!(!guide.is_empty(), "{name}");
        assert_eq!(help, guide, "{name}: {listed}");
    }
}
