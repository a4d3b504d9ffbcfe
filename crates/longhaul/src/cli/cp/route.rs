//! Which end of a copy is where.

use std::fmt;
use std::path::PathBuf;

use anyhow::anyhow;
use longhaul_core::plan::{CopyPlan, Location};
use longhaul_engine::copy::{SourcePlan, SourceRoot, Tree};

use crate::exit::{self, Coded};

/// A way of copying, and with whom.
#[derive(Debug)]
pub(super) enum Route {
    /// From here to there.
    Push { source: SourcePlan, far: Far, target: PathBuf },
    /// From there to here.
    Pull { far: Far, paths: Vec<PathBuf>, target: PathBuf },
    /// From one far end to another.
    Between { from: Far, paths: Vec<PathBuf>, to: Far, target: PathBuf },
}

/// An end that is not the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Far {
    /// This host: the far end is a part of this process.
    Here,
    /// `host[:port]`, a `longhaul serve --root DIR`.
    Server(String),
    /// `[user@]host`, over ssh.
    Ssh(String),
}

impl Route {
    pub(super) fn of(plan: &CopyPlan) -> Result<Self, Coded> {
        let usage = |text: &str| Err(Coded::new(exit::USAGE, anyhow!(text.to_owned())));
        let from = plan.sources.first().and_then(far);
        let mut roots = Vec::new();
        let mut paths = Vec::new();
        for source in &plan.sources {
            match source {
                _ if far(source) != from => {
                    return usage("all sources must be at one place: here, or on one host");
                }
                Location::Server { path, .. } | Location::Ssh { path, .. } => {
                    paths.push(path.clone());
                }
                Location::Local(path) => roots.push(SourceRoot::Path(path.clone())),
                Location::Zero => roots.push(SourceRoot::Zero(plan.zero_bytes.unwrap_or_default())),
                Location::Null => return usage("/dev/null is a target"),
            }
        }
        let source = SourcePlan { tree: Tree::anywhere(), roots };
        let (to, target) = match &plan.target {
            Location::Server { path, .. } | Location::Ssh { path, .. } => {
                (far(&plan.target), path.clone())
            }
            Location::Local(path) => (None, path.clone()),
            Location::Null => (None, "/dev/null".into()),
            Location::Zero => return usage("/dev/zero is a source"),
        };
        Ok(match (from, to) {
            (None, to) => Route::Push { source, far: to.unwrap_or(Far::Here), target },
            (Some(far), None) => Route::Pull { far, paths, target },
            (Some(from), Some(to)) => Route::Between { from, paths, to, target },
        })
    }
}

/// The far end that a location is at; `None` for this host.
fn far(location: &Location) -> Option<Far> {
    match location {
        Location::Server { address, .. } => Some(Far::Server(address.clone())),
        Location::Ssh { destination, .. } => Some(Far::Ssh(destination.clone())),
        Location::Local(_) | Location::Zero | Location::Null => None,
    }
}

impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Far::Here => f.write_str("this host"),
            Far::Server(host) | Far::Ssh(host) => f.write_str(host),
        }
    }
}
