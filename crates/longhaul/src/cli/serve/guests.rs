//! The options of `longhaul serve` that serve the clients of other programs.

mod stamp;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use longhaul_engine::EngineError;
use longhaul_engine::serve::Guest;
use longhaul_engine::test::TestLimits;
use longhaul_interop::iperf3::{self, DEFAULT_SKEW, Padding, Users};
use longhaul_interop::nuttcp::NuttcpServer;

use self::stamp::StampArgs;
use crate::exit::Coded;
use crate::output::print_message;

/// The ports for the clients of other programs. Their tests count among those of clients without
/// an authorized key.
#[derive(Debug, clap::Args)]
pub(super) struct GuestArgs {
    /// Also serve iperf3 clients [default port: 5201]
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true,
          default_missing_value = "5201", conflicts_with_all = ["keys_only", "stdio"])]
    iperf3: Option<u16>,
    /// Require users of iperf3 clients: the private key (PEM, mode 600) that decrypts their passwords
    #[arg(long, value_name = "FILE", requires_all = ["iperf3", "authorized_users_path"])]
    rsa_private_key_path: Option<PathBuf>,
    /// The users of iperf3 clients: lines 'USER,SHA256 of {USER}PASSWORD'
    #[arg(long, value_name = "FILE", requires = "rsa_private_key_path")]
    authorized_users_path: Option<PathBuf>,
    /// Decrypt the passwords of iperf3 clients before 3.17
    #[arg(long, requires = "rsa_private_key_path")]
    use_pkcs1_padding: bool,
    /// Also serve nuttcp clients, on this control port [default port: 5000]
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true,
          default_missing_value = "5000", conflicts_with_all = ["keys_only", "stdio"])]
    nuttcp: Option<u16>,
    #[command(flatten)]
    stamp: StampArgs,
}

impl GuestArgs {
    /// Opens the listeners, before the server changes its user. `bind` is the only address to
    /// listen on, and `limits` are those of a client without an authorized key.
    ///
    /// # Errors
    /// A port cannot be used.
    pub(super) fn bind(
        &self,
        bind: Option<IpAddr>,
        limits: &TestLimits,
    ) -> Result<Vec<Arc<dyn Guest>>, Coded> {
        let mut guests: Vec<Arc<dyn Guest>> = Vec::new();
        if let Some(port) = self.iperf3 {
            let server = listen(bind, port, |at| iperf3::Server::bind(at, limits.clone()))?;
            let server = server.with_users(self.users()?);
            print_message(format_args!("serving iperf3 clients on {}", server.address()));
            guests.push(Arc::new(server));
        }
        if let Some(port) = self.nuttcp {
            let server = listen(bind, port, |at| NuttcpServer::bind(at, limits.clone()))?;
            print_message(format_args!("serving nuttcp clients on {}", server.address()));
            guests.push(Arc::new(server));
        }
        guests.extend(self.stamp.bind(bind)?);
        Ok(guests)
    }
}

impl GuestArgs {
    /// Reads the users of iperf3 clients.
    fn users(&self) -> Result<Option<Users>, Coded> {
        let (Some(key), Some(users)) = (&self.rsa_private_key_path, &self.authorized_users_path)
        else {
            return Ok(None);
        };
        let padding = if self.use_pkcs1_padding { Padding::Pkcs1 } else { Padding::Oaep };
        Ok(Some(Users::read(key, users, padding, DEFAULT_SKEW)?))
    }
}

/// Opens a listener on `bind`, or on all addresses.
///
/// # Errors
/// The port cannot be used.
fn listen<T>(
    bind: Option<IpAddr>,
    port: u16,
    open: impl Fn(SocketAddr) -> std::io::Result<T>,
) -> Result<T, EngineError> {
    let address = SocketAddr::new(bind.unwrap_or(Ipv6Addr::UNSPECIFIED.into()), port);
    let opened = open(address).or_else(|error| match bind {
        Some(_) => Err(error),
        // A host without IPv6 has no wildcard for both.
        None => open((Ipv4Addr::UNSPECIFIED, port).into()).map_err(|_| error),
    });
    opened.map_err(|source| EngineError::Listen { address: address.to_string(), source })
}
