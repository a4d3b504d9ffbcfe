//! The server of `longhaul nuttcp -S`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use longhaul_core::wire::{RefusalKind, Service};
use longhaul_engine::serve::{
    ClientLimits, ServeEvent, ServerKeys, Services, Serving, serve_guests,
};
use longhaul_engine::session::ServedSession;
use longhaul_engine::test::TestLimits;
use longhaul_engine::{EngineError, Result as EngineResult};
use longhaul_interop::nuttcp::NuttcpServer;
use longhaul_interop::nuttcp::arguments::ServerArguments;

use super::FAILED;
use crate::exit::{self, Coded};
use crate::output::{failure_text, print_message};
use crate::signals::Interrupt;

/// The maximum number of tests at once.
const MOST_TESTS: usize = 64;

/// The server's only service is that of its guest.
struct GuestOnly;

impl Services for GuestOnly {
    fn refusal(&self, _: Service, _: bool) -> Option<(RefusalKind, String)> {
        Some((RefusalKind::NotAuthorized, "this server answers nuttcp only".to_owned()))
    }

    fn run(&self, _: Service, _: ServedSession) -> EngineResult<()> {
        Err(EngineError::Interrupted)
    }

    fn log(&self, event: ServeEvent) {
        if let ServeEvent::Guest(report) = event
            && let Err(error) = &report.outcome
        {
            print_message(format_args!("{}: {}", report.address, failure_text(error)));
        }
    }
}

/// Serves until a signal or, with `-1`, one client.
pub(super) fn run(arguments: &ServerArguments) -> Result<u8, Coded> {
    let interrupt = Interrupt::install().map_err(|error| Coded::new(FAILED, error))?;
    let server = listen(arguments)?;
    let serving = Serving {
        host: Arc::new(ServerKeys::without_clients()?),
        services: Arc::new(GuestOnly),
        clients: ClientLimits {
            one_off: arguments.once,
            penalties: false,
            anonymous: MOST_TESTS,
            ..ClientLimits::default()
        },
        guests: vec![Arc::new(server)],
    };
    serve_guests(serving, interrupt.flag());
    Ok(interrupt.exit_code().map_or(exit::OK, |_| FAILED))
}

fn listen(arguments: &ServerArguments) -> Result<NuttcpServer, Coded> {
    let limits = TestLimits::default();
    let (v4, v6): (IpAddr, IpAddr) = (Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into());
    let wanted = if arguments.family == Some(4) { v4 } else { v6 };
    let address = SocketAddr::new(wanted, arguments.port);
    let opened = NuttcpServer::bind(address, limits.clone()).or_else(|error| {
        // A host without IPv6 has no wildcard for both.
        let other = SocketAddr::new(v4, arguments.port);
        let fallback = arguments.family.is_none();
        if fallback { NuttcpServer::bind(other, limits).map_err(|_| error) } else { Err(error) }
    });
    let failed = |source| EngineError::Listen { address: address.to_string(), source };
    opened.map_err(|source| Coded::new(FAILED, failed(source)))
}
