//! The options of rsync and scp that `cp` has under another name or does not have, by name.

/// The treatment of an option of another program.
#[derive(Debug, Clone, Copy)]
pub(super) enum Meaning {
    /// Every copy behaves so.
    Always,
    /// The option has no effect, for this reason.
    Without(&'static str),
    /// These options of longhaul, followed by the value if there is one.
    Ours(&'static [&'static str]),
    /// A part of -a.
    Archive,
    /// The advice to use another option or command instead. `{}` is the value.
    Instead(&'static str),
}

use Meaning::{Always, Archive, Instead, Ours, Without};

/// An option of another program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Foreign {
    /// The spellings.
    pub(super) names: &'static [&'static str],
    /// True if the option has a value.
    pub(super) value: bool,
    pub(super) meaning: Meaning,
}

const fn flag(names: &'static [&'static str], meaning: Meaning) -> Foreign {
    Foreign { names, value: false, meaning }
}

const fn valued(names: &'static [&'static str], meaning: Meaning) -> Foreign {
    Foreign { names, value: true, meaning }
}

const WHOLE: &str = "cp sends a file that differs as a whole, and resumes an interrupted copy";
const FAMILY: &str = "give -e 'ssh -4' or -e 'ssh -6' for ssh, or an address in lh://ADDRESS/PATH";

/// The options.
pub(super) const TABLE: &[Foreign] = &[
    flag(&["--progress", "--partial", "--human-readable"], Always),
    flag(&["-W", "--whole-file", "-S", "--sparse", "--fsync", "--preallocate"], Always),
    flag(&["-s", "-y", "--secluded-args", "--protect-args", "--mkpath", "--fuzzy"], Always),
    flag(&["--no-inc-recursive", "--no-i-r", "--no-motd", "--delay-updates"], Always),
    flag(&["--no-whole-file", "--inplace", "--append", "--append-verify"], Without(WHOLE)),
    valued(&["--partial-dir"], Without("an interrupted copy resumes without such a directory")),
    valued(&["--timeout", "--contimeout"], Instead("give --give-up {}s")),
    flag(&["-c", "--checksum"], Ours(&["--sync-level", "checksum"])),
    flag(&["--size-only"], Ours(&["--sync-level", "size"])),
    flag(&["--ignore-existing"], Ours(&["--sync-level", "exists"])),
    flag(&["-t", "--times", "--perms"], Ours(&["-p"])),
    flag(&["--itemize-changes"], Ours(&["-v"])),
    flag(
        &["--del", "--delete-before", "--delete-during", "--delete-delay", "--delete-after"],
        Ours(&["--delete"]),
    ),
    valued(&["--rsync-path"], Ours(&["--far-longhaul"])),
    valued(&["--address"], Ours(&["--bind"])),
    flag(&["-g", "--group", "--owner", "-D", "--devices", "--specials"], Archive),
    flag(&["-H", "--hard-links", "-A", "--acls", "-X", "--xattrs"], Archive),
    flag(&["-L", "--copy-links"], Instead("give -r without -a and -l: -r follows symbolic links")),
    flag(&["-x", "--one-file-system"], Instead("give --exclude for each mounted directory")),
    flag(
        &["--remove-source-files"],
        Instead("remove the sources after a copy that succeeded: longhaul cp ... && rm ..."),
    ),
    flag(&["--list-only"], Instead("give -n: it lists the files that a copy would create")),
    valued(&["--port"], Instead("give the port in the address: lh://HOST:{}/PATH")),
    valued(&["--log-file"], Instead("redirect the list of -v: longhaul cp -v ... > {}")),
    flag(&["-4", "--ipv4", "-6", "--ipv6"], Instead(FAMILY)),
    flag(&["-3", "-O", "-R", "-T"], Always),
];

/// Returns the entry of an option.
pub(super) fn find(name: &str) -> Option<&'static Foreign> {
    TABLE.iter().find(|foreign| foreign.names.contains(&name))
}
