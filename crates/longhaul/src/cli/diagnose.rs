//! `longhaul diagnose`: turns arguments into a plan, runs its steps and prints the diagnosis.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use longhaul_core::diagnosis::judge;
use longhaul_core::plan::{CopyOptions, Location, Protection};
use longhaul_core::result::{Diagnosis, DiagnosisStep, End, StepReport};
use longhaul_core::units::{Bytes, Rate, parse_span};
use longhaul_core::wire::Service;
use longhaul_engine::Result as EngineResult;
use longhaul_engine::diagnose::{CopyDirection, DiagnoseOutcome, DiagnosePlan, Openers, run};
use longhaul_engine::session::{HostPort, Session};
use longhaul_lab::report;

use super::bind::BindArgs;
use super::cp::{Access, Connector, Endpoint, endpoint};
use crate::exit::{self, Coded};
use crate::output::{
    DiagnoseView, after_printing, complete_diagnosis, diagnosis_text, print_document, print_result,
};
use crate::remote::{Rsh, SshOptions};
use crate::signals::Interrupt;

#[derive(Debug, clap::Args)]
#[command(after_help = "SRC and DST are as for 'longhaul cp': PATH, [user@]host:PATH or \
                        lh://host[:port]/PATH. /dev/zero and /dev/null exclude a disk. Existing \
                        files are not changed: longhaul creates its test files in a separate \
                        directory beside DST and removes them. Read the printed commands before \
                        you run them. Exit codes: 0 done, 2 invalid arguments, 3 host \
                        unreachable, 4 refused by the server, 5 file or disk error, 6 error of \
                        this host, 7 some parts were not measured, 130 interrupted by Ctrl-C.")]
pub(super) struct Args {
    /// Source and target of the copy: a file, or a directory with its contents, and its target.
    /// [user@]host: without a target is a copy from memory to memory over ssh
    #[arg(value_names = ["SRC", "DST"], num_args = 1..=2, required = true)]
    places: Vec<Location>,
    /// Bytes to copy per step and round [default: as many as --time allows]
    #[arg(long, value_name = "SIZE")]
    size: Option<Bytes>,
    /// Time per step, all rounds together
    #[arg(long, value_name = "TIME", default_value = "3.5s", value_parser = parse_span)]
    time: Duration,
    /// Number of rounds; each round runs every step once
    #[arg(long, value_name = "N", default_value_t = DiagnosePlan::ROUNDS,
          value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// TCP connections that carry the data, as 'cp -P' [default: chosen by cp; 4 in the
    /// memory-to-memory step with several streams]
    #[arg(short = 'P', long = "streams", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=128))]
    streams: Option<u32>,
    /// Accepted because 'cp' has it: directories are always diagnosed with their contents
    #[arg(short, long, hide = true)]
    recursive: bool,
    /// Do not encrypt the data, as 'cp --cleartext'
    #[arg(long)]
    cleartext: bool,
    /// Do not sync files, as 'cp --no-fsync'
    #[arg(long)]
    no_fsync: bool,
    /// Trust and record the key of an unknown server
    #[arg(long)]
    accept_new: bool,
    #[command(flatten)]
    bind: BindArgs,
    #[command(flatten)]
    ssh: SshOptions,
    /// Print one JSON document, "longhaul.diagnose/1"
    #[arg(long)]
    json: bool,
    /// Also write an HTML page with the steps as a chart
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Args {
    /// Returns the source and the target.
    fn ends(&self) -> Result<(Location, Location), Coded> {
        let usage = |text: String| Err(Coded::new(exit::USAGE, anyhow!(text)));
        match &self.places[..] {
            [source, target] => Ok((source.clone(), target.clone())),
            [Location::Ssh { destination, path }] if path.as_os_str() == "." => {
                let (destination, path) = (destination.clone(), "/dev/null".into());
                Ok((Location::Zero, Location::Ssh { destination, path }))
            }
            [Location::Local(host)] if host.to_string_lossy().contains('@') => usage(format!(
                "give {}: with its colon to diagnose the path to that host over ssh, or SRC and \
                 DST",
                host.display()
            )),
            _ => usage("missing target: give SRC and DST".to_owned()),
        }
    }

    pub(super) fn run(self) -> Result<u8, Coded> {
        let (source, target) = self.ends()?;
        let plan = self.plan(&source, &target)?;
        let interrupt = Interrupt::install().map_err(|e| Coded::new(exit::HOST, e))?;
        let begun = Instant::now();
        let mut connectors = Connectors::new(&self, [&source, &target], interrupt.flag())?;
        let view = DiagnoseView::start(&plan);
        let outcome = run(&plan, &mut connectors, interrupt.flag(), &|step| view.show(&step));
        connectors.finish();
        view.finish();
        let DiagnoseOutcome {
            steps,
            bounded,
            ends,
            subset,
            rtt_ms,
            gaps,
            failure,
            interrupted,
            refused,
        } = outcome;
        let failure = match failure {
            Some(error) if refused => return Err(error.into()),
            failure => failure,
        };
        let mut diagnosis = judge(Diagnosis {
            schema: Diagnosis::SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            source: source.to_string(),
            target: target.to_string(),
            copy_options: self.copy_options(&source, copy_rate(&steps)),
            rtt_ms,
            subset,
            steps,
            bounded,
            ends,
            limits: Vec::new(),
            sentence: String::new(),
            gaps,
            seconds: begun.elapsed().as_secs_f64(),
            interrupted,
        });
        complete_diagnosis(&mut diagnosis);
        let printed = if self.json {
            print_document(&diagnosis)
        } else {
            print_result(&diagnosis_text(&diagnosis))
        };
        if let Some(path) = &self.html {
            fs::write(path, report::diagnosis_html(&diagnosis))
                .with_context(|| format!("cannot write the page {}", path.display()))
                .map_err(|error| Coded::new(exit::FILES, error))?;
        }
        match (interrupt.exit_code(), failure) {
            (Some(code), _) => Ok(code),
            (None, None) => after_printing(exit::OK, printed),
            // Without a limit there is no diagnosis.
            (None, Some(error)) if diagnosis.limits.is_empty() => Err(error.into()),
            (None, Some(_)) => Ok(exit::PARTIAL),
        }
    }

    /// Returns the options of the same copy by `longhaul cp`, as words. `rate` is that of the copy.
    fn copy_options(&self, source: &Location, rate: Option<Rate>) -> Vec<String> {
        let mut words = Vec::new();
        let mut add = |option: &[&str]| words.extend(option.iter().map(|&word| word.to_owned()));
        let is_file = match source {
            Location::Local(path) => path.is_file(),
            _ => *source == Location::Zero,
        };
        let is_asked = self.recursive && *source != Location::Zero;
        if is_asked || !is_file {
            add(&["-r"]);
        }
        if *source == Location::Zero {
            add(&["--size", &size_text(self.size.unwrap_or_else(|| default_size(rate)))]);
        }
        if let Some(streams) = self.streams {
            add(&["-P", &streams.to_string()]);
        }
        let flags = [
            (self.cleartext, "--cleartext"),
            (self.no_fsync, "--no-fsync"),
            (self.accept_new, "--accept-new"),
        ];
        flags.iter().filter(|(given, _)| *given).for_each(|(_, option)| add(&[*option]));
        if let Some(local) = self.bind.address() {
            add(&["--bind", &local.to_string()]);
        }
        if self.ssh.rsh != Rsh::default() {
            add(&["-e", &self.ssh.rsh.to_string()]);
        }
        if self.ssh.far_longhaul != "longhaul" {
            add(&["--far-longhaul", &self.ssh.far_longhaul]);
        }
        words
    }

    fn plan(&self, source: &Location, target: &Location) -> Result<DiagnosePlan, Coded> {
        let usage = |text: &str| Err(Coded::new(exit::USAGE, anyhow!(text.to_owned())));
        if [source, target].contains(&&Location::Standard) {
            return usage("diagnose needs files or directories, not standard input or output");
        }
        if *target == Location::Zero || *source == Location::Null {
            return usage("/dev/zero can only be a source, and /dev/null only a target");
        }
        if self.time < LEAST_TIME || self.time > MOST_TIME {
            return usage("--time must be from 0.5 to 60 seconds per step");
        }
        if self.size.is_some_and(|size| size.get() == 0) {
            return usage("--size must be at least one byte");
        }
        let server = |location: &Location| match location {
            Location::Server { address, .. } => address.parse::<HostPort>().ok(),
            _ => None,
        };
        let way = match (endpoint(source), endpoint(target)) {
            (None, None) => CopyDirection::Local,
            (None, Some(_)) => CopyDirection::Push,
            (Some(_), None) => CopyDirection::Pull,
            (Some(_), Some(_)) => {
                let both = server(source).and(server(target));
                CopyDirection::Between(both)
            }
        };
        let protection = if self.cleartext || way == CopyDirection::Local {
            Protection::Hashed
        } else {
            Protection::Sealed
        };
        let options = CopyOptions {
            streams: self.streams,
            block_bytes: CopyOptions::block(self.streams, None),
            protection,
            durable: !self.no_fsync,
            recursive: true,
            ..CopyOptions::default()
        };
        Ok(DiagnosePlan {
            way,
            source: path(source),
            target: path(target).filter(|path| path.as_os_str() != "/dev/null"),
            options,
            time: self.time,
            size: self.size,
            rounds: self.rounds,
            streams: DiagnosePlan::STREAMS,
        })
    }
}

/// Returns the rate of the whole copy.
fn copy_rate(steps: &[StepReport]) -> Option<Rate> {
    steps.iter().find(|report| report.step == DiagnosisStep::Whole)?.throughput_bps
}

/// Returns the size of a copy of zeros for which the user chose none: half a minute at `rate`,
/// rounded up to a power of two.
fn default_size(rate: Option<Rate>) -> Bytes {
    let bytes = rate.map_or(16 << 30, |rate| rate.bps() / 8 * 30);
    Bytes::new(bytes.clamp(1 << 20, 1 << 50).next_power_of_two())
}

/// Formats a size exactly, as `--size` accepts it.
fn size_text(size: Bytes) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let whole = |shift: &u32| size.get() > 0 && size.get().trailing_zeros() >= *shift;
    match units.iter().find(|(shift, _)| whole(shift)) {
        Some((shift, unit)) => format!("{}{unit}", size.get() >> shift),
        None => size.get().to_string(),
    }
}

/// The shortest `--time`: a disk needs half a second to reach its rate.
const LEAST_TIME: Duration = Duration::from_millis(500);
/// The longest `--time`.
const MOST_TIME: Duration = Duration::from_secs(60);

/// The longest wait of a step in the queue of a server.
const QUEUE_LIMIT: Duration = Duration::from_secs(20);

/// Returns the path of the files on their host; `None` for memory.
fn path(location: &Location) -> Option<PathBuf> {
    match location {
        Location::Local(path) | Location::Ssh { path, .. } | Location::Server { path, .. } => {
            Some(path.clone())
        }
        Location::Zero | Location::Null | Location::Standard => None,
    }
}

/// The connectors to the hosts of both ends. Each host has one for the session that is open
/// throughout, and one for the sessions of single steps.
struct Connectors<'a> {
    kept: [Connector<'a>; 2],
    passing: [Connector<'a>; 2],
}

impl<'a> Connectors<'a> {
    fn new(
        args: &Args,
        [source, target]: [&Location; 2],
        stop: &'a Arc<AtomicBool>,
    ) -> Result<Self, Coded> {
        let remote = [source, target].into_iter().any(|one| endpoint(one).is_some());
        let local = args.bind.checked_for(remote)?;
        let connector = |location: &Location| {
            let far = endpoint(location).unwrap_or(Endpoint::Local);
            // The session that stays open may use the last session that the server permits.
            let (ssh, accept_new, local) = (&args.ssh, args.accept_new, local.clone());
            let access = Access { ssh, accept_new, local };
            let connector = Connector::new(&far, access, None, stop)?;
            Ok::<_, Coded>(connector.with_queue_limit(QUEUE_LIMIT))
        };
        let both = || Ok::<_, Coded>([connector(source)?, connector(target)?]);
        Ok(Connectors { kept: both()?, passing: both()? })
    }

    fn finish(self) {
        self.kept.into_iter().chain(self.passing).for_each(Connector::finish);
    }
}

impl Openers for Connectors<'_> {
    fn open(&mut self, end: End, service: Service) -> EngineResult<Session> {
        let connectors =
            if service == Service::Diagnose { &mut self.kept } else { &mut self.passing };
        let connector = match end {
            End::Sender => &mut connectors[0],
            End::Receiver => &mut connectors[1],
        };
        connector.open_for(service)
    }

    fn done(&mut self) {
        self.passing.iter_mut().for_each(Connector::rest);
    }
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

    #[test]
    fn the_copy_has_the_options_of_the_diagnosis() {
        let options = |words: &[&str]| {
            let args = Program::try_parse_from([&["diagnose"], words].concat()).unwrap().args;
            let (source, _) = args.ends().unwrap();
            args.copy_options(&source, Some(Rate::from_bps(1_000_000_000))).join(" ")
        };
        assert_eq!(options(&["far:data", "in"]), "-r");
        assert_eq!(options(&["/", "far:in"]), "-r");
        assert_eq!(options(&["/proc/self/cmdline", "far:in"]), "");
        assert_eq!(options(&["-r", "/proc/self/cmdline", "far:in"]), "-r");
        assert_eq!(options(&["me@far:"]), "--size 4G");
        assert_eq!(options(&["--size", "1536M", "/dev/zero", "far:/dev/null"]), "--size 1536M");
        let given = "-P 8 --cleartext --no-fsync --accept-new --bind 127.0.0.1 -e ";
        let given: Vec<&str> = given.split_whitespace().collect();
        let ssh = ["ssh -o 'ProxyCommand=a b'", "--far-longhaul", "/opt/lh", "far:x", "."];
        let expected = "-r -P 8 --cleartext --no-fsync --accept-new --bind 127.0.0.1 -e \
                        ssh -o 'ProxyCommand=a b' --far-longhaul /opt/lh";
        assert_eq!(options(&[&given[..], &ssh[..]].concat()), expected);
    }
}
