//! The link options, the same for every command that emulates a link.
//!
//! The options are those of [`LINK_OPTIONS`], each also with `--up-` and `--down-` for one
//! direction. The plan parses and checks the values, so that topology files and changes of a
//! running link agree with the command line.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
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
        self.options.plan(&open_trace)
    }

    /// Returns the options on the command line.
    pub(crate) fn options(&self) -> &LinkOptions {
        &self.options
    }
}

/// Opens a file that a link option names.
pub(crate) fn open_trace(path: &str) -> io::Result<Box<dyn io::Read>> {
    Ok(Box::new(std::fs::File::open(path)?))
}

/// Reads a file of bounded length.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    /// The limit stops a device without an end.
    const LARGEST: u64 = 64 << 20;
    let mut text = String::new();
    let read = std::fs::File::open(path)?.take(LARGEST + 1).read_to_string(&mut text)?;
    if read as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than 64 MiB"));
    }
    Ok(text)
}

/// Returns the names of an option: for both directions and, if it has them, for each direction.
fn names(option: &LinkOption) -> impl Iterator<Item = String> {
    let prefixes: &[&str] = if option.per_direction { &["", "up-", "down-"] } else { &[""] };
    prefixes.iter().map(|prefix| format!("{prefix}{}", option.name))
}

impl Args for LinkArgs {
    fn augment_args(command: Command) -> Command {
        const HEADING: &str = "Link options (--up- and --down- set one direction)";
        command.args(LINK_OPTIONS.iter().flat_map(|option| {
            names(option).map(|name| {
                let general = name == option.name;
                // Clap needs names with a static lifetime; these few are leaked.
                let name: &'static str = name.leak();
                Arg::new(name)
                    .long(name)
                    // The options of classes repeat those of the link.
                    .action(ArgAction::Append)
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
        let mut given = Vec::new();
        for name in LINK_OPTIONS.iter().flat_map(names) {
            let values = matches.get_many::<String>(&name).into_iter().flatten();
            let places = matches.indices_of(&name).into_iter().flatten();
            given.extend(places.zip(values).map(|(place, value)| (place, name.clone(), value)));
        }
        given.sort();
        let mut set = |name: &str, value: &str| {
            self.options
                .set(name, value)
                .map_err(|error| clap::Error::raw(ErrorKind::UnknownArgument, error))
        };
        let mut classes = Classes::default();
        let mut own = BTreeSet::new();
        for (_, name, value) in &given {
            let section = classes.take(name, value);
            if !own.insert((section, name)) && !is_class(name) {
                let text = format!("--{name} cannot be used several times for the same traffic\n");
                return Err(clap::Error::raw(ErrorKind::ArgumentConflict, text));
            }
            if section == 0 {
                set(name, value)?;
            }
        }
        classes.texts.iter().try_for_each(|(name, text)| set(name, text))
    }
}

fn is_class(name: &str) -> bool {
    matches!(name, "class" | "up-class" | "down-class")
}

/// The classes of a command line: the options after `--class MATCH` belong to the class.
#[derive(Debug, Default)]
struct Classes {
    /// The values of the options `class`, `up-class` and `down-class`.
    texts: BTreeMap<String, String>,
    /// The name of the last class option, and the number of classes.
    last: Option<String>,
    count: usize,
}

impl Classes {
    /// Adds an option of the command line, and returns the number of its class; 0 for an option of
    /// the link.
    fn take(&mut self, name: &str, value: &str) -> usize {
        if is_class(name) {
            let text = self.texts.entry(name.to_owned()).or_default();
            if !text.is_empty() {
                text.push_str(" | ");
            }
            text.push_str(value.trim());
            (self.last, self.count) = (Some(name.to_owned()), self.count + 1);
            return self.count;
        }
        let of_link = matches!(name, "mtu" | "queues" | "seed") || name.starts_with("up-");
        let Some(class) = self.last.as_ref().filter(|_| !of_link && !name.starts_with("down-"))
        else {
            return 0;
        };
        if let Some(text) = self.texts.get_mut(class) {
            // The match ends with a colon; options are separated by semicolons.
            let has_options = text.rsplit(" | ").next().is_some_and(|own| own.contains(": "));
            text.push_str(if has_options { "; " } else { ": " });
            text.push_str(&format!("{name} {value}"));
        }
        self.count
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
    fn options_after_a_class_belong_to_it() {
        let words = [
            "link",
            "--rtt",
            "90ms",
            "--class",
            "dscp 46",
            "--delay",
            "5ms",
            "--loss=0.1",
            "--class",
            "udp port 9",
            "--rate",
            "1M",
            "--mtu",
            "1500",
            "--down-class",
            "tcp",
            "--delay",
            "1ms",
        ];
        let plan = Line::try_parse_from(words).unwrap().link.plan().unwrap();
        let ms = Duration::from_millis;
        let delays = |link: &longhaul_core::plan::LinkDirection| {
            link.classes.iter().map(|class| class.link.delay).collect::<Vec<_>>()
        };
        assert_eq!((plan.up.delay, plan.mtu), (ms(45), 1500));
        assert_eq!(delays(&plan.up), [ms(5), ms(45)]);
        assert_eq!(delays(&plan.down), [ms(1)], "that of one direction replaces those of both");
        assert!(plan.up.rate_bps.is_none() && plan.up.classes[1].has_own_queue());
        for options in ["--rtt 1ms --rtt 2ms", "--class tcp --loss 1 --loss 0"] {
            assert!(self::plan(options).unwrap_err().contains("several times"), "{options}");
        }
        assert!(self::plan("--class vlan").unwrap_err().contains("--class cannot be 'vlan'"));
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
            ("--replay /nowhere/at/all", "--replay /nowhere/at/all: the file cannot be read"),
            ("--replay /dev/null", "--replay /dev/null: the file has no entries"),
            ("--replay /dev/null --rtt 1ms", "contradict each other"),
            ("--down-gravity 1", "unexpected argument"),
        ] {
            let error = plan(options).unwrap_err();
            assert!(error.contains(expected), "{options}: {error}");
            assert!(error.matches("cannot be read").count() <= 1, "{error}");
        }
    }
}
