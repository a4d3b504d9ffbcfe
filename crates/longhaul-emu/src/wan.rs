use std::io;
use std::net::Ipv4Addr;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::plan::{LinkPlan, Side};
use longhaul_core::result::{DirectionReport, LinkReport, LinkWarning};
use longhaul_sys::tun::{Offloads, Tun};

use crate::EmuError;
use crate::driver::{Driver, Lane, Snapshot, memory_budget};
use crate::link::LinkModel;
use crate::site::{Site, SiteSpec, Windows, plan_windows};
use crate::verdict::{lateness_bound_ms, starvation, verdicts};

/// The network for benchmarks (RFC 2544), which no host's own network uses.
const ADDRESSES: [(Side, Ipv4Addr); 2] =
    [(Side::Near, Ipv4Addr::new(198, 18, 0, 1)), (Side::Far, Ipv4Addr::new(198, 18, 0, 2))];

/// Two sites and the emulated link between them.
///
/// Commands run in a site through [`Wan::spawn`]; there, the sites find each other by the names
/// `near` and `far`. [`Wan::finish`] takes everything down and reports; dropping it only takes it
/// down. Either way every process still in a site is killed.
///
/// ```no_run
/// use std::process::Command;
/// use std::time::Duration;
/// use longhaul_core::plan::{LinkPlan, Side};
///
/// longhaul_emu::acquire_privileges()?;
/// let wan = longhaul_emu::Wan::start(&LinkPlan::symmetric(Duration::from_millis(90)))?;
/// let mut ping = Command::new("ping");
/// ping.args(["-c", "3", "far"]);
/// wan.spawn(Side::Near, ping)?.wait()?;
/// let report = wan.finish()?;
/// assert!(report.warnings.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Wan {
    plan: LinkPlan,
    windows: Windows,
    offloads: Offloads,
    started: Instant,
    // Dropped in this order: packets stop, then the sites' processes.
    driver: Driver,
    near: Site,
    far: Site,
}

impl Wan {
    /// Builds both sites and starts the link.
    ///
    /// # Errors
    /// The plan is invalid; a permission or a device is missing ([`EmuError`] says which and what
    /// grants it); or a step of the set-up failed. Nothing is left in any of these cases.
    pub fn start(plan: &LinkPlan) -> Result<Wan, EmuError> {
        plan.validate()?;
        let windows = plan_windows(plan);
        let site =
            |side| Site::start(SiteSpec { side, addresses: ADDRESSES, mtu: plan.mtu, windows });
        let (near, near_tun) = site(Side::Near)?;
        let (far, far_tun) = site(Side::Far)?;
        let (near_tun, far_tun) = (Arc::new(near_tun), Arc::new(far_tun));
        let lanes = vec![
            lane(plan, Side::Near, &near_tun, &far_tun)?,
            lane(plan, Side::Far, &far_tun, &near_tun)?,
        ];
        let driver = Driver::start(lanes)
            .map_err(|source| EmuError::Driver { operation: "start a thread", source })?;
        let offloads = near_tun.offloads();
        Ok(Wan {
            plan: plan.clone(),
            windows,
            offloads,
            started: Instant::now(),
            driver,
            near,
            far,
        })
    }

    /// Starts `command` at a site, with `LONGHAUL_NEAR` and `LONGHAUL_FAR` in its environment.
    ///
    /// The child is the caller's to wait for, and shares its standard streams unless the command
    /// says otherwise.
    ///
    /// # Errors
    /// The command could not be started: its `source` tells a missing program from one that may
    /// not be executed.
    pub fn spawn(&self, side: Side, command: Command) -> Result<Child, EmuError> {
        self.site(side).spawn(command)
    }

    /// Waits until a program at `side` listens for connections or datagrams, for at most
    /// `patience`; whether one does.
    ///
    /// # Errors
    /// The site is gone.
    pub fn wait_for_listener(&self, side: Side, patience: Duration) -> Result<bool, EmuError> {
        let deadline = Instant::now() + patience;
        loop {
            let listens = self.site(side).has_listener()?;
            if listens || Instant::now() >= deadline {
                return Ok(listens);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The address of a site, on the link and at the site itself.
    pub fn address(&self, side: Side) -> Ipv4Addr {
        let [(_, near), (_, far)] = ADDRESSES;
        match side {
            Side::Near => near,
            Side::Far => far,
        }
    }

    /// Takes the link down and tells what passed. Processes still in the sites are killed.
    ///
    /// # Errors
    /// A counter could not be read; everything is taken down nevertheless.
    pub fn finish(self) -> Result<LinkReport, EmuError> {
        let Wan { plan, windows, offloads, started, driver, near, far } = self;
        let seconds = started.elapsed().as_secs_f64();
        let drops = [near.device_drops()?, far.device_drops()?];
        let gone = || {
            let source = io::Error::other("its thread panicked");
            EmuError::Driver { operation: "count packets", source }
        };
        let Snapshot { lanes, processor } = driver.stop().ok_or_else(gone)?;
        let [mut up, mut down] = <[DirectionReport; 2]>::try_from(lanes).map_err(|_| gone())?;
        (up.interface_drops, down.interface_drops) = (drops[0], drops[1]);
        let mut warnings: Vec<LinkWarning> = windows.warning().into_iter().collect();
        for (side, site) in [(Side::Near, &near), (Side::Far, &far)] {
            if !site.windows_set() {
                warnings.push(LinkWarning::WindowsUnset { site: side });
            }
        }
        let bound_ms = lateness_bound_ms(&plan);
        warnings.extend(verdicts(&up, bound_ms));
        warnings.extend(verdicts(&down, bound_ms));
        warnings.extend(starvation(&processor));
        Ok(LinkReport {
            schema: LinkReport::SCHEMA.to_owned(),
            plan,
            seconds,
            processor,
            tcp_offload: offloads.tcp,
            udp_offload: offloads.udp,
            up,
            down,
            warnings,
        })
    }

    fn site(&self, side: Side) -> &Site {
        match side {
            Side::Near => &self.near,
            Side::Far => &self.far,
        }
    }
}

fn lane(plan: &LinkPlan, side: Side, source: &Arc<Tun>, sink: &Arc<Tun>) -> Result<Lane, EmuError> {
    let model = LinkModel::new(plan, side);
    let budget = memory_budget(plan, side);
    Lane::new(side, source.clone(), sink.clone(), model, budget)
        .map_err(|source| EmuError::Driver { operation: "reserve memory", source })
}
