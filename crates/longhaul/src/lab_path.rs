//! The laboratory's network over the emulator: each path is a link of its own.

use std::process::{Child, Command};

use longhaul_core::plan::{Condition, LinkPlan, Side};
use longhaul_core::result::LinkWarning;
use longhaul_emu::Wan;
use longhaul_lab::{NetPath, Network, NetworkError, PathReport};
use serde_json::Value;

/// Opens emulated links.
#[derive(Debug)]
pub(crate) struct EmulatedNetwork;

struct EmulatedPath {
    wan: Wan,
}

impl Network for EmulatedNetwork {
    fn open(&mut self, condition: &Condition) -> Result<Box<dyn NetPath>, NetworkError> {
        let mut plan = LinkPlan::symmetric(condition.rtt);
        plan.up.rate_bps = condition.rate;
        plan.down.rate_bps = condition.rate;
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

    fn close(self: Box<Self>) -> PathReport {
        match self.wan.finish() {
            Ok(report) => {
                let (notes, faults): (Vec<_>, Vec<_>) =
                    report.warnings.iter().partition(|warning| is_harmless(warning));
                let text = |warnings: Vec<&LinkWarning>| {
                    warnings.into_iter().map(LinkWarning::to_string).collect()
                };
                PathReport {
                    faults: text(faults),
                    notes: text(notes),
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

/// Windows are the host's limit, the same for every tool, and no fault of the link.
fn is_harmless(warning: &LinkWarning) -> bool {
    matches!(warning, LinkWarning::WindowsClipped { .. } | LinkWarning::WindowsUnset { .. })
}
