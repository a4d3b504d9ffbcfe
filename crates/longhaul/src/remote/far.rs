use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longhaul_core::wire::{FarReady, RefusalKind, Service, write_frame};
use longhaul_engine::copy::{self, Tree};
use longhaul_engine::diagnose;
use longhaul_engine::path;
use longhaul_engine::serve::{DataPort, InProcess, Services};
use longhaul_engine::session::{ServedSession, Session, SessionSecret, random_keying_material};
use longhaul_engine::test::{self, TestLimits};
use longhaul_engine::{EngineError, Result};

use crate::output::raw_output;

/// The services for one client that is this user already: the whole file system, with this user's
/// rights, tests, and measurements of the path.
struct OwnFiles {
    stop: Arc<AtomicBool>,
}

impl Services for OwnFiles {
    fn refusal(&self, service: Service, _authorised: bool) -> Option<(RefusalKind, String)> {
        (service == Service::ThirdParty).then(|| {
            let reason = "tests between two servers do not run over ssh";
            (RefusalKind::NotAuthorised, reason.to_owned())
        })
    }

    fn run(&self, service: Service, session: ServedSession) -> Result<()> {
        match service {
            Service::Test => test::serve(session, &TestLimits::default()),
            Service::Path => path::serve(session, &TestLimits::default()),
            Service::Diagnose => diagnose::serve(session, &Tree::anywhere(), &self.stop),
            Service::Copy | Service::ThirdParty => {
                copy::serve(session, &Tree::anywhere(), &self.stop)
            }
        }
    }
}

/// A far end within this process, and the session with it for `service`.
///
/// # Errors
/// As [`InProcess::start`].
pub(crate) fn start_here(service: Service, stop: &Arc<AtomicBool>) -> Result<(InProcess, Session)> {
    InProcess::start(OwnFiles { stop: stop.clone() }, service)
}

/// `longhaul serve --stdio`: the far end of an ssh connection. With `loopback` its data
/// connections come from this host alone, through ssh as well.
///
/// # Errors
/// What went wrong, which the near side has been told where it could be.
pub(crate) fn serve_stdio(loopback: bool, stop: Arc<AtomicBool>) -> Result<()> {
    let bind = if loopback { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let data = DataPort::open(bind)?;
    let secret = random_keying_material();
    // "CLIENT-IP CLIENT-PORT SERVER-IP SERVER-PORT", sshd(8).
    let address = std::env::var("SSH_CONNECTION")
        .ok()
        .and_then(|connection| connection.split(' ').nth(2)?.parse().ok());
    let ready = FarReady { port: data.port(), address, secret };
    let failed = |source| EngineError::Control { peer: "the near side".to_owned(), source };
    // Not the standard library's handles: what they buffer, nobody can wait for.
    let pipe = |fd: BorrowedFd<'_>| {
        let owned = fd.try_clone_to_owned();
        owned.map(File::from).map_err(|error| failed(error.into()))
    };
    let input = pipe(std::io::stdin().as_fd())?;
    let mut output = raw_output().map_err(|error| failed(error.into()))?;
    write_frame(&mut output, &ready).map_err(failed)?;
    let secret = SessionSecret::from_keying_material(&secret);
    data.serve(input, output, secret, &OwnFiles { stop })
}
