use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::TreeOptions;
use crate::units::{Bytes, Rate};

/// One end of a copy, as the user writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A path on this host.
    Local(PathBuf),
    /// `[user@]host:path`, reached through the system's ssh. An empty path is the home directory.
    Ssh {
        /// `[user@]host`, passed to ssh as it is.
        destination: String,
        /// The path there.
        path: PathBuf,
    },
    /// `lh://host[:port]/path`, a `longhaul serve --root DIR`.
    Server {
        /// `host[:port]`.
        address: String,
        /// The path below the server's root; `/dev/null` is the sink that drops everything.
        path: PathBuf,
    },
    /// `/dev/zero` as a source: bytes from memory.
    Zero,
    /// `/dev/null` as a target: the bytes are verified and dropped.
    Null,
    /// `-`: standard input as a source, standard output as a target.
    Standard,
}

/// Why a text is not a location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// The text is empty.
    #[error("an empty path names no file")]
    Empty,
    /// A URL of another kind.
    #[error(
        "'{0}' is not an address longhaul knows: expected PATH, [user@]host:PATH or lh://host[:port]/PATH"
    )]
    UnknownScheme(String),
    /// `lh://` without a host or a path.
    #[error("'{0}' is incomplete: expected lh://host[:port]/PATH")]
    Incomplete(String),
    /// A host that ssh would read as an option.
    #[error("'{0}' has a host name that begins with '-'")]
    OptionHost(String),
}

impl FromStr for Location {
    type Err = LocationError;

    /// scp's rule: a colon before the first slash makes it `host:path`; write `./a:b` for a local
    /// file with a colon in its name.
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
        let colon = match text.strip_prefix('[').and_then(|rest| rest.find("]:")) {
            Some(end) => Some(end + 2),
            None => text.find(':'),
        };
        match colon {
            Some(colon) if !text[..colon].contains('/') && colon > 0 => {
                let destination = text[..colon].trim_start_matches('[').trim_end_matches(']');
                if destination.starts_with('-') {
                    return Err(LocationError::OptionHost(text.to_owned()));
                }
                let path = &text[colon + 1..];
                let path = if path.is_empty() { "." } else { path };
                Ok(Location::Ssh { destination: destination.to_owned(), path: path.into() })
            }
            _ => Ok(Location::Local(text.into())),
        }
    }
}

/// How the bytes of a copy are protected on the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// AES-256-GCM: secret, and every block verified by its seal.
    Sealed,
    /// In the clear, every block verified by an XXH3-128 hash that is bound to its place.
    Hashed,
    /// In the clear and verified by TCP alone (`--cleartext --no-verify`).
    Bare,
}

impl Protection {
    /// Whether the receiver checks each block before the write counts.
    pub fn verifies(self) -> bool {
        self != Protection::Bare
    }
}

/// Whether long files are read and written past the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DirectIo {
    /// Where the file system takes it and it pays, which each end tries with the first blocks.
    #[default]
    Auto,
    /// Wherever the file system takes it.
    Always,
    /// Never.
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

/// What both ends of a copy must agree on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOptions {
    /// TCP connections that carry blocks (`-P`), 1 to 128; chosen by measurement if not given.
    pub streams: Option<u32>,
    /// The size of a block: the unit of reading, verifying and writing.
    pub block_bytes: Bytes,
    /// What protects the blocks.
    pub protection: Protection,
    /// Whether files are synced before they get their names.
    pub durable: bool,
    /// Keep mode and times (`-p`).
    pub preserve: bool,
    /// Descend into directories (`-r`).
    pub recursive: bool,
    /// Pacing rate for all streams together (`--bwlimit`).
    pub rate_bps: Option<Rate>,
    /// Whether long files go past the page cache (`--direct`).
    #[serde(default)]
    pub direct: DirectIo,
    /// Leave processors, disks and path to others where they want them (`--nice`).
    #[serde(default)]
    pub nice: bool,
    /// Milliseconds without a byte or a message of progress after which an end gives up
    /// (`--give-up`); `None` is the default of that option. A server has a limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub give_up_ms: Option<u64>,
    /// Links, owners, filters, deletion, digests.
    #[serde(default)]
    pub tree: TreeOptions,
    /// Copy a part of what there is, for a diagnosis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
}

/// A part of what there is to copy: files in the order of the walk, the last of them cut, until
/// there are so many bytes or files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Bytes at the most.
    pub bytes: Bytes,
    /// Files at the most.
    pub files: u64,
    /// Where the bytes come from.
    pub content: SampleContent,
}

/// Where the bytes of a [`Sample`] come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SampleContent {
    /// The files.
    Files,
    /// Memory: zeros under the files' names, as many as each has bytes.
    Zeros,
    /// Memory: one file of zeros. No file is looked at.
    Memory,
}

impl Default for CopyOptions {
    fn default() -> Self {
        CopyOptions {
            streams: None,
            block_bytes: CopyOptions::block(None, None),
            protection: Protection::Sealed,
            durable: true,
            preserve: false,
            recursive: false,
            rate_bps: None,
            direct: DirectIo::Auto,
            nice: false,
            give_up_ms: None,
            tree: TreeOptions::default(),
            sample: None,
        }
    }
}

impl CopyOptions {
    /// The size of a block for a copy over so many streams and no faster than `rate_bps`.
    ///
    /// Disks move 4 MiB at a time faster than 1 MiB, at less processor time (`docs/design/disk.md`).
    /// But a block is what is lost with a connection, and on a slow path that is time; and many
    /// streams with a large block each take memory.
    pub fn block(streams: Option<u32>, rate_bps: Option<Rate>) -> Bytes {
        let slow = rate_bps.is_some_and(|rate| rate <= SLOW);
        let many = streams.is_some_and(|streams| streams > MANY_STREAMS);
        Bytes::mib(if slow || many { 1 } else { 4 })
    }
}

/// At it a block of 4 MiB takes a thirtieth of a second.
const SLOW: Rate = Rate::from_bps(1_000_000_000);
/// Streams that two blocks of 4 MiB each fit into the memory of an end for.
const MANY_STREAMS: u32 = 16;

/// A copy, complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyPlan {
    /// What is copied; one or more, all at one end.
    pub sources: Vec<Location>,
    /// Where to.
    pub target: Location,
    /// How.
    pub options: CopyOptions,
    /// Of the directory that is the only source these alone, by their paths relative to it
    /// (`--files-from`).
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
