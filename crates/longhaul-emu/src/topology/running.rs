//! A running topology.

use std::os::fd::BorrowedFd;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use longhaul_core::plan::{LinkPlan, Side, TopologyPlan};
use longhaul_core::result::{
    GuestProcessor, LinkReport, LinkWarning, SiteReport, TopologyLinkReport, TopologyReport,
};
use longhaul_core::units::Bytes;

use super::bundle::{Bundle, BundleLink, End, RunningBundle, Shared};
use super::check_fit;
use super::draft::Draft;
use super::ports::{Devices, Interfaces, Ports};
use super::rerouter::Rerouter;
use crate::EmuError;
use crate::capture::Capture;
use crate::device::Medium;
use crate::driver::{
    PacketMemory, SpinBudget, full_link, landing_memory, memory_budget, most_memory,
};
use crate::guest::{self, Guest, GuestShell};
use crate::link::random_seed;
use crate::site::{Site, SiteSpec};

/// Running sites and links.
///
/// Commands run in a site through [`Topology::spawn`] and resolve every other site by name.
/// [`Topology::finish`] removes everything and returns a report; dropping the value removes
/// everything without a report. In both cases every process in a site is killed.
#[derive(Debug)]
pub struct Topology {
    plan: TopologyPlan,
    started: Instant,
    bundles: Vec<Bundle>,
    /// The links that are down by request.
    down: Vec<bool>,
    // Fields drop in this order: first the links stop, then the sites' processes end.
    rerouter: Option<Rerouter>,
    running: Vec<RunningBundle>,
    ports: Ports,
    guests: Vec<Guest>,
    processor: Option<GuestProcessor>,
    sites: Vec<Site>,
}

impl Topology {
    /// Builds the sites and starts the links.
    ///
    /// # Errors
    /// The plan is invalid or needs more memory than the machine has, a privilege or a device is
    /// missing ([`EmuError`] names it and its remedy), or a step of the set-up failed. In all cases
    /// everything created so far is removed.
    pub fn start(plan: &TopologyPlan) -> Result<Topology, EmuError> {
        Topology::start_over(plan, Medium::Tun)
    }

    /// Builds the sites with ends of this kind and starts the links.
    ///
    /// # Errors
    /// As for [`Topology::start`].
    pub fn start_over(plan: &TopologyPlan, medium: Medium) -> Result<Topology, EmuError> {
        plan.validate()?;
        // The report contains the seed, so that the run can be repeated.
        let mut plan = plan.clone();
        for link in &mut plan.links {
            link.plan.seed.get_or_insert_with(random_seed);
        }
        check_fit(&plan)?;
        let bundles = Bundle::all(&plan);
        let draft = Draft::new(&plan, &bundles, medium);
        let shared = shared(&plan)?;
        let (sites, devices) = start_sites(draft.sites)?;
        let mut interfaces = Interfaces::new(&plan, devices);
        let mut running = Vec::new();
        for ((bundle, ends), mut warnings) in bundles.iter().zip(draft.ends).zip(draft.warnings) {
            for (side, end) in Side::BOTH.into_iter().zip(ends) {
                if !sites[end.site].windows_set() {
                    warnings.push(LinkWarning::WindowsUnset { site: side });
                }
            }
            let (near, offloads) = interfaces.open(ends[0], &sites)?;
            let (far, _) = interfaces.open(ends[1], &sites)?;
            let links = bundle.members.iter().map(|member| {
                let plan = plan.links[member.link].plan.clone();
                BundleLink { member: *member, plan }
            });
            let devices = [near, far];
            let mut bundle =
                RunningBundle::start(links.collect(), ends, devices, offloads, &shared)?;
            bundle.warn(warnings);
            running.push(bundle);
        }
        let rerouter = Rerouter::start(&plan, &bundles, &sites)?;
        let (guests, processor) = guest::boot(&plan, &sites)?;
        let down = vec![false; plan.links.len()];
        let started = Instant::now();
        let ports = interfaces.into_ports();
        let topology = Topology {
            plan,
            started,
            bundles,
            down,
            rerouter,
            running,
            ports,
            guests,
            processor,
            sites,
        };
        Ok(topology)
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
    pub fn spawn(&self, site: usize, mut command: Command) -> Result<Child, EmuError> {
        let Some(shell) = self.guest_shell(site) else { return self.sites[site].spawn(command) };
        command.envs(self.environment(site));
        let here = std::env::current_dir().unwrap_or_default();
        self.sites[site].spawn(shell.wrap(&command, here.as_os_str(), false))
    }

    /// Returns the shell of a site (by index) that is a virtual machine.
    pub fn guest_shell(&self, site: usize) -> Option<&GuestShell> {
        self.guests.iter().find(|guest| guest.site() == site).map(Guest::shell)
    }

    /// Returns the first process of a site (by index), in whose namespaces its commands run, for
    /// [`longhaul_sys::namespace::join`].
    pub fn site_process(&self, site: usize) -> BorrowedFd<'_> {
        self.sites[site].init().process()
    }

    /// Returns descriptors that become readable when the first process of a site ends, or the process
    /// to which the network of a site belongs, or a virtual machine.
    pub fn site_lives(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sites.iter().flat_map(Site::lives).chain(self.guests.iter().map(Guest::life))
    }

    /// Returns whether sites are attached to interfaces of this host, whose end no descriptor of
    /// [`Topology::site_lives`] reports.
    pub fn has_ports(&self) -> bool {
        !self.ports.is_empty()
    }

    /// Checks that the first process of every site and every virtual machine runs, and that the
    /// interfaces to which sites are attached exist. Without its process a site has no processes, and
    /// no command can start there. The calling thread must be in the network namespace in which the
    /// topology started.
    ///
    /// # Errors
    /// [`EmuError::SiteKilled`], [`EmuError::Guest`] or [`EmuError::InterfaceGone`] names the first
    /// site whose process ended, or the interface.
    pub fn check_sites(&self) -> Result<(), EmuError> {
        self.ports.check()?;
        self.sites.iter().try_for_each(Site::check)?;
        self.guests.iter().try_for_each(Guest::check)
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
    /// seed do not change, and a delay changes no route.
    ///
    /// # Errors
    /// The plan is invalid or needs more memory than the machine has; the link is unchanged.
    pub fn set(&mut self, link: usize, plan: LinkPlan) -> Result<(), EmuError> {
        let mut changed = self.plan.clone();
        let seed = changed.links[link].plan.seed;
        changed.links[link].plan = LinkPlan { seed, ..plan };
        changed.validate()?;
        check_fit(&changed)?;
        self.plan = changed;
        self.apply(link);
        Ok(())
    }

    /// Takes a link (by index) down or up. A link that is down loses the packets that enter it;
    /// packets that entered before arrive. After the failover time, packets use parallel links or
    /// other routes.
    pub fn set_down(&mut self, link: usize, down: bool) {
        self.down[link] = down;
        self.apply(link);
    }

    /// Returns whether a link (by index) is down by request.
    pub fn is_down(&self, link: usize) -> bool {
        self.down[link]
    }

    /// Passes the present plan and state of a link on.
    fn apply(&mut self, link: usize) {
        let (plan, down) = (&self.plan.links[link].plan, self.down[link]);
        for (bundle, running) in self.bundles.iter().zip(&mut self.running) {
            let place = bundle.members.iter().position(|member| member.link == link);
            if let Some(place) = place {
                running.set(place, plan, down);
            }
        }
        if let Some(rerouter) = &self.rerouter {
            rerouter.set(link, plan.clone(), down);
        }
    }

    /// Returns the time at which the clock of a link (by index) was zero.
    pub fn link_started(&self, link: usize) -> Option<Instant> {
        let has = |bundle: &Bundle| bundle.members.iter().any(|member| member.link == link);
        let bundle = self.bundles.iter().position(has)?;
        self.running.get(bundle)?.clock_started()
    }

    /// Captures the packets of all links from now on.
    pub fn capture(&self, capture: &Capture) {
        for (bundle, running) in self.bundles.iter().zip(&self.running) {
            for (place, member) in bundle.members.iter().enumerate() {
                running.capture(place, |from| capture.tap(member.link, from));
            }
        }
    }

    /// Returns the counters so far.
    ///
    /// # Errors
    /// A counter could not be read.
    pub fn report(&self) -> Result<TopologyReport, EmuError> {
        let drops = |end: End| self.sites[end.site].device_drops(end.interface);
        let mut links: Vec<Option<LinkReport>> = vec![None; self.plan.links.len()];
        for (bundle, running) in self.bundles.iter().zip(&self.running) {
            let [near, far] = running.ends.map(drops);
            let reports = running.report([near?, far?])?;
            for (member, report) in bundle.members.iter().zip(reports) {
                links[member.link] = Some(report);
            }
        }
        let links = self.plan.links.iter().zip(&self.down).zip(links);
        let links = links.filter_map(|((planned, down), report)| {
            Some(TopologyLinkReport {
                name: planned.name.clone(),
                near: planned.near.clone(),
                far: planned.far.clone(),
                down: *down,
                link: report?,
            })
        });
        Ok(TopologyReport {
            schema: TopologyReport::SCHEMA.to_owned(),
            name: self.plan.name.clone(),
            seconds: self.started.elapsed().as_secs_f64(),
            sites: self.sites.iter().map(|site| site_report(site.spec(), self.processor)).collect(),
            links: links.collect(),
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

fn site_report(spec: &SiteSpec, processor: Option<GuestProcessor>) -> SiteReport {
    SiteReport {
        name: spec.own.name.clone(),
        ipv4: spec.own.ipv4,
        ipv6: spec.own.ipv6,
        window_bytes: spec.windows.largest,
        guest: processor.filter(|_| spec.guest),
    }
}

/// Reserves the resources that all links share.
pub(super) fn shared(plan: &TopologyPlan) -> Result<Shared, EmuError> {
    let lanes = || plan.links.iter().flat_map(|link| Side::BOTH.map(|side| (&link.plan, side)));
    let needed = lanes().map(|(link, side)| {
        memory_budget(link, side).get().saturating_add(landing_memory(link.queues).get())
    });
    let needed = needed.fold(0, u64::saturating_add);
    // Half of the memory is for sockets and programs.
    let most = most_memory().get() * 2;
    let memory = PacketMemory::start(Bytes::new(most), Bytes::new(needed.min(most)))
        .map_err(|source| EmuError::Driver { operation: "reserve memory", source })?;
    memory.prepare(lanes().map(|(link, side)| full_link(link, side)).max().unwrap_or_default());
    let spins = SpinBudget::of(plan.links.len());
    Ok(Shared { memory, spins, hash: plan.routing.hash, failover: plan.routing.failover })
}

/// Starts all sites at the same time. Returns them with their ends of the bundles.
fn start_sites(specs: Vec<SiteSpec>) -> Result<(Vec<Site>, Devices), EmuError> {
    let starting = specs.into_iter().map(Site::begin).collect::<Result<Vec<_>, _>>()?;
    let mut sites = Vec::new();
    let mut devices = Vec::new();
    for site in starting {
        let (site, own) = site.ready()?;
        sites.push(site);
        devices.push(own);
    }
    Ok((sites, devices))
}
