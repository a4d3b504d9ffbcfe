//! The draft of a topology: the specifications of its sites, before any of them exists.

use std::net::IpAddr;

use longhaul_core::plan::TopologyPlan;
use longhaul_core::result::LinkWarning;
use longhaul_core::units::Bytes;

use super::bundle::{Bundle, End};
use super::routes::{Routes, hosts};
use crate::device::Medium;
use crate::site::{
    Host, InterfaceSpec, RouteSpec, SiteSpec, Windows, memory_pressure, plan_windows,
};

/// A topology without its devices.
pub(super) struct Draft {
    pub(super) sites: Vec<SiteSpec>,
    /// The near and the far end of each bundle.
    pub(super) ends: Vec<[End; 2]>,
    /// The warnings of each bundle that hold from the start.
    pub(super) warnings: Vec<Vec<LinkWarning>>,
}

/// The routes of both families while some links are down.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BothRoutes {
    ipv4: Routes,
    ipv6: Routes,
}

impl Draft {
    /// Creates the draft of a valid plan.
    pub(super) fn new(plan: &TopologyPlan, bundles: &[Bundle], medium: Medium) -> Draft {
        let hosts = hosts(plan);
        let routes = BothRoutes::new(plan, bundles, |_| true);
        let pressure = memory_pressure().unwrap_or(Bytes::gib(1));
        let site = |site: usize| SiteSpec {
            own: hosts[site].clone(),
            attachment: plan.attachments.get(&plan.sites[site]).cloned(),
            guest: is_guest(plan, site),
            hosts: hosts.clone(),
            interfaces: if is_edge(plan, site) {
                Vec::new()
            } else {
                interfaces(plan, bundles, site)
            },
            windows: windows(plan, bundles, &routes.ipv4, site, pressure),
            routes: if is_edge(plan, site) || is_guest(plan, site) {
                Vec::new()
            } else {
                routes.of_site(&hosts, bundles, site)
            },
            medium,
        };
        let sites: Vec<SiteSpec> = (0..hosts.len()).map(site).collect();
        let warnings = bundles.iter().map(|bundle| {
            let [near, far] = bundle.sites;
            let need = routes.ipv4.need(plan, bundles, [near, far])?;
            sites[near].windows.min(sites[far].windows).warning(&need)
        });
        let warnings = warnings.map(|warning| warning.into_iter().collect()).collect();
        let ends = (0..bundles.len()).map(|bundle| ends(bundles, bundle)).collect();
        Draft { sites, ends, warnings }
    }
}

impl BothRoutes {
    /// Computes the routes over the links that `is_up` accepts.
    pub(super) fn new(
        plan: &TopologyPlan,
        bundles: &[Bundle],
        is_up: impl Fn(usize) -> bool,
    ) -> Self {
        BothRoutes {
            ipv4: Routes::plan(plan, bundles, 0, &is_up),
            ipv6: Routes::plan(plan, bundles, SiteSpec::MIN_MTU_V6, &is_up),
        }
    }

    /// Returns the routes of a site to all hosts.
    pub(super) fn of_site(
        &self,
        hosts: &[Host],
        bundles: &[Bundle],
        site: usize,
    ) -> Vec<RouteSpec> {
        let interface = |routes: &Routes, to: usize| {
            let hop = routes.next(site, to)?;
            own(bundles, site).position(|bundle| bundle == hop.bundle)
        };
        let route = |to: IpAddr, interface: Option<usize>| {
            interface.map(|interface| RouteSpec { to, interface })
        };
        let others = (0..hosts.len()).filter(|other| *other != site);
        others
            .flat_map(|to| {
                let ipv4 = route(hosts[to].ipv4.into(), interface(&self.ipv4, to));
                let ipv6 = hosts[to]
                    .ipv6
                    .and_then(|address| route(address.into(), interface(&self.ipv6, to)));
                ipv4.into_iter().chain(ipv6)
            })
            .collect()
    }
}

/// Returns the bundles that end at a site, in the order of the site's interfaces.
fn own(bundles: &[Bundle], site: usize) -> impl Iterator<Item = usize> {
    let ends_here = move |(_, bundle): &(usize, &Bundle)| bundle.side_of(site).is_some();
    bundles.iter().enumerate().filter(ends_here).map(|(index, _)| index)
}

/// Returns whether a site is behind an interface of this host.
fn is_edge(plan: &TopologyPlan, site: usize) -> bool {
    plan.attachments.get(&plan.sites[site]).is_some_and(|to| to.interface().is_some())
}

/// Returns whether a site is a virtual machine.
fn is_guest(plan: &TopologyPlan, site: usize) -> bool {
    plan.guests.contains_key(&plan.sites[site])
}

fn ends(bundles: &[Bundle], bundle: usize) -> [End; 2] {
    bundles[bundle].sites.map(|site| {
        let interface = own(bundles, site).position(|own| own == bundle).unwrap_or_default();
        End { site, interface }
    })
}

fn interfaces(plan: &TopologyPlan, bundles: &[Bundle], site: usize) -> Vec<InterfaceSpec> {
    let ends = own(bundles, site).map(|bundle| &bundles[bundle]).enumerate();
    ends.map(|(n, bundle)| InterfaceSpec {
        name: format!("wan{n}"),
        mtu: bundle.mtu(plan),
        queues: bundle.queues(plan),
    })
    .collect()
}

fn windows(
    plan: &TopologyPlan,
    bundles: &[Bundle],
    routes: &Routes,
    site: usize,
    pressure: Bytes,
) -> Windows {
    let others = (0..plan.sites.len()).filter(|other| *other != site);
    let needs = others.filter_map(|other| routes.need(plan, bundles, [site, other]));
    plan_windows(needs, pressure)
}
