//! `longhaul doctor`: what to look at, the look, its findings.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use longhaul_core::doctor::{HostFacts, InterfaceKind, Recording, Target, examine, summary};
use longhaul_core::result::{DoctorReport, TargetSource};
use longhaul_core::units::{Rate, format_span, parse_span};
use longhaul_engine::doctor;
use longhaul_engine::session::{DEFAULT_PORT, HostPort};
use longhaul_sys::doctor::{Query, Source, read_facts};

use crate::exit::{self, Coded};
use crate::interrupt::Interrupt;
use crate::output::{after_printing, answer, doctor_text, document, output_is_terminal, say};
use crate::remote::{SshOptions, printed_there};

/// How long the resolver may take, and the host at the other end: the examination ends within two
/// seconds.
const PATIENCE: Duration = Duration::from_millis(900);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Nothing is changed, and no right is needed: what could not be seen is named, \
                        with what would show it. Commands that are printed are for a person to \
                        read first; settings made with sysctl -w last until the next start, and \
                        for good in a file of /etc/sysctl.d. Exit codes: 0 nothing is a problem, 2 \
                        bad arguments, 3 the host to examine was not reachable, 5 a recording \
                        cannot be read or written, 6 ssh cannot be started, 9 something is a \
                        problem."
)]
pub(super) struct Args {
    /// The host at the other end: examine this one for transfers with it. With a user, or --there,
    /// examine that host instead, over ssh, for transfers with this one
    #[arg(value_name = "[USER@]HOST")]
    host: Option<String>,
    /// Examine HOST itself, by the longhaul that is installed there
    #[arg(long, requires = "host")]
    there: bool,
    /// The rate to be reached [default: the interface's, or 10G]
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// The round-trip time to reach it over [default: the one to HOST, or 100ms]
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    rtt: Option<Duration>,
    /// Examine this interface; may be given several times [default: the one that leads to HOST, or
    /// the default route's]
    #[arg(long, value_name = "IF")]
    interface: Vec<String>,
    /// Examine the file system and disk of this directory; may be given several times
    #[arg(long, value_name = "PATH", default_value = ".")]
    disk: Vec<PathBuf>,
    /// The port of 'longhaul serve'
    #[arg(short, long, default_value_t = DEFAULT_PORT,
          value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Measure too, for some seven seconds: memory, hashes and cipher on one core, the disks by a
    /// file that is written in their directory, TCP over loopback
    #[arg(long, conflicts_with = "recorded")]
    active: bool,
    /// Print one JSON document, "longhaul.doctor/1"
    #[arg(long)]
    json: bool,
    /// Write what was read of the host to this file, to be examined elsewhere
    #[arg(long, value_name = "FILE", conflicts_with = "recorded")]
    record: Option<PathBuf>,
    /// Examine the host that was recorded in this file; give HOST, --interface and --disk as then
    #[arg(long, value_name = "FILE", conflicts_with = "there")]
    recorded: Option<PathBuf>,
    #[command(flatten)]
    ssh: SshOptions,
    /// This is the host that another's doctor asks for, over ssh
    #[arg(long, hide = true)]
    for_client: bool,
}

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let report = match &self.host {
            Some(host) if self.there || host.contains('@') => self.ask_there(host)?,
            _ => self.examine_here()?,
        };
        let printed = match self.json {
            true => document(&report),
            false => answer(&doctor_text(&report, output_is_terminal())),
        };
        after_printing(if report.has_problems() { exit::UNFIT } else { exit::OK }, printed)
    }

    fn examine_here(&self) -> Result<DoctorReport, Coded> {
        let begun = Instant::now();
        let source = match &self.recorded {
            None => Source::host(),
            Some(path) => Source::recorded(read_recording(path)?),
        };
        let query = self.query()?;
        let facts = read_facts(&source, &query);
        let target = self.target(&facts);
        let measurements = if self.active { self.measure()? } else { Vec::new() };
        let findings = examine(&facts, &measurements, &target);
        if let Some(path) = &self.record {
            fs::write(path, source.recording().to_string())
                .with_context(|| format!("cannot write the recording {}", path.display()))
                .map_err(|error| Coded::new(exit::FILES, error))?;
        }
        Ok(DoctorReport {
            schema: DoctorReport::SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: None,
            about: summary(&facts),
            target: target.to_report(),
            findings,
            measurements,
            seconds: begun.elapsed().as_secs_f64(),
        })
    }

    fn query(&self) -> Result<Query, Coded> {
        let mut to = match &self.host {
            Some(host) => Some(host.parse::<HostPort>()?),
            None => None,
        };
        if self.for_client {
            // "CLIENT-IP CLIENT-PORT SERVER-IP SERVER-PORT", sshd(8).
            let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
            to = connection
                .split(' ')
                .next()
                .filter(|ip| !ip.is_empty())
                .map(|client| HostPort::new(client, self.port));
        }
        Ok(Query {
            port: to.as_ref().map_or(self.port, |to| self.port_of(to)),
            to: to.map(|to| to.host),
            patience: PATIENCE,
            interfaces: self.interface.clone(),
            disks: self.disk.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
        })
    }

    /// A port in HOST:PORT goes before the default.
    fn port_of(&self, to: &HostPort) -> u16 {
        if to.port == DEFAULT_PORT { self.port } else { to.port }
    }

    fn target(&self, facts: &HostFacts) -> Target {
        let fastest = facts
            .interfaces
            .iter()
            .filter(|one| one.kind != InterfaceKind::Software)
            .filter_map(|one| one.speed.clone().ok()?)
            .max();
        let (rate, rate_from) = match (self.rate, fastest) {
            (Some(rate), _) => (rate, TargetSource::Asked),
            (None, Some(rate)) => (rate, TargetSource::Interface),
            (None, None) => (Target::ASSUMED_RATE, TargetSource::Assumed),
        };
        let measured = facts.path.as_ref().and_then(|path| path.answer.clone().ok());
        let (rtt, rtt_from) = match (self.rtt, measured) {
            (Some(rtt), _) => (rtt, TargetSource::Asked),
            (None, Some((rtt, _))) => (rtt, TargetSource::Measured),
            (None, None) => (Target::ASSUMED_RTT, TargetSource::Assumed),
        };
        let to = facts.path.as_ref().map(|path| path.host.clone());
        Target { rate, rate_from, rtt, rtt_from, to, port: self.port }
    }

    fn measure(&self) -> Result<Vec<longhaul_core::result::Measurement>, Coded> {
        let interrupt = Interrupt::install().map_err(|e| Coded::new(exit::HOST, e))?;
        let measurements = doctor::measure(&self.disk, interrupt.flag(), |what| {
            say(format_args!("measuring {what}"));
        });
        match interrupt.exit_code() {
            Some(code) => Err(Coded::new(code, anyhow!("interrupted"))),
            None => Ok(measurements),
        }
    }

    /// Has the longhaul at `destination` examine its host for transfers with this one.
    fn ask_there(&self, destination: &str) -> Result<DoctorReport, Coded> {
        let mut arguments = vec!["doctor".to_owned(), "--json".into(), "--for-client".into()];
        let mut option = |name: &str, value: String| {
            // One word each, so that a value never reads as an option.
            arguments.push(format!("--{name}={value}"));
        };
        option("port", self.port.to_string());
        self.rate.iter().for_each(|rate| option("rate", rate.bps().to_string()));
        self.rtt.iter().for_each(|rtt| option("rtt", format_span(*rtt)));
        self.interface.iter().for_each(|name| option("interface", name.clone()));
        for path in &self.disk {
            option("disk", path.to_string_lossy().into_owned());
        }
        if self.active {
            arguments.push("--active".to_owned());
        }
        let printed = printed_there(destination, &self.ssh, &arguments)?;
        let mut report: DoctorReport = serde_json::from_slice(&printed).map_err(|_| {
            let error = anyhow!(
                "{destination} told no findings: ssh could not log in there, or there is no \
                 longhaul with a doctor; see above"
            );
            Coded::new(exit::UNREACHABLE, error)
        })?;
        report.host = Some(destination.to_owned());
        Ok(report)
    }
}

fn read_recording(path: &PathBuf) -> Result<Recording, Coded> {
    fs::read_to_string(path)
        .map_err(anyhow::Error::from)
        .and_then(|text| Ok(text.parse()?))
        .with_context(|| format!("cannot read the recording {}", path.display()))
        .map_err(|error| Coded::new(exit::FILES, error))
}
