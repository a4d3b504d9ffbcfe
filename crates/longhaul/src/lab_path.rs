//! The laboratory's network over the emulator: each path is a separate link.

use std::fs;
use std::process::{Child, Command};

use longhaul_core::plan::{Condition, LinkPlan, MatrixPlan, Side};
use longhaul_core::result::DirectionReport;
use longhaul_emu::{Validity, Wan};
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

/// Opens emulated links.
#[derive(Debug)]
pub(crate) struct EmulatedNetwork;

struct EmulatedPath {
    wan: Wan,
}

impl Network for EmulatedNetwork {
    fn open(&mut self, condition: &Condition, seed: u64) -> Result<Box<dyn NetPath>, NetworkError> {
        let plan = condition.link(Some(seed), &|file| fs::read_to_string(file))?;
        Ok(Box::new(EmulatedPath { wan: Wan::start(&plan)? }))
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
        Ok(self.wan.spawn(side, command)?)
    }

    fn host(&self, side: Side) -> &str {
        side.name()
    }

    fn carried_bytes(&self) -> Option<u64> {
        let report = self.wan.report().ok()?;
        let carried = |direction: &DirectionReport| direction.delivered.bytes;
        Some(carried(&report.up).max(carried(&report.down)))
    }

    fn is_emulated_here(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), NetworkError> {
        Ok(self.wan.check_sites()?)
    }

    fn close(self: Box<Self>) -> PathReport {
        match self.wan.finish() {
            Ok(report) => {
                let validity = Validity::of(&report);
                PathReport {
                    faults: validity.faults.iter().map(ToString::to_string).collect(),
                    notes: validity.notes.iter().map(ToString::to_string).collect(),
                    counters: serde_json::to_value(&report).unwrap_or(Value::Null),
                }
            }
            Err(error) => PathReport {
                faults: vec![format!("the link's counters could not be read: {error}")],
                ..PathReport::default()
            },
        }
    }
}
