use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};

use longhaul_core::wire::Service;
use longhaul_engine::session::{
    DataDialer, Session, SessionSecret, control, greet, random_keying_material,
};
use longhaul_engine::{EngineError, Result};

use super::far::{DataPort, serve_far};

/// A far end on a thread of this process, for copies within this host.
pub(crate) struct LocalFar {
    thread: JoinHandle<Result<()>>,
}

impl LocalFar {
    /// Starts it and opens the session for `service`.
    ///
    /// # Errors
    /// This host gives no sockets.
    pub(crate) fn start(service: Service, stop: &Arc<AtomicBool>) -> Result<(Self, Session)> {
        let failed = |source| EngineError::System { operation: "make a pair of sockets", source };
        let (near, far) = UnixStream::pair().map_err(failed)?;
        let (near_writer, far_writer) =
            (near.try_clone().map_err(failed)?, far.try_clone().map_err(failed)?);
        let data = DataPort::open(Ipv4Addr::LOCALHOST.into())?;
        let secret = SessionSecret::from_keying_material(&random_keying_material());
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), data.port);
        let thread = thread::spawn({
            let (secret, stop) = (secret.clone(), stop.clone());
            move || serve_far(far, far_writer, &data, secret, stop)
        });
        let (sender, mut receiver) = control(near, near_writer, "this host");
        greet(&sender, &mut receiver, service, |_| true)?;
        let dialer = DataDialer::new(vec![address], secret);
        Ok((LocalFar { thread }, Session::new(sender, receiver, dialer)))
    }

    /// Waits for its end. What it has to say, the session has said.
    pub(crate) fn finish(self) {
        let _ = self.thread.join();
    }
}
