//! Hosts, groups and trunks of a mesh file.

use std::collections::{BTreeMap, HashSet};

use longhaul_core::text;
use toml::Spanned;

use super::error::{Fault, MeshFault};
use super::model::{MeshHost, MeshInterface, Trunk};
use super::raw::{
    Members, Named, RawHost, RawTrunk, checked_name, in_order, out_of_range, positive,
};

/// The maximum number of hosts of a mesh.
pub const MAX_HOSTS: usize = 1000;
/// The name of the interface of a host that does not name it.
const DEFAULT_INTERFACE: &str = "default";

/// The names that lists of hosts can use.
pub(super) struct Names {
    order: Vec<String>,
    groups: BTreeMap<String, Vec<String>>,
}

impl Names {
    /// Returns the names of the hosts, and the group `all`.
    pub(super) fn new(hosts: &[MeshHost]) -> Self {
        let order: Vec<String> = hosts.iter().map(|host| host.name.clone()).collect();
        Names { groups: BTreeMap::from([("all".to_owned(), order.clone())]), order }
    }

    /// Returns the hosts of `members` in the order of the mesh, once each.
    pub(super) fn hosts_of(&self, members: &Spanned<Members>) -> Result<Vec<String>, Fault> {
        let mut found = HashSet::new();
        for name in members.get_ref().names() {
            if self.order.contains(name) {
                found.insert(name.clone());
            } else if let Some(group) = self.groups.get(name) {
                found.extend(group.iter().cloned());
            } else {
                let fault = MeshFault::UnknownHost { name: name.clone(), near: self.nearest(name) };
                return Err(Fault::at(&members.span(), fault));
            }
        }
        Ok(self.order.iter().filter(|name| found.contains(*name)).cloned().collect())
    }

    /// Returns the known name with the smallest distance, at most two changes.
    fn nearest(&self, name: &str) -> Option<String> {
        let known = self.order.iter().chain(self.groups.keys());
        text::nearest(name, known.map(String::as_str)).map(str::to_owned)
    }
}

pub(super) fn read_hosts(raw: &Named<RawHost>) -> Result<Vec<MeshHost>, Fault> {
    if !(1..=MAX_HOSTS).contains(&raw.len()) {
        let fault = MeshFault::Count { what: "hosts", count: raw.len(), accepted: "1 to 1000" };
        return Err(Fault { offset: 0, fault });
    }
    let mut addresses = HashSet::new();
    let mut hosts = Vec::new();
    for (name, host) in in_order(raw) {
        let interfaces = read_interfaces(name, host, &mut addresses)?;
        let port = host.port.as_ref();
        if let Some(port) = port.filter(|port| !(1024..=65000).contains(port.get_ref())) {
            return Err(out_of_range("port", port, "1024 to 65000"));
        }
        hosts.push(MeshHost {
            name: checked_name("host", name)?,
            site: host.site.clone(),
            agent: host.agent,
            port: port.map(|port| *port.get_ref()),
            interfaces,
        });
    }
    Ok(hosts)
}

fn read_interfaces(
    name: &Spanned<String>,
    host: &RawHost,
    addresses: &mut HashSet<std::net::IpAddr>,
) -> Result<Vec<MeshInterface>, Fault> {
    let mut found: Vec<MeshInterface> = Vec::new();
    let mut add = |interface: MeshInterface, place: std::ops::Range<usize>| {
        let good = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
        let name = interface.name.clone();
        if name.is_empty() || name.len() > 15 || !name.bytes().all(good) {
            return Err(Fault::at(&place, MeshFault::Name { what: "interface", name }));
        }
        if found.iter().any(|other| other.name == name) {
            return Err(Fault::at(&place, MeshFault::Twice { what: "interface", name }));
        }
        if !addresses.insert(interface.address) {
            let name = interface.address.to_string();
            return Err(Fault::at(&place, MeshFault::Twice { what: "address", name }));
        }
        found.push(interface);
        Ok(())
    };
    match (&host.address, &host.capacity) {
        (Some(address), Some(capacity)) => {
            let label = host.interface.as_ref().map(Spanned::get_ref);
            let name = label.map_or(DEFAULT_INTERFACE, String::as_str).to_owned();
            let address_value = *address.get_ref();
            let capacity_bps = positive("capacity", capacity)?;
            add(MeshInterface { name, address: address_value, capacity_bps }, address.span())?;
        }
        (None, None) if !host.interfaces.is_empty() && host.interface.is_none() => {}
        _ => {
            let what = format!("host '{}'", name.get_ref());
            let needed = "`address` and `capacity`, or `interfaces`";
            return Err(Fault::at(&name.span(), MeshFault::Needs { what, needed }));
        }
    }
    for raw in &host.interfaces {
        let capacity_bps = positive("capacity", &raw.capacity)?;
        let interface = MeshInterface {
            name: raw.name.get_ref().clone(),
            address: *raw.address.get_ref(),
            capacity_bps,
        };
        add(interface, raw.name.span())?;
    }
    Ok(found)
}

pub(super) fn read_groups(
    raw: &Named<Spanned<Members>>,
    names: &mut Names,
) -> Result<Vec<(String, Vec<String>)>, Fault> {
    let mut groups = Vec::new();
    for (name, members) in in_order(raw) {
        let checked = checked_name("group", name)?;
        if names.order.contains(&checked) || checked == "all" {
            let fault = MeshFault::Twice { what: "name", name: checked };
            return Err(Fault::at(&name.span(), fault));
        }
        let hosts = names.hosts_of(members)?;
        names.groups.insert(checked.clone(), hosts.clone());
        groups.push((checked, hosts));
    }
    Ok(groups)
}

pub(super) fn read_trunks(raw: &Named<RawTrunk>, names: &Names) -> Result<Vec<Trunk>, Fault> {
    let mut trunks = Vec::new();
    for (name, trunk) in in_order(raw) {
        let (left, right) = (names.hosts_of(&trunk.left)?, names.hosts_of(&trunk.right)?);
        if let Some(both) = left.iter().find(|host| right.contains(host)) {
            let fault = MeshFault::Twice { what: "host of a trunk", name: both.clone() };
            return Err(Fault::at(&trunk.right.span(), fault));
        }
        let capacity_bps = positive("capacity", &trunk.capacity)?;
        trunks.push(Trunk { name: checked_name("trunk", name)?, capacity_bps, left, right });
    }
    Ok(trunks)
}
