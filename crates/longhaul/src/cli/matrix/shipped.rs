//! Lists the shipped plans, and prints the text of a plan.

use std::fmt::Write;
use std::fs;

use longhaul_lab::data::sources;
use longhaul_lab::drivers::Driver;
use longhaul_lab::plan::{SHIPPED, Shipped};
use longhaul_lab::runner::Cost;

use super::setup::{coded, plan_of};
use super::{MatrixArgs, cost};
use crate::exit::Coded;

/// Returns a paragraph per shipped plan: its name, purpose and cost on this host.
pub(super) fn list(drivers: &[Box<dyn Driver>]) -> Result<String, Coded> {
    let mut text = String::new();
    for shipped in &SHIPPED {
        let plan = shipped.plan(drivers).map_err(coded)?;
        let about = plan.about.as_deref().unwrap_or_default();
        let sources = sources(&plan, None).map_err(coded)?;
        let takes =
            cost::words(&Cost::of(&plan, drivers, &sources, &cost::is_installed(drivers, &plan)));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:<16} {about}\n{:<16} {takes}", shipped.name, "");
    }
    Ok(text)
}

/// Returns the text of the plan, with its cost as a comment.
pub(super) fn show(args: &MatrixArgs, drivers: &[Box<dyn Driver>]) -> Result<String, Coded> {
    let plan = plan_of(args, drivers)?;
    let sources = sources(&plan, None).map_err(coded)?;
    let takes =
        cost::words(&Cost::of(&plan, drivers, &sources, &cost::is_installed(drivers, &plan)));
    let text = match &args.plan {
        Some(file) if Shipped::named(&file.to_string_lossy()).is_none() => {
            fs::read_to_string(file).map_err(anyhow::Error::from)?
        }
        Some(name) => text_of(&name.to_string_lossy()),
        None => text_of(if args.quick { "quick" } else { "default" }),
    };
    Ok(format!("# Cost with these arguments: {takes}\n{text}"))
}

fn text_of(name: &str) -> String {
    Shipped::named(name).map_or_else(String::new, |shipped| shipped.text.to_owned())
}
