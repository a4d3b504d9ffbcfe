//! The route of a copy: which host is the source and which the sink.

use std::fmt;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::anyhow;
use longhaul_core::plan::{CopyPlan, Location};
use longhaul_engine::copy::{Feed, SourcePlan, SourceRoot, Tree};

use crate::exit::{self, Coded};

/// The direction of a copy, with its hosts and paths.
#[derive(Debug)]
pub(super) enum Route {
    /// From this host to `far`.
    Push { source: SourcePlan, far: Endpoint, target: PathBuf },
    /// From `far` to this host.
    Pull { far: Endpoint, paths: Vec<PathBuf>, names: Names, target: Target },
    /// From one server to another.
    Between { from: Endpoint, paths: Vec<PathBuf>, names: Names, to: Endpoint, target: PathBuf },
}

/// The paths of `--files-from`, relative to the only source.
pub(super) type Names = Option<Vec<PathBuf>>;

/// The target of a copy to this host.
#[derive(Debug)]
pub(super) enum Target {
    /// A path.
    Path(PathBuf),
    /// Standard output.
    Output,
}

/// The host of a source or target, as seen from the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum Endpoint {
    /// This host: the server is part of this process.
    Local,
    /// `host[:port]`, a `longhaul serve --root DIR`.
    Server(String),
    /// `[user@]host`, over ssh.
    Ssh(String),
}

impl Route {
    pub(super) fn of(plan: &CopyPlan) -> Result<Self, Coded> {
        let usage = |text: &str| Err(Coded::new(exit::USAGE, anyhow!(text.to_owned())));
        let from = plan.sources.first().and_then(endpoint);
        let mut roots = Vec::new();
        let mut paths = Vec::new();
        for source in &plan.sources {
            match source {
                _ if endpoint(source) != from => {
                    return usage("all sources must be on one host");
                }
                Location::Server { path, .. } | Location::Ssh { path, .. } => {
                    paths.push(path.clone());
                }
                // A copy to standard output is a pull, also within this host.
                Location::Local(path) if plan.target == Location::Standard => {
                    paths.push(path.clone());
                }
                Location::Local(path) => match &plan.names {
                    Some(names) => {
                        let (base, names) = (path.clone(), Arc::new(names.clone()));
                        roots.push(SourceRoot::Listed { base, names });
                    }
                    None => roots.push(SourceRoot::Path(path.clone())),
                },
                Location::Standard => {
                    // The standard library's handle buffers, and a poll does not see its buffer.
                    let input = std::io::stdin().as_fd().try_clone_to_owned();
                    let input = input.map_err(|error| Coded::new(exit::HOST, error))?;
                    roots.push(SourceRoot::Feed(Arc::new(Feed::new(File::from(input)))));
                }
                Location::Zero => roots.push(SourceRoot::Zero(plan.zero_bytes.unwrap_or_default())),
                Location::Null => return usage("/dev/null can only be a target"),
            }
        }
        let source = SourcePlan { tree: Tree::anywhere(), roots };
        let names = plan.names.clone();
        if plan.target == Location::Standard {
            let far = from.unwrap_or(Endpoint::Local);
            return Ok(Route::Pull { far, paths, names, target: Target::Output });
        }
        let (to, target) = match &plan.target {
            Location::Server { path, .. } | Location::Ssh { path, .. } => {
                (endpoint(&plan.target), path.clone())
            }
            Location::Local(path) => (None, path.clone()),
            Location::Null => (None, "/dev/null".into()),
            Location::Zero | Location::Standard => {
                return usage("/dev/zero can only be a source");
            }
        };
        Ok(match (from, to) {
            (None, to) => Route::Push { source, far: to.unwrap_or(Endpoint::Local), target },
            (Some(far), None) => Route::Pull { far, paths, names, target: Target::Path(target) },
            (Some(from), Some(to)) => Route::Between { from, paths, names, to, target },
        })
    }
}

/// Returns the remote host of a location; `None` for this host.
pub(in crate::cli) fn endpoint(location: &Location) -> Option<Endpoint> {
    match location {
        Location::Server { address, .. } => Some(Endpoint::Server(address.clone())),
        Location::Ssh { destination, .. } => Some(Endpoint::Ssh(destination.clone())),
        Location::Local(_) | Location::Zero | Location::Null | Location::Standard => None,
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Local => f.write_str("this host"),
            Endpoint::Server(host) | Endpoint::Ssh(host) => f.write_str(host),
        }
    }
}
