//! The laboratory's network over the emulator: each path is a separate link.

use std::fs;
use std::process::{Child, Command};

use longhaul_core::plan::{Condition, LinkPlan, MatrixPlan, Side};
use longhaul_emu::{LinkReport, Topology, TopologyReport, Validity};
use longhaul_lab::{NetPath, Network, NetworkError, PathReport};
use serde_json::Value;

use crate::real_path::RealNetwork;

/// Returns the network that a plan requests.
pub(crate) fn network(plan: &MatrixPlan) -> Box<dyn Network> {
    match &plan.real {
        Some(real) => Box::new(RealNetwork::new(real.clone())),
        None => Box::new(EmulatedNetwork),
    }
}

/// Opens emulated links, several parallel ones if the condition states so.
#[derive(Debug)]
pub(crate) struct EmulatedNetwork;

struct EmulatedPath {
    topology: Topology,
}

impl Network for EmulatedNetwork {
    fn open(&mut self, condition: &Condition, seed: u64) -> Result<Box<dyn NetPath>, NetworkError> {
        let plan = condition.topology(seed, &|file| Ok(Box::new(fs::File::open(file)?)))?;
        Ok(Box::new(EmulatedPath { topology: Topology::start(&plan)? }))
    }

    fn describe(&self) -> String {
        format!(
            "emulated in user space on this host: two network namespaces, TUN devices, MTU {}; a \
             fresh link for every run",
            LinkPlan::DEFAULT_MTU
        )
    }
}

impl NetPath for EmulatedPath {
    fn spawn(&mut self, side: Side, command: Command) -> Result<Child, NetworkError> {
        // The order of the sites in `TopologyPlan::pair`.
        let site = match side {
            Side::Near => 0,
            Side::Far => 1,
        };
        Ok(self.topology.spawn(site, command)?)
    }

    fn host(&self, side: Side) -> &str {
        side.name()
    }

    fn carried_bytes(&self) -> Option<u64> {
        let report = self.topology.report().ok()?;
        let links = || report.links.iter().map(|link| &link.link);
        let up: u64 = links().map(|link| link.up.delivered.bytes).sum();
        Some(up.max(links().map(|link| link.down.delivered.bytes).sum()))
    }

    fn is_emulated_here(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), NetworkError> {
        Ok(self.topology.check_sites()?)
    }

    fn close(self: Box<Self>) -> PathReport {
        match self.topology.finish() {
            Ok(report) => path_report(report),
            Err(error) => PathReport {
                faults: vec![format!("the link's counters could not be read: {error}")],
                ..PathReport::default()
            },
        }
    }
}

/// Returns the verdicts on all links, which name the link if there are several, and the counters.
/// The counters are the report of the only link, or the list of the reports of all links.
fn path_report(report: TopologyReport) -> PathReport {
    let mut path = PathReport::default();
    let several = report.links.len() > 1;
    for link in &report.links {
        let named = |text: String| if several { format!("{}: {text}", link.name) } else { text };
        let validity = Validity::of(&link.link);
        path.faults.extend(validity.faults.iter().map(|fault| named(fault.to_string())));
        path.notes.extend(validity.notes.iter().map(|note| named(note.to_string())));
    }
    let links: Vec<LinkReport> = report.links.into_iter().map(|link| link.link).collect();
    let counters = match links.as_slice() {
        [only] => serde_json::to_value(only),
        links => serde_json::to_value(links),
    };
    path.counters = counters.unwrap_or(Value::Null);
    path
}
