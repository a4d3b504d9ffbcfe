//! Rules for the path to the named host.

use crate::doctor::rule::{Answer, NOTHING, advice, fine, problem, unknown};
use crate::doctor::{HostFacts, PathFacts, Target};
use crate::units::format_span;

pub(super) fn route(path: &PathFacts, _: &HostFacts, _: &Target) -> Answer {
    let address = match &path.address {
        Ok(address) => address,
        Err(unseen) => {
            return problem(unseen.to_string())
                .wanted("an address")
                .why("the name cannot be resolved")
                .run(format!("getent hosts {}", path.host))
                .answer();
        }
    };
    match &path.interface {
        Ok(interface) => fine(format!("{address} by {interface}")).answer(),
        Err(unseen) => problem(format!("{address}: {unseen}"))
            .wanted("a route")
            .why("there is no route for packets to it")
            .run(format!("ip route get {address}"))
            .answer(),
    }
}

pub(super) fn answer(path: &PathFacts, _: &HostFacts, target: &Target) -> Answer {
    if path.address.is_err() {
        return NOTHING;
    }
    let port = target.port;
    match &path.answer {
        Ok((rtt, true)) => fine(format!("{}, port {port} is open", format_span(*rtt)))
            .why("the time until a connection opened")
            .answer(),
        Ok((rtt, false)) => advice(format!("{}, port {port} is closed", format_span(*rtt)))
            .wanted("longhaul serve or ssh on that host")
            .why("the time until a connection was refused; no server for tests is running there")
            .run("longhaul serve    # there")
            .answer(),
        Err(unseen) => unknown(unseen.to_string())
            .why(
                "the round-trip time is not measured; nothing answers on the port, or a firewall \
                  drops the question",
            )
            .run(format!("longhaul serve -p {port}    # there"))
            .answer(),
    }
}

pub(super) fn route_mtu(path: &PathFacts, host: &HostFacts, _: &Target) -> Answer {
    let (Ok(Some(limit)), Ok(name)) = (&path.route_mtu, &path.interface) else { return NOTHING };
    let interface = host.interfaces.iter().find(|interface| interface.name == *name);
    let Some(Ok(mtu)) = interface.map(|interface| &interface.mtu) else { return NOTHING };
    if limit >= mtu {
        return fine(format!("{limit} bytes")).answer();
    }
    advice(format!("{limit} bytes, while {name} supports {mtu}"))
        .wanted(format!("{mtu} bytes"))
        .why("the limit was configured, or a router on the path reported it (path MTU discovery)")
        .run(format!("ip route get {}", path.host))
        .answer()
}
