//! Claims of interfaces: an interface belongs to one bridge or topology at a time.
//!
//! Two bridges over one interface would deliver each frame twice, and bridges in a loop would
//! forward frames forever.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::EmuError;

/// An interface of a network namespace that no other bridge or topology can claim while the value
/// exists. The kernel ends the claim with the process.
#[derive(Debug)]
pub(super) struct Claim {
    /// A socket with an abstract name, which is unique in its network namespace.
    _socket: UnixDatagram,
}

impl Claim {
    /// Claims interface `name` with this index in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Another bridge or topology has the interface.
    pub(super) fn take(name: &str, index: u32) -> Result<Claim, EmuError> {
        let interface = || name.to_owned();
        let address = SocketAddr::from_abstract_name(format!("longhaul/interface/{index}"));
        match address.and_then(|address| UnixDatagram::bind_addr(&address)) {
            Ok(socket) => Ok(Claim { _socket: socket }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(EmuError::InUse { interface: interface() })
            }
            Err(source) => Err(EmuError::Interface { interface: interface(), source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_claimed_once_at_a_time() {
        // An index that no interface has.
        let index = u32::MAX - std::process::id();
        let claim = Claim::take("eth1", index).unwrap();
        let error = Claim::take("eth1", index).unwrap_err().to_string();
        assert!(error.contains("interface eth1 is in use"), "{error}");
        Claim::take("eth2", index - 1).unwrap();
        drop(claim);
        Claim::take("eth1", index).unwrap();
    }
}
