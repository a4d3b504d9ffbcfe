//! Reads facts about the path to another host.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{io, thread};

use longhaul_core::doctor::{Cause, FactResult, PathFacts, UnknownFact};

use super::FactSource;
use crate::route::route_to;

/// Determines the route to `host` and the time to connect to it.
pub(super) fn read(source: &FactSource, host: &str, port: u16, patience: Duration) -> PathFacts {
    let address = address(source, host, patience);
    let route = address.clone().and_then(|address| route(source, address));
    let answer = address.clone().and_then(|to| answer(source, SocketAddr::new(to, port), patience));
    let (interface, route_mtu) = match route {
        Ok((interface, mtu)) => (Ok(interface), Ok(mtu)),
        Err(unseen) => (Err(unseen.clone()), Err(unseen)),
    };
    PathFacts { host: host.to_owned(), address, interface, route_mtu, answer }
}

fn address(source: &FactSource, host: &str, patience: Duration) -> FactResult<IpAddr> {
    let name = format!("resolve {host}");
    let text = source.call(&name, || Ok(resolve(host, patience)?.to_string()))?;
    text.parse().map_err(|_| UnknownFact::not_understood(name, &text))
}

/// Returns the first address of `host`. If the name servers do not answer within `patience`, the
/// function returns without waiting for the resolving thread.
fn resolve(host: &str, patience: Duration) -> io::Result<IpAddr> {
    let (sender, receiver) = mpsc::channel();
    let host = host.to_owned();
    thread::Builder::new().name("resolver".into()).spawn(move || {
        let found = (host.as_str(), 0).to_socket_addrs().map(|mut addresses| addresses.next());
        let _ = sender.send(found);
    })?;
    let silent = |_| io::Error::new(io::ErrorKind::TimedOut, "the resolver does not answer");
    let first = receiver.recv_timeout(patience).map_err(silent)??;
    Ok(first.ok_or(io::ErrorKind::NotFound)?.ip())
}

/// Returns the interface of the route and the route's MTU.
fn route(source: &FactSource, to: IpAddr) -> FactResult<(String, Option<u32>)> {
    let name = format!("route {to}");
    let text = source.call(&name, || {
        let route = route_to(to)?;
        let mtu = route.mtu.map_or("-".to_owned(), |mtu| mtu.to_string());
        Ok(format!("{} {mtu}", route.interface))
    })?;
    let (interface, mtu) =
        text.split_once(' ').ok_or_else(|| UnknownFact::not_understood(name, &text))?;
    Ok((interface.to_owned(), mtu.parse().ok()))
}

/// Measures the time until a connection opens or is refused; both take one round trip.
fn answer(source: &FactSource, to: SocketAddr, patience: Duration) -> FactResult<(Duration, bool)> {
    let answer = source.numbers(&format!("connect {to}"), ["micros", "open"], || {
        let begun = Instant::now();
        let open = match TcpStream::connect_timeout(&to, patience) {
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => false,
            Err(error) => return Err(error),
        };
        Ok([begun.elapsed().as_micros() as u64, u64::from(open)])
    });
    let [micros, open] = answer.map_err(|unseen| match unseen.cause {
        // A firewall on this host or on the path rejects with ICMP, which the socket reports like a
        // missing privilege.
        Cause::Denied | Cause::Absent => UnknownFact {
            cause: Cause::Failed("no answer to measure the time with".to_owned()),
            ..unseen
        },
        Cause::Failed(_) => unseen,
    })?;
    Ok((Duration::from_micros(micros), open == 1))
}
