//! `longhaul doctor`: turns arguments into a query, examines the host and prints the findings.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use longhaul_core::doctor::{HostFacts, HostRecording, InterfaceKind, Target, examine, summary};
use longhaul_core::result::{DoctorReport, TargetSource};
use longhaul_core::units::{Rate, format_span, parse_delay};
use longhaul_engine::doctor;
use longhaul_engine::session::{DEFAULT_PORT, HostPort};
use longhaul_sys::doctor::{FactSource, Query, read_facts};

use crate::exit::{self, Coded};
use crate::output::{
    after_printing, complete_doctor, doctor_text, output_is_colored, print_document, print_message,
    print_result,
};
use crate::remote::{SshOptions, remote_output};
use crate::signals::Interrupt;

/// Time limits of the resolver and of the peer. The examination ends within two seconds.
const TIME_LIMIT: Duration = Duration::from_millis(900);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The doctor changes nothing and needs no privileges. It lists the facts that it \
                  could not read, with a way to read them. Read the printed commands before you \
                  run them: 'sysctl -w' lasts until the next boot, a file in /etc/sysctl.d is \
                  permanent. Exit codes: 0 no problems, 2 invalid arguments, 3 host unreachable, 5 \
                  a recording cannot be read or written, 6 ssh cannot be started, 9 problems \
                  found."
)]
pub(super) struct Args {
    /// Peer of the transfers. With a user name, or with --there, examine that host over ssh
    /// instead of this one
    #[arg(value_name = "[USER@]HOST")]
    host: Option<String>,
    /// Examine HOST instead of this host, with the longhaul that is installed there
    #[arg(long, requires = "host")]
    there: bool,
    /// Target rate [default: the rate of the interface, or 10G]
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Target round-trip time [default: the measured one to HOST, or 100ms]
    #[arg(long, value_name = "TIME", value_parser = parse_delay)]
    rtt: Option<Duration>,
    /// Interface to examine; may be repeated [default: the interface of the route to HOST, or of
    /// the default route]
    #[arg(long, value_name = "IF")]
    interface: Vec<String>,
    /// Directory with the file system and disk to examine; may be repeated
    #[arg(long, value_name = "PATH", default_value = ".")]
    disk: Vec<PathBuf>,
    /// Port of 'longhaul serve'
    #[arg(short, long, default_value_t = DEFAULT_PORT,
          value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Also measure, for about seven seconds: memory, hashes and cipher on one core, the disks with
    /// a temporary file, and TCP over loopback
    #[arg(long, conflicts_with = "recorded")]
    active: bool,
    /// Print one JSON document, "longhaul.doctor/1"
    #[arg(long)]
    json: bool,
    /// Record the facts of the host in this file, for --recorded
    #[arg(long, value_name = "FILE", conflicts_with = "recorded")]
    record: Option<PathBuf>,
    /// Examine the host that is recorded in this file, with the same HOST, --interface and --disk
    #[arg(long, value_name = "FILE", conflicts_with = "there")]
    recorded: Option<PathBuf>,
    #[command(flatten)]
    ssh: SshOptions,
    /// Examine this host for a doctor that runs on another host and started this one over ssh
    #[arg(long, hide = true)]
    for_client: bool,
}

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let mut report = match &self.host {
            Some(host) if self.there || host.contains('@') => self.examine_remote(host)?,
            _ => self.examine_here()?,
        };
        complete_doctor(&mut report);
        let printed = if self.json {
            print_document(&report)
        } else {
            print_result(&doctor_text(&report, output_is_colored()))
        };
        after_printing(if report.has_problems() { exit::UNFIT } else { exit::OK }, printed)
    }

    fn examine_here(&self) -> Result<DoctorReport, Coded> {
        let begun = Instant::now();
        let source = match &self.recorded {
            None => FactSource::host(),
            Some(path) => FactSource::recorded(read_recording(path)?),
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
            patience: TIME_LIMIT,
            interfaces: self.interface.clone(),
            disks: self.disk.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
        })
    }

    /// Returns the port: that in HOST:PORT, or else that of `--port`.
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
            print_message(format_args!("measuring {what}"));
        });
        match interrupt.exit_code() {
            Some(code) => Err(Coded::new(code, anyhow!("interrupted"))),
            None => Ok(measurements),
        }
    }

    /// Runs the doctor at `destination` for transfers with this host.
    fn examine_remote(&self, destination: &str) -> Result<DoctorReport, Coded> {
        let mut arguments = vec!["doctor".to_owned(), "--json".into(), "--for-client".into()];
        let mut option = |name: &str, value: String| {
            // A single word, so that a value is never parsed as an option.
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
        let printed = remote_output(destination, &self.ssh, &arguments)?;
        let mut report: DoctorReport = serde_json::from_slice(&printed).map_err(|_| {
            let error = anyhow!(
                "{destination}: no findings; check the ssh login and that a current longhaul is \
                 installed there"
            );
            Coded::new(exit::UNREACHABLE, error)
        })?;
        report.host = Some(destination.to_owned());
        Ok(report)
    }
}

fn read_recording(path: &PathBuf) -> Result<HostRecording, Coded> {
    fs::read_to_string(path)
        .map_err(anyhow::Error::from)
        .and_then(|text| Ok(text.parse()?))
        .with_context(|| format!("cannot read the recording {}", path.display()))
        .map_err(|error| Coded::new(exit::FILES, error))
}
