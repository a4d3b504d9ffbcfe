//! `longhaul cp`: the arguments of a copy.

mod check;
mod connector;
mod events;
mod filters;
mod plan;
mod route;
mod run;
mod standard;

use std::ffi::OsString;
use std::time::Duration;

use longhaul_core::plan::{CpuList, DirectIo, Location, SyncLevel, Verify};
use longhaul_core::units::{Bytes, Rate, parse_span};

use self::connector::Addresses;
pub(in crate::cli) use self::connector::{Access, Connector};
use self::filters::FilterArgs;
pub(in crate::cli) use self::route::{Endpoint, endpoint};
use super::bind::BindArgs;
use crate::remote::SshOptions;

#[derive(Debug, clap::Args)]
#[command(after_help = "SRC and DST are PATH, [user@]host:PATH (over ssh, which starts longhaul \
                        on that host) or lh://host[:port]/PATH (a server that runs 'longhaul \
                        serve --root DIR'). Exit codes: 0 done, 1 other errors, 2 invalid \
                        arguments, 3 host unreachable or connection lost, 4 refused by the server, \
                        5 file or disk error, 6 error of this host, 7 some files failed, 10 the \
                        result could not be printed, 130 interrupted by Ctrl-C, 143 ended by \
                        SIGTERM.")]
pub(super) struct Args {
    /// Sources and, last, the target. As a source, 'dir/.' is the contents of a directory,
    /// /dev/zero is zeros from memory and '-' is standard input. The target /dev/null verifies and
    /// discards the data; the target '-' is standard output
    #[arg(value_names = ["SRC", "DST"], num_args = 1.., required_unless_present_any = ["check", "install_far"])]
    places: Vec<Location>,
    /// Copy directories and their contents; follow symbolic links
    #[arg(short, long)]
    recursive: bool,
    /// Preserve everything: -r -p -l, hard links, owners and groups, extended attributes, access
    /// control lists, devices, FIFOs and sockets
    #[arg(short, long)]
    archive: bool,
    /// Preserve modes and times
    #[arg(short, long)]
    preserve: bool,
    /// Copy symbolic links as links
    #[arg(short, long)]
    links: bool,
    /// A source directory with a trailing slash means its contents, as in rsync
    #[arg(long)]
    rsync_slash: bool,
    /// With -a: preserve owners and groups by number instead of by name
    #[arg(long, requires = "archive")]
    numeric_ids: bool,
    /// Skip files that are newer at the target, or have the same time and size
    #[arg(short, long)]
    update: bool,
    /// Copy only files that differ from the target's: 'exists' copies missing files, 'size' also
    /// those of another size, 'mtime' also those that are newer at the source, 'checksum' those
    /// with other contents, which both hosts read
    #[arg(long, value_name = "exists|size|mtime|checksum", conflicts_with = "update")]
    sync_level: Option<SyncLevel>,
    /// After the copy, delete files in copied directories of the target that the source does not
    /// have; with -n only list them
    #[arg(long)]
    delete: bool,
    /// With --delete: delete nothing if more than N files would be deleted
    #[arg(long, value_name = "N", requires = "delete")]
    max_delete: Option<u64>,
    /// Change nothing; list the changes that a copy would make
    #[arg(short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    filters: FilterArgs,
    /// Copy only the paths listed in FILE, relative to SRC, one per line; '-' is standard input
    #[arg(long, value_name = "FILE")]
    files_from: Option<OsString>,
    /// The paths in --files-from end with NUL, as 'find -print0' writes them
    #[arg(short = '0', long, requires = "files_from")]
    from0: bool,
    /// Print the BLAKE3 digest of each file, in the format of b3sum
    #[arg(long)]
    digest: bool,
    /// Write a manifest with the digest of each file beside the files [default name: the copy's
    /// name with .b3]
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true,
          default_missing_value = "")]
    manifest: Option<OsString>,
    /// Copy nothing; compare the files beside MANIFEST, or in the given directory, with it. A
    /// remote host reads its own files
    #[arg(long, value_name = "MANIFEST")]
    check: Option<Location>,
    /// TCP connections that carry the data [default: chosen while the copy runs, from 4 to 16]
    #[arg(short = 'P', long = "streams", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=128))]
    streams: Option<u32>,
    /// Limit the total rate of all connections; 0 means no limit. SIGUSR1 halves the limit and
    /// SIGUSR2 doubles it while the copy runs
    #[arg(long, value_name = "RATE")]
    bwlimit: Option<Rate>,
    /// Yield to other programs and other traffic: lower CPU and disk priority on both hosts, and a
    /// congestion control that gives way
    #[arg(long)]
    nice: bool,
    /// Send without regard to other traffic: for a circuit without other traffic
    #[arg(long, conflicts_with = "nice")]
    dedicated: bool,
    /// Run only on these CPUs of this host, such as 0-3 or 0+2
    #[arg(long, value_name = "CPUS")]
    affinity: Option<CpuList>,
    /// Give up after this long without progress, connected or not
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_span)]
    give_up: Duration,
    /// Do not encrypt the data; they are still authenticated and verified
    #[arg(long)]
    cleartext: bool,
    /// With --cleartext: do not verify blocks; only TCP's checksum protects them
    #[arg(long, requires = "cleartext")]
    no_verify: bool,
    /// Verify the data as they arrive, or also read every file back from the disk, past the page
    /// cache, before it gets its final name
    #[arg(
        long,
        value_name = "in-flight|reread",
        default_value = "in-flight",
        conflicts_with = "no_verify"
    )]
    verify: Verify,
    /// Do not sync files before they get their final names; a crash may lose them
    #[arg(long)]
    no_fsync: bool,
    /// Size of a block, the unit of reading, verifying and writing [default: 4MiB; 1MiB with more
    /// than 16 streams or a --bwlimit of 1 Gb/s or less]
    #[arg(long, value_name = "SIZE")]
    block: Option<Bytes>,
    /// Read and write files of 1 MiB and more with direct I/O: 'auto' compares both ways on the
    /// first blocks of a large file, 'always' uses it wherever the file system allows
    #[arg(long, value_name = "auto|always|never", default_value = "auto")]
    direct: DirectIo,
    /// Number of bytes to copy from /dev/zero
    #[arg(long, value_name = "SIZE")]
    size: Option<Bytes>,
    /// Trust and record the key of an unknown server
    #[arg(long)]
    accept_new: bool,
    #[command(flatten)]
    ssh: SshOptions,
    /// Send all data through ssh, for hosts that accept only ssh connections; slower than separate
    /// TCP connections
    #[arg(long, conflicts_with = "bind")]
    via_ssh: bool,
    #[command(flatten)]
    bind: BindArgs,
    /// Distribute the data connections over these addresses of the remote host, or over all
    /// addresses of its name
    #[arg(long, value_name = "A,B|all", conflicts_with = "via_ssh")]
    addresses: Option<Addresses>,
    /// List each file and directory that is created or replaced
    #[arg(short, long)]
    verbose: bool,
    /// Print the counts of files and bytes, the times and the load
    #[arg(long, conflicts_with_all = ["quiet", "json", "json_stream"])]
    stats: bool,
    /// Print nothing but errors
    #[arg(short, long, conflicts_with_all = ["json", "json_stream", "verbose"])]
    quiet: bool,
    /// Copy nothing; install this program as ~/.local/bin/longhaul on the host, over ssh, after a
    /// question
    #[arg(long, value_name = "[USER@]HOST", conflicts_with_all = ["places", "check"])]
    install_far: Option<String>,
    /// With --install-far: do not ask
    #[arg(long)]
    yes: bool,
    /// Print one JSON document, "longhaul.cp/1"
    #[arg(long, conflicts_with = "json_stream")]
    json: bool,
    /// Print one line of JSON per second and per event; the last line has the whole result
    #[arg(long, conflicts_with = "check")]
    json_stream: bool,
}

/// The lower bound of `--give-up` while connected.
const LEAST_GIVE_UP: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use clap::Parser;
    use longhaul_core::plan::{CopyPlan, OwnerMode, Protection, TreeOptions};

    use super::*;
    use crate::cli::cp::route::Route;

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
    fn a_rate_limit_of_zero_means_no_limit() {
        let rate = |words: &str| plan(words).unwrap().options.rate_bps;
        assert_eq!(rate("--bwlimit 0 a far:b"), None);
        assert_eq!(rate("--bwlimit 10MB/s a far:b"), Some("80M".parse().unwrap()));
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
    fn an_invalid_argument_is_named_in_the_error() {
        for (words, expected) in [
            ("--numeric-ids a far:b", "--archive"),
            ("--delete a far:b", "-r or -a"),
            ("--max-delete 3 -r a far:b", "--delete"),
            ("--manifest=../x a far:b", "'..'"),
            ("--manifest a /dev/null", "--digest"),
            ("--exclude= a far:b", "no pattern"),
            ("--exclude-from /no/such/file a far:b", "/no/such/file"),
            ("- a far:b", "one file"),
            ("- - far:b", "only once"),
            ("- -", "cat"),
            ("-r - far:b", "-r"),
            ("-a far:b -", "-a"),
            ("a b -", "one file"),
            ("--manifest far:b -", "--manifest"),
            ("--exclude-from - - far:b", "only once"),
            ("-0 a far:b", "--files-from"),
            ("--files-from /no/such/list a far:b", "/no/such/list"),
            ("--files-from x a b far:b", "one SRC"),
            ("--files-from x -r --delete a far:b", "--delete"),
            ("--files-from - - far:b", "only once"),
            ("--json --json-stream a far:b", "--json-stream"),
            ("--sync-level all a far:b", "checksum"),
            ("-u --sync-level size a far:b", "--update"),
            ("-q -v a far:b", "--verbose"),
            ("--install-far far a b", "--install-far"),
            ("ftp://far/x y", "ftp://far/x"),
            ("--via-ssh --addresses all a far:b", "--addresses"),
            ("a far:b c", "on one host"),
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
