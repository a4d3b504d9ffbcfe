//! `--include`, `--exclude` and their `-from` forms. Their order on the command line decides.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use longhaul_core::plan::filter::{FilterList, FilterRule};

use crate::exit::{self, Coded};

/// The largest list of names or rules: about ten million names.
const LIST_LIMIT_BYTES: u64 = 1 << 30;

/// The filter options in the order of the command line.
#[derive(Debug, Clone, Default)]
pub(super) struct FilterArgs {
    given: Vec<(Kind, OsString)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Include,
    Exclude,
    IncludeFrom,
    ExcludeFrom,
}

const OPTIONS: [(Kind, &str, &str, &str); 4] = [
    (Kind::Include, "include", "PATTERN", "Copy paths that match, regardless of later rules"),
    (Kind::Exclude, "exclude", "PATTERN", "Skip paths that match; patterns are those of rsync"),
    (
        Kind::IncludeFrom,
        "include-from",
        "FILE",
        "Read patterns to include, one per line; '-' is standard input",
    ),
    (
        Kind::ExcludeFrom,
        "exclude-from",
        "FILE",
        "Read patterns to exclude, one per line; '-' is standard input",
    ),
];

impl FilterArgs {
    /// Returns the number of options that read standard input.
    pub(super) fn stdin_readers(&self) -> usize {
        let from = |kind: &Kind| matches!(kind, Kind::IncludeFrom | Kind::ExcludeFrom);
        self.given.iter().filter(|(kind, value)| from(kind) && value == "-").count()
    }

    /// Returns the rules, and reads those in files.
    pub(super) fn rules(&self) -> Result<Vec<FilterRule>, Coded> {
        let mut list = FilterList::default();
        for (kind, value) in &self.given {
            let include = matches!(kind, Kind::Include | Kind::IncludeFrom);
            let added = match kind {
                Kind::Include | Kind::Exclude => list.add(value.as_bytes(), include),
                Kind::IncludeFrom | Kind::ExcludeFrom => {
                    list.add_lines(&read_list(Path::new(value))?, include)
                }
            };
            added
                .with_context(|| format!("'{}'", value.display()))
                .map_err(|error| Coded::new(exit::USAGE, error))?;
        }
        Ok(list.into_rules())
    }
}

/// Reads a file named on the command line; `-` is standard input.
pub(super) fn read_list(path: &Path) -> Result<Vec<u8>, Coded> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(LIST_LIMIT_BYTES).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(LIST_LIMIT_BYTES).read_to_end(&mut bytes))
    };
    match read {
        Ok(length) if length as u64 == LIST_LIMIT_BYTES => {
            Err(Coded::new(exit::USAGE, anyhow!("{}: more than 1 GiB of names", path.display())))
        }
        Ok(_) => Ok(bytes),
        Err(error) => {
            let error =
                anyhow::Error::from(error).context(format!("cannot read {}", path.display()));
            Err(Coded::new(exit::FILES, error))
        }
    }
}

impl clap::Args for FilterArgs {
    fn augment_args(command: Command) -> Command {
        OPTIONS.iter().fold(command, |command, (_, name, value, help)| {
            let arg = Arg::new(*name).long(*name).value_name(*value).help(*help);
            command.arg(arg.action(ArgAction::Append).value_parser(value_parser!(OsString)))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for FilterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut placed = Vec::new();
        for (kind, name, _, _) in OPTIONS {
            let values = matches.get_many::<OsString>(name).into_iter().flatten().cloned();
            let places = matches.indices_of(name).into_iter().flatten();
            placed.extend(places.zip(values).map(|(place, value)| (place, kind, value)));
        }
        placed.sort_by_key(|(place, ..)| *place);
        let given = placed.into_iter().map(|(_, kind, value)| (kind, value)).collect();
        Ok(FilterArgs { given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
