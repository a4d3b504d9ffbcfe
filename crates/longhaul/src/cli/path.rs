//! `longhaul path`: turns arguments into a plan, measures the path and prints the result.

mod part_file;
mod record;
mod stamp;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use longhaul_core::plan::{PathPart, PathPlan, ssh_destination};
use longhaul_core::result::{PathEnd, PathResult};
use longhaul_core::units::{Bytes, parse_span};
use longhaul_core::wire::{RefusalKind, Service};
use longhaul_engine::path::{self, ServerlessHost};
use longhaul_engine::session::{
    ConfigDir, ConnectOptions, Family, HostPolicy, HostPort, LocalAddress, Session,
};
use longhaul_engine::{EngineError, HandshakeRefusal};

use super::bind::BindArgs;
use super::queue::connect_in_turn;
use crate::exit::{self, Coded};
use crate::output::{
    after_printing, complete_path, failure_text, path_text, print_document, print_message,
    print_result,
};
use crate::passphrase;
use crate::remote::{SshOptions, SshServer, is_ssh_alias};
use crate::signals::Interrupt;

use self::stamp::StampArgs;
pub(super) use self::stamp::stamp_key;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "With 'longhaul serve' at HOST, or with longhaul started there by ssh, the \
                  measurement covers both directions. Without it, it covers the answers of the \
                  host and the routers: round-trip time, hops and the path MTU to HOST. The \
                  output lists the parts that were not measured. ICMP echo needs CAP_NET_RAW or \
                  net.ipv4.ping_group_range; the rest needs no privileges. Times are 10, 1.5s or \
                  200ms. Exit codes: 0 everything was measured, 2 invalid arguments, 3 nothing was \
                  measured, 4 refused, 5 the file of --stamp-key cannot be read, 6 ssh cannot be \
                  started or that file has no key, 7 some parts were measured, 130 interrupted by \
                  Ctrl-C."
)]
pub(super) struct Args {
    /// The host: HOST, HOST:PORT or [IPV6]:PORT, or USER@HOST to start longhaul there over ssh
    #[arg(value_name = "[USER@]HOST")]
    host: String,
    /// Port of 'longhaul serve', or any TCP port that accepts connections
    #[arg(short, long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Send loss probes for this long, in both directions at once [default: 5s; with --record 60s]
    #[arg(short, long, value_name = "SECS", value_parser = parse_span)]
    time: Option<Duration>,
    /// Interval between loss probes [default: 1ms, longer if that exceeds a tenth of the capacity;
    /// with --record 10ms]
    #[arg(short, long, value_name = "TIME", value_parser = parse_span)]
    interval: Option<Duration>,
    /// Size of a loss probe with its IP header [default: 128]
    #[arg(short, long, value_name = "BYTES")]
    length: Option<Bytes>,
    /// Number of round trips per packet size [default: 100]
    #[arg(short = 'c', long, value_name = "COUNT")]
    echoes: Option<u32>,
    /// Highest number of hops
    #[arg(long, value_name = "COUNT", default_value_t = 30)]
    max_hops: u8,
    /// Skip these parts
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    skip: Vec<PartArg>,
    /// Use only IPv4
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use only IPv6
    #[arg(short = '6', long)]
    ipv6: bool,
    #[command(flatten)]
    bind: BindArgs,
    /// Measure without the server, even if 'longhaul serve' runs at HOST
    #[arg(long, alias = "alone")]
    no_server: bool,
    /// Record the delay, loss, reordering and capacity over time in FILE, for 'longhaul wan run
    /// --replay FILE'
    #[arg(long, value_name = "FILE", conflicts_with = "stamp")]
    record: Option<PathBuf>,
    /// Time between estimates of the capacity, 30s to 4m; each pauses the recording for about ten
    /// seconds [default: 4m]
    #[arg(long, value_name = "TIME", value_parser = parse_span, requires = "record")]
    rate_every: Option<Duration>,
    /// Send the probes of the recording a whole number of intervals after this time of
    /// CLOCK_MONOTONIC, in nanoseconds
    #[arg(long, value_name = "NANOSECONDS", hide = true, requires = "record")]
    slots_from: Option<u64>,
    /// Print one JSON document, "longhaul.path/1"
    #[arg(long)]
    json: bool,
    /// Print no progress
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    stamp: StampArgs,
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

/// The connection to the host.
enum Peer {
    Server(Box<Session>, Option<SshServer>),
    /// No server takes part, with the reason.
    NoServer(SocketAddr, String),
}

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        if self.stamp.is_requested() {
            return stamp::run(&self);
        }
        if let Some(file) = &self.record {
            record::check(&self)?;
            return record::run(&self, file);
        }
        let plan = self.plan()?;
        let local = self.local()?;
        let local = local.as_ref();
        let interrupt = Interrupt::install().map_err(|e| Coded::new(exit::HOST, e))?;
        let note = |what: &str| {
            if !self.quiet && !self.json {
                print_message(format_args!("{what}"));
            }
        };
        let mut result = match self.peer(&interrupt)? {
            Peer::Server(session, ssh) => {
                let address = session.data_addresses().first().copied();
                let found = path::run(*session, &self.host, &plan, interrupt.flag(), note);
                ssh.into_iter().for_each(SshServer::finish);
                match (found, address) {
                    // The control channel is up, and datagrams do not pass.
                    (Err(error @ EngineError::DataConnect { .. }), Some(address)) => {
                        let why = failure_text(&error);
                        let host = ServerlessHost { address, name: &self.host, why: &why, local };
                        path::run_without_server(host, &plan, interrupt.flag(), note)?
                    }
                    (found, _) => found?,
                }
            }
            Peer::NoServer(address, why) => {
                let host = ServerlessHost { address, name: &self.host, why: &why, local };
                path::run_without_server(host, &plan, interrupt.flag(), note)?
            }
        };
        complete_path(&mut result);
        for warning in &result.warnings {
            print_message(format_args!("warning: {}: {}", warning.message, warning.advice));
        }
        let printed =
            if self.json { print_document(&result) } else { print_result(&path_text(&result)) };
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
        let defaults = PathPlan::new();
        let bytes = |length: Bytes| length.get().try_into().unwrap_or(u32::MAX);
        let plan = PathPlan {
            echoes: self.echoes.unwrap_or(defaults.echoes),
            probe_time: self.time(),
            probe_interval: self.interval,
            probe_bytes: self.length.map_or(defaults.probe_bytes, bytes),
            most_hops: self.max_hops,
            skip: self.skip.iter().map(part).collect(),
            ..defaults
        };
        plan.validate().map_err(|error| Coded::new(exit::USAGE, error))?;
        Ok(plan)
    }

    /// Returns the duration of the measurement of loss.
    fn time(&self) -> Duration {
        self.time.unwrap_or(PathPlan::new().probe_time)
    }

    fn family(&self) -> Family {
        match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (false, true) => Family::V6,
            (false, false) => Family::Any,
        }
    }

    /// Returns the local address of `--bind`.
    fn local(&self) -> Result<Option<LocalAddress>, Coded> {
        self.bind.checked(self.family())
    }

    /// Returns the first address of `target` in the family that the options allow.
    fn address_of(&self, target: &HostPort) -> Result<SocketAddr, Coded> {
        let family = self.family();
        let mut all = target.resolve()?;
        if let Some(local) = self.local()? {
            all = local.matching(&target.host, all)?;
        }
        let address = all.into_iter().find(|address| family.takes(address));
        address.ok_or_else(|| {
            let version = if self.ipv6 { "IPv6" } else { "IPv4" };
            let error = anyhow!("{} has no {version} address", target.host);
            Coded::new(exit::UNREACHABLE, error)
        })
    }

    /// Starts a server at `destination` over ssh.
    fn start_there(&self, destination: &str) -> Result<Peer, Coded> {
        let (far, session) = SshServer::start(destination, Service::Path, &self.ssh)?;
        let session = session.bound_to(self.local()?)?;
        Ok(Peer::Server(Box::new(session), Some(far)))
    }

    fn peer(&self, interrupt: &Interrupt) -> Result<Peer, Coded> {
        if self.host.contains('@') {
            let destination = ssh_destination(&self.host);
            return self.start_there(&destination.map_err(|e| Coded::new(exit::USAGE, e))?);
        }
        let mut target: HostPort = self.host.parse()?;
        target.port = self.port.unwrap_or(target.port);
        // Without an address there is no path to measure.
        let (family, address) = match self.address_of(&target) {
            Err(_) if is_ssh_alias(&target.host, &self.ssh) => {
                return self.start_there(&target.host);
            }
            address => (self.family(), address?),
        };
        if self.no_server {
            return Ok(Peer::NoServer(address, "excluded by --no-server".to_owned()));
        }
        let config = ConfigDir::of_user()?;
        let identity = passphrase::identity(&config)?;
        // Probes have no secrets, so an unknown server is accepted, but not a changed key.
        let policy = HostPolicy::RefuseChanged;
        let local = self.local()?;
        let (identity, config, local) = (&identity, &config, local.as_ref());
        let options = ConnectOptions { identity, config, policy, family, local };
        match connect_in_turn(&target, Service::Path, &options, interrupt.flag()) {
            Ok(session) => Ok(Peer::Server(Box::new(session), None)),
            Err(error) if is_no_help(&error) => {
                let why = failure_text(&error);
                Ok(Peer::NoServer(address, why))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// True if the host runs no server that can measure paths. A refusal by a server is an error.
fn is_no_help(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Connect { .. }
            | EngineError::Handshake { .. }
            | EngineError::HandshakeRefusal { reason: HandshakeRefusal::Closed, .. }
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
    fn invalid_arguments_are_a_usage_error() {
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
