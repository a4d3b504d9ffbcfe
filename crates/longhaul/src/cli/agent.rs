//! `longhaul agent`: the agent of a fleet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use longhaul_agent::{AgentOptions, AllowedPeers, CheckResult, DEFAULT_STATE_DIR, HubUrl, Notice};
use longhaul_fleet::protocol::EnrollToken;

use crate::exit::{self, Coded};
use crate::output::{agent_checks, agent_notice, print_document, print_message, print_result};
use crate::process;
use crate::signals::Interrupt;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "An administrator of the hub creates the token with 'longhaul fleet token HOST'. \
                  The first start uses up the token; later starts need neither --hub nor --token. \
                  Exit codes: 0 all checks passed, 2 invalid arguments, 3 hub unreachable at the \
                  first start, 4 refused by the hub, 6 an error of this host, 9 a check failed, 130 \
                  interrupted by Ctrl-C, 143 ended by SIGTERM."
)]
pub(super) struct Args {
    /// Address of the hub: https://HOST or https://HOST:PORT
    #[arg(long, value_name = "URL", env = "LONGHAUL_AGENT_HUB")]
    hub: Option<HubUrl>,
    /// One-time token of this host
    #[arg(long, env = "LONGHAUL_AGENT_TOKEN", hide_env_values = true, allow_hyphen_values = true)]
    token: Option<EnrollToken>,
    /// Verify the hub with the certificates in this file (PEM) instead of the token's pin
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Name of this host in the mesh [default: its host name]
    #[arg(long)]
    name: Option<String>,
    /// Directory of the key and the journal
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE_DIR)]
    state: PathBuf,
    /// UDP port of the STAMP reflector; 0 disables it
    #[arg(long, value_name = "PORT", default_value_t = 8620)]
    stamp_port: u16,
    /// Test only these addresses and networks, separated by commas; ! excludes one [default: all
    /// except loopback, link-local, multicast and reserved addresses]
    #[arg(long, value_name = "NETWORKS", value_parser = parse_allowed)]
    allow: Option<AllowedPeers>,
    /// Do not report the TCP connections of this host to the hub
    #[arg(long)]
    no_flows: bool,
    /// Check this agent and its connection to the hub, and exit
    #[arg(long)]
    check: bool,
    /// With --check: print one JSON document, "longhaul.agent-check/1"
    #[arg(long, requires = "check")]
    json: bool,
}

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let (check, json) = (self.check, self.json);
        let options = self.options()?;
        if check {
            return print_checks(&options, json);
        }
        let interrupt = Interrupt::install().map_err(|error| Coded::new(exit::HOST, error))?;
        longhaul_agent::run(&options, interrupt.flag(), &|notice| {
            if matches!(notice, Notice::Started { .. }) {
                process::notify("READY=1");
            }
            print_message(agent_notice(&notice));
        })?;
        process::notify("STOPPING=1");
        Ok(interrupt.exit_code().unwrap_or(exit::OK))
    }

    fn options(self) -> Result<AgentOptions, Coded> {
        if self.hub.is_none() && self.token.is_some() {
            let error = anyhow!("--token needs the address of the hub: add --hub https://HOST");
            return Err(Coded::new(exit::USAGE, error));
        }
        let program = std::env::current_exe().context("cannot find this program");
        let program = program.map_err(|error| Coded::new(exit::HOST, error))?;
        let any: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
        let reflectors = match self.stamp_port {
            0 => Vec::new(),
            port => any.into_iter().map(|address| SocketAddr::new(address, port)).collect(),
        };
        Ok(AgentOptions {
            hub: self.hub,
            token: self.token,
            ca: self.ca,
            name: self.name,
            state: self.state,
            program,
            reflectors,
            allow: self.allow.unwrap_or_default(),
            flows: !self.no_flows,
        })
    }
}

fn parse_allowed(list: &str) -> Result<AllowedPeers, &'static str> {
    AllowedPeers::parse(list).ok_or("no list of addresses and networks, such as 192.0.2.0/24")
}

fn print_checks(options: &AgentOptions, json: bool) -> Result<u8, Coded> {
    let items = longhaul_agent::check(options);
    let (document, text) = agent_checks(&items);
    if json {
        print_document(&document)?;
    } else {
        print_result(&text)?;
    }
    let failed =
        |result: &CheckResult| matches!(result, CheckResult::Failed(_) | CheckResult::Wrong(_));
    Ok(if items.iter().any(|item| failed(&item.result)) { exit::UNFIT } else { exit::OK })
}
