//! `--bind`: the local address of a client's connections.

use anyhow::anyhow;
use longhaul_engine::session::{Family, LocalAddress};

use crate::exit::{self, Coded};

/// The option of the commands that connect to another host.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct BindArgs {
    /// Local address of all connections, UDP flows and probes, except those of ssh, for which use
    /// -e 'ssh -b ADDR'
    #[arg(short = 'B', long, value_name = "ADDR")]
    bind: Option<LocalAddress>,
}

impl BindArgs {
    /// Returns the given address.
    pub(super) fn address(&self) -> Option<&LocalAddress> {
        self.bind.as_ref()
    }

    /// Returns the local address, which this host has. `family` are the versions of IP that the
    /// other options permit.
    ///
    /// # Errors
    /// This host does not have the address, or the other options exclude its version of IP.
    pub(super) fn checked(&self, family: Family) -> Result<Option<LocalAddress>, Coded> {
        let Some(local) = &self.bind else { return Ok(None) };
        let excluded = match (family, local.family()) {
            (Family::V4, Family::V6) => Some("an IPv6 address, which -4 excludes"),
            (Family::V6, Family::V4) => Some("an IPv4 address, which -6 excludes"),
            _ => None,
        };
        if let Some(excluded) = excluded {
            return Err(Coded::new(exit::USAGE, anyhow!("--bind {local} is {excluded}")));
        }
        local.check()?;
        Ok(Some(local.clone()))
    }

    /// Returns the local address as [`checked`](Self::checked), for a command with a `remote` host
    /// or none.
    ///
    /// # Errors
    /// As [`checked`](Self::checked), and if there is an address but no remote host.
    pub(super) fn checked_for(&self, remote: bool) -> Result<Option<LocalAddress>, Coded> {
        if self.bind.is_some() && !remote {
            let error =
                anyhow!("--bind needs another host: a copy within this host uses no network");
            return Err(Coded::new(exit::USAGE, error));
        }
        self.checked(Family::Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> BindArgs {
        BindArgs { bind: Some(address.parse().unwrap()) }
    }

    #[test]
    fn the_address_is_one_of_this_host_and_of_the_wanted_version() {
        assert_eq!(BindArgs::default().checked(Family::V6).unwrap(), None);
        let local = of("127.0.0.2").checked(Family::V4).unwrap();
        assert_eq!(local.unwrap().to_string(), "127.0.0.2");
        for (address, family, code) in [
            ("127.0.0.2", Family::V6, exit::USAGE),
            ("::1", Family::V4, exit::USAGE),
            ("192.0.2.77", Family::Any, exit::HOST),
        ] {
            let error = of(address).checked(family).unwrap_err();
            assert_eq!(error.code, code, "{address}");
        }
        assert_eq!(of("127.0.0.2").checked_for(false).unwrap_err().code, exit::USAGE);
        assert!(BindArgs::default().checked_for(false).unwrap().is_none());
    }
}
