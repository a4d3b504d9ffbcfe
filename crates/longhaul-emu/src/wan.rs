//! The smallest topology: two sites and a link.

use std::io;
use std::os::fd::BorrowedFd;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use longhaul_core::plan::{LinkPlan, Side, TopologyPlan};
use longhaul_core::result::{LinkReport, TopologyReport};

use crate::{Capture, EmuError, Medium, Topology};

/// Two sites and the emulated link between them: the smallest [`Topology`].
///
/// Commands run in a site through [`Wan::spawn`]. There, the sites find each other by the names
/// `near` and `far`. [`Wan::finish`] removes everything and returns a report; dropping the value
/// removes everything without a report. Either way every process in a site is killed.
///
/// ```no_run
/// use std::process::Command;
/// use std::time::Duration;
/// use longhaul_emu::{LinkPlan, Side, Wan};
///
/// longhaul_emu::acquire_privileges()?;
/// let wan = Wan::start(&LinkPlan::symmetric(Duration::from_millis(90)))?;
/// let mut ping = Command::new("ping");
/// ping.args(["-c", "3", "far"]);
/// wan.spawn(Side::Near, ping)?.wait()?;
/// let report = wan.finish()?;
/// assert!(report.warnings.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Wan {
    topology: Topology,
}

impl Wan {
    /// Builds both sites and starts the link.
    ///
    /// # Errors
    /// As for [`Topology::start`].
    pub fn start(plan: &LinkPlan) -> Result<Wan, EmuError> {
        Wan::start_pair(&TopologyPlan::pair(plan.clone()))
    }

    /// Builds the topology of [`TopologyPlan::pair`], which may have another name.
    ///
    /// # Errors
    /// As for [`Topology::start`].
    pub fn start_pair(plan: &TopologyPlan) -> Result<Wan, EmuError> {
        Ok(Wan { topology: Topology::start(plan)? })
    }

    /// Builds both sites with ends of this kind and starts the link.
    ///
    /// # Errors
    /// As for [`Topology::start`].
    pub fn start_over(plan: &LinkPlan, medium: Medium) -> Result<Wan, EmuError> {
        let plan = TopologyPlan::pair(plan.clone());
        Ok(Wan { topology: Topology::start_over(&plan, medium)? })
    }

    /// Returns the topology, for reports and changes while it runs.
    pub fn topology_mut(&mut self) -> &mut Topology {
        &mut self.topology
    }

    /// Starts `command` at a site with the addresses of both sites in `LONGHAUL_NEAR`,
    /// `LONGHAUL_FAR`, `LONGHAUL_NEAR_IPV6` and `LONGHAUL_FAR_IPV6`.
    ///
    /// # Errors
    /// As for [`Topology::spawn`].
    pub fn spawn(&self, side: Side, command: Command) -> Result<Child, EmuError> {
        self.topology.spawn(site(side), command)
    }

    /// Captures the packets of the link from now on.
    pub fn capture(&self, capture: &Capture) {
        self.topology.capture(capture);
    }

    /// Waits until a program at `side` listens for connections or datagrams, for at most
    /// `patience`. Returns whether a program listens.
    ///
    /// # Errors
    /// The thread of the site has ended.
    pub fn wait_for_listener(&self, side: Side, patience: Duration) -> Result<bool, EmuError> {
        self.topology.wait_for_listener(site(side), patience)
    }

    /// Returns a descriptor per site; see [`Topology::site_lives`].
    pub fn site_lives(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.topology.site_lives()
    }

    /// Checks that the first process of each site runs.
    ///
    /// # Errors
    /// As for [`Topology::check_sites`].
    pub fn check_sites(&self) -> Result<(), EmuError> {
        self.topology.check_sites()
    }

    /// Returns the time at which the link's clock was zero: the start of traces and recordings.
    pub fn link_started(&self) -> Option<Instant> {
        self.topology.link_started(0)
    }

    /// Returns the counters so far.
    ///
    /// # Errors
    /// A counter could not be read.
    pub fn report(&self) -> Result<LinkReport, EmuError> {
        only_link(self.topology.report()?)
    }

    /// Removes the link and returns the report. Processes in the sites are killed.
    ///
    /// # Errors
    /// A counter could not be read; everything is removed nevertheless.
    pub fn finish(self) -> Result<LinkReport, EmuError> {
        only_link(self.topology.finish()?)
    }
}

fn only_link(report: TopologyReport) -> Result<LinkReport, EmuError> {
    let link = report.links.into_iter().next();
    link.map(|link| link.link).ok_or_else(|| EmuError::Driver {
        operation: "count packets",
        source: io::ErrorKind::NotFound.into(),
    })
}

/// Returns the index of a side's site in [`TopologyPlan::pair`].
fn site(side: Side) -> usize {
    match side {
        Side::Near => 0,
        Side::Far => 1,
    }
}
