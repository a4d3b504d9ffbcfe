//! `longhaul path --record`: records the delay, loss and capacity of a path over time.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use longhaul_core::plan::PathPart;
use longhaul_core::plan::link::{PathRecording, RecordedWindow, RecordingHead};
use longhaul_core::units::{Bytes, format_span};
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
/// The default time between estimates of the capacity.
const RATE_EVERY: Duration = RecordingHead::MOST_RATE_EVERY;
/// The time after which a recorder tries again to reach its server.
const RETRY: Duration = Duration::from_secs(5);

/// Records the path to `file` and prints a summary.
pub(super) fn run(args: &Args, file: &Path) -> Result<u8, Coded> {
    let spec = spec(args)?;
    let interrupt = Interrupt::install().map_err(|e| Coded::new(exit::HOST, e))?;
    let mut output = Output::create(file, args, &spec)?;
    if !args.quiet {
        output.announce(&spec);
    }
    let recorded = sessions(args, &spec, &interrupt, &mut output);
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
    // The user ended the recording, whether or not the server was away at that time.
    if let Some(code) = interrupt.exit_code() {
        return Ok(code);
    }
    recorded.map(|()| exit::OK)
}

/// Returns the parameters of the recording.
fn spec(args: &Args) -> Result<RecordSpec, Coded> {
    let plan = args.plan()?;
    let spec = RecordSpec {
        interval: args.interval.unwrap_or(INTERVAL),
        packet_bytes: plan.probe_bytes,
        time: args.time.unwrap_or(TIME),
        capacity: plan.wants(PathPart::Capacity),
        rate_every: args.rate_every.unwrap_or(RATE_EVERY),
    };
    let within = |name: &str, given: Duration, least: Duration, most: Duration| {
        if (least..=most).contains(&given) {
            return Ok(());
        }
        let [least, most, given] = [least, most, given].map(format_span);
        let error = anyhow!("the {name} of a recording is from {least} to {most}, not {given}");
        Err(Coded::new(exit::USAGE, error))
    };
    let (least, most) = (Duration::from_millis(1), Duration::from_secs(1));
    within("interval", spec.interval, least, most)?;
    let (least, most) = (RecordingHead::LEAST_RATE_EVERY, RecordingHead::MOST_RATE_EVERY);
    within("time between estimates", spec.rate_every, least, most)?;
    // A certificate measures slightly longer than the recording.
    let longest = spec.interval * PathRecording::MOST_PROBES as u32;
    if spec.time > longest && args.slots_from.is_none() {
        let (interval, longest) = (format_span(spec.interval), format_span(longest));
        let error = anyhow!(
            "a recording has at most {} probes, which is {longest} at an interval of {interval}; \
             give a longer interval with -i, or at most -t {longest}",
            PathRecording::MOST_PROBES
        );
        return Err(Coded::new(exit::USAGE, error));
    }
    Ok(spec)
}

/// Records session after session until the time is over. The first session must succeed; later the
/// path may be down for any time.
fn sessions(
    args: &Args,
    spec: &RecordSpec,
    interrupt: &Interrupt,
    output: &mut Output,
) -> Result<(), Coded> {
    let origin = origin(args.slots_from.map(monotonic::instant_of), spec.interval);
    let mut recorded = Ok(());
    while interrupt.exit_code().is_none() {
        let left = spec.time.saturating_sub(origin.elapsed());
        if left.is_zero() {
            break;
        }
        let was_lost = recorded.is_err();
        let own = RecordSpec { time: left, ..*spec };
        recorded = session(args, &own, origin, interrupt, output);
        match &recorded {
            Ok(()) => {}
            Err(lost) if lost.code == exit::UNREACHABLE && output.windows > 0 => {
                if !was_lost && !args.quiet {
                    print_message(format_args!(
                        "{:#}; trying again until the end of the recording",
                        lost.error
                    ));
                }
                interrupt.wait(RETRY.min(spec.time.saturating_sub(origin.elapsed())));
            }
            Err(_) => break,
        }
    }
    recorded
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
    file: File,
    head: RecordingHead,
    windows: u64,
    /// The bytes of the complete windows.
    bytes: u64,
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
            rate_every_seconds: spec.rate_every.as_secs_f64(),
        };
        Ok(Output { path: path.to_owned(), part, file, head, windows: 0, bytes: 0 })
    }

    /// States the size of the file, and what the disk has left if that is less.
    fn announce(&self, spec: &RecordSpec) {
        let (time, size) = (format_span(spec.time), Bytes::new(most_bytes(spec)));
        let free = rustix::fs::fstatvfs(&self.file).ok();
        let free = free.map(|disk| Bytes::new(disk.f_bavail.saturating_mul(disk.f_frsize)));
        match free.filter(|free| *free < size) {
            None => print_message(format_args!("recording {time}, up to {size}")),
            Some(free) => print_message(format_args!(
                "recording {time}, up to {size}; warning: the disk has only {free} left"
            )),
        }
    }

    /// Appends a window as a whole.
    fn write(&mut self, same_clock: bool, window: &RecordedWindow) -> io::Result<()> {
        let mut text = Vec::new();
        if self.windows == 0 {
            self.head.same_clock = same_clock;
            serde_json::to_writer(&mut text, &self.head)?;
            text.push(b'\n');
        }
        serde_json::to_writer(&mut text, window)?;
        text.push(b'\n');
        if let Err(error) = self.file.write_all(&text) {
            let _ = self.file.set_len(self.bytes);
            return Err(error);
        }
        self.windows += 1;
        self.bytes += text.len() as u64;
        Ok(())
    }

    fn finish(self) -> Result<(), Coded> {
        let synced = self.file.sync_all();
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

/// Returns the largest size of a recording whose delays are below a second.
fn most_bytes(spec: &RecordSpec) -> u64 {
    /// Six digits and a comma, in both directions.
    const PROBE: u128 = 2 * 7;
    /// The names of a window, its time and two capacities.
    const WINDOW: u128 = 160;
    let probes = spec.time.as_nanos() / spec.interval.as_nanos().max(1);
    (probes * PROBE + u128::from(spec.time.as_secs() + 1) * WINDOW) as u64
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
