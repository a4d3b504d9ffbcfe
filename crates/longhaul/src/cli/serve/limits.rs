use std::time::Duration;

use longhaul_core::units::{Bytes, Rate, parse_span};
use longhaul_engine::flow::FlowLimits;
use longhaul_engine::serve::ClientLimits;

/// Clients and streams are counted from one.
fn at_least_one(text: &str) -> Result<usize, String> {
    let count: usize = text.parse().map_err(|_| format!("'{text}' is not a whole number"))?;
    if count > 0 { Ok(count) } else { Err("0 would serve nobody".to_owned()) }
}

/// What clients may take.
#[derive(Debug, clap::Args)]
pub(super) struct LimitArgs {
    /// Serve one client at a time; the others wait for their turn
    #[arg(long, conflicts_with = "max_clients")]
    exclusive: bool,
    /// Serve this many clients at once; the others wait for their turn
    #[arg(long, value_name = "COUNT", default_value = "64", value_parser = at_least_one)]
    max_clients: usize,
    /// Let this many clients wait, and turn the next ones away
    #[arg(long, value_name = "COUNT", default_value_t = 512)]
    queue: usize,
    /// Take this many clients of one address, waiting ones included [default: no limit]
    #[arg(long, value_name = "COUNT", value_parser = at_least_one)]
    max_per_address: Option<usize>,
    /// Longest test of a client whose key is not authorised
    #[arg(long, value_name = "SECS", value_parser = parse_span, default_value = "3700")]
    max_time: Duration,
    /// Fastest test of such a client, in each direction [default: no limit]
    #[arg(long, value_name = "RATE")]
    max_rate: Option<Rate>,
    /// Most streams of such a client
    #[arg(long, value_name = "COUNT", default_value = "128", value_parser = at_least_one)]
    max_streams: usize,
    /// Longest test of a client whose key is authorised
    #[arg(long, value_name = "SECS", value_parser = parse_span, default_value = "90000")]
    key_max_time: Duration,
    /// Fastest test of such a client, in each direction [default: no limit]
    #[arg(long, value_name = "RATE")]
    key_max_rate: Option<Rate>,
    /// Most streams of such a client
    #[arg(long, value_name = "COUNT", default_value = "128", value_parser = at_least_one)]
    key_max_streams: usize,
    /// Serve nobody but this user and the keys in ~/.config/longhaul/authorized_keys
    #[arg(long)]
    pub(super) keys_only: bool,
}

/// What a test may take, by who asks for it.
#[derive(Debug)]
pub(super) struct Tiers {
    anyone: FlowLimits,
    authorised: FlowLimits,
}

impl Tiers {
    /// The limits of a client whose key is, or is not, in the list.
    pub(super) fn of(&self, authorised: bool) -> &FlowLimits {
        if authorised { &self.authorised } else { &self.anyone }
    }
}

impl LimitArgs {
    pub(super) fn clients(&self) -> ClientLimits {
        ClientLimits {
            at_once: if self.exclusive { 1 } else { self.max_clients },
            waiting: self.queue,
            each_address: self.max_per_address.unwrap_or(usize::MAX),
        }
    }

    pub(super) fn tiers(&self) -> Tiers {
        let streams = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Tiers {
            anyone: FlowLimits {
                time: self.max_time,
                streams: streams(self.max_streams),
                rate: self.max_rate,
                ..FlowLimits::default()
            },
            authorised: FlowLimits {
                time: self.key_max_time,
                streams: streams(self.key_max_streams),
                rate: self.key_max_rate,
                // 128 streams of the longest writes.
                buffers: Bytes::mib(512),
                ..FlowLimits::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        limits: LimitArgs,
    }

    fn parse(line: &str) -> Result<LimitArgs, clap::Error> {
        let words = std::iter::once("serve").chain(line.split_whitespace());
        Program::try_parse_from(words).map(|program| program.limits)
    }

    #[test]
    fn by_default_many_are_served_and_keys_may_more() {
        let limits = parse("").unwrap();
        assert_eq!(limits.clients(), ClientLimits::default());
        let tiers = limits.tiers();
        assert_eq!(tiers.of(false), &FlowLimits::default());
        assert!(tiers.of(true).time > tiers.of(false).time);
    }

    #[test]
    fn each_limit_reaches_its_place() {
        let limits = parse(
            "--exclusive --queue 3 --max-per-address 2 --max-time 10 --max-rate 1G \
             --max-streams 4 --key-max-time 60 --key-max-rate 10G --key-max-streams 8",
        )
        .unwrap();
        let clients = ClientLimits { at_once: 1, waiting: 3, each_address: 2 };
        assert_eq!(limits.clients(), clients);
        let tiers = limits.tiers();
        let (anyone, key) = (tiers.of(false), tiers.of(true));
        assert_eq!((anyone.time, key.time), (Duration::from_secs(10), Duration::from_secs(60)));
        assert_eq!((anyone.streams, key.streams), (4, 8));
        assert_eq!(anyone.rate, Some(Rate::from_bps(1_000_000_000)));
        assert_eq!(key.rate, Some(Rate::from_bps(10_000_000_000)));
    }

    #[test]
    fn nobody_is_not_a_number_of_clients() {
        for line in ["--max-clients 0", "--max-per-address 0", "--exclusive --max-clients 2"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
