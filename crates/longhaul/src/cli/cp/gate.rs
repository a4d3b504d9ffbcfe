//! How the far end of a copy is reached, at first and again.

use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longhaul_core::wire::Service;
use longhaul_engine::serve::InProcess;
use longhaul_engine::session::{
    ConfigDir, ConnectOptions, Family, HostPolicy, HostPort, Identity, Session,
};
use longhaul_engine::{EngineError, Result as EngineResult};

use super::route::Far;
use crate::cli::queue::{connect_to_copy, connect_within};
use crate::exit::Coded;
use crate::passphrase;
use crate::remote::{SshFar, SshOptions, start_here};

/// What opens sessions with one place.
pub(in crate::cli) struct Gate<'a> {
    way: Transport,
    stop: &'a Arc<AtomicBool>,
    addresses: Option<Addresses>,
    /// How long it waits in a server's queue.
    patience: Duration,
}

enum Transport {
    Here { far: Option<InProcess> },
    Server { host: HostPort, config: ConfigDir, identity: Identity, policy: HostPolicy },
    Ssh { destination: String, options: SshOptions, far: Option<SshFar> },
}

/// Over which addresses of the far host the data connections are spread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum Addresses {
    /// All that its name has.
    All,
    /// These names or addresses.
    These(Vec<String>),
}

impl FromStr for Addresses {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "all" {
            return Ok(Addresses::All);
        }
        let these: Vec<_> = text.split(',').map(str::to_owned).collect();
        match these.iter().any(String::is_empty) {
            true => Err("expected 'all' or addresses with commas between them"),
            false => Ok(Addresses::These(these)),
        }
    }
}

impl<'a> Gate<'a> {
    pub(in crate::cli) fn new(
        far: &Far,
        ssh: &SshOptions,
        accept_new: bool,
        addresses: Option<Addresses>,
        stop: &'a Arc<AtomicBool>,
    ) -> Result<Self, Coded> {
        let policy = match accept_new {
            true => HostPolicy::AcceptNew,
            false => HostPolicy::RequireKnown,
        };
        let way = match far {
            Far::Here => Transport::Here { far: None },
            Far::Server(address) => {
                let config = ConfigDir::of_user()?;
                let identity = passphrase::identity(&config)?;
                Transport::Server { host: address.parse()?, config, identity, policy }
            }
            Far::Ssh(destination) => {
                let (destination, options) = (destination.clone(), ssh.clone());
                Transport::Ssh { destination, options, far: None }
            }
        };
        Ok(Gate { way, stop, addresses, patience: Duration::MAX })
    }

    /// The same, which waits so long in a server's queue.
    pub(in crate::cli) fn patient_for(self, patience: Duration) -> Self {
        Gate { patience, ..self }
    }

    /// Opens a session for a copy; the one before, whose connection is lost, ends first.
    pub(in crate::cli) fn open(&mut self) -> EngineResult<Session> {
        self.open_for(Service::Copy)
    }

    /// As [`open`](Self::open), for another service.
    pub(in crate::cli) fn open_for(&mut self, service: Service) -> EngineResult<Session> {
        let session = match &mut self.way {
            Transport::Here { far } => {
                let (started, session) = start_here(service, self.stop)?;
                *far = Some(started);
                session
            }
            Transport::Server { host, config, identity, policy } => {
                let (policy, family) = (*policy, Family::Any);
                let options = ConnectOptions { identity, config, policy, family };
                // Who waits for a turn however long it takes may ask before it has come.
                if service == Service::Copy && self.patience == Duration::MAX {
                    connect_to_copy(host, &options, self.stop)?
                } else {
                    connect_within(host, service, &options, self.stop, self.patience)?
                }
            }
            Transport::Ssh { destination, options, far } => {
                *far = None;
                let (started, session) = SshFar::start(destination, service, options)?;
                *far = Some(started);
                session
            }
        };
        match &self.addresses {
            None => Ok(session),
            Some(addresses) => self.spread(addresses, session),
        }
    }

    /// Waits for the far end's end, if it was started here.
    pub(in crate::cli) fn finish(mut self) {
        self.rest();
    }

    /// As [`finish`](Self::finish), with more sessions to come.
    pub(in crate::cli) fn rest(&mut self) {
        match &mut self.way {
            Transport::Here { far } => far.take().into_iter().for_each(InProcess::finish),
            Transport::Ssh { far, .. } => far.take().into_iter().for_each(SshFar::finish),
            Transport::Server { .. } => {}
        }
    }

    fn spread(&self, addresses: &Addresses, session: Session) -> EngineResult<Session> {
        let Some(port) = session.data_addresses().first().map(SocketAddr::port) else {
            // Through ssh, where addresses mean nothing.
            return Ok(session);
        };
        let mut found = match (addresses, &self.way) {
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
        let mut seen = std::collections::HashSet::new();
        found.retain(|address| seen.insert(*address));
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
