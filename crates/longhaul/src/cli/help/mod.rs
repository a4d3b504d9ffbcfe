//! The help of all commands: groups of options, examples, and the short help.

mod examples;
mod groups;
mod more_examples;
mod subcommand_examples;

use clap::Command;

use self::examples::{EXAMPLES, Example};
use self::groups::{COMMON, GROUPS};
use self::more_examples::MORE_EXAMPLES;
use self::subcommand_examples::SUBCOMMAND_EXAMPLES;

/// Returns `command` with groups of options, and with examples in its long help.
pub(super) fn with_examples(command: Command) -> Command {
    add_examples(grouped(command), "")
}

/// Returns `command` with groups of options. The long help has no examples.
pub(super) fn grouped(command: Command) -> Command {
    each(command, "", &|command, path| {
        let groups = GROUPS.iter().find(|(name, _)| *name == path).map_or(&[][..], |found| found.1);
        let common = COMMON.iter().find(|(name, _)| *name == path).map(|(_, common)| *common);
        let command = command.mut_args(|arg| {
            let id = arg.get_id().as_str().to_owned();
            let group = groups.iter().find(|(_, ids)| ids.contains(&id.as_str()));
            let rare = common.is_some_and(|common| !common.contains(&id.as_str()));
            let rare = rare && !arg.is_positional() && id != "help";
            let arg = if rare { arg.hide_short_help(true) } else { arg };
            match group {
                Some((heading, _)) => arg.help_heading(*heading),
                None => arg,
            }
        });
        let has_examples = examples_of(path).is_some();
        let Some(more) = command.get_after_help().cloned() else { return command };
        let short = match (common, has_examples) {
            (Some(_), _) => format!("'longhaul {path} --help' has all options, and examples."),
            (None, true) => format!("'longhaul {path} --help' has examples."),
            (None, false) => format!("'longhaul {path} --help' has more."),
        };
        command.after_help(short).after_long_help(more)
    })
}

/// Adds examples to the long help of `command` and its subcommands.
fn add_examples(command: Command, path: &str) -> Command {
    each(command, path, &|command, path| {
        let Some(examples) = examples_of(path) else { return command };
        let command = match command.get_after_help() {
            Some(_) => command,
            None => command.after_help(format!("'longhaul {path} --help' has examples.")),
        };
        let more = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        let lines: Vec<String> =
            examples.iter().map(|(purpose, line)| format!("  # {purpose}\n  {line}\n")).collect();
        command.after_long_help(format!("Examples:\n{}\n{more}", lines.join("\n")))
    })
}

/// Returns the examples of the command at `path`, such as `wan run`: the purpose and the command.
pub(super) fn examples_of(path: &str) -> Option<&'static [(&'static str, &'static str)]> {
    all_examples().find(|(name, _)| *name == path).map(|(_, examples)| *examples)
}

/// Returns the commands with their examples.
fn all_examples() -> impl Iterator<Item = &'static (&'static str, &'static [Example])> {
    EXAMPLES.iter().chain(MORE_EXAMPLES).chain(SUBCOMMAND_EXAMPLES)
}

/// Changes each subcommand, whose path from the program is the second argument of `change`.
fn each(command: Command, path: &str, change: &dyn Fn(Command, &str) -> Command) -> Command {
    let inner = |subcommand: Command| {
        let name = subcommand.get_name();
        let below = if path.is_empty() { name.to_owned() } else { format!("{path} {name}") };
        each(change(subcommand, &below), &below, change)
    };
    command.mut_subcommands(inner)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::CommandFactory;

    use super::super::{Cli, habits};
    use super::*;

    fn find<'a>(command: &'a Command, path: &str) -> &'a Command {
        path.split(' ').fold(command, |command, name| {
            command.find_subcommand(name).unwrap_or_else(|| panic!("there is no '{path}'"))
        })
    }

    #[test]
    fn groups_name_existing_options() {
        let cli = Cli::command();
        let lists = GROUPS
            .iter()
            .flat_map(|(path, groups)| groups.iter().map(move |(_, ids)| (path, *ids)))
            .chain(COMMON.iter().map(|(path, ids)| (path, *ids)));
        for (path, ids) in lists {
            let command = find(&cli, path);
            for id in ids {
                let known = command.get_arguments().any(|arg| arg.get_id() == id);
                assert!(known, "'{path}' has no argument '{id}'");
            }
        }
    }

    #[test]
    fn each_command_has_valid_examples() {
        let missing = std::cell::RefCell::new(Vec::new());
        each(Cli::command(), "", &|command, path| {
            let is_group = ["generate", "hub user"].contains(&path);
            if !is_group && !command.is_hide_set() && examples_of(path).is_none() {
                missing.borrow_mut().push(path.to_owned());
            }
            command
        });
        assert_eq!(missing.into_inner(), Vec::<String>::new(), "commands without examples");
        for (path, examples) in all_examples() {
            assert!(examples.len() >= 3, "{path}");
            for (purpose, line) in *examples {
                assert!(line.starts_with(&format!("longhaul {path}")), "{line}");
                assert!(line.len() <= 76 && purpose.len() <= 74, "{line}");
                // A shell removes quotes and comments.
                let words: Vec<OsString> = words(line).into_iter().map(OsString::from).collect();
                let translated = habits::translate(words, &Cli::command()).unwrap();
                let parsed = with_examples(Cli::command()).try_get_matches_from(translated.args);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
    }

    /// Returns the words of a command line with single quotes, up to a redirection or a pipe.
    fn words(line: &str) -> Vec<String> {
        let end = [" > ", " < ", " | "].iter().filter_map(|sign| line.find(sign)).min();
        let line = &line[..end.unwrap_or(line.len())];
        let parts = line.split('\'').enumerate();
        let words = parts.flat_map(|(number, part)| match number % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        words.collect()
    }

    #[test]
    fn the_short_help_is_short_and_the_long_one_has_groups() {
        let mut cli = with_examples(Cli::command());
        cli.build();
        for path in ["cp", "test", "serve"] {
            let mut command = find(&cli, path).clone();
            let (short, long) = (command.render_help(), command.render_long_help());
            let (short, long) = (short.to_string(), long.to_string());
            assert!(short.lines().count() <= 60, "{path}: {short}");
            assert!(long.contains("Examples:") && long.contains("Exit codes"), "{path}: {long}");
            for (heading, _) in GROUPS.iter().find(|(name, _)| *name == path).unwrap().1 {
                assert!(long.contains(&format!("\n{heading}:\n")), "{path} {heading}");
            }
        }
    }
}
