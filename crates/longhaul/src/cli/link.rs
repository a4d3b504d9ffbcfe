//! The link options, the same for every command that emulates a link.
//!
//! The options are those of [`LINK_OPTIONS`], each also with `--up-` and `--down-` for one
//! direction. The plan parses and checks the values, so that topology files and changes of a
//! running link agree with the command line.

use std::io::{self, Read as _};

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use longhaul_core::plan::link::{LINK_OPTIONS, LinkOption};
use longhaul_core::plan::{LinkOptions, LinkPlan, LinkPlanError};

/// Options that describe an emulated link.
#[derive(Debug, Clone, Default)]
pub(crate) struct LinkArgs {
    options: LinkOptions,
}

impl LinkArgs {
    /// Returns the plan of the options, with the contents of the files that they name.
    pub(crate) fn plan(&self) -> Result<LinkPlan, LinkPlanError> {
        self.options.plan(&read_trace)
    }

    /// The options that were given.
    pub(crate) fn options(&self) -> &LinkOptions {
        &self.options
    }
}

/// Reads a file that a link option names.
pub(crate) fn read_trace(path: &str) -> io::Result<String> {
    /// Published traces have a few MiB. The limit stops a device without an end.
    const LARGEST: u64 = 64 << 20;
    let mut text = String::new();
    let read = std::fs::File::open(path)?.take(LARGEST + 1).read_to_string(&mut text)?;
    if read as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than 64 MiB"));
    }
    Ok(text)
}

/// The names of an option: for both directions and, if it has them, for each direction.
fn names(option: &LinkOption) -> impl Iterator<Item = String> {
    let prefixes: &[&str] = if option.per_direction { &["", "up-", "down-"] } else { &[""] };
    prefixes.iter().map(|prefix| format!("{prefix}{}", option.name))
}

impl Args for LinkArgs {
    fn augment_args(command: Command) -> Command {
        const HEADING: &str =
            "Link options (--up-... and --down-... set one direction: near to far, far to near)";
        command.args(LINK_OPTIONS.iter().flat_map(|option| {
            names(option).map(|name| {
                let general = name == option.name;
                // Clap needs names with a static lifetime; these few are leaked.
                let name: &'static str = name.leak();
                Arg::new(name)
                    .long(name)
                    .value_name(option.value)
                    .help(option.help)
                    .help_heading(HEADING)
                    // The heading describes the variants per direction.
                    .hide(!general)
            })
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LinkArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = LinkArgs::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for name in LINK_OPTIONS.iter().flat_map(names) {
            if let Some(value) = matches.get_one::<String>(&name) {
                self.options.set(&name, value).map_err(|error| {
                    clap::Error::raw(clap::error::ErrorKind::UnknownArgument, error)
                })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;
    use longhaul_core::units::Rate;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        link: LinkArgs,
    }

    fn plan(options: &str) -> Result<LinkPlan, String> {
        let line = Line::try_parse_from(format!("link {options}").split_whitespace())
            .map_err(|error| error.to_string())?;
        line.link.plan().map_err(|error| crate::output::failure_text(&error))
    }

    #[test]
    fn options_make_the_plan() {
        let ms = Duration::from_millis;
        let default = plan("").unwrap();
        assert_eq!(default, LinkPlan::symmetric(Duration::ZERO));
        assert_eq!(plan("--rtt 90ms").unwrap(), LinkPlan::symmetric(ms(90)));
        assert_eq!(plan("--delay 45ms").unwrap(), LinkPlan::symmetric(ms(90)));
        let uneven = plan("--rtt 90ms --down-delay 5ms --rate 1G --up-rate 10M --mtu 1500");
        let uneven = uneven.unwrap();
        assert_eq!((uneven.up.delay, uneven.down.delay), (ms(45), ms(5)));
        assert_eq!(uneven.up.rate_bps, Some(Rate::from_bps(10_000_000)));
        assert_eq!(uneven.down.rate_bps, Some(Rate::from_bps(1_000_000_000)));
        assert_eq!(uneven.mtu, 1500);
    }

    #[test]
    fn an_invalid_value_is_named_in_the_error() {
        for (options, expected) in [
            ("--loss 2", "--loss cannot be '2': a probability is from 0 to 1"),
            ("--up-jitter 1ms:gauss", "--up-jitter cannot be '1ms:gauss'"),
            ("--preset moon", "a preset is lan, man"),
            ("--rtt 90 parsecs", "unexpected argument"),
            ("--rtt 90", "--rtt 90 has no unit: did you mean 90ms?"),
            ("--up-delay 1.5", "did you mean 1.5ms?"),
            ("--rtt 90parsecs", "--rtt cannot be '90parsecs'"),
            ("--rtt 1ms --delay 1ms", "--rtt and --delay contradict each other"),
            ("--rate 0", "a rate of 0.00 b/s is below"),
            ("--mtu 10", "an MTU of 10 is outside"),
            (
                "--loss-trace /nowhere/at/all",
                "--loss-trace /nowhere/at/all: the file cannot be read",
            ),
            ("--down-gravity 1", "unexpected argument"),
        ] {
            let error = plan(options).unwrap_err();
            assert!(error.contains(expected), "{options}: {error}");
            assert!(error.matches("cannot be read").count() <= 1, "{error}");
        }
    }
}
