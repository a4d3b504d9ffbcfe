//! The destination of a run's copies: this host, or the far end of a real path.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::disk;
use super::far::FarDir;
use crate::network::NetPath;

/// The destination of a run's copies.
#[derive(Clone, Copy)]
pub(super) enum Landing<'a> {
    /// A directory of this host, which both ends see.
    Here(&'a Path),
    /// A directory of the far end.
    There(&'a FarDir),
}

impl Landing<'_> {
    /// Returns the path of the copy of a client (from 0).
    pub(super) fn destination(self, client: u32) -> PathBuf {
        let dir = match self {
            Landing::Here(dir) => dir,
            Landing::There(dir) => dir.path(),
        };
        dir.join(name(client))
    }

    /// Returns the time until the copies were on stable storage; `None` if it is unknown.
    pub(super) fn settle(self, path: &dyn NetPath, stop: &AtomicBool) -> Option<Duration> {
        match self {
            Landing::Here(dir) => disk::settle(dir).ok(),
            Landing::There(dir) => dir.settle(path.far_host()?, stop).ok(),
        }
    }
}

/// Returns the file name of the copy of a client (from 0).
pub(super) fn name(client: u32) -> String {
    match client {
        0 => "copy".to_owned(),
        other => format!("copy-{}", other + 1),
    }
}
