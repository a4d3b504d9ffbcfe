//! Rules for the path to the named host.

use crate::doctor::rule::{Answer, NOTHING, advice, fine, problem, unknown};
use crate::doctor::{HostFacts, PathFacts, Target};

pub(super) fn route(path: &PathFacts, _: &HostFacts, _: &Target) -> Answer {
    let address = match &path.address {
        Ok(address) => address.to_string(),
        Err(unseen) => return problem("no_address").with("unseen", unseen.to_string()).answer(),
    };
    match &path.interface {
        Ok(interface) => fine("routed").with("interface", interface.as_str()),
        Err(unseen) => problem("no_route").with("unseen", unseen.to_string()),
    }
    .with("address", address)
    .answer()
}

pub(super) fn answer(path: &PathFacts, _: &HostFacts, target: &Target) -> Answer {
    if path.address.is_err() {
        return NOTHING;
    }
    match &path.answer {
        Ok((rtt, true)) => fine("open").with_ms("rtt_ms", *rtt),
        Ok((rtt, false)) => advice("closed").with_ms("rtt_ms", *rtt),
        Err(unseen) => unknown("silent").with("unseen", unseen.to_string()),
    }
    .with("port", u32::from(target.port))
    .answer()
}

pub(super) fn route_mtu(path: &PathFacts, host: &HostFacts, _: &Target) -> Answer {
    let (Ok(Some(limit)), Ok(name)) = (&path.route_mtu, &path.interface) else { return NOTHING };
    let interface = host.interfaces.iter().find(|interface| interface.name == *name);
    let Some(Ok(mtu)) = interface.map(|interface| &interface.mtu) else { return NOTHING };
    let judgement = if limit >= mtu { fine("same") } else { advice("smaller") };
    judgement
        .with("mtu_bytes", *limit)
        .with("interface", name.as_str())
        .with("interface_mtu_bytes", *mtu)
        .answer()
}
