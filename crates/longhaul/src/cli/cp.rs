//! `longhaul cp`: arguments to a plan, a session, a copy, its output.

mod check;
mod events;
mod filters;
mod gate;
mod route;
mod standard;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::anyhow;
use longhaul_core::plan::{
    CopyOptions, CopyPlan, DeleteOptions, DirectIo, Location, OwnerMode, Protection, TreeOptions,
    Verify,
};
use longhaul_core::result::{CopyResult, NotKept};
use longhaul_core::text::chain;
use longhaul_core::units::{Bytes, Rate, parse_span};
use longhaul_core::wire::{BLOCK_LIMIT, FilePath};
use longhaul_engine::EngineError;
use longhaul_engine::copy::{
    CopySecret, Ends, FarFiles, Landing, Lifeline, Outlet, Progress, between, check_apart, pull,
    push, read_names,
};

use self::check::check;
use self::events::{Events, Printer};
use self::filters::{FilterArgs, read_list};
use self::gate::Addresses;
pub(in crate::cli) use self::gate::Gate;
pub(in crate::cli) use self::route::{Far, far};
use self::route::{Route, Target};
use crate::exit::{self, Coded};
use crate::interrupt::Interrupt;
use crate::output::{CopyBar, after_printing, copy_text, raw_output, say};
use crate::remote::SshOptions;
use crate::throttle::Throttle;

#[derive(Debug, clap::Args)]
#[command(after_help = "SRC and DST are PATH, [user@]host:PATH (over ssh, which runs longhaul \
                        there) or lh://host[:port]/PATH (a 'longhaul serve --root DIR'). \
                        Exit codes: 0 done, 2 bad arguments, 3 not reachable or connection lost, \
                        4 refused by the server, 5 files or disk, 7 some files failed, 130 \
                        stopped by Ctrl-C.")]
pub(super) struct Args {
    /// What to copy and where to: the last is the target. 'dir/.' means a directory's contents,
    /// /dev/zero bytes from memory, '-' standard input; the target /dev/null verifies and drops,
    /// '-' is standard output
    #[arg(value_names = ["SRC", "DST"], num_args = 1.., required_unless_present = "check")]
    places: Vec<Location>,
    /// Copy directories with all that is in them; links are followed
    #[arg(short, long)]
    recursive: bool,
    /// Keep everything: -r -p -l, hard links, owners and groups, extended attributes, access
    /// control lists, devices, FIFOs and sockets
    #[arg(short, long)]
    archive: bool,
    /// Keep modes and times
    #[arg(short, long)]
    preserve: bool,
    /// Copy symbolic links as links
    #[arg(short, long)]
    links: bool,
    /// With -a: keep owners and groups by number, not by name
    #[arg(long, requires = "archive")]
    numeric_ids: bool,
    /// Leave files alone that are newer at the target, or as new and as long
    #[arg(short, long)]
    update: bool,
    /// Delete what is in a copied directory at the target and not at the source, once everything
    /// was copied; with -n only list it
    #[arg(long)]
    delete: bool,
    /// With --delete: if there are more than this to delete, delete nothing
    #[arg(long, value_name = "N", requires = "delete")]
    max_delete: Option<u64>,
    /// Change nothing; list what would be done
    #[arg(short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    filters: FilterArgs,
    /// Copy what FILE names of the directory SRC, paths relative to it, one a line, each with the
    /// directories above it; '-' for standard input
    #[arg(long, value_name = "FILE")]
    files_from: Option<OsString>,
    /// The names in --files-from end with NUL, as find -print0 writes them
    #[arg(short = '0', long, requires = "files_from")]
    from0: bool,
    /// Tell each file's BLAKE3 digest, as b3sum does
    #[arg(long)]
    digest: bool,
    /// Write a manifest of the files' digests beside them [default name: the copy's with .b3]
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true,
          default_missing_value = "")]
    manifest: Option<OsString>,
    /// Copy nothing; compare the files beside MANIFEST, or those in the directory given, with it;
    /// where both are at a far host, it is that host that reads them
    #[arg(long, value_name = "MANIFEST")]
    check: Option<Location>,
    /// TCP connections that carry the data [default: as many as bring something, from 4 to 16]
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
    /// Give up when nothing has moved for this long: while connected, or while a lost connection is
    /// made again
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_span)]
    give_up: Duration,
    /// Do not encrypt the data; it is still authenticated and verified
    #[arg(long)]
    cleartext: bool,
    /// With --cleartext: do not verify blocks either; TCP's checksum is all
    #[arg(long, requires = "cleartext")]
    no_verify: bool,
    /// Compare files as they arrive, or also as the disk returns them, past the page cache, before
    /// they get their names
    #[arg(
        long,
        value_name = "in-flight|reread",
        default_value = "in-flight",
        conflicts_with = "no_verify"
    )]
    verify: Verify,
    /// Do not sync files before they get their names; a crash may lose them
    #[arg(long)]
    no_fsync: bool,
    /// The unit of reading, verifying and writing [default: 4MiB; 1MiB with more than 16 streams
    /// or a --bwlimit of 1 Gb/s and less]
    #[arg(long, value_name = "SIZE")]
    block: Option<Bytes>,
    /// Read and write files of 1 MiB and more past the page cache: where that pays, which each end
    /// tries with the first blocks of a long file; wherever the file system takes it; or never
    #[arg(long, value_name = "auto|always|never", default_value = "auto")]
    direct: DirectIo,
    /// How much of /dev/zero to copy
    #[arg(long, value_name = "SIZE")]
    size: Option<Bytes>,
    /// Record the key of a server that is not known yet
    #[arg(long)]
    accept_new: bool,
    #[command(flatten)]
    ssh: SshOptions,
    /// Send everything through ssh, for hosts where its port alone is open: slower than beside it
    #[arg(long)]
    via_ssh: bool,
    /// Spread the data connections over these addresses of the far host, or over all that its
    /// name has
    #[arg(long, value_name = "A,B|all", conflicts_with = "via_ssh")]
    addresses: Option<Addresses>,
    /// Print one JSON document, "longhaul.cp/1"
    #[arg(long, conflicts_with = "json_stream")]
    json: bool,
    /// Print a line of JSON each second and for each event, the last with the whole document
    #[arg(long, conflicts_with = "check")]
    json_stream: bool,
}

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let interrupt = Interrupt::install().map_err(|e| Coded::new(exit::HOST, e))?;
        if let Some(manifest) = &self.check {
            let open = |far: &Far| self.gate(far, None, interrupt.flag());
            let patience = self.give_up.max(LEAST_PATIENCE);
            return check(manifest, &self.places, self.json, open, patience, interrupt.flag());
        }
        let plan = self.plan()?;
        Self::check_terminals(&plan)?;
        let printer = Printer { to_stderr: self.to_stdout() };
        let progress = Arc::new(Progress::default());
        let _throttle = Throttle::start(progress.clone()).map_err(|e| Coded::new(exit::HOST, e))?;
        let bar = CopyBar::start(progress.clone(), self.json || self.json_stream);
        let events = self.json_stream.then(|| Events::start(progress.clone(), printer));
        let copied = self.copy(&plan, &progress, printer, interrupt.flag());
        bar.finish();
        let told = events.map_or(Ok(()), |events| events.finish(copied.as_ref().ok()));
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
        let printed = match (self.json, self.json_stream) {
            (true, _) => printer.document(&result),
            (false, true) => told,
            (false, false) => printer.text(&copy_text(&result)),
        };
        let summary = &result.summary;
        let done = summary.files + summary.unchanged_files + result.actions.len() as u64;
        let code = match (result.failures.is_empty(), result.not_kept.is_empty()) {
            (true, true) => exit::OK,
            (false, _) if done == 0 => exit::FILES,
            _ => exit::PARTIAL,
        };
        after_printing(code, printed)
    }

    fn plan(&self) -> Result<CopyPlan, Coded> {
        let usage = |text: String| Err(Coded::new(exit::USAGE, anyhow!(text)));
        let page = longhaul_sys::memory::DIRECT_ALIGN as u64;
        let block = self.block.unwrap_or_else(|| CopyOptions::block(self.streams, self.bwlimit));
        if block.get() == 0 || !block.get().is_multiple_of(page) || block > BLOCK_LIMIT {
            return usage(format!(
                "--block is {block}; it is a multiple of {page} bytes up to {BLOCK_LIMIT}"
            ));
        }
        let Some((target, sources @ [_, ..])) = self.places.split_last() else {
            return usage("a copy needs a target: SRC... DST".to_owned());
        };
        let zeros = sources.contains(&Location::Zero);
        if zeros != self.size.is_some() {
            return usage(match zeros {
                true => "/dev/zero has no end; say how much of it with --size".to_owned(),
                false => "--size goes with the source /dev/zero".to_owned(),
            });
        }
        if *target == Location::Zero || sources.contains(&Location::Null) {
            return usage("/dev/zero is a source and /dev/null a target".to_owned());
        }
        self.check_standard(sources, target)?;
        if self.verify == Verify::Reread && matches!(target, Location::Null | Location::Standard) {
            return usage("--verify=reread needs a target that keeps what is written".to_owned());
        }
        let local = sources
            .iter()
            .chain([target])
            .all(|place| !matches!(place, Location::Server { .. } | Location::Ssh { .. }));
        let protection = match (self.cleartext, self.no_verify) {
            (_, true) => Protection::Bare,
            (true, false) => Protection::Hashed,
            // Nobody listens inside one process.
            (false, false) if local => Protection::Hashed,
            (false, false) => Protection::Sealed,
        };
        Ok(CopyPlan {
            sources: sources.to_vec(),
            target: target.clone(),
            options: CopyOptions {
                streams: self.streams,
                block_bytes: block,
                protection,
                durable: !self.no_fsync,
                preserve: self.preserve || self.archive,
                recursive: self.recursive || self.archive,
                rate_bps: self.bwlimit,
                direct: self.direct,
                nice: self.nice,
                verify: self.verify,
                give_up_ms: Some(self.give_up.max(LEAST_PATIENCE).as_millis() as u64),
                tree: self.tree()?,
                sample: None,
            },
            names: self.names(sources)?,
            zero_bytes: self.size,
        })
    }

    /// What --files-from names.
    fn names(&self, sources: &[Location]) -> Result<Option<Vec<PathBuf>>, Coded> {
        let Some(list) = &self.files_from else { return Ok(None) };
        let usage = |text: &str| Err(Coded::new(exit::USAGE, anyhow!(text.to_owned())));
        if !matches!(sources, [Location::Local(_) | Location::Server { .. } | Location::Ssh { .. }])
        {
            return usage("with --files-from there is one SRC, the directory it names files of");
        }
        if self.delete {
            return usage("--files-from does not say what else there is; leave --delete away");
        }
        Ok(Some(read_names(&read_list(Path::new(list))?, self.from0)))
    }

    /// What is copied of a tree, and what happens to what is there.
    fn tree(&self) -> Result<TreeOptions, Coded> {
        let usage = |text: &str| Err(Coded::new(exit::USAGE, anyhow!(text.to_owned())));
        let recursive = self.recursive || self.archive;
        if self.delete && !recursive {
            return usage("--delete is about directories; it goes with -r or -a");
        }
        let manifest = match &self.manifest {
            None => None,
            Some(_) if self.places.last() == Some(&Location::Null) => {
                return usage("/dev/null has no place for a manifest; use --digest");
            }
            Some(name) => {
                let name = FilePath::new(name.as_bytes());
                match name {
                    Some(name) if name.as_bytes().is_empty() || name.is_plain_relative() => {
                        Some(name)
                    }
                    _ => return usage("--manifest is a name beside what is copied, without '..'"),
                }
            }
        };
        let archive = if self.archive { TreeOptions::archive() } else { TreeOptions::default() };
        Ok(TreeOptions {
            keep_links: self.links || self.archive,
            owner: match (self.archive, self.numeric_ids) {
                (false, _) => OwnerMode::Ignore,
                (true, false) => OwnerMode::Names,
                (true, true) => OwnerMode::Numbers,
            },
            update: self.update,
            dry_run: self.dry_run,
            delete: self.delete.then_some(DeleteOptions { limit: self.max_delete }),
            filters: self.filters.rules()?,
            digests: self.digest,
            ordered: self.to_stdout(),
            manifest,
            ..archive
        })
    }

    /// What opens sessions with `far`.
    fn gate<'a>(
        &self,
        far: &Far,
        addresses: Option<Addresses>,
        stop: &'a Arc<AtomicBool>,
    ) -> Result<Gate<'a>, Coded> {
        let ssh = SshOptions { via_ssh: self.via_ssh, ..self.ssh.clone() };
        Gate::new(far, &ssh, self.accept_new, addresses, stop)
    }

    fn copy(
        &self,
        plan: &CopyPlan,
        progress: &Progress,
        printer: Printer,
        stop: &Arc<AtomicBool>,
    ) -> Result<CopyResult, Coded> {
        let options = &plan.options;
        let gate = |far: &Far, addresses| self.gate(far, addresses, stop);
        let secret = CopySecret::of_user();
        let lost = |error: &EngineError| {
            say(format_args!("{}; trying to go on", chain(error)));
            if self.json_stream {
                Events::lost(printer, &chain(error));
            }
        };
        let give_up = self.give_up;
        let addresses = self.addresses.clone();
        Ok(match Route::of(plan)? {
            Route::Push { source, far, target } => {
                if matches!(far, Far::Here) && plan.target != Location::Null {
                    check_apart(&source, &target, options)
                        .map_err(|error| Coded::new(exit::USAGE, error))?;
                }
                let mut gate = gate(&far, addresses)?;
                let connect: &mut dyn FnMut() -> _ = &mut || gate.open();
                let line = Lifeline { connect, give_up, lost: &lost, secret: &secret };
                let result = push(line, &source, &target, options, progress, stop);
                gate.finish();
                result?
            }
            Route::Pull { far, paths, names, target } => {
                let mut gate = gate(&far, addresses)?;
                let connect: &mut dyn FnMut() -> _ = &mut || gate.open();
                let line = Lifeline { connect, give_up, lost: &lost, secret: &secret };
                let files = FarFiles { paths: &paths, names: names.as_deref() };
                let outlet;
                let landing = match &target {
                    Target::Path(path) => Landing::Path(path),
                    Target::Output => {
                        let output = raw_output().map_err(|e| Coded::new(exit::HOST, e))?;
                        outlet = Arc::new(Outlet::new(output));
                        Landing::Outlet(&outlet)
                    }
                };
                let result = pull(line, files, landing, options, progress, stop);
                gate.finish();
                result?
            }
            Route::Between { from, paths, names, to, target } => {
                let (mut source, mut sink) = (gate(&from, None)?, gate(&to, addresses)?);
                let connect: &mut dyn FnMut() -> _ = &mut || sink.open();
                let line = Lifeline { connect, give_up, lost: &lost, secret: &secret };
                let notice = |reason: &str| {
                    say(format_args!("{from}: {reason}; the data goes through this host"));
                };
                let files = FarFiles { paths: &paths, names: names.as_deref() };
                let ends = Ends { source: &mut || source.open(), files, target: &target };
                let result = between(line, ends, options, progress, &notice, stop);
                source.finish();
                sink.finish();
                result?
            }
        })
    }
}

/// An end that is connected waits at least this long while nothing moves, whatever --give-up says.
const LEAST_PATIENCE: Duration = Duration::from_secs(20);

/// Failures and what was passed over, on standard error.
fn report(result: &CopyResult) {
    const SHOWN: usize = 20;
    for failure in result.failures.iter().take(SHOWN) {
        say(format_args!("{}: {}", failure.path, failure.reason));
    }
    if result.failures.len() > SHOWN {
        say(format_args!("and {} more (--json lists them)", result.failures.len() - SHOWN));
    }
    for NotKept { what, count, example, reason } in &result.not_kept {
        let what = what.as_str();
        let things = if *count == 1 { "path" } else { "paths" };
        say(format_args!("{what} not kept of {count} {things}, such as {example}: {reason}"));
    }
    for skipped in result.skipped.iter().take(SHOWN) {
        say(format_args!("{} is skipped: {}", skipped.path, skipped.reason));
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
        let plan = args.plan().map_err(|coded| format!("{:#}", coded.error))?;
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
    fn archive_means_all_of_it() {
        let options = plan("-a a far:b").unwrap().options;
        assert!(options.recursive && options.preserve);
        assert_eq!(options.tree, TreeOptions::archive());
        let by_number = plan("-a --numeric-ids a far:b").unwrap().options.tree;
        assert_eq!(by_number.owner, OwnerMode::Numbers);
        assert!(plan("-r -l a far:b").unwrap().options.tree.keep_links);
    }

    #[test]
    fn filters_keep_their_order() {
        let words = "--exclude x --include y --exclude=z a far:b";
        let rules = plan(words).unwrap().options.tree.filters;
        let rules: Vec<_> =
            rules.iter().map(|rule| (rule.include, rule.pattern.to_string())).collect();
        let rule = |include, pattern: &str| (include, pattern.to_owned());
        assert_eq!(rules, [rule(false, "x"), rule(true, "y"), rule(false, "z")]);
    }

    #[test]
    fn nonsense_and_the_unbuilt_are_refused_by_name() {
        for (words, expected) in [
            ("--numeric-ids a far:b", "--archive"),
            ("--delete a far:b", "-r or -a"),
            ("--max-delete 3 -r a far:b", "--delete"),
            ("--manifest=../x a far:b", "'..'"),
            ("--manifest a /dev/null", "--digest"),
            ("--exclude= a far:b", "no pattern"),
            ("--exclude-from /no/such/file a far:b", "/no/such/file"),
            ("- a far:b", "one file"),
            ("- - far:b", "one thing only"),
            ("- -", "cat"),
            ("-r - far:b", "-r"),
            ("-a far:b -", "-a"),
            ("a b -", "one file"),
            ("--manifest far:b -", "--manifest"),
            ("--exclude-from - - far:b", "one thing only"),
            ("-0 a far:b", "--files-from"),
            ("--files-from /no/such/list a far:b", "/no/such/list"),
            ("--files-from x a b far:b", "one SRC"),
            ("--files-from x -r --delete a far:b", "--delete"),
            ("--files-from - - far:b", "one thing only"),
            ("--json --json-stream a far:b", "--json-stream"),
            ("ftp://far/x y", "ftp://far/x"),
            ("--via-ssh --addresses all a far:b", "--addresses"),
            ("a far:b c", "at one place"),
            ("/dev/zero far:b", "--size"),
            ("--size 1G a far:b", "--size"),
            ("--block 1000 a far:b", "--block"),
            ("-P 0 a far:b", "0"),
            ("--bwlimit fast a far:b", "fast"),
            ("--no-verify a far:b", "--cleartext"),
            ("--cleartext --no-verify --verify=reread a far:b", "--verify"),
            ("--verify=reread a /dev/null", "--verify=reread"),
            ("--verify=twice a far:b", "reread"),
            ("a", "DST"),
        ] {
            let error = plan(words).unwrap_err();
            assert!(error.contains(expected), "{words}: {error}");
        }
    }
}
