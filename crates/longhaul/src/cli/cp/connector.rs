//! Opens sessions with one host of a copy: in this process, with a server, or over ssh.

use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longhaul_core::wire::Service;
use longhaul_engine::serve::InProcess;
use longhaul_engine::session::{
    ConfigDir, ConnectOptions, Family, HostPolicy, HostPort, Identity, LocalAddress, Session,
};
use longhaul_engine::{EngineError, Result as EngineResult};

use super::route::Endpoint;
use crate::cli::queue::{connect_to_copy, connect_within};
use crate::exit::Coded;
use crate::passphrase;
use crate::remote::{SshOptions, SshServer, start_here};

/// Opens sessions with one host.
pub(in crate::cli) struct Connector<'a> {
    transport: Transport,
    stop: &'a Arc<AtomicBool>,
    addresses: Option<Addresses>,
    /// The local address of the connections.
    local: Option<LocalAddress>,
    /// The longest wait in a server's queue.
    queue_limit: Duration,
}

enum Transport {
    Local { server: Option<InProcess> },
    Server { host: HostPort, config: ConfigDir, identity: Identity, policy: HostPolicy },
    Ssh { destination: String, options: SshOptions, server: Option<SshServer> },
}

/// The addresses of the remote host for data connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum Addresses {
    /// All addresses of its name.
    All,
    /// The listed names or addresses.
    These(Vec<String>),
}

impl FromStr for Addresses {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "all" {
            return Ok(Addresses::All);
        }
        let these: Vec<_> = text.split(',').map(str::to_owned).collect();
        if these.iter().any(String::is_empty) {
            return Err("expected 'all' or a comma-separated list of addresses");
        }
        Ok(Addresses::These(these))
    }
}

/// The route to a host.
pub(in crate::cli) struct Access<'a> {
    pub(in crate::cli) ssh: &'a SshOptions,
    /// True to record the key of an unknown server.
    pub(in crate::cli) accept_new: bool,
    /// The local address of `--bind`.
    pub(in crate::cli) local: Option<LocalAddress>,
}

impl<'a> Connector<'a> {
    pub(in crate::cli) fn new(
        far: &Endpoint,
        Access { ssh, accept_new, local }: Access<'_>,
        addresses: Option<Addresses>,
        stop: &'a Arc<AtomicBool>,
    ) -> Result<Self, Coded> {
        let policy = if accept_new { HostPolicy::AcceptNew } else { HostPolicy::RequireKnown };
        let transport = match far {
            Endpoint::Local => Transport::Local { server: None },
            Endpoint::Server(address) => {
                let config = ConfigDir::of_user()?;
                let identity = passphrase::identity(&config)?;
                Transport::Server { host: address.parse()?, config, identity, policy }
            }
            Endpoint::Ssh(destination) => {
                let (destination, options) = (destination.clone(), ssh.clone());
                Transport::Ssh { destination, options, server: None }
            }
        };
        if let (Some(local), Transport::Server { host, .. }) = (&local, &transport) {
            local.matching(&host.host, host.resolve()?)?;
        }
        Ok(Connector { transport, stop, addresses, local, queue_limit: Duration::MAX })
    }

    /// Returns the connector with a limit on the wait in a server's queue.
    pub(in crate::cli) fn with_queue_limit(self, queue_limit: Duration) -> Self {
        Connector { queue_limit, ..self }
    }

    /// Opens a session for a copy. An earlier session, whose connection is lost, ends first.
    pub(in crate::cli) fn open(&mut self) -> EngineResult<Session> {
        self.open_for(Service::Copy)
    }

    /// Opens a session for `service`, as [`open`](Self::open).
    pub(in crate::cli) fn open_for(&mut self, service: Service) -> EngineResult<Session> {
        let session = match &mut self.transport {
            Transport::Local { server } => {
                let (started, session) = start_here(service, self.stop)?;
                *server = Some(started);
                session
            }
            Transport::Server { host, config, identity, policy } => {
                let (policy, family, local) = (*policy, Family::Any, self.local.as_ref());
                let options = ConnectOptions { identity, config, policy, family, local };
                // Without a time limit the request may precede the server's welcome.
                if service == Service::Copy && self.queue_limit == Duration::MAX {
                    connect_to_copy(host, &options, self.stop)?
                } else {
                    connect_within(host, service, &options, self.stop, self.queue_limit)?
                }
            }
            Transport::Ssh { destination, options, server } => {
                *server = None;
                let (started, session) = SshServer::start(destination, service, options)?;
                *server = Some(started);
                session.bound_to(self.local.clone())?
            }
        };
        match &self.addresses {
            None => Ok(session),
            Some(addresses) => self.spread(addresses, session),
        }
    }

    /// Waits until a server that this connector started has ended.
    pub(in crate::cli) fn finish(mut self) {
        self.rest();
    }

    /// Waits as [`finish`](Self::finish), before further sessions.
    pub(in crate::cli) fn rest(&mut self) {
        match &mut self.transport {
            Transport::Local { server } => server.take().into_iter().for_each(InProcess::finish),
            Transport::Ssh { server, .. } => server.take().into_iter().for_each(SshServer::finish),
            Transport::Server { .. } => {}
        }
    }

    fn spread(&self, addresses: &Addresses, session: Session) -> EngineResult<Session> {
        let Some(port) = session.data_addresses().first().map(SocketAddr::port) else {
            // Connections through ssh have no addresses.
            return Ok(session);
        };
        let mut found = match (addresses, &self.transport) {
            (Addresses::All, Transport::Server { host, .. }) => host.resolve()?,
            (Addresses::All, _) => session.data_addresses().to_vec(),
            (Addresses::These(names), _) => {
                let resolve = |name: &String| {
                    let failed = |source| EngineError::Resolve { host: name.clone(), source };
                    (name.as_str(), port).to_socket_addrs().map_err(failed)
                };
                let lists: Vec<_> = names.iter().map(resolve).collect::<EngineResult<_>>()?;
                lists.into_iter().flatten().collect()
            }
        };
        found.iter_mut().for_each(|address| address.set_port(port));
        let mut known = std::collections::HashSet::new();
        found.retain(|address| known.insert(*address));
        Ok(session.spread_over(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_all_or_some() {
        assert_eq!("all".parse(), Ok(Addresses::All));
        let these = ["10.0.0.1", "fd00::1"].map(str::to_owned).into();
        assert_eq!("10.0.0.1,fd00::1".parse(), Ok(Addresses::These(these)));
        assert!("".parse::<Addresses>().is_err() && "a,,b".parse::<Addresses>().is_err());
    }
}
