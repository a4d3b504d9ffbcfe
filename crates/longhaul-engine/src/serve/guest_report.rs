//! The end of a test of another program's client.

use std::net::SocketAddr;
use std::time::Duration;

use longhaul_core::result::Reason;

use crate::error::Result;
use crate::session::Work;

/// The end of a test of another program's client, for the log.
#[derive(Debug)]
pub struct GuestReport {
    /// The name of the client's program.
    pub program: &'static str,
    /// The version that the client stated.
    pub version: Option<String>,
    /// The client's address.
    pub address: SocketAddr,
    /// True if the test began; otherwise it was refused or lost before.
    pub began: bool,
    /// The time from the connection to the end.
    pub duration: Duration,
    /// The work that was done.
    pub work: Work,
    /// The reason for the rate, as far as this end knows it; per direction.
    pub reasons: Vec<Reason>,
    /// The outcome.
    pub outcome: Result<()>,
}
