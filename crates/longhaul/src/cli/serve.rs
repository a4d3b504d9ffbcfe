//! `longhaul serve`: the far end of tests and copies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longhaul_core::wire::{RefusalKind, Service};
use longhaul_engine::copy::{self, Tree};
use longhaul_engine::flow::{self, FlowLimits, ThirdParty};
use longhaul_engine::serve::{Host, Listener, Services};
use longhaul_engine::session::{AuthorisedKeys, ConfigDir, DEFAULT_PORT, Identity, ServedSession};
use longhaul_engine::{EngineError, Result as EngineResult};

use crate::exit::{self, Coded};
use crate::interrupt::Interrupt;
use crate::remote::serve_stdio;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Tests are answered to anyone, under limits. Files are offered with --root \
                        alone, and only to this user's own key and those in \
                        ~/.config/longhaul/authorized_keys (see 'longhaul key')."
)]
pub(super) struct Args {
    /// Listen on this address only [default: all, IPv6 and IPv4]
    #[arg(long, value_name = "ADDR")]
    bind: Option<IpAddr>,
    /// Listen on this port
    #[arg(short, long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Offer the files in this directory, and nothing outside it
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// End after one session
    #[arg(long)]
    one_off: bool,
    // What 'longhaul cp' runs at the far side of ssh.
    #[arg(long, hide = true, conflicts_with_all = ["bind", "port", "root", "one_off"])]
    stdio: bool,
}

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let interrupt = Interrupt::install().map_err(|e| Coded::new(exit::HOST, e))?;
        if self.stdio {
            serve_stdio(interrupt.flag().clone())?;
            return Ok(exit::OK);
        }
        let files = match &self.root {
            None => None,
            Some(root) => Some(Tree::beneath(root).map_err(EngineError::file("open", root))?),
        };
        let config = ConfigDir::of_user()?;
        let identity = Identity::load_or_create(&config)?;
        let authorised = AuthorisedKeys::load(&config, identity.public())?;
        let listener = self.listen()?;
        let offers = if files.is_some() { "tests and files" } else { "tests" };
        eprintln!("longhaul: serving {offers} on {}", listener.address());
        let host = Arc::new(Host { identity, authorised });
        let third_party = ThirdParty { config, limits: FlowLimits::default() };
        let services = Offer { files, third_party, stop: interrupt.flag().clone() };
        listener.run(host, Arc::new(services), self.one_off, interrupt.flag());
        Ok(interrupt.exit_code().unwrap_or(exit::OK))
    }

    fn listen(&self) -> EngineResult<Listener> {
        let everywhere = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), self.port);
        match self.bind {
            Some(bind) => Listener::bind(SocketAddr::new(bind, self.port)),
            // A host without IPv6 has no wildcard for both.
            None => Listener::bind(everywhere).or_else(|error| {
                Listener::bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), self.port))
                    .map_err(|_| error)
            }),
        }
    }
}

/// Tests for anyone, under limits; files for the authorised.
struct Offer {
    files: Option<Tree>,
    third_party: ThirdParty,
    stop: Arc<AtomicBool>,
}

impl Services for Offer {
    fn refusal(&self, service: Service, authorised: bool) -> Option<(RefusalKind, String)> {
        let reason = match (service, &self.files) {
            (Service::Test, _) => return None,
            (Service::ThirdParty, _) if authorised => return None,
            (Service::ThirdParty, _) => {
                "it tests against other servers for authorised keys alone; add the line that \
                 'longhaul key' prints here to ~/.config/longhaul/authorized_keys there"
                    .to_owned()
            }
            (Service::Copy, None) => {
                "it offers no files; start it as 'longhaul serve --root DIR'".to_owned()
            }
            (Service::Copy, Some(_)) if !authorised => {
                "this key is not authorised; add the line that 'longhaul key' prints here to \
                 ~/.config/longhaul/authorized_keys there"
                    .to_owned()
            }
            (Service::Copy, Some(_)) => return None,
        };
        Some((RefusalKind::NotAuthorised, reason))
    }

    fn run(&self, service: Service, session: ServedSession) -> EngineResult<()> {
        match (service, &self.files) {
            (Service::Copy, Some(files)) => copy::serve(session, files, &self.stop),
            (Service::ThirdParty, _) => flow::serve_third(session, &self.third_party),
            // A copy without files was refused above.
            _ => flow::serve(session, &FlowLimits::default()),
        }
    }

    fn ended(&self, peer: &str, outcome: EngineResult<()>) {
        match outcome {
            Ok(()) => eprintln!("longhaul: {peer}: done"),
            Err(error) => eprintln!("longhaul: {peer}: {:#}", anyhow::Error::from(error)),
        }
    }
}
