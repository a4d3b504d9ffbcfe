//! A running topology, and its ports: the interfaces of this host behind which sites are.

use std::io;
use std::os::fd::BorrowedFd;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::plan::{Attachment, LinkPlan, Side, TopologyPlan};
use longhaul_core::result::{
    GuestProcessor, LinkReport, LinkWarning, SiteReport, TopologyLinkReport, TopologyReport,
};
use longhaul_core::units::Bytes;
use longhaul_sys::interface::Interface;
use longhaul_sys::tun;
use longhaul_sys::tun::TunOffloads;

use super::bundle::{Bundle, BundleLink, End, Queues, RunningBundle, Shared};
use super::check_fit;
use super::claim::Claim;
use super::draft::Draft;
use super::rerouter::Rerouter;
use crate::EmuError;
use crate::capture::Capture;
use crate::device::{Device, Medium, PacketDevice};
use crate::driver::{PacketMemory, SpinBudget, memory_budget, most_memory};
use crate::edge::Edge;
use crate::guest::{self, Guest, GuestShell};
use crate::link::random_seed;
use crate::site::{Host, Site, SiteSpec};

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
    _ports: Ports,
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
        let (sites, mut devices) = start_sites(draft.sites)?;
        let mut ports = Ports::default();
        let mut running = Vec::new();
        for ((bundle, ends), mut warnings) in bundles.iter().zip(draft.ends).zip(draft.warnings) {
            for (side, end) in Side::BOTH.into_iter().zip(ends) {
                if !sites[end.site].windows_set() {
                    warnings.push(LinkWarning::WindowsUnset { site: side });
                }
            }
            let mut device = |end: End| -> Result<(Queues, TunOffloads), EmuError> {
                let own = &sites[end.site].spec().own;
                if let Some(edge) = ports.open(&plan, end.site, own)? {
                    return Ok((vec![edge], TunOffloads { tcp: true, udp: true }));
                }
                let queues = devices[end.site].get_mut(end.interface).map(std::mem::take);
                let queues = queues.unwrap_or_default();
                let gone = || EmuError::SiteGone { site: own.name.clone() };
                let offloads = queues.first().ok_or_else(gone)?.offloads();
                let shared = |queue| -> Arc<dyn PacketDevice> { Arc::new(queue) };
                Ok((queues.into_iter().map(shared).collect(), offloads))
            };
            let [(near, offloads), (far, _)] = [device(ends[0])?, device(ends[1])?];
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
        let _ports = ports;
        let topology = Topology {
            plan,
            started,
            bundles,
            down,
            rerouter,
            running,
            _ports,
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

    /// Returns the kind of processor of the virtual machines, if there are any.
    pub fn guest_processor(&self) -> Option<GuestProcessor> {
        self.processor
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

    /// Checks that the first process of every site and every virtual machine runs. Without it the
    /// site has no processes, and no command can start there.
    ///
    /// # Errors
    /// [`EmuError::SiteKilled`] or [`EmuError::Guest`] names the first site whose process ended.
    pub fn check_sites(&self) -> Result<(), EmuError> {
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
    let lanes = plan.links.iter().flat_map(|link| Side::BOTH.map(|side| (&link.plan, side)));
    let needed =
        lanes.map(|(link, side)| memory_budget(link, side).get()).fold(0, u64::saturating_add);
    // Half of the memory is for sockets and programs.
    let most = most_memory().get() * 2;
    let memory = PacketMemory::start(Bytes::new(most), Bytes::new(needed.min(most)))
        .map_err(|source| EmuError::Driver { operation: "reserve memory", source })?;
    let spins = SpinBudget::of(plan.links.len());
    Ok(Shared { memory, spins, hash: plan.routing.hash, failover: plan.routing.failover })
}

/// The queues of the interfaces of each site.
type Devices = Vec<Vec<Vec<Device>>>;

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

/// The interfaces of a topology, with the TAP devices that were created for it. Dropping the value
/// removes these.
#[derive(Debug, Default)]
pub(super) struct Ports {
    taps: Vec<String>,
    claims: Vec<Claim>,
}

impl Ports {
    /// Opens the edge of a site (by index), or returns `None` if the site is not behind an
    /// interface. Creates a missing TAP device.
    pub(super) fn open(
        &mut self,
        plan: &TopologyPlan,
        site: usize,
        own: &Host,
    ) -> Result<Option<Arc<Edge>>, EmuError> {
        let attachment = plan.attachments.get(&plan.sites[site]);
        let Some((attachment, name)) = attachment.and_then(|to| Some((to, to.interface()?))) else {
            return Ok(None);
        };
        let unusable = |source| EmuError::Interface { interface: name.to_owned(), source };
        let index = self.prepare(attachment, name).map_err(unusable)?;
        self.claims.push(Claim::take(name, index)?);
        let edge = Edge::open(index, own.clone()).map_err(unusable)?;
        Ok(Some(Arc::new(edge)))
    }

    fn prepare(&mut self, attachment: &Attachment, name: &str) -> io::Result<u32> {
        let is_missing = Interface::named(name).is_err();
        if is_missing && matches!(attachment, Attachment::Tap(_)) {
            tun::create_tap(name)?;
            self.taps.push(name.to_owned());
            Interface::named(name)?.up()?;
        }
        Ok(Interface::named(name)?.index())
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        for name in &self.taps {
            // Another program may have removed the device.
            let _ = Interface::named(name).and_then(|interface| interface.remove());
        }
    }
}
