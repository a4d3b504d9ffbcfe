//! Exclusive resources: the directions of interfaces and trunks.

use longhaul_core::units::Rate;

use crate::mesh::{Mesh, MeshTest};

/// An exclusive resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExclusiveResource {
    /// The name: `HOST/INTERFACE/out`, `HOST/INTERFACE/in`, `trunk/NAME/right` or
    /// `trunk/NAME/left`.
    pub name: String,
    /// The capacity.
    pub capacity_bps: Rate,
}

/// Returns the resources that a run of `test` from `source` to `destination` occupies: the interface
/// of the source, the interface of the destination, then the trunks between them. Unknown hosts have
/// none.
pub fn resources_of(
    mesh: &Mesh,
    test: &MeshTest,
    source: &str,
    destination: &str,
) -> Vec<ExclusiveResource> {
    path_of(mesh, test.interface.as_deref(), source, destination)
}

/// Returns the lowest capacity of the path of a pair; `None` for unknown hosts.
pub fn path_capacity(
    mesh: &Mesh,
    interface: Option<&str>,
    source: &str,
    destination: &str,
) -> Option<Rate> {
    path_of(mesh, interface, source, destination).iter().map(|one| one.capacity_bps).min()
}

pub(super) fn path_of(
    mesh: &Mesh,
    interface: Option<&str>,
    source: &str,
    destination: &str,
) -> Vec<ExclusiveResource> {
    let ends = [(source, "out"), (destination, "in")];
    let interfaces = ends.into_iter().filter_map(|(host, direction)| {
        let interface = mesh.host(host)?.interface(interface)?;
        let name = format!("{host}/{}/{direction}", interface.name);
        Some(ExclusiveResource { name, capacity_bps: interface.capacity_bps })
    });
    let trunks = mesh.trunks.iter().filter_map(|trunk| {
        let has = |side: &[String], host: &str| side.iter().any(|name| name == host);
        let direction = if has(&trunk.left, source) && has(&trunk.right, destination) {
            "right"
        } else if has(&trunk.right, source) && has(&trunk.left, destination) {
            "left"
        } else {
            return None;
        };
        let name = format!("trunk/{}/{direction}", trunk.name);
        Some(ExclusiveResource { name, capacity_bps: trunk.capacity_bps })
    });
    interfaces.chain(trunks).collect()
}
