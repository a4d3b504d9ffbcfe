//! Plans of topologies: sites, the links between them, and the routes of packets.

mod fault;
mod guest;
mod routing;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::plan::{LinkPlan, Side};

pub use fault::{TopologyError, TopologyFault, TopologyPart};
pub use guest::GuestPlan;
pub use routing::{Attachment, FlowHash, PlannedRoute, Routing};

/// Sites and the links between them.
///
/// A plan can be built only if [`TopologyPlan::validate`] accepts it; the emulator validates again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopologyPlan {
    /// The name of the running topology.
    pub name: String,
    /// The names of the sites.
    pub sites: Vec<String>,
    /// The existing networks in which sites are, by the names of the sites.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attachments: BTreeMap<String, Attachment>,
    /// The virtual machines, by the names of their sites.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub guests: BTreeMap<String, GuestPlan>,
    /// The links.
    pub links: Vec<TopologyLink>,
    /// The choice of routes and of parallel links.
    #[serde(default)]
    pub routing: Routing,
}

/// A link of a topology.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopologyLink {
    /// The name for display and changes.
    pub name: String,
    /// The site at the near end.
    pub near: String,
    /// The site at the far end.
    pub far: String,
    /// The properties of the link.
    pub plan: LinkPlan,
}

impl TopologyPlan {
    /// The maximum number of sites. Each site is a thread and a process, and has an entry in every
    /// site's tables.
    pub const MAX_SITES: usize = fault::MAX_SITES;
    /// The maximum number of links. Each bundle of parallel links is a thread.
    pub const MAX_LINKS: usize = fault::MAX_LINKS;
    /// The longest name: that of a label in the domain name system (RFC 1035, section 2.3.4).
    pub const MAX_NAME: usize = fault::MAX_NAME;

    /// Creates the topology of one link between the sites `near` and `far`.
    pub fn pair(plan: LinkPlan) -> Self {
        let [near, far] = Side::BOTH.map(|side| side.name().to_owned());
        let link = TopologyLink { name: "link".into(), near: near.clone(), far: far.clone(), plan };
        TopologyPlan {
            name: "pair".into(),
            sites: vec![near, far],
            attachments: BTreeMap::new(),
            guests: BTreeMap::new(),
            links: vec![link],
            routing: Routing::default(),
        }
    }

    /// Returns the index of a site.
    pub fn site(&self, name: &str) -> Option<usize> {
        self.sites.iter().position(|site| site.eq_ignore_ascii_case(name))
    }

    /// Returns the index of a link.
    pub fn link(&self, name: &str) -> Option<usize> {
        self.links.iter().position(|link| link.name.eq_ignore_ascii_case(name))
    }

    /// Returns the environment variable with the IPv4 address of a site: `LONGHAUL_` and its name
    /// in upper case, with underscores for hyphens.
    pub fn variable(site: &str) -> String {
        format!("LONGHAUL_{}", site.to_ascii_uppercase().replace('-', "_"))
    }

    /// Returns the environment variable with the IPv6 address of a site.
    pub fn variable_v6(site: &str) -> String {
        format!("{}_IPV6", Self::variable(site))
    }

    /// Checks the whole plan.
    ///
    /// # Errors
    /// The first invalid part.
    pub fn validate(&self) -> Result<(), TopologyError> {
        let at = |part| move |fault| TopologyError { part, fault };
        check_name(&self.name).map_err(at(TopologyPart::Name))?;
        self.validate_sites()?;
        let links = self.links.len();
        if !(1..=Self::MAX_LINKS).contains(&links) {
            return Err(at(TopologyPart::Whole)(TopologyFault::LinkCount { links }));
        }
        for (index, link) in self.links.iter().enumerate() {
            check_name(&link.name).map_err(at(TopologyPart::LinkName(index)))?;
            if self.link(&link.name) != Some(index) {
                let fault = TopologyFault::Twice { what: "link", name: link.name.clone() };
                return Err(at(TopologyPart::LinkName(index))(fault));
            }
            self.check_ends(index).map_err(at(TopologyPart::LinkEnds(index)))?;
            let checked = link.plan.validate().map_err(TopologyFault::Link);
            checked.map_err(at(TopologyPart::LinkPlan(index)))?;
            self.check_parallel(index).map_err(at(TopologyPart::LinkPlan(index)))?;
        }
        self.validate_routing()
    }

    /// Returns the kind of a site (by index) that has one interface and routes no packets.
    fn edge(&self, site: usize) -> Option<&'static str> {
        let name = &self.sites[site];
        let behind = self.attachments.get(name).is_some_and(|to| to.interface().is_some());
        let guest = self.guests.contains_key(name);
        behind.then_some("behind an interface").or(guest.then_some("a virtual machine"))
    }

    /// Checks that each site with one interface has one neighbor.
    fn check_edge(&self, site: usize) -> Result<(), TopologyFault> {
        let name = &self.sites[site];
        let Some(kind) = self.edge(site) else { return Ok(()) };
        let mut neighbors = (0..self.links.len()).filter_map(|link| match self.ends(link) {
            [Some(near), far] if near == site => far,
            [near, Some(far)] if far == site => near,
            _ => None,
        });
        let first = neighbors.next();
        if neighbors.any(|other| Some(other) != first) {
            return Err(TopologyFault::Edge { site: name.clone(), kind });
        }
        let ends_here = |link: &usize| self.ends(*link).contains(&Some(site));
        let mut own = (0..self.links.len()).filter(ends_here);
        if own.any(|link| self.links[link].plan.queues > 1) {
            return Err(TopologyFault::EdgeQueues { site: name.clone(), kind });
        }
        Ok(())
    }

    /// Checks the virtual machine of a site (by index), if the site is one.
    fn check_guest(&self, site: usize) -> Result<(), TopologyFault> {
        let name = &self.sites[site];
        let Some(guest) = self.guests.get(name) else { return Ok(()) };
        if self.attachments.contains_key(name) {
            return Err(TopologyFault::GuestAttached { site: name.clone() });
        }
        if guest.memory < GuestPlan::MIN_MEMORY {
            return Err(TopologyFault::GuestMemory { site: name.clone(), memory: guest.memory });
        }
        if !(1..=GuestPlan::MAX_PROCESSORS).contains(&guest.processors) {
            let processors = guest.processors;
            return Err(TopologyFault::GuestProcessors { site: name.clone(), processors });
        }
        Ok(())
    }

    fn validate_routing(&self) -> Result<(), TopologyError> {
        for site in 0..self.sites.len() {
            self.check_edge(site)
                .and_then(|()| self.check_guest(site))
                .map_err(|fault| TopologyError { part: TopologyPart::Site(site), fault })?;
        }
        if self.routing.failover > Routing::MAX_FAILOVER {
            let fault = TopologyFault::Failover;
            return Err(TopologyError { part: TopologyPart::Failover, fault });
        }
        // The next site by the destination and the site.
        let mut next = BTreeMap::new();
        for (index, route) in self.routing.routes.iter().enumerate() {
            let sites: Vec<&str> = route.sites().collect();
            let at = |fault| TopologyError { part: TopologyPart::Route(index), fault };
            let path = self.check_path(&sites).map_err(at)?;
            let to = path[path.len() - 1];
            for (hop, names) in path.windows(2).zip(sites.windows(2)) {
                let earlier = *next.entry((to, hop[0])).or_insert(hop[1]);
                if earlier != hop[1] {
                    return Err(at(TopologyFault::RouteConflict {
                        at: names[0].to_owned(),
                        to: route.to.clone(),
                        next: self.sites[earlier].clone(),
                    }));
                }
            }
        }
        Ok(())
    }

    /// Returns the indices of the sites of a route.
    fn check_path(&self, names: &[&str]) -> Result<Vec<usize>, TopologyFault> {
        let mut path = Vec::new();
        for name in names {
            let unknown = || TopologyFault::UnknownSite { site: (*name).to_owned() };
            let site = self.site(name).ok_or_else(unknown)?;
            if path.contains(&site) {
                return Err(TopologyFault::RouteLoop { site: (*name).to_owned() });
            }
            path.push(site);
        }
        for (hop, names) in path.windows(2).zip(names.windows(2)) {
            if !(0..self.links.len()).any(|link| self.joins(link, [hop[0], hop[1]])) {
                let [from, to] = [names[0], names[1]].map(str::to_owned);
                return Err(TopologyFault::NoLink { from, to });
            }
        }
        Ok(path)
    }

    /// Returns whether a link (by index) joins two sites, in either order.
    pub fn joins(&self, link: usize, [a, b]: [usize; 2]) -> bool {
        let ends = self.ends(link);
        ends == [Some(a), Some(b)] || ends == [Some(b), Some(a)]
    }

    /// Returns the sites at the near and the far end of a link, by index; `None` for an unknown
    /// site.
    pub fn ends(&self, link: usize) -> [Option<usize>; 2] {
        let link = &self.links[link];
        [&link.near, &link.far].map(|name| self.site(name))
    }

    fn check_parallel(&self, index: usize) -> Result<(), TopologyFault> {
        let [Some(near), Some(far)] = self.ends(index) else { return Ok(()) };
        let first = (0..index).find(|other| self.joins(*other, [near, far]));
        match first.map(|other| &self.links[other]) {
            Some(other) if other.plan.mtu != self.links[index].plan.mtu => {
                Err(TopologyFault::ParallelMtu { link: other.name.clone(), mtu: other.plan.mtu })
            }
            Some(other) if other.plan.queues != self.links[index].plan.queues => {
                let (link, queues) = (other.name.clone(), other.plan.queues);
                Err(TopologyFault::ParallelQueues { link, queues })
            }
            _ => Ok(()),
        }
    }

    fn validate_sites(&self) -> Result<(), TopologyError> {
        let sites = self.sites.len();
        if !(2..=Self::MAX_SITES).contains(&sites) {
            let fault = TopologyFault::SiteCount { sites };
            return Err(TopologyError { part: TopologyPart::Whole, fault });
        }
        let mut variables = BTreeMap::new();
        for (index, name) in self.sites.iter().enumerate() {
            self.check_site(index, name, &mut variables)
                .map_err(|fault| TopologyError { part: TopologyPart::Site(index), fault })?;
        }
        Ok(())
    }

    fn check_site<'a>(
        &self,
        index: usize,
        name: &'a str,
        variables: &mut BTreeMap<String, &'a str>,
    ) -> Result<(), TopologyFault> {
        check_name(name)?;
        // `site` would become LONGHAUL_SITE, which contains the name of the current site.
        if ["localhost", "site"].iter().any(|taken| name.eq_ignore_ascii_case(taken)) {
            return Err(TopologyFault::Reserved { name: name.to_owned() });
        }
        if self.site(name) != Some(index) {
            return Err(TopologyFault::Twice { what: "site", name: name.to_owned() });
        }
        for variable in [Self::variable(name), Self::variable_v6(name)] {
            if let Some(other) = variables.insert(variable.clone(), name) {
                let (name, other) = (name.to_owned(), other.to_owned());
                return Err(TopologyFault::Variable { name, other, variable });
            }
        }
        Ok(())
    }

    fn check_ends(&self, index: usize) -> Result<(), TopologyFault> {
        let link = &self.links[index];
        let found = self.ends(index);
        for (end, site) in found.iter().zip([&link.near, &link.far]) {
            if end.is_none() {
                return Err(TopologyFault::UnknownSite { site: site.clone() });
            }
        }
        if found[0] == found[1] {
            return Err(TopologyFault::Loop { site: link.near.clone() });
        }
        Ok(())
    }
}

/// Checks the syntax of host names (RFC 1123, section 2.1), which every resolver and shell accepts.
fn check_name(name: &str) -> Result<(), TopologyFault> {
    let bytes = name.as_bytes();
    let fits = (1..=TopologyPlan::MAX_NAME).contains(&bytes.len());
    let known = bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
    let hyphen = |end: Option<&u8>| end == Some(&b'-');
    if fits && known && !hyphen(bytes.first()) && !hyphen(bytes.last()) {
        return Ok(());
    }
    Err(TopologyFault::Name { name: name.to_owned() })
}

#[cfg(test)]
mod tests;
