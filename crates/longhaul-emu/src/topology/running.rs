//! A running topology.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use longhaul_core::plan::{LinkPlan, Side, TopologyPlan};
use longhaul_core::result::{LinkWarning, SiteReport, TopologyLinkReport, TopologyReport};
use longhaul_core::units::Bytes;

use super::link::End;
use super::{Routes, RunningLink, check_fit, hosts};
use crate::EmuError;
use crate::capture::Capture;
use crate::device::Device;
use crate::link::random_seed;
use crate::site::{InterfaceSpec, RouteSpec, Site, SiteSpec, memory_pressure, plan_windows};

/// Running sites and links.
///
/// Commands run in a site through [`Topology::spawn`] and resolve every other site by name.
/// [`Topology::finish`] removes everything and returns a report; dropping the value removes
/// everything without a report. In both cases every process in a site is killed.
#[derive(Debug)]
pub struct Topology {
    plan: TopologyPlan,
    started: Instant,
    // Fields drop in this order: first the links stop, then the sites' processes end.
    links: Vec<RunningLink>,
    sites: Vec<Site>,
}

/// A topology without its devices.
struct Draft {
    sites: Vec<SiteSpec>,
    ends: Vec<[End; 2]>,
    warnings: Vec<Vec<LinkWarning>>,
}

impl Topology {
    /// Builds the sites and starts the links.
    ///
    /// # Errors
    /// The plan is invalid or needs more memory than the machine has, a privilege or a device is
    /// missing ([`EmuError`] names it and its remedy), or a step of the set-up failed. In all cases
    /// everything created so far is removed.
    pub fn start(plan: &TopologyPlan) -> Result<Topology, EmuError> {
        plan.validate()?;
        // The report contains the seed, so that the run can be repeated.
        let mut plan = plan.clone();
        for link in &mut plan.links {
            link.plan.seed.get_or_insert_with(random_seed);
        }
        let plan = &plan;
        let routes = Routes::plan(plan, 0);
        check_fit(plan, &routes)?;
        let draft = draft(plan, &routes);
        let mut sites = Vec::new();
        let mut devices: Vec<Vec<Option<Device>>> = Vec::new();
        for spec in draft.sites {
            let (site, tuns) = Site::start(spec)?;
            sites.push(site);
            devices.push(tuns.into_iter().map(Some).collect());
        }
        let mut links = Vec::new();
        for ((link, ends), mut warnings) in plan.links.iter().zip(draft.ends).zip(draft.warnings) {
            for (side, end) in Side::BOTH.into_iter().zip(ends) {
                if !sites[end.site].windows_set() {
                    warnings.push(LinkWarning::WindowsUnset { site: side });
                }
            }
            let device = |end: End| {
                let site = || sites[end.site].spec().own.name.clone();
                devices[end.site][end.interface]
                    .take()
                    .ok_or_else(|| EmuError::SiteGone { site: site() })
            };
            let [near, far] = ends.map(device);
            links.push(RunningLink::start(&link.plan, ends, [near?, far?], warnings)?);
        }
        Ok(Topology { plan: plan.clone(), started: Instant::now(), links, sites })
    }

    /// Returns the plan, with the present state of the links.
    pub fn plan(&self) -> &TopologyPlan {
        &self.plan
    }

    /// Starts `command` at a site (by index) with `LONGHAUL_SITE` and the addresses of all sites in
    /// its environment.
    ///
    /// The caller waits for the child. The child inherits the standard streams unless the command
    /// sets others.
    ///
    /// # Errors
    /// The command could not be started. The error's `source` distinguishes a missing program from
    /// one that may not be executed.
    pub fn spawn(&self, site: usize, command: Command) -> Result<Child, EmuError> {
        self.sites[site].spawn(command)
    }

    /// Returns the first process of a site (by index), in whose namespaces its commands run, for
    /// [`longhaul_sys::namespace::join`].
    pub fn site_process(&self, site: usize) -> BorrowedFd<'_> {
        self.sites[site].init().process()
    }

    /// Returns a descriptor per site that becomes readable when the first process of the site ends.
    pub fn site_lives(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sites.iter().map(|site| site.init().liveness())
    }

    /// Checks that the first process of every site runs. Without it the site has no processes, and
    /// no command can start there.
    ///
    /// # Errors
    /// [`EmuError::SiteKilled`] names the first site whose process ended.
    pub fn check_sites(&self) -> Result<(), EmuError> {
        self.sites.iter().try_for_each(Site::check)
    }

    /// Returns the environment variables that a command at a site (by index) gets.
    pub fn environment(&self, site: usize) -> Vec<(String, String)> {
        self.sites[site].spec().environment()
    }

    /// Waits until a program at a site (by index) listens for connections or datagrams, for at most
    /// `patience`. Returns whether a program listens.
    ///
    /// # Errors
    /// The thread of the site has ended.
    pub fn wait_for_listener(&self, site: usize, patience: Duration) -> Result<bool, EmuError> {
        let deadline = Instant::now() + patience;
        loop {
            let listens = self.sites[site].has_listener()?;
            if listens || Instant::now() >= deadline {
                return Ok(listens);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Applies another plan to packets that enter a link (by index) from now on. The MTU and the
    /// routes do not change.
    ///
    /// # Errors
    /// The plan is invalid or needs more memory than the machine has; the link is unchanged.
    pub fn set(&mut self, link: usize, plan: LinkPlan) -> Result<(), EmuError> {
        let mut changed = self.plan.clone();
        let seed = changed.links[link].plan.seed;
        changed.links[link].plan = LinkPlan { seed, ..plan };
        changed.validate()?;
        check_fit(&changed, &Routes::plan(&changed, 0))?;
        self.links[link].set(&changed.links[link].plan);
        self.plan = changed;
        Ok(())
    }

    /// Captures the packets of a link (by index) from now on.
    pub fn capture(&self, link: usize, capture: &Capture) {
        self.links[link].capture(Side::BOTH.map(|from| capture.tap(from)));
    }

    /// Returns the counters so far.
    ///
    /// # Errors
    /// A counter could not be read.
    pub fn report(&self) -> Result<TopologyReport, EmuError> {
        let drops = |end: End| self.sites[end.site].device_drops(end.interface);
        let links = self.plan.links.iter().zip(&self.links).map(|(planned, link)| {
            let [near, far] = link.ends.map(drops);
            Ok(TopologyLinkReport {
                name: planned.name.clone(),
                near: planned.near.clone(),
                far: planned.far.clone(),
                link: link.report([near?, far?])?,
            })
        });
        Ok(TopologyReport {
            schema: TopologyReport::SCHEMA.to_owned(),
            name: self.plan.name.clone(),
            seconds: self.started.elapsed().as_secs_f64(),
            sites: self.sites.iter().map(|site| site_report(site.spec())).collect(),
            links: links.collect::<Result<_, EmuError>>()?,
        })
    }

    /// Removes everything and returns the report. Processes in the sites are killed.
    ///
    /// # Errors
    /// A counter could not be read; everything is removed nevertheless.
    pub fn finish(self) -> Result<TopologyReport, EmuError> {
        self.report()
    }
}

fn site_report(spec: &SiteSpec) -> SiteReport {
    SiteReport {
        name: spec.own.name.clone(),
        ipv4: spec.own.ipv4,
        ipv6: spec.own.ipv6,
        window_bytes: spec.windows.largest,
    }
}

fn draft(plan: &TopologyPlan, routes: &Routes) -> Draft {
    let hosts = hosts(plan);
    let routes_v6 = Routes::plan(plan, SiteSpec::MIN_MTU_V6);
    let pressure = memory_pressure().unwrap_or(Bytes::gib(1));
    // The links that end at each site, in the order of the plan, which is also the order of the
    // site's interfaces.
    let mut own: Vec<Vec<usize>> = vec![Vec::new(); hosts.len()];
    let mut ends = Vec::new();
    for (index, link) in plan.links.iter().enumerate() {
        ends.push([&link.near, &link.far].map(|name| {
            // The plan is valid, so the name is one of its sites.
            let site = plan.site(name).unwrap_or_default();
            own[site].push(index);
            End { site, interface: own[site].len() - 1 }
        }));
    }
    let sites: Vec<SiteSpec> = own
        .iter()
        .enumerate()
        .map(|(site, own)| {
            let others = (0..hosts.len()).filter(|other| *other != site);
            let needs = others.clone().filter_map(|other| routes.need(plan, site, other));
            let to = |other: usize| {
                let interface = |routes: &Routes| {
                    let hop = routes.next(site, other)?;
                    own.iter().position(|link| *link == hop.link)
                };
                route(hosts[other].ipv4.into(), interface(routes))
                    .into_iter()
                    .chain(hosts[other].ipv6.and_then(|to| route(to.into(), interface(&routes_v6))))
            };
            SiteSpec {
                own: hosts[site].clone(),
                hosts: hosts.clone(),
                interfaces: own
                    .iter()
                    .enumerate()
                    .map(|(n, link)| interface(plan, n, *link))
                    .collect(),
                windows: plan_windows(needs, pressure),
                routes: others.flat_map(to).collect(),
            }
        })
        .collect();
    let warning = |ends: &[End; 2]| {
        let [near, far] = ends.map(|end| end.site);
        let need = routes.need(plan, near, far)?;
        sites[near].windows.min(sites[far].windows).warning(&need)
    };
    let warnings = ends.iter().map(|ends| warning(ends).into_iter().collect()).collect();
    Draft { sites, ends, warnings }
}

fn route(to: IpAddr, interface: Option<usize>) -> Option<RouteSpec> {
    Some(RouteSpec { to, interface: interface? })
}

fn interface(plan: &TopologyPlan, number: usize, link: usize) -> InterfaceSpec {
    InterfaceSpec { name: format!("wan{number}"), mtu: plan.links[link].plan.mtu }
}
