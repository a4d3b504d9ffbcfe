//! The client's side of a copy: opens sessions, retries, and combines the result.
//!
//! [`push`] and [`pull`] copy between this host and a server, [`between`] between two servers. The
//! source and the sink move the bytes; in `push` and `pull` one of them is the client.

mod between;
mod into_itself;
mod key;
mod memory;
mod relay;
mod retry;
mod summary;
mod transfer;

use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::plan::{CopyOptions, Verify};
use longhaul_core::wire::RefusalKind;
use longhaul_core::wire::copy::Top;

use crate::FUZZ_HASTE;
use crate::copy::source::SourceRoot;
use crate::error::{EngineError, Result};

pub use between::{ThirdPartyEnds, between};
pub use into_itself::{SelfCopy, check_apart};
pub use key::CopySecret;
pub use retry::Reconnect;
pub use transfer::{FetchTarget, pull, push};

/// The longest time for the server's reply. It includes the time in which the sink waits for the
/// end of an earlier attempt.
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
    /// Returns the kind of the top level.
    fn top(&self) -> Top {
        match self.paths {
            [_] if self.names.is_some() => Top::Contents,
            [path] if SourceRoot::is_contents(path) => Top::Contents,
            [_] => Top::One,
            _ => Top::Several,
        }
    }
}

/// Refuses a sink that cannot read files back although it has to.
fn check_rereads(peer: &str, rereads: bool, options: &CopyOptions) -> Result<()> {
    if rereads || options.verify == Verify::InFlight {
        return Ok(());
    }
    let reason = "its version cannot read files back".to_owned();
    Err(EngineError::Refused { peer: peer.to_owned(), kind: RefusalKind::Version, reason })
}
