//! Where the copies of a run go: to this host, or to the far end of a real path.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::disk;
use super::far::FarDir;
use crate::network::NetPath;

/// Where the copies of a run go.
#[derive(Clone, Copy)]
pub(super) enum Landing<'a> {
    /// A directory of this host, which both ends see.
    Here(&'a Path),
    /// One of the far end's own.
    There(&'a FarDir),
}

impl Landing<'_> {
    /// What the copy of a client (from 0) becomes.
    pub(super) fn destination(self, client: u32) -> PathBuf {
        let dir = match self {
            Landing::Here(dir) => dir,
            Landing::There(dir) => dir.path(),
        };
        dir.join(name(client))
    }

    /// How long the copies took to reach stable storage; `None` where that cannot be told.
    pub(super) fn settle(self, path: &dyn NetPath, stop: &AtomicBool) -> Option<Duration> {
        match self {
            Landing::Here(dir) => disk::settle(dir).ok(),
            Landing::There(dir) => dir.settle(path.far_host()?, stop).ok(),
        }
    }
}

/// What the copy of a client (from 0) is called.
pub(super) fn name(client: u32) -> String {
    match client {
        0 => "copy".to_owned(),
        other => format!("copy-{}", other + 1),
    }
}
