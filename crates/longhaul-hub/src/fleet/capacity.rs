//! The capacities that the mesh declares for the interfaces of a host.

use longhaul_core::units::Rate;
use longhaul_fleet::mesh::{Mesh, MeshInterface};
use longhaul_fleet::protocol::{DeclaredCapacity, InterfaceAddress};

/// Returns the name that the host has for a declared interface: the declared name or that of its address.
fn name_of<'a>(declared: &MeshInterface, known: &'a [InterfaceAddress]) -> Option<&'a str> {
    let named = known.iter().find(|one| one.interface == declared.name);
    let found = named.or_else(|| known.iter().find(|one| one.address == declared.address));
    found.map(|one| one.interface.as_str())
}

/// Returns the capacity that the mesh declares for an interface. The mesh names the interface, or has one of
/// the addresses that the agent reports.
pub(crate) fn declared_capacity(
    mesh: &Mesh,
    (host, interface): (&str, &str),
    known: &[InterfaceAddress],
) -> Option<Rate> {
    let all = &mesh.host(host)?.interfaces;
    let named = all.iter().find(|declared| declared.name == interface);
    let has = |declared: &&MeshInterface| {
        known.iter().any(|one| one.interface == interface && one.address == declared.address)
    };
    named.or_else(|| all.iter().find(has)).map(|declared| declared.capacity_bps)
}

/// Returns the greatest capacity that the mesh declares for a host, with the name of the interface if the
/// agent reports it.
pub(crate) fn host_capacity(
    mesh: &Mesh,
    host: &str,
    known: &[InterfaceAddress],
) -> Option<DeclaredCapacity> {
    let all = mesh.host(host)?.interfaces.iter();
    let greatest = all.max_by_key(|declared| declared.capacity_bps.bps())?;
    let interface = name_of(greatest, known).map(str::to_owned);
    Some(DeclaredCapacity { capacity_bps: greatest.capacity_bps, interface })
}

#[cfg(test)]
mod tests {
    use longhaul_fleet::mesh::parse;

    use super::*;

    const MESH: &str = "[hosts.a]\naddress = \"10.0.0.1\"\ncapacity = \"50M\"\n\
        [hosts.b]\n[[hosts.b.interfaces]]\nname = \"eth0\"\naddress = \"10.0.0.2\"\ncapacity = \"30M\"\n\
        [[hosts.b.interfaces]]\nname = \"eth1\"\naddress = \"10.0.1.2\"\ncapacity = \"40M\"\n\
        [tests.t]\nkind = \"throughput\"\nseconds = 1\nevery = \"1h\"\n";

    fn known(interface: &str, address: &str) -> InterfaceAddress {
        InterfaceAddress { interface: interface.to_owned(), address: address.parse().unwrap() }
    }

    #[test]
    fn the_mesh_names_an_interface_or_has_its_address() {
        let mesh = parse(MESH).unwrap();
        let known = [known("wan0", "10.0.0.1")];
        let of = |host: &str, name: &str| declared_capacity(&mesh, (host, name), &known);
        assert_eq!(of("a", "wan0"), Some(Rate::from_bps(50_000_000)));
        assert_eq!(of("a", "wan1"), None);
        assert_eq!(of("b", "eth0"), Some(Rate::from_bps(30_000_000)));
        assert_eq!(of("c", "eth0"), None);
    }

    #[test]
    fn a_host_has_the_greatest_capacity_of_its_interfaces() {
        let mesh = parse(MESH).unwrap();
        let of = |host: &str, known: &[InterfaceAddress]| {
            let found = host_capacity(&mesh, host, known)?;
            Some((found.capacity_bps.bps(), found.interface))
        };
        assert_eq!(of("a", &[]), Some((50_000_000, None)));
        assert_eq!(of("a", &[known("wan0", "10.0.0.1")]), Some((50_000_000, Some("wan0".into()))));
        let both = [known("eth0", "10.0.0.2"), known("eth1", "192.0.2.1")];
        assert_eq!(of("b", &both), Some((40_000_000, Some("eth1".into()))));
        assert_eq!(of("c", &both), None);
    }
}
