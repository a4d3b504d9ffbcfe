//! The request of a client: the files at the server, and the checks of its reply.

use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::plan::{CopyOptions, Verify};
use longhaul_core::wire::RefusalKind;
use longhaul_core::wire::copy::Top;

use crate::FUZZ_HASTE;
use crate::copy::source::SourceRoot;
use crate::error::{EngineError, Result};

/// The longest time for the server's reply. A sink whose earlier attempt has not ended waits for it
/// first.
pub(in crate::copy) const REPLY_TIMEOUT: Duration = Duration::from_millis(60_000 / FUZZ_HASTE);

/// The files at a server that a client requests.
#[derive(Debug, Clone, Copy)]
pub struct RemoteFiles<'a> {
    /// The paths at the server.
    pub paths: &'a [PathBuf],
    /// Only these paths, relative to the directory that is the only path.
    pub names: Option<&'a [PathBuf]>,
}

impl RemoteFiles<'_> {
    /// The kind of the top level.
    pub(super) fn top(&self) -> Top {
        match self.paths {
            [_] if self.names.is_some() => Top::Contents,
            [path] if SourceRoot::is_contents(path) => Top::Contents,
            [_] => Top::One,
            _ => Top::Several,
        }
    }
}

/// Refuses a sink that cannot read files back although it has to.
pub(super) fn check_rereads(peer: &str, rereads: bool, options: &CopyOptions) -> Result<()> {
    if rereads || options.verify == Verify::InFlight {
        return Ok(());
    }
    let reason = "its version cannot read files back".to_owned();
    Err(EngineError::Refused { peer: peer.to_owned(), kind: RefusalKind::Version, reason })
}
