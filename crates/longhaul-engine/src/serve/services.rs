//! The services of a server, and the identity with which it offers them.

use longhaul_core::wire::{RefusalKind, Service};

use super::event::ServeEvent;
use crate::error::Result;
use crate::session::{AuthorisedKeys, ConfigDir, Identity, ServedSession};

/// The server's identity and the keys that it trusts.
#[derive(Debug)]
pub struct ServerKeys {
    /// The key pair.
    pub identity: Identity,
    /// The keys that may reach files.
    pub authorised: AuthorisedKeys,
}

impl ServerKeys {
    /// Returns the keys of a server for the clients of other programs only: a new key pair and an
    /// empty list.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn without_clients() -> Result<Self> {
        let identity = Identity::generate();
        // Nobody can create a directory there.
        let nowhere = ConfigDir::at("/proc/longhaul");
        let authorised = AuthorisedKeys::load(&nowhere, identity.public())?;
        Ok(ServerKeys { identity, authorised })
    }
}

/// The services of a server.
pub trait Services: Send + Sync {
    /// Returns the reason to refuse `service`; `None` to serve it.
    fn refusal(&self, service: Service, authorised: bool) -> Option<(RefusalKind, String)>;

    /// Runs the service to its end on the calling thread.
    ///
    /// # Errors
    /// The error is reported, and the server continues.
    fn run(&self, service: Service, session: ServedSession) -> Result<()>;

    /// Records an event, on the thread of the connection, which waits for it.
    fn log(&self, _event: ServeEvent) {}
}

/// Greets the client of an ssh connection and runs the requested service to its end.
///
/// # Errors
/// The client was refused, or the service failed.
pub fn serve_session(mut session: ServedSession, services: &dyn Services) -> Result<()> {
    let service =
        session.read_request(|service, authorised| services.refusal(service, authorised))?;
    session.welcome()?;
    session.receiver.set_timeout(None)?;
    services.run(service, session)
}
