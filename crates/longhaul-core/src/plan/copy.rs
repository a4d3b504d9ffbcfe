//! The plan of a copy.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::TreeOptions;
use crate::units::{Bytes, Rate};

/// An end of a copy, as the user writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A path on this host.
    Local(PathBuf),
    /// `[user@]host:path`, reached with the system's ssh. An empty path means the home directory.
    Ssh {
        /// `[user@]host`, passed unchanged to ssh.
        destination: String,
        /// The path on that host.
        path: PathBuf,
    },
    /// `lh://host[:port]/path`, a `longhaul serve --root DIR`.
    Server {
        /// The `host[:port]` of the server.
        address: String,
        /// The path below the server's root; `/dev/null` discards everything.
        path: PathBuf,
    },
    /// `/dev/zero` as a source: bytes from memory.
    Zero,
    /// `/dev/null` as a target: bytes are verified and discarded.
    Null,
    /// `-`: standard input as a source, standard output as a target.
    Standard,
}

/// The reason why a text is not a valid location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// The text is empty.
    #[error("an empty path names no file")]
    Empty,
    /// A URL with an unknown scheme.
    #[error(
        "'{0}' is not a known address: expected PATH, [user@]host:PATH or lh://host[:port]/PATH"
    )]
    UnknownScheme(String),
    /// `lh://` without host or path.
    #[error("'{0}' is incomplete: expected lh://host[:port]/PATH")]
    Incomplete(String),
    /// A host name that ssh would interpret as an option.
    #[error("'{0}' has a host name that is empty or begins with '-'")]
    OptionHost(String),
}

impl Location {
    /// Returns the location with `dir/` replaced by `dir/.`, the contents of the directory.
    #[must_use]
    pub fn contents_if_slash(&self) -> Self {
        let mut place = self.clone();
        if let Location::Local(path) | Location::Ssh { path, .. } | Location::Server { path, .. } =
            &mut place
            && path.as_os_str().as_encoded_bytes().ends_with(b"/")
        {
            path.as_mut_os_string().push(".");
        }
        place
    }
}

impl fmt::Display for Location {
    /// Writes the location as the user would.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Local(path) => write!(f, "{}", path.display()),
            Location::Ssh { destination, path } => write!(f, "{destination}:{}", path.display()),
            Location::Server { address, path } if path.as_os_str() == "." => {
                write!(f, "lh://{address}/")
            }
            Location::Server { address, path } => {
                let path = path.display().to_string();
                write!(f, "lh://{address}/{}", path.trim_start_matches('/'))
            }
            Location::Zero => f.write_str("/dev/zero"),
            Location::Null => f.write_str("/dev/null"),
            Location::Standard => f.write_str("-"),
        }
    }
}

impl FromStr for Location {
    type Err = LocationError;

    /// Parses a location as scp does: a colon before the first slash means `host:path`. A local
    /// file with a colon in its name is written `./a:b`.
    fn from_str(text: &str) -> Result<Self, LocationError> {
        match text {
            "" => return Err(LocationError::Empty),
            "-" => return Ok(Location::Standard),
            "/dev/zero" => return Ok(Location::Zero),
            "/dev/null" => return Ok(Location::Null),
            _ => {}
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            if scheme != "lh" {
                return Err(LocationError::UnknownScheme(text.to_owned()));
            }
            let incomplete = || LocationError::Incomplete(text.to_owned());
            let (address, path) = rest.split_once('/').ok_or_else(incomplete)?;
            if address.is_empty() {
                return Err(incomplete());
            }
            let path = match path {
                "" => ".",
                "dev/null" => "/dev/null",
                path => path,
            };
            return Ok(Location::Server { address: address.to_owned(), path: path.into() });
        }
        // The brackets of an IPv6 address, with or without a preceding 'user@'.
        let bracket = text.find('[').filter(|at| !text[..*at].contains([':', '/']));
        let colon = match bracket.and_then(|at| Some(at + text[at..].find("]:")?)) {
            Some(end) => Some(end + 1),
            None => text.find(':'),
        };
        match colon {
            Some(colon) if !text[..colon].contains('/') && colon > 0 => {
                let destination = ssh_destination(&text[..colon])?;
                // A remote path begins at the home directory, as '~/' does.
                let path = match &text[colon + 1..] {
                    "~" => ".",
                    path => path.strip_prefix("~/").unwrap_or(path),
                };
                let path = if path.is_empty() { "." } else { path };
                Ok(Location::Ssh { destination, path: path.into() })
            }
            _ => Ok(Location::Local(text.into())),
        }
    }
}

/// Returns `[user@]host` as ssh accepts it: without the brackets of an IPv6 address.
///
/// # Errors
/// ssh would interpret the user or the host as an option.
pub fn ssh_destination(text: &str) -> Result<String, LocationError> {
    let destination = text.replace(['[', ']'], "");
    let host = destination.rsplit_once('@').map_or(&*destination, |(_, host)| host);
    if destination.starts_with('-') || host.starts_with('-') || host.is_empty() {
        return Err(LocationError::OptionHost(text.to_owned()));
    }
    Ok(destination)
}

/// The protection of the bytes of a copy in transit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// AES-256-GCM: encrypted, and every block authenticated.
    Sealed,
    /// Clear text; an XXH3-128 hash that includes the position verifies every block.
    Hashed,
    /// Clear text, verified only by TCP (`--cleartext --no-verify`).
    Bare,
}

impl Protection {
    /// Returns whether the receiver verifies each block before it writes the block.
    pub fn verifies(self) -> bool {
        self != Protection::Bare
    }
}

/// The kind of verification of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verify {
    /// Blocks are verified on arrival, before they are written.
    #[default]
    InFlight,
    /// Blocks are also verified as the disk returns them, before the file gets its name.
    Reread,
}

impl FromStr for Verify {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "in-flight" => Ok(Verify::InFlight),
            "reread" => Ok(Verify::Reread),
            _ => Err("expected in-flight or reread"),
        }
    }
}

/// The use of direct I/O for large files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DirectIo {
    /// Direct I/O is used if the file system supports it and it is faster. Each end measures this
    /// with the first blocks.
    #[default]
    Auto,
    /// Direct I/O is used whenever the file system supports it.
    Always,
    /// Direct I/O is never used.
    Never,
}

impl FromStr for DirectIo {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(DirectIo::Auto),
            "always" => Ok(DirectIo::Always),
            "never" => Ok(DirectIo::Never),
            _ => Err("expected auto, always or never"),
        }
    }
}

/// The options on which both ends of a copy must agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOptions {
    /// The number of TCP connections that carry blocks (`-P`), 1 to 128; `None` lets the program
    /// measure and choose.
    pub streams: Option<u32>,
    /// True if `streams` is only the number to begin with, and the program measures whether more
    /// increase the rate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub streams_may_grow: bool,
    /// The rate that an earlier copy reached over this path, which bounds the startup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier_bps: Option<Rate>,
    /// The size of a block: the unit of reading, verifying and writing.
    pub block_bytes: Bytes,
    /// The protection of the blocks.
    pub protection: Protection,
    /// True to sync files before they get their final names.
    pub durable: bool,
    /// True to keep mode and times (`-p`).
    pub preserve: bool,
    /// True to descend into directories (`-r`).
    pub recursive: bool,
    /// The pacing rate of all streams together (`--bwlimit`).
    pub rate_bps: Option<Rate>,
    /// The use of direct I/O for large files (`--direct`).
    #[serde(default)]
    pub direct: DirectIo,
    /// True to run at low priority on processors, disks and path (`--nice`).
    #[serde(default)]
    pub nice: bool,
    /// True on a path without other traffic: connections send as fast as congestion control lets
    /// them (`--dedicated`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dedicated: bool,
    /// The kind of verification (`--verify`).
    #[serde(default)]
    pub verify: Verify,
    /// The timeout in ms without progress, that is, without a byte or a message (`--give-up`);
    /// `None` is the default of that option. A server has a separate limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub give_up_ms: Option<u64>,
    /// Options for links, owners, filters, deletion and digests.
    #[serde(default)]
    pub tree: TreeOptions,
    /// Copy only a part of the files, for a diagnosis.
    #[serde(rename = "sample", default, skip_serializing_if = "Option::is_none")]
    pub subset: Option<CopySubset>,
}

/// The part of the files to copy: files in the order of the walk up to a number of bytes or files.
/// The last file is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopySubset {
    /// The maximum number of bytes.
    pub bytes: Bytes,
    /// The maximum number of files.
    pub files: u64,
    /// The origin of the bytes.
    pub content: SubsetContent,
}

/// The origin of the bytes of a [`CopySubset`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubsetContent {
    /// The files themselves.
    Files,
    /// Memory: zeros with the names and sizes of the files.
    Zeros,
    /// Memory: one file of zeros. No file is read.
    Memory,
}

impl Default for CopyOptions {
    fn default() -> Self {
        CopyOptions {
            streams: None,
            streams_may_grow: false,
            earlier_bps: None,
            block_bytes: CopyOptions::block(None, None),
            protection: Protection::Sealed,
            durable: true,
            preserve: false,
            recursive: false,
            rate_bps: None,
            direct: DirectIo::Auto,
            nice: false,
            dedicated: false,
            verify: Verify::InFlight,
            give_up_ms: None,
            tree: TreeOptions::default(),
            subset: None,
        }
    }
}

impl CopyOptions {
    /// Returns the number of connections that the user has chosen.
    pub fn fixed_streams(&self) -> Option<u32> {
        self.streams.filter(|_| !self.streams_may_grow)
    }

    /// Returns the block size for a copy over `streams` connections and at most `rate_bps`.
    ///
    /// Disks are faster with 4 MiB at a time than with 1 MiB, and need less CPU time
    /// (`docs/design/disk.md`). However, a lost connection loses its block, which takes time to
    /// resend on a slow path, and many streams with large blocks need much memory.
    pub fn block(streams: Option<u32>, rate_bps: Option<Rate>) -> Bytes {
        let slow = rate_bps.is_some_and(|rate| rate <= SLOW);
        let many = streams.is_some_and(|streams| streams > MANY_STREAMS);
        Bytes::mib(if slow || many { 1 } else { 4 })
    }
}

/// The rate at which a block of 4 MiB takes a thirtieth of a second.
const SLOW: Rate = Rate::from_bps(1_000_000_000);
/// The largest number of streams for which two blocks of 4 MiB each fit into memory.
const MANY_STREAMS: u32 = 16;

/// A complete copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyPlan {
    /// The sources, one or more, all at one end.
    pub sources: Vec<Location>,
    /// The target.
    pub target: Location,
    /// The options.
    pub options: CopyOptions,
    /// The paths to copy, relative to the only source, which is a directory (`--files-from`);
    /// `None` copies all paths.
    pub names: Option<Vec<PathBuf>>,
    /// The size of a [`Location::Zero`] source.
    pub zero_bytes: Option<Bytes>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Location {
        text.parse().unwrap()
    }

    #[test]
    fn reads_locations_in_the_manner_of_scp() {
        assert_eq!(read("a/b:c"), Location::Local("a/b:c".into()));
        assert_eq!(read("./a:b"), Location::Local("./a:b".into()));
        assert_eq!(
            read("me@far:data/x"),
            Location::Ssh { destination: "me@far".into(), path: "data/x".into() }
        );
        assert_eq!(read("far:"), Location::Ssh { destination: "far".into(), path: ".".into() });
        for (text, destination, path) in [
            ("root@[::1]:/x", "root@::1", "/x"),
            ("[me@fd00::1]:x", "me@fd00::1", "x"),
            ("far:~/x", "far", "x"),
            ("far:~", "far", "."),
            ("far:~me/x", "far", "~me/x"),
            ("far:a[0-9]:b", "far", "a[0-9]:b"),
        ] {
            let (destination, path) = (destination.to_owned(), path.into());
            assert_eq!(read(text), Location::Ssh { destination, path }, "{text}");
        }
        assert!("me@-oProxyCommand=x:y".parse::<Location>().is_err());
        assert_eq!(
            read("[fd00::1]:x"),
            Location::Ssh { destination: "fd00::1".into(), path: "x".into() }
        );
        assert_eq!(
            read("lh://far:99/d/e"),
            Location::Server { address: "far:99".into(), path: "d/e".into() }
        );
        assert_eq!(read("/dev/null"), Location::Null);
        assert_eq!(read("-"), Location::Standard);
        assert_eq!(read("./-"), Location::Local("./-".into()));
    }

    #[test]
    fn refuses_what_it_cannot_mean() {
        for text in ["", "ftp://far/x", "lh://far", "lh:///x", "-oProxyCommand=x:y"] {
            assert!(text.parse::<Location>().is_err(), "{text}");
        }
    }
}
