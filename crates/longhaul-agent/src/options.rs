//! The options of an agent.

use std::net::SocketAddr;
use std::path::PathBuf;

use longhaul_fleet::protocol::EnrolToken;

use crate::client::HubUrl;

/// The default directory of the agent's state.
pub const DEFAULT_STATE_DIR: &str = "/var/lib/longhaul/agent";

/// The options of an agent.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The hub; that of the enrolment if `None`.
    pub hub: Option<HubUrl>,
    /// The one-time token; necessary for the first start.
    pub token: Option<EnrolToken>,
    /// A file with the certificates (PEM) that verify the hub, instead of a pin.
    pub ca: Option<PathBuf>,
    /// The name of this host in the mesh; its host name if `None`.
    pub name: Option<String>,
    /// The directory of the journal and the key.
    pub state: PathBuf,
    /// The program that runs the tests: longhaul.
    pub program: PathBuf,
    /// The addresses of the STAMP reflectors; none disables them.
    pub reflectors: Vec<SocketAddr>,
}
