//! `longhaul cp`: arguments to a plan, a session, a copy, its output.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::anyhow;
use longhaul_core::plan::{CopyOptions, CopyPlan, Location, Protection};
use longhaul_core::result::CopyResult;
use longhaul_core::units::{Bytes, Rate, parse_span};
use longhaul_core::wire::{BLOCK_LIMIT, Service};
use longhaul_engine::copy::{Lifeline, Progress, SourcePlan, SourceRoot, Tree, pull, push};
use longhaul_engine::session::{
    ConfigDir, ConnectOptions, HostPolicy, HostPort, Identity, Session, connect,
};

use crate::exit::{self, Coded};
use crate::interrupt::Interrupt;
use crate::output::{CopyBar, copy_text};
use crate::remote::{LocalFar, SshFar, SshOptions};
use crate::throttle::Throttle;

#[derive(Debug, clap::Args)]
#[command(after_help = "SRC and DST are PATH, [user@]host:PATH (over ssh, which runs longhaul \
                        there) or lh://host[:port]/PATH (a 'longhaul serve --root DIR'). \
                        Exit codes: 0 done, 2 bad arguments, 3 not reachable or connection lost, \
                        4 refused by the server, 5 files or disk, 7 some files failed, 130 \
                        stopped by Ctrl-C.")]
pub(super) struct Args {
    /// What to copy; 'dir/.' means the directory's contents, /dev/zero bytes from memory
    #[arg(value_name = "SRC", required = true)]
    sources: Vec<Location>,
    /// Where to; /dev/null verifies and drops
    #[arg(value_name = "DST", required = true)]
    target: Location,
    /// Copy directories with all that is in them; links to files are followed
    #[arg(short, long)]
    recursive: bool,
    /// Keep modes and times
    #[arg(short, long)]
    preserve: bool,
    /// TCP connections that carry the data [default: as many as bring something, from 2 to 16]
    #[arg(short = 'P', long = "streams", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=128))]
    streams: Option<u32>,
    /// Send no faster than this, over all connections together; while the copy runs, signal USR1
    /// halves the rate and USR2 doubles it
    #[arg(long, value_name = "RATE")]
    bwlimit: Option<Rate>,
    /// Yield processors and disks to other programs and the path to other traffic, at both ends
    #[arg(long)]
    nice: bool,
    /// When the connection is lost, try this long to go on without moving a byte
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_span)]
    give_up: Duration,
    /// Do not encrypt the data; it is still authenticated and verified
    #[arg(long)]
    cleartext: bool,
    /// With --cleartext: do not verify blocks either; TCP's checksum is all
    #[arg(long, requires = "cleartext")]
    no_verify: bool,
    /// Do not sync files before they get their names; a crash may lose them
    #[arg(long)]
    no_fsync: bool,
    /// The unit of reading, verifying and writing
    #[arg(long, value_name = "SIZE", default_value_t = CopyOptions::default().block_bytes)]
    block: Bytes,
    /// How much of /dev/zero to copy
    #[arg(long, value_name = "SIZE")]
    size: Option<Bytes>,
    /// Record the key of a server that is not known yet
    #[arg(long)]
    accept_new: bool,
    /// The ssh to use, with options, such as 'ssh -p 2222'
    #[arg(short = 'e', long, value_name = "COMMAND", default_value = "ssh")]
    rsh: String,
    /// The longhaul to run at the far side of ssh
    #[arg(long, value_name = "PATH", default_value = "longhaul")]
    far_longhaul: String,
    /// Print one JSON document, "longhaul.cp/1"
    #[arg(long)]
    json: bool,

    // Of the contract or of rsync's habits, but not built: taken so that they can be refused.
    #[arg(short, long, hide = true)]
    archive: bool,
    #[arg(short, long, hide = true)]
    update: bool,
    #[arg(long, hide = true)]
    delete: bool,
    #[arg(short = 'n', long, hide = true)]
    dry_run: bool,
    #[arg(long, hide = true, value_name = "PATTERN")]
    include: Option<String>,
    #[arg(long, hide = true, value_name = "PATTERN")]
    exclude: Option<String>,
    #[arg(long, hide = true, value_name = "FILE")]
    files_from: Option<String>,
    #[arg(long, hide = true)]
    via_ssh: bool,
    #[arg(long, hide = true, value_name = "MANIFEST")]
    check: Option<String>,
    #[arg(long, hide = true)]
    json_stream: bool,
}

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let plan = self.plan()?;
        let interrupt = Interrupt::install().map_err(|e| Coded::new(exit::HOST, e))?;
        let progress = Arc::new(Progress::default());
        let _throttle = Throttle::start(progress.clone()).map_err(|e| Coded::new(exit::HOST, e))?;
        let bar = CopyBar::start(progress.clone(), self.json);
        let copied = self.copy(&plan, &progress, interrupt.flag());
        bar.finish();
        let result = match copied {
            Ok(result) => result,
            Err(error) => {
                return Err(match interrupt.exit_code() {
                    Some(code) => Coded { code, ..error },
                    None => error,
                });
            }
        };
        report(&result);
        if self.json {
            println!("{}", serde_json::to_string_pretty(&result).map_err(anyhow::Error::from)?);
        } else {
            println!("{}", copy_text(&result));
        }
        Ok(match (result.failures.is_empty(), result.summary.files) {
            (true, _) => exit::OK,
            (false, 0) => exit::FILES,
            (false, _) => exit::PARTIAL,
        })
    }

    fn plan(&self) -> Result<CopyPlan, Coded> {
        let usage = |text: String| Err(Coded::new(exit::USAGE, anyhow!(text)));
        let missing = [
            (self.archive, "-a (all metadata)"),
            (self.update, "-u (newer files only)"),
            (self.delete, "--delete"),
            (self.dry_run, "-n (dry run)"),
            (self.include.is_some(), "--include"),
            (self.exclude.is_some(), "--exclude"),
            (self.files_from.is_some(), "--files-from"),
            (self.via_ssh, "--via-ssh (data through ssh)"),
            (self.check.is_some(), "--check (verify a manifest)"),
            (self.json_stream, "--json-stream"),
        ];
        if let Some((_, flag)) = missing.iter().find(|(given, _)| *given) {
            return usage(format!("{flag} is not built yet"));
        }
        let page = longhaul_sys::memory::DIRECT_ALIGN as u64;
        let block = self.block;
        if block.get() == 0 || !block.get().is_multiple_of(page) || block > BLOCK_LIMIT {
            return usage(format!(
                "--block is {block}; it is a multiple of {page} bytes up to {BLOCK_LIMIT}"
            ));
        }
        let zeros = self.sources.contains(&Location::Zero);
        if zeros != self.size.is_some() {
            return usage(match zeros {
                true => "/dev/zero has no end; say how much of it with --size".to_owned(),
                false => "--size goes with the source /dev/zero".to_owned(),
            });
        }
        if self.target == Location::Zero || self.sources.contains(&Location::Null) {
            return usage("/dev/zero is a source and /dev/null a target".to_owned());
        }
        let local = matches!(
            (&self.sources[..], &self.target),
            (sources, Location::Local(_) | Location::Null)
                if sources.iter().all(|source| matches!(source, Location::Local(_) | Location::Zero))
        );
        let protection = match (self.cleartext, self.no_verify) {
            (_, true) => Protection::Bare,
            (true, false) => Protection::Hashed,
            // Nobody listens inside one process.
            (false, false) if local => Protection::Hashed,
            (false, false) => Protection::Sealed,
        };
        Ok(CopyPlan {
            sources: self.sources.clone(),
            target: self.target.clone(),
            options: CopyOptions {
                streams: self.streams,
                block_bytes: block,
                protection,
                durable: !self.no_fsync,
                preserve: self.preserve,
                recursive: self.recursive,
                rate_bps: self.bwlimit,
                nice: self.nice,
            },
            zero_bytes: self.size,
        })
    }

    fn copy(
        &self,
        plan: &CopyPlan,
        progress: &Progress,
        stop: &Arc<AtomicBool>,
    ) -> Result<CopyResult, Coded> {
        let route = Route::of(plan)?;
        let options = &plan.options;
        let run = |connect: &mut dyn FnMut() -> longhaul_engine::Result<Session>| {
            let lost = |error: &_| eprintln!("longhaul: {}; trying to go on", chain(error));
            let line = Lifeline { connect, give_up: self.give_up, lost: &lost };
            match &route.way {
                Way::Push(source, target) => push(line, source, target, options, progress, stop),
                Way::Pull(paths, target) => pull(line, paths, target, options, progress, stop),
            }
        };
        let ssh = || SshOptions { rsh: self.rsh.clone(), far_longhaul: self.far_longhaul.clone() };
        Ok(match &route.far {
            Far::Here => {
                let mut far = None;
                let result = run(&mut || {
                    let (started, session) = LocalFar::start(stop)?;
                    far = Some(started);
                    Ok(session)
                });
                if let Some(far) = far {
                    far.finish();
                }
                result?
            }
            Far::Server(address) => {
                let connect = self.connector(address)?;
                run(&mut || connect())?
            }
            Far::Ssh(destination) => {
                let (options, mut far) = (ssh(), None);
                let result = run(&mut || {
                    // The one before, whose connection is lost, ends first.
                    far = None;
                    let (started, session) = SshFar::start(destination, &options)?;
                    far = Some(started);
                    Ok(session)
                })?;
                if let Some(far) = far {
                    far.finish();
                }
                result
            }
        })
    }

    /// What opens a session with the server at `address`, each time it is called.
    fn connector(
        &self,
        address: &str,
    ) -> Result<impl Fn() -> longhaul_engine::Result<Session>, Coded> {
        let target: HostPort = address.parse()?;
        let config = ConfigDir::of_user()?;
        let identity = Identity::load_or_create(&config)?;
        let policy = match self.accept_new {
            true => HostPolicy::AcceptNew,
            false => HostPolicy::RequireKnown,
        };
        Ok(move || {
            let options = ConnectOptions { identity: &identity, config: &config, policy };
            connect(&target, Service::Copy, &options)
        })
    }
}

/// `error` and what caused it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Which end is where.
struct Route {
    far: Far,
    way: Way,
}

enum Far {
    Here,
    Server(String),
    Ssh(String),
}

enum Way {
    Push(SourcePlan, PathBuf),
    Pull(Vec<PathBuf>, PathBuf),
}

impl Route {
    fn of(plan: &CopyPlan) -> Result<Self, Coded> {
        let usage = |text: &str| Err(Coded::new(exit::USAGE, anyhow!(text.to_owned())));
        let (source_far, paths) = match plan.sources.first() {
            Some(Location::Server { address, .. }) => (Some(Far::Server(address.clone())), true),
            Some(Location::Ssh { destination, .. }) => (Some(Far::Ssh(destination.clone())), true),
            _ => (None, false),
        };
        let mut roots = Vec::new();
        let mut far_paths = Vec::new();
        for source in &plan.sources {
            match (source, &source_far) {
                (Location::Local(path), None) => roots.push(SourceRoot::Path(path.clone())),
                (Location::Zero, None) => {
                    roots.push(SourceRoot::Zero(plan.zero_bytes.unwrap_or_default()));
                }
                (Location::Server { address, path }, Some(Far::Server(first)))
                    if address == first =>
                {
                    far_paths.push(path.clone());
                }
                (Location::Ssh { destination, path }, Some(Far::Ssh(first)))
                    if destination == first =>
                {
                    far_paths.push(path.clone());
                }
                _ => return usage("all sources must be at one place: here, or on one host"),
            }
        }
        let (far, target) = match (&plan.target, source_far) {
            (Location::Local(path), far) => (far.unwrap_or(Far::Here), path.clone()),
            (Location::Null, far) => (far.unwrap_or(Far::Here), "/dev/null".into()),
            (_, Some(_)) => {
                return usage(
                    "a copy between two other hosts is not built yet; run it on one of them",
                );
            }
            (Location::Server { address, path }, None) => {
                (Far::Server(address.clone()), path.clone())
            }
            (Location::Ssh { destination, path }, None) => {
                (Far::Ssh(destination.clone()), path.clone())
            }
            (Location::Zero, None) => return usage("/dev/zero is a source"),
        };
        let way = if paths {
            Way::Pull(far_paths, target)
        } else {
            Way::Push(SourcePlan { tree: Tree::anywhere(), roots }, target)
        };
        Ok(Route { far, way })
    }
}

/// Failures and what was passed over, on standard error.
fn report(result: &CopyResult) {
    const SHOWN: usize = 20;
    for failure in result.failures.iter().take(SHOWN) {
        eprintln!("longhaul: {}: {}", failure.path, failure.reason);
    }
    if result.failures.len() > SHOWN {
        eprintln!("longhaul: and {} more (--json lists them)", result.failures.len() - SHOWN);
    }
    for skipped in result.skipped.iter().take(SHOWN) {
        eprintln!("longhaul: {} is skipped: {}", skipped.path, skipped.reason);
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

    fn plan(words: &str) -> Result<CopyPlan, String> {
        let words = std::iter::once("cp").chain(words.split_whitespace());
        let args = Program::try_parse_from(words).map_err(|error| error.to_string())?.args;
        let plan = args.plan().map_err(|coded| coded.error.to_string())?;
        Route::of(&plan).map_err(|coded| coded.error.to_string())?;
        Ok(plan)
    }

    #[test]
    fn protection_follows_the_flags() {
        let protection = |words: &str| plan(words).unwrap().options.protection;
        assert_eq!(protection("a far:b"), Protection::Sealed);
        assert_eq!(protection("--cleartext a far:b"), Protection::Hashed);
        assert_eq!(protection("--cleartext --no-verify a far:b"), Protection::Bare);
        assert_eq!(protection("a b"), Protection::Hashed);
    }

    #[test]
    fn nonsense_and_the_unbuilt_are_refused_by_name() {
        for (words, expected) in [
            ("-a a far:b", "-a (all metadata) is not built yet"),
            ("--exclude x a far:b", "--exclude is not built yet"),
            ("--via-ssh a far:b", "--via-ssh"),
            ("- far:b", "'-'"),
            ("ftp://far/x y", "ftp://far/x"),
            ("far:a lh://other/b", "between two other hosts"),
            ("a far:b c", "at one place"),
            ("/dev/zero far:b", "--size"),
            ("--size 1G a far:b", "--size"),
            ("--block 1000 a far:b", "--block"),
            ("-P 0 a far:b", "0"),
            ("--bwlimit fast a far:b", "fast"),
            ("--no-verify a far:b", "--cleartext"),
            ("a", "DST"),
        ] {
            let error = plan(words).unwrap_err();
            assert!(error.contains(expected), "{words}: {error}");
        }
    }
}
