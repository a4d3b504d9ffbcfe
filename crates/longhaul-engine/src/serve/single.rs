//! The far end of one session, without a server around it: for who is this user already.

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

/// A listener for the data connections of one session, on a thread of its own.
pub struct DataPort {
    registry: SessionRegistry,
    port: u16,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DataPort {
    /// Listens on any port of the address `bind`.
    ///
    /// # Errors
    /// This host gives no port.
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

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Serves one client on a control channel that needs no proof of who the client is, whose data
    /// connections know `secret`.
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
            authorised: true,
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

/// A far end on a thread of this process.
pub struct InProcess {
    thread: JoinHandle<Result<()>>,
}

impl InProcess {
    /// Starts it and opens the session for `service`.
    ///
    /// # Errors
    /// This host gives no sockets, or `services` refuse.
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

    /// Waits for its end. What it has to say, the session has said.
    pub fn finish(self) {
        let _ = self.thread.join();
    }
}
