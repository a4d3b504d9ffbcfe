//! `longhaul path`: what is asked of a path, the measurement, its output.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::anyhow;
use longhaul_core::plan::{PathPart, PathPlan};
use longhaul_core::result::{PathEnd, PathResult};
use longhaul_core::units::{Bytes, parse_span};
use longhaul_core::wire::{RefusalKind, Service};
use longhaul_engine::path;
use longhaul_engine::session::{ConfigDir, ConnectOptions, Family, HostPolicy, HostPort, Session};
use longhaul_engine::{EngineError, TurnedAway};

use super::queue::connect_in_turn;
use crate::exit::{self, Coded};
use crate::interrupt::Interrupt;
use crate::output::{after_printing, answer, document, path_text, say};
use crate::passphrase;
use crate::remote::{SshFar, SshOptions};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Where 'longhaul serve' runs at HOST, or ssh starts it, both directions are \
                  measured, and all of it. Elsewhere what the host and the routers say by \
                  themselves is shown: round trip, hops and path MTU on the way there; what could \
                  not be measured is named. ICMP echo needs a right (CAP_NET_RAW, or \
                  net.ipv4.ping_group_range); the rest needs none. Times are 10, 1.5s or 200ms. \
                  Exit codes: 0 all that was asked for was measured, 2 bad arguments, 3 nothing \
                  could be measured, 4 refused, 6 ssh cannot be started, 7 a part of it was \
                  measured, 130 stopped by Ctrl-C."
)]
pub(super) struct Args {
    /// The other end: HOST, HOST:PORT or [IPV6]:PORT; or USER@HOST, where ssh starts longhaul
    #[arg(value_name = "[USER@]HOST")]
    host: String,
    /// Its port: that of 'longhaul serve', or any other that takes connections
    #[arg(short, long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Look for loss this long, in both directions at once
    #[arg(short, long, value_name = "SECS", value_parser = parse_span, default_value = "5")]
    time: Duration,
    /// Send a probe for loss this often [default: 1ms, or what takes a tenth of the path]
    #[arg(short, long, value_name = "TIME", value_parser = parse_span)]
    interval: Option<Duration>,
    /// The whole packet of a probe for loss, with its IP header
    #[arg(short, long, value_name = "BYTES", default_value = "128")]
    length: Bytes,
    /// Measure so many round trips of each size
    #[arg(short = 'c', long, value_name = "COUNT", default_value_t = 100)]
    echoes: u32,
    /// Look for so many hops
    #[arg(long, value_name = "COUNT", default_value_t = 30)]
    max_hops: u8,
    /// Leave these parts out
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    skip: Vec<PartArg>,
    /// IPv4 alone
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// IPv6 alone
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Ask nobody at HOST for help, even if 'longhaul serve' runs there
    #[arg(long)]
    alone: bool,
    /// Print one JSON document, "longhaul.path/1"
    #[arg(long)]
    json: bool,
    /// Say nothing of what is being measured
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    ssh: SshOptions,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum PartArg {
    Rtt,
    Hops,
    Mtu,
    Loss,
    Capacity,
}

/// How the far end is reached.
enum Far {
    Served(Box<Session>, Option<SshFar>),
    /// Nobody helps there, and why.
    Alone(SocketAddr, String),
}

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let plan = self.plan()?;
        let interrupt = Interrupt::install().map_err(|e| Coded::new(exit::HOST, e))?;
        let note = |what: &str| {
            if !self.quiet && !self.json {
                say(format_args!("{what}"));
            }
        };
        let result = match self.far(&interrupt)? {
            Far::Served(session, ssh) => {
                let address = session.data_addresses().first().copied();
                let found = path::run(*session, &self.host, &plan, interrupt.flag(), note);
                ssh.into_iter().for_each(SshFar::finish);
                match (found, address) {
                    // The control channel is up, and datagrams do not pass.
                    (Err(error @ EngineError::DataConnect { .. }), Some(address)) => {
                        let why = format!("{:#}", anyhow::Error::from(error));
                        path::run_without_server(
                            address,
                            &self.host,
                            &why,
                            &plan,
                            interrupt.flag(),
                            note,
                        )?
                    }
                    (found, _) => found?,
                }
            }
            Far::Alone(address, why) => {
                path::run_without_server(address, &self.host, &why, &plan, interrupt.flag(), note)?
            }
        };
        for warning in &result.warnings {
            say(format_args!("warning: {}: {}", warning.message, warning.advice));
        }
        let printed = if self.json { document(&result) } else { answer(&path_text(&result)) };
        after_printing(code(&result, &interrupt)?, printed)
    }

    fn plan(&self) -> Result<PathPlan, Coded> {
        let part = |part: &PartArg| match part {
            PartArg::Rtt => PathPart::Rtt,
            PartArg::Hops => PathPart::Hops,
            PartArg::Mtu => PathPart::Mtu,
            PartArg::Loss => PathPart::Loss,
            PartArg::Capacity => PathPart::Capacity,
        };
        let plan = PathPlan {
            echoes: self.echoes,
            probe_time: self.time,
            probe_interval: self.interval,
            probe_bytes: self.length.get().try_into().unwrap_or(u32::MAX),
            most_hops: self.max_hops,
            skip: self.skip.iter().map(part).collect(),
            ..PathPlan::new()
        };
        plan.validate().map_err(|error| Coded::new(exit::USAGE, error))?;
        Ok(plan)
    }

    fn far(&self, interrupt: &Interrupt) -> Result<Far, Coded> {
        if self.host.contains('@') {
            let (far, session) = SshFar::start(&self.host, Service::Path, &self.ssh)?;
            return Ok(Far::Served(Box::new(session), Some(far)));
        }
        let mut target: HostPort = self.host.parse()?;
        target.port = self.port.unwrap_or(target.port);
        let family = match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (false, true) => Family::V6,
            (false, false) => Family::Any,
        };
        // A name that nobody knows is no path.
        let address = target.resolve()?.into_iter().find(|address| family.takes(address));
        let address = address.ok_or_else(|| {
            let error = anyhow!("{} has no address of the family asked for", target.host);
            Coded::new(exit::UNREACHABLE, error)
        })?;
        if self.alone {
            return Ok(Far::Alone(address, "it was not asked (--alone)".to_owned()));
        }
        let config = ConfigDir::of_user()?;
        let identity = passphrase::identity(&config)?;
        // Nothing secret is sent, so an unknown server will do; a changed key will not.
        let policy = HostPolicy::RefuseChanged;
        let options = ConnectOptions { identity: &identity, config: &config, policy, family };
        match connect_in_turn(&target, Service::Path, &options, interrupt.flag()) {
            Ok(session) => Ok(Far::Served(Box::new(session), None)),
            Err(error) if is_no_help(&error) => {
                let why = format!("{:#}", anyhow::Error::from(error));
                Ok(Far::Alone(address, why))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether there is nobody at the far end that could help: no longhaul, or one that does not know
/// measurements. One that turns this client away is to be heard.
fn is_no_help(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Connect { .. }
            | EngineError::Handshake { .. }
            | EngineError::TurnedAway { reason: TurnedAway::Closed, .. }
            | EngineError::Control { .. }
            | EngineError::Refused { kind: RefusalKind::Version | RefusalKind::Invalid, .. }
    )
}

fn code(result: &PathResult, interrupt: &Interrupt) -> Result<u8, Coded> {
    if result.end == PathEnd::Interrupted {
        return Ok(interrupt.exit_code().unwrap_or(exit::OK));
    }
    Ok(match (result.is_empty(), result.is_complete()) {
        (true, _) => exit::UNREACHABLE,
        (false, true) => exit::OK,
        (false, false) => exit::PARTIAL,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        args: Args,
    }

    fn plan(line: &str) -> Result<PathPlan, Coded> {
        let words = std::iter::once("path").chain(line.split_whitespace());
        Program::try_parse_from(words).expect("clap takes it").args.plan()
    }

    #[test]
    fn options_reach_the_plan() {
        assert_eq!(plan("far").unwrap(), PathPlan::new());
        let found = plan("far -t 20 -i 10us -l 1500 -c 7 --max-hops 3 --skip hops,capacity");
        let expected = PathPlan {
            echoes: 7,
            probe_time: Duration::from_secs(20),
            probe_interval: Some(Duration::from_micros(10)),
            probe_bytes: 1500,
            most_hops: 3,
            skip: vec![PathPart::Hops, PathPart::Capacity],
            ..PathPlan::new()
        };
        assert_eq!(found.unwrap(), expected);
    }

    #[test]
    fn nonsense_is_a_usage_error() {
        for line in
            ["far -c 0", "far -l 20", "far -l 1G", "far -i 1ns", "far -t 0", "far --max-hops 0"]
        {
            assert_eq!(plan(line).unwrap_err().code, exit::USAGE, "{line}");
        }
        for line in ["", "far -4 -6", "far --skip all", "far -t never"] {
            let words = std::iter::once("path").chain(line.split_whitespace());
            assert!(Program::try_parse_from(words).is_err(), "{line}");
        }
    }
}
