//! `longhaul path --record`: records the delay, loss and capacity of a path over time.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use longhaul_core::plan::PathPart;
use longhaul_core::plan::link::{RecordedWindow, RecordingHead};
use longhaul_core::units::format_span;
use longhaul_engine::EngineError;
use longhaul_engine::path::{RecordSpec, record};

use super::part_file::open_part;
use super::{Args, PartArg, Peer};
use crate::exit::{self, Coded};
use crate::monotonic;
use crate::output::print_message;
use crate::remote::SshServer;
use crate::signals::Interrupt;

/// The default interval of probes.
const INTERVAL: Duration = Duration::from_millis(10);
/// The default duration.
const TIME: Duration = Duration::from_secs(60);
/// The duration of a session. The recording continues in another one.
const SESSION: Duration = Duration::from_secs(240);

/// Records the path to `file` and prints a summary.
pub(super) fn run(args: &Args, file: &Path) -> Result<u8, Coded> {
    let interval = args.interval.unwrap_or(INTERVAL);
    if !(Duration::from_millis(1)..=Duration::from_secs(1)).contains(&interval) {
        let error =
            anyhow!("the interval of a recording is from 1ms to 1s, not {}", format_span(interval));
        return Err(Coded::new(exit::USAGE, error));
    }
    let plan = args.plan()?;
    let spec = RecordSpec {
        interval,
        packet_bytes: plan.probe_bytes,
        time: args.time.unwrap_or(TIME),
        capacity: plan.wants(PathPart::Capacity),
    };
    let interrupt = Interrupt::install().map_err(|e| Coded::new(exit::HOST, e))?;
    let mut output = Output::create(file, args, &spec)?;
    let origin = origin(args.slots_from.map(monotonic::instant_of), interval);
    let mut recorded = Ok(());
    while recorded.is_ok() && interrupt.exit_code().is_none() {
        // Whole windows, so that those of the next session follow.
        let left = spec.time.saturating_sub(origin.elapsed());
        if left.is_zero() {
            break;
        }
        let own = RecordSpec { time: left.min(SESSION), ..spec };
        recorded = session(args, &own, origin, &interrupt, &mut output);
    }
    if output.windows == 0 {
        output.discard();
        return Err(recorded.err().unwrap_or_else(|| {
            Coded::new(
                exit::UNREACHABLE,
                anyhow!("interrupted before the first second was recorded"),
            )
        }));
    }
    let (windows, path) = (output.windows, output.path.clone());
    if matches!(&recorded, Err(failed) if failed.code == exit::FILES) {
        // The part that was written before the disk was full stays beside the file.
        return recorded.map(|()| exit::OK);
    }
    output.finish()?;
    if !args.quiet {
        print_message(format_args!(
            "recorded {} of the path to {} in {}; 'longhaul wan run --replay {}' replays it",
            format_span(Duration::from_secs(windows)),
            args.host,
            path.display(),
            path.display()
        ));
    }
    recorded?;
    Ok(interrupt.exit_code().unwrap_or(exit::OK))
}

/// Returns the start of the recording: now, or the last time a whole number of intervals after `from`.
fn origin(from: Option<Instant>, interval: Duration) -> Instant {
    let Some(from) = from else { return Instant::now() };
    let intervals = from.elapsed().as_nanos() / interval.as_nanos().max(1);
    from + Duration::from_nanos((intervals * interval.as_nanos()) as u64)
}

/// Records in one session with the server.
fn session(
    args: &Args,
    spec: &RecordSpec,
    origin: Instant,
    interrupt: &Interrupt,
    output: &mut Output,
) -> Result<(), Coded> {
    let (session, ssh) = match args.peer(interrupt)? {
        Peer::Server(session, ssh) => (session, ssh),
        Peer::NoServer(_, why) => {
            let error = anyhow!("a recording needs 'longhaul serve' at {}: {why}", args.host);
            return Err(Coded::new(exit::UNREACHABLE, error));
        }
    };
    let mut take = |same_clock, window| output.write(same_clock, &window);
    let recorded = record(*session, spec, origin, interrupt.flag(), &mut take);
    ssh.into_iter().for_each(SshServer::finish);
    recorded.map_err(|error| match error {
        EngineError::System { operation: "write the recording", source } => {
            let path = output.path.display();
            let error = anyhow!(source).context(match output.windows {
                0 => format!("cannot write {path}; the first second was not recorded"),
                _ => format!(
                    "cannot write {path}; the recording ended, and its part until then is in {}",
                    output.part.display()
                ),
            });
            Coded::new(exit::FILES, error)
        }
        other => other.into(),
    })
}

/// The file of a recording. It has another name until it is complete.
struct Output {
    path: PathBuf,
    part: PathBuf,
    file: BufWriter<File>,
    head: RecordingHead,
    windows: u64,
}

impl Output {
    fn create(path: &Path, args: &Args, spec: &RecordSpec) -> Result<Output, Coded> {
        let mut name = path.as_os_str().to_owned();
        name.push(".part");
        let part = PathBuf::from(name);
        let file = open_part(&part).map_err(|error| Coded::new(exit::FILES, error))?;
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let head = RecordingHead {
            schema: RecordingHead::SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            target: args.host.clone(),
            started_unix_seconds: started.as_secs(),
            interval_seconds: spec.interval.as_secs_f64(),
            packet_bytes: spec.packet_bytes,
            same_clock: false,
        };
        let (path, file) = (path.to_owned(), BufWriter::new(file));
        Ok(Output { path, part, file, head, windows: 0 })
    }

    fn write(&mut self, same_clock: bool, window: &RecordedWindow) -> io::Result<()> {
        if self.windows == 0 {
            self.head.same_clock = same_clock;
            serde_json::to_writer(&mut self.file, &self.head)?;
            self.file.write_all(b"\n")?;
        }
        serde_json::to_writer(&mut self.file, window)?;
        self.file.write_all(b"\n")?;
        self.file.flush()?;
        self.windows += 1;
        Ok(())
    }

    fn finish(self) -> Result<(), Coded> {
        let synced = self.file.get_ref().sync_all();
        synced
            .and_then(|()| fs::rename(&self.part, &self.path))
            .with_context(|| format!("cannot write the recording {}", self.path.display()))
            .map_err(|error| Coded::new(exit::FILES, error))
    }

    /// Removes a file without a window.
    fn discard(&self) {
        let _ = fs::remove_file(&self.part);
    }
}

/// Returns an error if options of the measurement are given that a recording does not have.
pub(super) fn check(args: &Args) -> Result<(), Coded> {
    let skips_other = args.skip.iter().any(|part| !matches!(part, PartArg::Capacity));
    let refused = [("--json", args.json), ("--no-server", args.no_server), ("--skip", skips_other)];
    match refused.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => {
            let error = anyhow!(
                "{option} does not apply to --record, which measures delay, loss and, except with \
                 '--skip capacity', the capacity"
            );
            Err(Coded::new(exit::USAGE, error))
        }
    }
}
