//! A server for one session of this user, over ssh or within one process.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use longhaul_core::wire::Service;

use super::{Listener, Services, serve_session};
use crate::error::{EngineError, Result};
use crate::session::{
    DataDialer, Grant, ServedSession, Session, SessionRegistry, SessionSecret, WorkRecord, control,
    greet, random_keying_material,
};

/// A listener for the data connections of one session, on a separate thread.
pub struct DataPort {
    registry: SessionRegistry,
    port: u16,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DataPort {
    /// Listens on a free port of the address `bind`.
    ///
    /// # Errors
    /// This host has no free port.
    pub fn open(bind: IpAddr) -> Result<Self> {
        let listener = match Listener::bind(SocketAddr::new(bind, 0)) {
            // A host without IPv6 has no wildcard for both.
            Err(_) if bind == IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
                Listener::bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?
            }
            listener => listener?,
        };
        let port = listener.address().port();
        let registry = SessionRegistry::default();
        let over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (registry, over) = (registry.clone(), over.clone());
            move || listener.run_data(&registry, &over)
        });
        Ok(DataPort { registry, port, over, thread: Some(thread) })
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Serves one client on a control channel that is authenticated already; `secret` authenticates
    /// its data connections.
    ///
    /// # Errors
    /// As [`serve_session`].
    pub fn serve(
        &self,
        reader: impl Read + AsFd + Send + 'static,
        writer: impl Write + AsFd + Send + 'static,
        secret: SessionSecret,
        services: &dyn Services,
    ) -> Result<()> {
        let streams = self.registry.register(secret);
        let (sender, receiver) = control(reader, writer, "the near side");
        let session = ServedSession {
            sender,
            receiver,
            streams,
            authorized: true,
            grant: Grant::default(),
            key: None,
            record: WorkRecord::default(),
            host_keys: None,
            rate: None,
            quota: None,
        };
        serve_session(session, services)
    }
}

impl Drop for DataPort {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A server on a thread of this process.
pub struct InProcess {
    thread: JoinHandle<Result<()>>,
}

impl InProcess {
    /// Starts the server and opens a session for `service`.
    ///
    /// # Errors
    /// This host creates no sockets, or `services` refuse.
    pub fn start(services: impl Services + 'static, service: Service) -> Result<(Self, Session)> {
        let failed = |source| EngineError::System { operation: "make a pair of sockets", source };
        let (near, far) = UnixStream::pair().map_err(failed)?;
        let near_writer = near.try_clone().map_err(failed)?;
        let far_writer = far.try_clone().map_err(failed)?;
        let data = DataPort::open(Ipv4Addr::LOCALHOST.into())?;
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), data.port);
        let secret = SessionSecret::from_keying_material(&random_keying_material());
        let thread = thread::spawn({
            let secret = secret.clone();
            move || data.serve(far, far_writer, secret, &services)
        });
        let (sender, mut receiver) = control(near, near_writer, "this host");
        greet(&sender, &mut receiver, service, |_| true)?;
        let session = Session::new(sender, receiver, DataDialer::new(vec![address], secret));
        Ok((InProcess { thread }, session))
    }

    /// Waits for the server's end. The session has reported its result.
    pub fn finish(self) {
        let _ = self.thread.join();
    }
}
