//! The options that limit the clients of a server.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate, parse_span};
use longhaul_engine::SessionPool;
use longhaul_engine::serve::{ClientLimits, StartupLimits};
use longhaul_engine::test::TestLimits;

/// Parses a number of clients or streams, which is at least one.
fn at_least_one(text: &str) -> Result<usize, String> {
    let count: usize = text.parse().map_err(|_| format!("'{text}' is not a whole number"))?;
    if count > 0 { Ok(count) } else { Err("must be at least 1".to_owned()) }
}

/// Parses `START:RATE:FULL`, the form of sshd's `MaxStartups`.
fn startups(text: &str) -> Result<StartupLimits, String> {
    let wrong = || format!("'{text}' is not START:RATE:FULL, such as 512:30:1024");
    let numbers: Vec<usize> =
        text.split(':').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
    let [start, percent, full] = numbers[..] else { return Err(wrong()) };
    if percent > 100 {
        return Err(format!("a rate of {percent} % is over 100 %"));
    }
    if start == 0 || start > full {
        return Err(format!("START must be from 1 to FULL ({full}), not {start}"));
    }
    Ok(StartupLimits { start, percent: percent as u8, full, ..StartupLimits::default() })
}

/// The limits on clients.
#[derive(Debug, clap::Args)]
pub(super) struct LimitArgs {
    /// Serve one client at a time; the others wait in a queue
    #[arg(long, conflicts_with = "max_clients")]
    exclusive: bool,
    /// Serve at most this many clients at once; the others wait in a queue
    #[arg(long, value_name = "COUNT", default_value = "64", value_parser = at_least_one)]
    max_clients: usize,
    /// Serve at most this many clients without an authorized key at once, and half of them per
    /// address [default: a quarter of --max-clients]
    #[arg(long, value_name = "COUNT", value_parser = at_least_one)]
    max_anonymous: Option<usize>,
    /// Length of the two queues, for clients with and without an authorized key; further clients
    /// are refused
    #[arg(long, value_name = "COUNT", default_value_t = 512)]
    queue: usize,
    /// Accept at most this many clients per address, including waiting ones [default: no limit for
    /// authorized keys, 32 for others]
    #[arg(long, value_name = "COUNT", value_parser = at_least_one)]
    max_per_address: Option<usize>,
    /// Memory for the buffers of all clients without an authorized key together
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    anonymous_memory: Bytes,
    /// Use at most this memory for the buffers of all tests of authorized keys
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    key_memory: Bytes,
    /// Limit unauthenticated connections: from START on, drop one per new connection with a
    /// probability of RATE %, which rises to 100 % at FULL (like MaxStartups of sshd)
    #[arg(long, value_name = "START:RATE:FULL", value_parser = startups, default_value = "512:30:1024")]
    max_startups: StartupLimits,
    /// Accept at most this many unauthenticated connections per address other than loopback
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value = "512")]
    max_startups_per_address: usize,
    /// Do not refuse addresses after repeated failures
    #[arg(long)]
    no_penalties: bool,
    /// Longest test of a client without an authorized key
    #[arg(long, value_name = "SECS", value_parser = parse_span, default_value = "3700")]
    max_time: Duration,
    /// Highest rate per direction of a client without an authorized key [default: no limit]
    #[arg(long, value_name = "RATE")]
    max_rate: Option<Rate>,
    /// Most streams of a client without an authorized key
    #[arg(long, value_name = "COUNT", default_value = "128", value_parser = at_least_one)]
    max_streams: usize,
    /// Longest test of a client with an authorized key
    #[arg(long, value_name = "SECS", value_parser = parse_span, default_value = "90000")]
    key_max_time: Duration,
    /// Highest rate per direction of a client with an authorized key [default: no limit]
    #[arg(long, value_name = "RATE")]
    key_max_rate: Option<Rate>,
    /// Most streams of a client with an authorized key
    #[arg(long, value_name = "COUNT", default_value = "128", value_parser = at_least_one)]
    key_max_streams: usize,
    /// Serve only this user and the keys in ~/.config/longhaul/authorized_keys
    #[arg(long)]
    pub(super) keys_only: bool,
}

/// The limits of tests, per class of clients.
#[derive(Debug)]
pub(super) struct Tiers {
    anyone: TestLimits,
    authorized: TestLimits,
}

impl Tiers {
    /// Returns the limits of a client with or without an authorized key.
    pub(super) fn of(&self, authorized: bool) -> &TestLimits {
        if authorized { &self.authorized } else { &self.anyone }
    }
}

impl LimitArgs {
    /// Returns the limits on clients. The [tiers](Self::tiers) share the pool.
    pub(super) fn clients(&self, pool: &SessionPool) -> ClientLimits {
        let defaults = ClientLimits::default();
        let at_once = self.at_once();
        ClientLimits {
            one_off: false,
            at_once,
            anonymous: self.anonymous(),
            waiting: self.queue,
            each_address: self.max_per_address.unwrap_or(defaults.each_address),
            anonymous_each_address: self.max_per_address.unwrap_or(defaults.anonymous_each_address),
            startups: StartupLimits {
                each_address: self.max_startups_per_address,
                ..self.max_startups
            },
            penalties: !self.no_penalties,
            pool: pool.clone(),
        }
    }

    fn at_once(&self) -> usize {
        if self.exclusive { 1 } else { self.max_clients }
    }

    fn anonymous(&self) -> usize {
        let at_once = self.at_once();
        self.max_anonymous.unwrap_or(at_once.div_ceil(4)).min(at_once)
    }

    /// Returns the resources that all clients without an authorized key share.
    pub(super) fn pool(&self) -> SessionPool {
        SessionPool::new(self.anonymous_memory, self.anonymous())
    }

    pub(super) fn tiers(&self, pool: &SessionPool) -> Tiers {
        let streams = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Tiers {
            anyone: TestLimits {
                time: self.max_time,
                streams: streams(self.max_streams),
                rate: self.max_rate,
                pool: Some(pool.clone()),
                ..TestLimits::default()
            },
            authorized: TestLimits {
                time: self.key_max_time,
                streams: streams(self.key_max_streams),
                rate: self.key_max_rate,
                // 128 streams of the longest writes.
                buffers: Bytes::mib(512),
                pool: Some(SessionPool::new(self.key_memory, self.at_once())),
                ..TestLimits::default()
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
    fn defaults_serve_many_clients_and_favor_keys() {
        let limits = parse("").unwrap();
        let pool = limits.pool();
        assert_eq!(pool, SessionPool::default());
        assert_eq!(limits.clients(&pool), ClientLimits::default());
        let tiers = limits.tiers(&pool);
        let anyone = TestLimits { pool: Some(pool), ..TestLimits::default() };
        assert_eq!(tiers.of(false), &anyone);
        assert_eq!(tiers.of(true).pool, Some(SessionPool::new(Bytes::gib(1), 64)));
        assert!(tiers.of(true).time > tiers.of(false).time);
    }

    #[test]
    fn each_flag_sets_its_limit() {
        let limits = parse(
            "--exclusive --queue 3 --max-per-address 2 --max-time 10 --max-rate 1G \
             --max-streams 4 --key-max-time 60 --key-max-rate 10G --key-max-streams 8",
        )
        .unwrap();
        let pool = limits.pool();
        let clients = limits.clients(&pool);
        assert_eq!((clients.at_once, clients.anonymous, clients.waiting), (1, 1, 3));
        assert_eq!((clients.each_address, clients.anonymous_each_address), (2, 2));
        let tiers = limits.tiers(&pool);
        let (anyone, key) = (tiers.of(false), tiers.of(true));
        assert_eq!((anyone.time, key.time), (Duration::from_secs(10), Duration::from_secs(60)));
        assert_eq!((anyone.streams, key.streams), (4, 8));
        assert_eq!(anyone.rate, Some(Rate::from_bps(1_000_000_000)));
        assert_eq!(key.rate, Some(Rate::from_bps(10_000_000_000)));
    }

    #[test]
    fn connection_flags_set_their_limits() {
        let limits = parse(
            "--max-clients 8 --max-anonymous 3 --anonymous-memory 64MiB --max-startups 10:20:30 \
             --max-startups-per-address 5 --no-penalties",
        )
        .unwrap();
        let pool = limits.pool();
        assert_eq!(pool, SessionPool::new(Bytes::mib(64), 3));
        let clients = limits.clients(&pool);
        assert_eq!((clients.at_once, clients.anonymous, clients.penalties), (8, 3, false));
        let startups = StartupLimits { start: 10, percent: 20, full: 30, each_address: 5 };
        assert_eq!(clients.startups, startups);
        let quarter = parse("--max-clients 10").unwrap();
        assert_eq!(quarter.clients(&quarter.pool()).anonymous, 3);
        for wrong in ["10", "10:20", "a:b:c", "10:101:20", "20:10:10", "0:10:10"] {
            assert!(parse(&format!("--max-startups {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn zero_clients_are_an_error() {
        for line in [
            "--max-clients 0",
            "--max-anonymous 0",
            "--max-per-address 0",
            "--exclusive --max-clients 2",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
