//! `longhaul diagnose`: arguments to a plan, the run, its judgement and its output.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use longhaul_core::diagnosis::judge;
use longhaul_core::plan::{CopyOptions, Location, Protection};
use longhaul_core::result::{Diagnosis, End};
use longhaul_core::units::{Bytes, parse_span};
use longhaul_core::wire::Service;
use longhaul_engine::Result as EngineResult;
use longhaul_engine::diagnose::{CopyDirection, DiagnoseOutcome, DiagnosePlan, Openers, run};
use longhaul_engine::session::{HostPort, Session};
use longhaul_lab::report;

use super::cp::{Far, Gate, far};
use crate::exit::{self, Coded};
use crate::interrupt::Interrupt;
use crate::output::{DiagnoseView, after_printing, answer, diagnosis_text, document};
use crate::remote::SshOptions;

#[derive(Debug, clap::Args)]
#[command(after_help = "SRC and DST are as for 'longhaul cp': PATH, [user@]host:PATH or \
                        lh://host[:port]/PATH; /dev/zero and /dev/null leave the disk of an end \
                        out. Nothing of yours is written or changed: files are made in a directory \
                        of their own beside DST and removed. Commands that are printed are for a \
                        person to read first. Exit codes: 0 done, 2 bad arguments, 3 the far end \
                        was not reachable, 4 it refused, 5 files or disk, 6 this host, 7 a part \
                        could not be measured, 130 stopped by Ctrl-C.")]
pub(super) struct Args {
    /// What would be copied; a directory with all that is in it
    #[arg(value_name = "SRC")]
    source: Location,
    /// Where to
    #[arg(value_name = "DST")]
    target: Location,
    /// Copy so much in each step and round, instead of what the time allows
    #[arg(long, value_name = "SIZE")]
    size: Option<Bytes>,
    /// For each step, all its rounds together
    #[arg(long, value_name = "TIME", default_value = "3.5s", value_parser = parse_span)]
    time: Duration,
    /// Measure every step so many times, in turn
    #[arg(long, value_name = "N", default_value_t = DiagnosePlan::ROUNDS,
          value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// As 'cp -P': connections that carry the data [default: as cp chooses; 4 in the step of
    /// memory with several]
    #[arg(short = 'P', long = "streams", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=128))]
    streams: Option<u32>,
    /// As 'cp --cleartext': do not encrypt the data
    #[arg(long)]
    cleartext: bool,
    /// As 'cp --no-fsync': do not sync files
    #[arg(long)]
    no_fsync: bool,
    /// Record the key of a server that is not known yet
    #[arg(long)]
    accept_new: bool,
    #[command(flatten)]
    ssh: SshOptions,
    /// Print one JSON document, "longhaul.diagnose/1"
    #[arg(long)]
    json: bool,
    /// Write a page with the diagnosis drawn, too; 'longhaul report' draws it of the JSON document
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let plan = self.plan()?;
        let interrupt = Interrupt::install().map_err(|e| Coded::new(exit::HOST, e))?;
        let begun = Instant::now();
        let mut gates = Gates::new(&self, interrupt.flag())?;
        let view = DiagnoseView::start(plan.steps(), plan.rounds);
        let outcome = run(&plan, &mut gates, interrupt.flag(), &|step| view.show(&step));
        gates.finish();
        view.finish();
        let DiagnoseOutcome { steps, ends, sample, rtt_ms, gaps, failure, interrupted } = outcome;
        let diagnosis = judge(Diagnosis {
            schema: Diagnosis::SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            source: shown(&self.source),
            target: shown(&self.target),
            rtt_ms,
            sample,
            steps,
            ends,
            limits: Vec::new(),
            sentence: String::new(),
            gaps,
            seconds: begun.elapsed().as_secs_f64(),
            interrupted,
        });
        let printed = match self.json {
            true => document(&diagnosis),
            false => answer(&diagnosis_text(&diagnosis)),
        };
        if let Some(path) = &self.html {
            fs::write(path, report::diagnosis_html(&diagnosis))
                .with_context(|| format!("cannot write the page {}", path.display()))
                .map_err(|error| Coded::new(exit::FILES, error))?;
        }
        match (interrupt.exit_code(), failure) {
            (Some(code), _) => Ok(code),
            (None, None) => after_printing(exit::OK, printed),
            // Something was measured, though not what the question was about.
            (None, Some(error)) if diagnosis.limits.is_empty() => Err(error.into()),
            (None, Some(_)) => Ok(exit::PARTIAL),
        }
    }

    fn plan(&self) -> Result<DiagnosePlan, Coded> {
        let usage = |text: &str| Err(Coded::new(exit::USAGE, anyhow!(text.to_owned())));
        if [&self.source, &self.target].contains(&&Location::Standard) {
            return usage("standard input and output have no disk; give a file or directory");
        }
        if self.target == Location::Zero || self.source == Location::Null {
            return usage("/dev/zero is a source and /dev/null a target");
        }
        if self.time < LEAST_TIME || self.time > MOST_TIME {
            return usage("--time is from 0.5 to 60 seconds for each step");
        }
        if self.size.is_some_and(|size| size.get() == 0) {
            return usage("--size is one byte at the least");
        }
        let server = |location: &Location| match location {
            Location::Server { address, .. } => address.parse::<HostPort>().ok(),
            _ => None,
        };
        let way = match (far(&self.source), far(&self.target)) {
            (None, None) => CopyDirection::Local,
            (None, Some(_)) => CopyDirection::Push,
            (Some(_), None) => CopyDirection::Pull,
            (Some(_), Some(_)) => {
                let both = server(&self.source).and(server(&self.target));
                CopyDirection::Between(both)
            }
        };
        let protection = match self.cleartext || way == CopyDirection::Local {
            true => Protection::Hashed,
            false => Protection::Sealed,
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
            source: path(&self.source),
            target: path(&self.target).filter(|path| path.as_os_str() != "/dev/null"),
            options,
            time: self.time,
            size: self.size,
            rounds: self.rounds,
            streams: DiagnosePlan::STREAMS,
        })
    }
}

/// Less says nothing of a disk.
const LEAST_TIME: Duration = Duration::from_millis(500);
/// More is a copy.
const MOST_TIME: Duration = Duration::from_secs(60);

/// How long a step waits for its turn at a server.
const QUEUE_PATIENCE: Duration = Duration::from_secs(20);

/// Where the files are at their end; `None` for memory.
fn path(location: &Location) -> Option<PathBuf> {
    match location {
        Location::Local(path) | Location::Ssh { path, .. } | Location::Server { path, .. } => {
            Some(path.clone())
        }
        Location::Zero | Location::Null | Location::Standard => None,
    }
}

fn shown(location: &Location) -> String {
    match location {
        Location::Local(path) => path.display().to_string(),
        Location::Ssh { destination, path } => format!("{destination}:{}", path.display()),
        Location::Server { address, path } => {
            let path = path.display().to_string();
            format!("lh://{address}/{}", if path == "." { "" } else { &path })
        }
        Location::Zero => "/dev/zero".to_owned(),
        Location::Null => "/dev/null".to_owned(),
        Location::Standard => "-".to_owned(),
    }
}

/// The ways to the hosts of both ends: each has one for the session that is kept throughout, and
/// one for those of single steps.
struct Gates<'a> {
    kept: [Gate<'a>; 2],
    passing: [Gate<'a>; 2],
}

impl<'a> Gates<'a> {
    fn new(args: &Args, stop: &'a Arc<AtomicBool>) -> Result<Self, Coded> {
        let gate = |location: &Location| {
            let far = far(location).unwrap_or(Far::Here);
            // The session that is kept may be what fills the server.
            let gate = Gate::new(&far, &args.ssh, args.accept_new, None, stop)?;
            Ok::<_, Coded>(gate.patient_for(QUEUE_PATIENCE))
        };
        let both = || Ok::<_, Coded>([gate(&args.source)?, gate(&args.target)?]);
        Ok(Gates { kept: both()?, passing: both()? })
    }

    fn finish(self) {
        self.kept.into_iter().chain(self.passing).for_each(Gate::finish);
    }
}

impl Openers for Gates<'_> {
    fn open(&mut self, end: End, service: Service) -> EngineResult<Session> {
        let gates = if service == Service::Diagnose { &mut self.kept } else { &mut self.passing };
        let gate = match end {
            End::Sender => &mut gates[0],
            End::Receiver => &mut gates[1],
        };
        gate.open_for(service)
    }

    fn done(&mut self) {
        self.passing.iter_mut().for_each(Gate::rest);
    }
}
