//! The server: one port for control channels and data connections, limits on both, and the dispatch
//! to the services.

mod admission;
mod connection;
mod descriptors;
mod event;
mod guest;
mod limiter;
mod limits;
mod listener;
mod penalties;
mod reach;
mod single;
mod startups;

use longhaul_core::wire::{RefusalKind, Service};

use crate::error::Result;
use crate::session::{AuthorizedKeys, ConfigDir, Identity, ServedSession};

pub use event::{CloseReason, GuestReport, ServeEvent, SessionClient, SessionReport, SessionStart};
pub use guest::{Gate, Guest, GuestArrival, NoPlace, StreamPlaces, Visit};
pub use limits::{ClientLimits, network};
pub use listener::{Listener, Serving, serve_guests};
pub use reach::{FileAccess, is_out_of_reach};
pub use single::{DataPort, InProcess};
pub use startups::StartupLimits;

#[cfg(test)]
mod leaving_client_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

/// The server's identity and the keys that it trusts.
#[derive(Debug)]
pub struct ServerKeys {
    /// The key pair.
    pub identity: Identity,
    /// The keys that may reach files.
    pub authorized: AuthorizedKeys,
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
        let authorized = AuthorizedKeys::load(&nowhere, identity.public())?;
        Ok(ServerKeys { identity, authorized })
    }
}

/// The services of a server.
pub trait Services: Send + Sync {
    /// Returns the reason to refuse `service`; `None` to serve it.
    fn refusal(&self, service: Service, authorized: bool) -> Option<(RefusalKind, String)>;

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
        session.read_request(|service, authorized| services.refusal(service, authorized))?;
    session.welcome()?;
    session.receiver.set_timeout(None)?;
    services.run(service, session)
}
