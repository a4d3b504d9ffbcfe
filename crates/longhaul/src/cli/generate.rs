//! `longhaul generate`: man pages and shell completions, from the same definitions as `--help`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::{Cli, help, wan};
use crate::exit::{self, Coded};
use crate::output::print_result;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Args {
    /// Write one man page per command into a directory
    Man {
        /// The directory; it must exist
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Print the completion script of a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        match self {
            Args::Man { directory } => {
                let mut command = help::grouped(Cli::command()).disable_help_subcommand(true);
                command.build();
                write_pages(&command, "", &directory)
                    .with_context(|| format!("cannot write into {}", directory.display()))
                    .map_err(|error| Coded { code: exit::FILES, error })?;
            }
            Args::Completions { shell } => print_result(&completions(shell))?,
        }
        Ok(exit::OK)
    }
}

/// Writes the page of `command`, and those of its subcommands. `path` has the names of the commands
/// after that of the program.
fn write_pages(command: &Command, path: &str, directory: &Path) -> anyhow::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut page = Vec::new();
    Man::new(command.clone()).title(name.clone()).render(&mut page)?;
    let page = with_examples(&String::from_utf8_lossy(&page), path);
    fs::write(directory.join(format!("{name}.1")), page)?;
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        let path = format!("{path} {}", inner.get_name());
        write_pages(inner, path.trim_start(), directory)?;
    }
    Ok(())
}

/// Returns a page with the section EXAMPLES. The text after the help of a command becomes the
/// section NOTES.
fn with_examples(page: &str, path: &str) -> String {
    let page = page.replace(".SH EXTRA\n", ".SH NOTES\n");
    let Some(examples) = help::examples_of(path) else { return page };
    let mut section = ".SH EXAMPLES\n".to_owned();
    for (purpose, line) in examples {
        section += &format!(".PP\n{}:\n.PP\n.RS 4\n.nf\n{}\n.fi\n.RE\n", roff(purpose), roff(line));
    }
    let at = [".SH NOTES\n", ".SH VERSION\n"].iter().find_map(|heading| page.find(heading));
    let (before, after) = page.split_at(at.unwrap_or(page.len()));
    format!("{before}{section}{after}")
}

/// Escapes a line of roff: backslashes, hyphens, and quotes that typographic devices replace.
fn roff(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq")
}

/// Returns the completion script of `shell`. Names of shipped plans and topologies are offered, and
/// internal options are not.
fn completions(shell: Shell) -> String {
    let plans: Vec<&str> = longhaul_lab::plan::SHIPPED.iter().map(|plan| plan.name).collect();
    let topologies: Vec<&str> = wan::shipped_names().collect();
    let mut command = Cli::command();
    let hidden = hidden_options(&command);
    command = command
        .mut_subcommand("matrix", |matrix| {
            matrix.mut_arg("plan", |plan| plan.value_parser(PossibleValuesParser::new(&plans)))
        })
        .mut_subcommand("wan", |wan| {
            wan.mut_subcommand("up", |up| {
                up.mut_arg("file", |file| file.value_parser(PossibleValuesParser::new(&topologies)))
            })
        });
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "longhaul", &mut script);
    let mut script = without(&String::from_utf8_lossy(&script), &hidden);
    if shell == Shell::Fish {
        // clap_complete offers no values of positional arguments in fish.
        let matrix = "__fish_longhaul_using_subcommand matrix";
        let up = "__fish_longhaul_using_subcommand wan; and __fish_seen_subcommand_from up";
        for (condition, names) in [(matrix, plans), (up, topologies)] {
            script +=
                &format!("complete -c longhaul -n \"{condition}\" -a \"{}\"\n", names.join(" "));
        }
    }
    script
}

/// Returns the long names of the options that no help shows, unless another command shows them.
fn hidden_options(command: &Command) -> Vec<String> {
    let (mut hidden, mut shown) = (Vec::new(), Vec::new());
    let mut commands = vec![command];
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands());
        for option in command.get_arguments() {
            let names = if option.is_hide_set() { &mut hidden } else { &mut shown };
            names.extend(option.get_long().map(str::to_owned));
        }
    }
    hidden.retain(|name| !shown.contains(name));
    hidden
}

/// Removes options from a completion script: lines and branches of one option, and words of lists.
fn without(script: &str, hidden: &[String]) -> String {
    let mut kept = String::with_capacity(script.len());
    // A branch of bash's `case` on the option before the present word.
    let mut in_branch = false;
    for line in script.lines() {
        let option = line.trim().strip_prefix("--").and_then(|line| line.strip_suffix(')'));
        in_branch |= option.is_some_and(|name| hidden.iter().any(|one| one == name));
        if in_branch {
            in_branch = line.trim() != ";;";
            continue;
        }
        if hidden.iter().any(|name| defines(line, name)) {
            continue;
        }
        let shown = if line.contains("opts=") {
            let is_shown = |word: &&str| {
                let name = word.strip_prefix("--");
                !name.is_some_and(|name| hidden.iter().any(|one| one == name))
            };
            let indent = line.len() - line.trim_start().len();
            let words: Vec<&str> = line.split_whitespace().filter(is_shown).collect();
            format!("{}{}", &line[..indent], words.join(" "))
        } else {
            hidden.iter().fold(line.to_owned(), |line, name| without_exclusion(&line, name))
        };
        kept.push_str(&shown);
        kept.push('\n');
    }
    kept
}

/// Returns whether a line of zsh or fish defines the option `name`.
fn defines(line: &str, name: &str) -> bool {
    let zsh = ["'--", ")--"].iter().any(|start| {
        let option = format!("{start}{name}");
        line.contains(&format!("{option}[")) || line.contains(&format!("{option}="))
    });
    zsh || line.split_whitespace().collect::<Vec<_>>().windows(2).any(|pair| pair == ["-l", name])
}

/// Removes an option from the list of options that zsh does not offer beside another one.
fn without_exclusion(line: &str, name: &str) -> String {
    line.replace(&format!("(--{name})"), "")
        .replace(&format!("(--{name} "), "(")
        .replace(&format!(" --{name})"), ")")
        .replace(&format!(" --{name} "), " ")
}
