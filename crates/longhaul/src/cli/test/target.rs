//! The server of a test: 'longhaul serve', or the server of another program.

use std::fmt;
use std::str::FromStr;

use longhaul_core::plan::LocationError;
use longhaul_engine::EngineError;
use longhaul_engine::session::HostPort;
use longhaul_interop::{PeerAddress, PeerAddressError, Program};

/// The server of a test.
#[derive(Debug, Clone)]
pub(super) enum Target {
    /// A server of longhaul.
    Longhaul(HostPort),
    /// A server of another program.
    Peer(PeerAddress),
    /// `user@host`, at which ssh starts the server.
    Ssh(String),
}

/// The fault of an address.
#[derive(Debug)]
pub(super) enum TargetError {
    Longhaul(EngineError),
    Peer(PeerAddressError),
    Ssh(LocationError),
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetError::Longhaul(error) => error.fmt(f),
            TargetError::Ssh(error) => error.fmt(f),
            TargetError::Peer(error) => {
                let programs = [Program::Iperf3, Program::Nuttcp].map(|p| format!("{p}://HOST"));
                write!(f, "{error}; expected HOST[:PORT], {}", programs.join(" or "))
            }
        }
    }
}

impl std::error::Error for TargetError {}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        if text.contains('@') && !text.contains("://") {
            return longhaul_core::plan::ssh_destination(text)
                .map(Target::Ssh)
                .map_err(TargetError::Ssh);
        }
        match PeerAddress::parse(text) {
            Some(parsed) => parsed.map(Target::Peer).map_err(TargetError::Peer),
            None => text.parse().map(Target::Longhaul).map_err(TargetError::Longhaul),
        }
    }
}
