//! The text of `authorized_keys`: its stamp, and the keys with their options.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use super::config_dir::ConfigDir;
use super::grant::{Grant, OptionFault, split_options};
use super::public_key::{KEY_TYPE, PublicKey};
use crate::error::{EngineError, Result};

pub(super) const FILE: &str = "authorized_keys";
/// The age below which a file may change again without another time of change: kernels count these
/// times in steps of up to 10 ms, file servers of up to 2 s.
const FRESH: Duration = Duration::from_secs(3);
/// The maximum number of ignored lines that a message names.
const FIRST_LINES: usize = 8;

/// Device, inode, length, mode, owner, and times of change of contents and of status.
pub(super) type Stamp = (u64, u64, u64, u32, u32, (i64, i64), (i64, i64));

/// A file at the time of reading it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LastRead {
    pub(super) stamp: Option<Stamp>,
    /// True if it was changed so recently that the same stamp does not prove the same contents.
    pub(super) fresh: bool,
    /// The text, or the error of reading it.
    pub(super) outcome: std::result::Result<String, String>,
}

pub(super) fn stamp(config: &ConfigDir) -> Option<Stamp> {
    let meta = fs::metadata(config.file(FILE)).ok()?;
    let changed = (meta.mtime(), meta.mtime_nsec());
    let status = (meta.ctime(), meta.ctime_nsec());
    Some((meta.dev(), meta.ino(), meta.len(), meta.mode(), meta.uid(), changed, status))
}

pub(super) fn is_fresh(stamp: Option<Stamp>) -> bool {
    let Some((.., (seconds, _))) = stamp else { return false };
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.max(0) as u64);
    SystemTime::now().duration_since(changed).is_ok_and(|age| age < FRESH)
}

/// The lines of a list that have no valid key, and are ignored: a key of ssh, a damaged key or
/// other text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IgnoredLines {
    /// The numbers of the first eight lines, from 1.
    pub first: Vec<usize>,
    /// The number of lines.
    pub count: usize,
}

impl IgnoredLines {
    fn add(&mut self, number: usize) {
        self.count += 1;
        if self.first.len() < FIRST_LINES {
            self.first.push(number);
        }
    }
}

/// Returns the keys of a list, and its lines without a valid key.
pub(super) fn parse(
    config: &ConfigDir,
    text: &str,
    own: PublicKey,
) -> Result<(HashMap<PublicKey, Grant>, IgnoredLines)> {
    let (mut keys, mut ignored) = (HashMap::new(), IgnoredLines::default());
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if !line.contains(KEY_TYPE) {
            ignored.add(number);
            continue;
        }
        let (options, key) =
            if line.starts_with(KEY_TYPE) { ("", line) } else { split_options(line) };
        let slip = |(option, fault)| EngineError::KeyOption {
            file: config.file(FILE),
            line: number,
            option,
            fault,
        };
        if !key.starts_with(KEY_TYPE) {
            let option = line[..line.find(KEY_TYPE).unwrap_or(0)].trim_end().to_owned();
            let fault = if key.is_empty() { OptionFault::Unterminated } else { OptionFault::Space };
            return Err(slip((option, fault)));
        }
        let mut grant = Grant::from_options_or_none(options).map_err(slip)?;
        grant.comment = comment(key);
        let Ok(key) = key.parse() else {
            ignored.add(number);
            continue;
        };
        // The first line of a key applies, as with ssh.
        keys.entry(key).or_insert(grant);
    }
    keys.entry(own).or_default();
    Ok((keys, ignored))
}

/// Returns the text after the type and the key of a line.
pub(super) fn comment(key: &str) -> Option<String> {
    let mut rest = key;
    for _ in 0..2 {
        rest = rest.trim_start().split_once(char::is_whitespace)?.1;
    }
    Some(rest.trim().to_owned()).filter(|comment| !comment.is_empty())
}
