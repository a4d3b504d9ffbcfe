//! The server of a test: `longhaul serve`, or the server of another program.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::anyhow;
use longhaul_core::plan::LocationError;
use longhaul_core::result::{TestResult, TestSample};
use longhaul_engine::EngineError;
use longhaul_engine::session::HostPort;
use longhaul_interop::iperf3::{self, ClientOptions, Credentials, Padding, Progress};
use longhaul_interop::{PeerAddress, PeerAddressError, PeerTest, Program, nuttcp};

use crate::exit::{self, Coded};

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

/// The environment variable with the password of a user, as for iperf3.
const PASSWORD: &str = "IPERF3_PASSWORD";

/// Runs `test` and passes each sample to `show`. `credentials` are for an iperf3 server.
pub(super) fn run_with_peer(
    test: &PeerTest<'_>,
    credentials: Option<Credentials>,
    show: &mut dyn FnMut(&TestSample),
) -> Result<TestResult, Coded> {
    match test.address.program {
        Program::Iperf3 => {
            let mut on_progress = |progress: Progress<'_>| {
                if let Progress::Sample(_, sample) = progress {
                    show(sample);
                }
            };
            let options = ClientOptions { credentials, ..ClientOptions::default() };
            Ok(iperf3::run(test, &options, &mut on_progress)?.test)
        }
        Program::Nuttcp => {
            let mut show = |sample: &TestSample| show(sample);
            Ok(nuttcp::run(test, &nuttcp::ClientOptions::default(), &mut show)?.test)
        }
    }
}

/// Returns the credentials of `user`, with the password from the environment.
///
/// # Errors
/// The password is missing, or the key file cannot be used.
pub(in crate::cli) fn credentials(
    user: &str,
    key: &Path,
    pkcs1: bool,
) -> Result<Credentials, Coded> {
    let password = std::env::var(PASSWORD).map_err(|_| {
        Coded::new(exit::USAGE, anyhow!("--username needs the password in {PASSWORD}"))
    })?;
    let padding = if pkcs1 { Padding::Pkcs1 } else { Padding::Oaep };
    Ok(Credentials::new(user, &password, key, padding)?)
}
