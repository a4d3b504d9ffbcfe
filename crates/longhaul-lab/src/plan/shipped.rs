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
pub static SHIPPED: [Shipped; 11] = [
    Shipped { name: "quick", text: include_str!("shipped/quick.toml") },
    Shipped { name: "default", text: include_str!("shipped/default.toml") },
    Shipped { name: "sc10", text: include_str!("shipped/sc10.toml") },
    Shipped { name: "loss", text: include_str!("shipped/loss.toml") },
    Shipped { name: "small-files", text: include_str!("shipped/small-files.toml") },
    Shipped { name: "distance", text: include_str!("shipped/distance.toml") },
    Shipped { name: "stability", text: include_str!("shipped/stability.toml") },
    Shipped { name: "streams-windows", text: include_str!("shipped/streams-windows.toml") },
    Shipped { name: "cross-traffic", text: include_str!("shipped/cross-traffic.toml") },
    Shipped { name: "scaling", text: include_str!("shipped/scaling.toml") },
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
