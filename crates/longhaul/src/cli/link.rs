//! The link options, the same for every command that emulates a link.

use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use longhaul_core::plan::{LinkDirection, LinkPlan, LinkPlanError};
use longhaul_core::units::{Rate, parse_span};

/// Options that describe an emulated link.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Link options")]
pub(crate) struct LinkArgs {
    /// Round-trip time, split evenly between the directions
    #[arg(long, value_name = "TIME", value_parser = parse_span, conflicts_with = "delay")]
    rtt: Option<Duration>,
    /// One-way delay, of each direction
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    delay: Option<Duration>,
    /// Rate of each direction, such as 10G (bit/s); without it, as fast as this machine forwards
    #[arg(long)]
    rate: Option<Rate>,
    /// Largest IP packet, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = LinkPlan::DEFAULT_MTU)]
    mtu: u32,
    /// One-way delay from near to far
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    up_delay: Option<Duration>,
    /// One-way delay from far to near
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    down_delay: Option<Duration>,
    /// Rate from near to far
    #[arg(long, value_name = "RATE")]
    up_rate: Option<Rate>,
    /// Rate from far to near
    #[arg(long, value_name = "RATE")]
    down_rate: Option<Rate>,
    #[command(flatten)]
    refused: RefusedOptions,
}

impl LinkArgs {
    /// The plan that the options describe.
    pub(crate) fn plan(&self) -> Result<LinkPlan, LinkPlanError> {
        let delay = self.delay.or(self.rtt.map(|rtt| rtt / 2)).unwrap_or_default();
        let direction = |own_delay: Option<Duration>, own_rate: Option<Rate>| LinkDirection {
            delay: own_delay.unwrap_or(delay),
            rate_bps: own_rate.or(self.rate),
        };
        let plan = LinkPlan {
            up: direction(self.up_delay, self.up_rate),
            down: direction(self.down_delay, self.down_rate),
            mtu: self.mtu,
        };
        plan.validate()?;
        Ok(plan)
    }
}

/// Link options that are promised and not built: refused by name, so that no figure is taken over
/// a link that silently lacks what was asked for. Each for both directions and for either.
const REFUSED: [[&str; 3]; 11] = [
    ["loss", "up-loss", "down-loss"],
    ["loss-burst", "up-loss-burst", "down-loss-burst"],
    ["corrupt", "up-corrupt", "down-corrupt"],
    ["corrupt-silent", "up-corrupt-silent", "down-corrupt-silent"],
    ["duplicate", "up-duplicate", "down-duplicate"],
    ["reorder", "up-reorder", "down-reorder"],
    ["jitter", "up-jitter", "down-jitter"],
    ["queue", "up-queue", "down-queue"],
    ["seed", "up-seed", "down-seed"],
    ["distance", "up-distance", "down-distance"],
    ["preset", "up-preset", "down-preset"],
];

/// Takes the options of [`REFUSED`] only to refuse them.
#[derive(Debug, Clone)]
struct RefusedOptions;

impl Args for RefusedOptions {
    fn augment_args(command: Command) -> Command {
        command.args(REFUSED.as_flattened().iter().map(|name| {
            Arg::new(*name).long(*name).num_args(0..=1).allow_hyphen_values(true).hide(true)
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for RefusedOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        match REFUSED.as_flattened().iter().find(|name| matches.value_source(name).is_some()) {
            None => Ok(RefusedOptions),
            Some(name) => Err(clap::Error::raw(
                ErrorKind::InvalidValue,
                format!(
                    "--{name} is not built yet; a link of this version has a delay, a rate and \
                     an MTU\n"
                ),
            )),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        Self::from_arg_matches(matches).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        link: LinkArgs,
    }

    fn plan(options: &str) -> Result<LinkPlan, String> {
        let line = Line::try_parse_from(format!("link {options}").split_whitespace())
            .map_err(|error| error.to_string())?;
        line.link.plan().map_err(|error| error.to_string())
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
    fn nonsense_is_refused_by_name() {
        for (options, says) in [
            ("--loss 1e-4", "--loss is not built yet"),
            ("--up-jitter 1ms:normal", "--up-jitter is not built yet"),
            ("--preset lan", "--preset is not built yet"),
            ("--rtt 90 parsecs", "unexpected argument"),
            ("--rtt 90parsecs", "unknown unit 'parsecs'"),
            ("--rtt 1ms --delay 1ms", "cannot be used with"),
            ("--rate 0", "a rate of 0.00 b/s is below"),
            ("--mtu 10", "an MTU of 10 is outside"),
        ] {
            let error = plan(options).unwrap_err();
            assert!(error.contains(says), "{options}: {error}");
        }
    }
}
