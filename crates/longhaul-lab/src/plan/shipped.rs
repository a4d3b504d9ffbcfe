//! The plans that ship with the program.

use longhaul_core::plan::MatrixPlan;

use super::parse;
use crate::LabError;
use crate::drivers::Driver;

/// A plan that ships with the program. Its text is an ordinary plan file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shipped {
    /// The name of the plan on the command line.
    pub name: &'static str,
    /// The TOML text of the plan.
    pub text: &'static str,
}

/// All plans that ship.
pub static SHIPPED: [Shipped; 21] = [
    Shipped { name: "quick", text: include_str!("shipped/quick.toml") },
    Shipped { name: "default", text: include_str!("shipped/default.toml") },
    Shipped { name: "sc10", text: include_str!("shipped/sc10.toml") },
    Shipped { name: "loss", text: include_str!("shipped/loss.toml") },
    Shipped { name: "small-files", text: include_str!("shipped/small-files.toml") },
    Shipped { name: "distance", text: include_str!("shipped/distance.toml") },
    Shipped { name: "stability", text: include_str!("shipped/stability.toml") },
    Shipped { name: "streams-windows", text: include_str!("shipped/streams-windows.toml") },
    Shipped { name: "cross-traffic", text: include_str!("shipped/cross-traffic.toml") },
    Shipped { name: "cross-flows", text: include_str!("shipped/cross-flows.toml") },
    Shipped { name: "fairness", text: include_str!("shipped/fairness.toml") },
    Shipped { name: "corruption", text: include_str!("shipped/corruption.toml") },
    Shipped { name: "frames", text: include_str!("shipped/frames.toml") },
    Shipped { name: "messages", text: include_str!("shipped/messages.toml") },
    Shipped { name: "parallel-links", text: include_str!("shipped/parallel-links.toml") },
    Shipped { name: "access", text: include_str!("shipped/access.toml") },
    Shipped { name: "rdma", text: include_str!("shipped/rdma.toml") },
    Shipped { name: "tune", text: include_str!("shipped/tune.toml") },
    Shipped { name: "scaling", text: include_str!("shipped/scaling.toml") },
    Shipped { name: "peers", text: include_str!("shipped/peers.toml") },
    Shipped { name: "real", text: include_str!("shipped/real.toml") },
];

impl Shipped {
    /// Returns the plan with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SHIPPED.iter().find(|plan| plan.name == name)
    }

    /// Parses the plan.
    ///
    /// # Errors
    /// A tool of the plan has no driver in `drivers`; this cannot happen with the drivers that
    /// ship.
    pub fn plan(&self, drivers: &[Box<dyn Driver>]) -> Result<MatrixPlan, LabError> {
        parse(&format!("shipped plan {}", self.name), self.text, drivers)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use longhaul_core::plan::Workload;

    use super::*;
    use crate::drivers;
    use crate::plan::fingerprint;

    #[test]
    fn the_shipped_plans_are_plans() {
        let all = drivers::all(Path::new("longhaul"));
        for shipped in &SHIPPED {
            let plan = shipped.plan(&all).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(plan.name, shipped.name);
            assert!(plan.about.is_some_and(|about| about.len() > 20), "{}", shipped.name);
        }
        let plan = |name: &str| Shipped::named(name).unwrap().plan(&all).unwrap();
        let (quick, default) = (plan("quick"), plan("default"));
        let labels = |plan: &MatrixPlan| plan.entries.iter().map(|e| e.label()).collect::<Vec<_>>();
        assert_eq!(labels(&quick), labels(&default));
        assert_eq!((quick.conditions().len(), quick.repeats, default.repeats), (4, 1, 3));
        assert!(quick.has(Workload::Memory) && quick.has(Workload::Disk));
        assert_ne!(fingerprint(&quick), fingerprint(&default));
    }
}
