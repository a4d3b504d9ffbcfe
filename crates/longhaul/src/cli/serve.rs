//! `longhaul serve`: the far end of tests.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use longhaul_core::wire::{RefusalKind, Service};
use longhaul_engine::flow::{self, FlowLimits};
use longhaul_engine::serve::{Host, Listener, Services};
use longhaul_engine::session::{AuthorisedKeys, ConfigDir, DEFAULT_PORT, Identity, ServedSession};

use crate::exit::{self, Coded};
use crate::interrupt::Interrupt;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Listen on this address only
    #[arg(long, value_name = "ADDR", default_value_t = IpAddr::V6(Ipv6Addr::UNSPECIFIED))]
    bind: IpAddr,
    /// Listen on this port
    #[arg(short, long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// End after one session
    #[arg(long)]
    one_off: bool,
}

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let interrupt = Interrupt::install().map_err(|e| Coded::new(exit::HOST, e))?;
        let config = ConfigDir::of_user()?;
        let identity = Identity::load_or_create(&config)?;
        let authorised = AuthorisedKeys::load(&config, identity.public())?;
        let listener = Listener::bind(SocketAddr::new(self.bind, self.port))?;
        eprintln!("longhaul: listening on {}", listener.address());
        let host = Arc::new(Host { identity, authorised });
        listener.run(host, Arc::new(Tests), self.one_off, interrupt.flag());
        Ok(interrupt.exit_code().unwrap_or(exit::OK))
    }
}

/// Answers tests, from anyone, under limits.
struct Tests;

impl Services for Tests {
    fn refusal(&self, service: Service, _authorised: bool) -> Option<(RefusalKind, String)> {
        (service != Service::Test)
            .then(|| (RefusalKind::NotAuthorised, "this server answers tests only".to_owned()))
    }

    fn run(&self, _: Service, session: ServedSession) -> longhaul_engine::Result<()> {
        flow::serve(session, &FlowLimits::default())
    }

    fn ended(&self, peer: &str, outcome: longhaul_engine::Result<()>) {
        match outcome {
            Ok(()) => eprintln!("longhaul: {peer}: done"),
            Err(error) => eprintln!("longhaul: {peer}: {:#}", anyhow::Error::from(error)),
        }
    }
}
