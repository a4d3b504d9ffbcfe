//! The options of the STAMP reflector of `longhaul serve`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use longhaul_engine::EngineError;
use longhaul_engine::serve::Guest;
use longhaul_interop::stamp::{Reflector, ReflectorSettings};

use crate::cli::path::stamp_key;
use crate::exit::Coded;
use crate::output::print_message;

/// The options of the reflector.
#[derive(Debug, clap::Args)]
pub(super) struct StampArgs {
    /// Answer STAMP and TWAMP Light packets on this UDP port [default: 862]
    #[arg(
        long, value_name = "PORT", num_args = 0..=1, require_equals = true,
        default_missing_value = "862"
    )]
    stamp: Option<u16>,
    /// Answer only STAMP packets authenticated with the key in FILE, 32 to 128 hexadecimal digits
    #[arg(long, value_name = "FILE", requires = "stamp")]
    stamp_key: Option<PathBuf>,
    /// Copy the number of each STAMP packet into its reply instead of counting per session
    #[arg(long, requires = "stamp")]
    stamp_stateless: bool,
    /// Answer at most this many STAMP packets per second and address
    #[arg(
        long, value_name = "COUNT", default_value_t = 10_000, requires = "stamp",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    stamp_rate: u32,
}

impl StampArgs {
    /// Binds the reflector's sockets: one for `bind`, or one for IPv6 and one for IPv4.
    ///
    /// # Errors
    /// The key cannot be used, or no socket can be bound.
    pub(super) fn bind(&self, bind: Option<IpAddr>) -> Result<Vec<Arc<dyn Guest>>, Coded> {
        let Some(port) = self.stamp else { return Ok(Vec::new()) };
        let settings = ReflectorSettings {
            key: self.stamp_key.as_deref().map(stamp_key).transpose()?,
            stateful: !self.stamp_stateless,
            rate: self.stamp_rate,
            ..ReflectorSettings::default()
        };
        let sockets = match bind {
            Some(ip) => vec![open(ip, port, &settings)?],
            None => bind_all(port, &settings)?,
        };
        Ok(sockets
            .into_iter()
            .map(|socket| {
                print_message(format_args!("answering STAMP on {}", socket.address()));
                let guest: Arc<dyn Guest> = Arc::new(socket);
                guest
            })
            .collect())
    }
}

/// Binds to all addresses of both families; a host without IPv6 has only IPv4.
fn bind_all(port: u16, settings: &ReflectorSettings) -> Result<Vec<Reflector>, Coded> {
    let v4 = open(Ipv4Addr::UNSPECIFIED.into(), port, settings)?;
    // With port 0 the kernel chose one, which both families share.
    let v6 = open(Ipv6Addr::UNSPECIFIED.into(), v4.address().port(), settings);
    Ok(v6.into_iter().chain([v4]).collect())
}

fn open(ip: IpAddr, port: u16, settings: &ReflectorSettings) -> Result<Reflector, EngineError> {
    let address = SocketAddr::new(ip, port);
    Reflector::bind(address, settings.clone())
        .map_err(|source| EngineError::Listen { address: format!("{address} (UDP)"), source })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use longhaul_interop::stamp::STAMP_PORT;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        stamp: StampArgs,
    }

    fn parse(line: &str) -> Result<StampArgs, clap::Error> {
        let words = std::iter::once("serve").chain(line.split_whitespace());
        Program::try_parse_from(words).map(|program| program.stamp)
    }

    #[test]
    fn the_port_is_optional() {
        assert_eq!(parse("").unwrap().stamp, None);
        assert_eq!(parse("--stamp").unwrap().stamp, Some(STAMP_PORT));
        let found = parse("--stamp=4000 --stamp-stateless --stamp-rate 9").unwrap();
        assert_eq!((found.stamp, found.stamp_stateless, found.stamp_rate), (Some(4000), true, 9));
        for line in ["--stamp-stateless", "--stamp --stamp-rate 0", "--stamp=x", "--stamp-key k"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
