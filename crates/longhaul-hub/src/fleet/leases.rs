//! The leases of an agent, from the planned runs of the store.

use std::collections::HashMap;

use longhaul_fleet::mesh::Mesh;
use longhaul_fleet::protocol::{Lease, MAX_LEASES, Role, StampPeer};

use super::planner::LeaseParts;
use crate::records::agents::{Agent, key_of};
use crate::records::leases::{Due, cancelled, lease, waiting};
use crate::store::{Sql, StoreError};

/// Returns the leases of `host`, by their fencing numbers.
///
/// # Errors
/// The database is unavailable.
pub(crate) fn leases(sql: &mut dyn Sql, host: &str, now: i64) -> Result<Vec<Lease>, StoreError> {
    let due = lease(sql, host, now)?;
    with_keys(sql, due, host)
}

/// Returns the leases that [`leases`] would return, and the runs of `held` that the agent must stop.
///
/// # Errors
/// The database is unavailable.
pub(crate) fn news(
    sql: &mut dyn Sql,
    host: &str,
    held: &[String],
    now: i64,
) -> Result<(Vec<Lease>, Vec<String>), StoreError> {
    let due = waiting(sql, host, now)?;
    Ok((with_keys(sql, due, host)?, cancelled(sql, held)?))
}

fn with_keys(sql: &mut dyn Sql, due: Vec<Due>, host: &str) -> Result<Vec<Lease>, StoreError> {
    if due.is_empty() {
        return Ok(Vec::new());
    }
    let mut keys = HashMap::new();
    for peer in due.iter().flat_map(|due| &due.names[1..]).filter(|name| *name != host) {
        if !keys.contains_key(peer)
            && let Some(key) = key_of(sql, peer)?
        {
            keys.insert(peer.clone(), key);
        }
    }
    due.into_iter().take(MAX_LEASES).map(|due| made(due, host, &keys)).collect()
}

fn made(due: Due, host: &str, keys: &HashMap<String, String>) -> Result<Lease, StoreError> {
    let parts: LeaseParts =
        serde_json::from_str(&due.lease).map_err(|_| StoreError::Malformed { what: "lease" })?;
    let [test, source, destination] = due.names;
    let (local, peer, peer_host) = match due.role {
        Role::Source => (parts.source, parts.destination, &destination),
        Role::Target => (parts.destination, parts.source, &source),
    };
    let prefix = format!("{host}/");
    let resources = due.resources.into_iter().filter(|name| name.starts_with(&prefix));
    let needs_key = parts.spec.kind.needs_target_agent();
    Ok(Lease {
        run: due.run,
        fencing: due.fencing.cast_unsigned(),
        resources: resources.collect(),
        test,
        role: due.role,
        peer_key: keys.get(peer_host).filter(|_| needs_key).cloned(),
        spec: parts.spec,
        source,
        destination,
        local: Some(local),
        peer,
        port: parts.port,
        start_ms: due.window_ms.0,
        end_ms: due.window_ms.1,
    })
}

/// Returns the peers that `host` measures with STAMP.
pub(crate) fn stamp_peers(mesh: &Mesh, host: &str, agents: &[Agent]) -> Vec<StampPeer> {
    let Some(stamp) = &mesh.stamp else { return Vec::new() };
    let own = mesh.host(host).and_then(|host| Some(host.interface(None)?.address));
    let peer = |name: &String| {
        let address = mesh.host(name)?.interface(None)?.address;
        let agent = agents.iter().find(|agent| agent.host == *name);
        let reported = agent.and_then(|agent| Some(agent.state.as_ref()?.stamp_port));
        let port = reported.filter(|port| *port != 0).unwrap_or(stamp.port);
        let (host, interval_ms) = (name.clone(), stamp.interval_ms);
        // An address of the other IP version cannot send to the peer.
        let local = own.filter(|own| own.is_ipv4() == address.is_ipv4());
        Some(StampPeer { host, local, address, port, interval_ms })
    };
    let pairs = stamp.pairs.iter().filter(|(source, _)| source == host);
    pairs.filter_map(|(_, destination)| peer(destination)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_measures_from_its_address_of_the_mesh() {
        let mesh = longhaul_fleet::mesh::parse(
            "[hosts.a]\naddress = \"10.0.0.1\"\ncapacity = \"1G\"\n\
             [hosts.b]\naddress = \"10.0.0.2\"\ncapacity = \"1G\"\n\
             [hosts.c]\naddress = \"fd00::3\"\ncapacity = \"1G\"\n[stamp]\n",
        );
        let peers = stamp_peers(&mesh.unwrap(), "a", &[]);
        let ends: Vec<_> = peers.iter().map(|peer| (peer.host.as_str(), peer.local)).collect();
        assert_eq!(ends, [("b", "10.0.0.1".parse().ok()), ("c", None)]);
    }
}
