//! Starts the server side of a copy in this process or over ssh, and runs `longhaul` on other
//! hosts.
//!
//! The server side is the same code as `longhaul serve`: a control channel, data connections that
//! a secret binds to it, and the services.

mod glob;
mod install;
mod ssh;
mod tunnel;
mod wildcard;

use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longhaul_core::wire::{FarReady, RefusalKind, Service, write_frame};
use longhaul_engine::copy::{self, Tree};
use longhaul_engine::serve::{DataPort, InProcess, Services};
use longhaul_engine::session::{ServedSession, Session, SessionSecret, random_keying_material};
use longhaul_engine::test::{self, TestLimits};
use longhaul_engine::{EngineError, Result, diagnose, path};

use crate::output::raw_output;

pub(crate) use glob::expand as expand_wildcards;
pub(crate) use install::install_far;
pub(crate) use ssh::{Rsh, SshOptions, SshServer, is_ssh_alias, remote_output};
pub(crate) use tunnel::relay;

/// The services for a client that runs as this user: tests, path measurements, and copies anywhere
/// in the file system with the rights of the user.
struct OwnFiles {
    stop: Arc<AtomicBool>,
}

impl Services for OwnFiles {
    fn refusal(&self, service: Service, _authorized: bool) -> Option<(RefusalKind, String)> {
        (service == Service::ThirdParty).then(|| {
            let reason = "a test between two servers needs 'longhaul serve', not ssh";
            (RefusalKind::NotAuthorized, reason.to_owned())
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

/// Starts a server in this process and opens a session with it for `service`.
///
/// # Errors
/// As [`InProcess::start`].
pub(crate) fn start_here(service: Service, stop: &Arc<AtomicBool>) -> Result<(InProcess, Session)> {
    InProcess::start(OwnFiles { stop: stop.clone() }, service)
}

/// Runs `longhaul serve --stdio`, the server at the end of an ssh connection. With `loopback` it
/// accepts data connections only from this host: they pass through ssh, too.
///
/// # Errors
/// The error of the session, which is also sent to the client if possible.
pub(crate) fn serve_stdio(loopback: bool, stop: Arc<AtomicBool>) -> Result<()> {
    let bind = if loopback { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let data = DataPort::open(bind)?;
    let secret = random_keying_material();
    // "CLIENT-IP CLIENT-PORT SERVER-IP SERVER-PORT", sshd(8).
    let address = std::env::var("SSH_CONNECTION")
        .ok()
        .and_then(|connection| connection.split(' ').nth(2)?.parse().ok());
    let ready = FarReady { port: data.port(), address, secret };
    let failed = |source| EngineError::Control { peer: "the client".to_owned(), source };
    // The standard library's handles buffer, and a poll does not see their buffers.
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
