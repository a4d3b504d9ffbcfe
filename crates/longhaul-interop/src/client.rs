//! A test against a server of another program, and the connections to it.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longhaul_core::plan::TestPlan;
use longhaul_engine::session::{Family, LocalAddress};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::{InteropError, Result};
use crate::peer::PeerAddress;

/// The longest time in which a server has to accept a connection.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// A test against a server of another program.
#[derive(Clone, Copy)]
pub struct PeerTest<'a> {
    /// The server.
    pub address: &'a PeerAddress,
    /// The plan.
    pub plan: &'a TestPlan,
    /// The IP version.
    pub family: Family,
    /// The local address of the control connection and of the streams.
    pub local: Option<&'a LocalAddress>,
    /// Ends the test early, with a result of the time until then.
    pub stop: &'a AtomicBool,
}

impl PeerTest<'_> {
    /// Returns the addresses of the server.
    ///
    /// # Errors
    /// The name has no address of the IP version.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>> {
        let PeerAddress { host, port, .. } = self.address;
        let failed = |source| InteropError::Resolve { host: host.clone(), source };
        let found = (host.as_str(), *port).to_socket_addrs().map_err(failed)?;
        let fits = |address: &SocketAddr| match self.family {
            Family::Any => true,
            Family::V4 => address.is_ipv4(),
            Family::V6 => address.is_ipv6(),
        };
        let found: Vec<_> = found.filter(fits).collect();
        if let Some(local) = self.local {
            return Ok(local.matching(host, found)?);
        }
        if found.is_empty() {
            return Err(failed(io::ErrorKind::AddrNotAvailable.into()));
        }
        Ok(found)
    }

    /// Connects to the first address of the server that answers.
    ///
    /// # Errors
    /// No address answers within [`CONNECT_LIMIT`].
    pub fn connect(&self) -> Result<TcpStream> {
        let mut last = io::ErrorKind::AddrNotAvailable.into();
        for address in self.resolve()? {
            match connect_to(address, |socket| bind_to(socket, self.local)) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(InteropError::Connect { address: self.address.clone(), source: last })
    }
}

/// Binds `socket` to `local`, if there is one.
///
/// # Errors
/// This host does not have the address.
pub(crate) fn bind_to(socket: &Socket, local: Option<&LocalAddress>) -> io::Result<()> {
    local.map_or(Ok(()), |local| local.bind(socket))
}

/// Connects to `address` within [`CONNECT_LIMIT`]. `prepare` sets options before the connection is
/// opened.
///
/// # Errors
/// The error of `prepare` or of the connection.
pub fn connect_to(
    address: SocketAddr,
    prepare: impl FnOnce(&Socket) -> io::Result<()>,
) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    prepare(&socket)?;
    socket.connect_timeout(&address.into(), CONNECT_LIMIT)?;
    Ok(socket.into())
}
