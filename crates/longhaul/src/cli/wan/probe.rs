//! `longhaul wan probe`: one end of a probe of the self-test, as a process at a site.

use std::io::{BufReader, Write};

use anyhow::Context;
use clap::Args;
use longhaul_emu::selftest::probe::{self, ProbePlan, Witness};
use serde::Serialize;

use crate::exit::{self, Coded};
use crate::output::raw_output;

/// Send or receive numbered datagrams for the self-test
///
/// A receiver prints the line "ready", and ends when it reads the output of a sender on standard
/// input. 'watch' measures how late this machine wakes an idle thread.
#[derive(Debug, Args)]
pub(super) struct ProbeArgs {
    /// The plan, as JSON: {"send": {...}}, {"receive": {...}} or {"watch": {"seconds": N}}
    #[arg(value_name = "PLAN")]
    plan: String,
}

/// Runs one end of a probe.
pub(super) fn run(args: &ProbeArgs) -> Result<u8, Coded> {
    let plan: ProbePlan = serde_json::from_str(&args.plan)
        .context("invalid plan")
        .map_err(|error| Coded::new(exit::USAGE, error))?;
    let failed = |error: anyhow::Error| Coded::new(exit::WAN, error);
    match plan {
        ProbePlan::Send(plan) => {
            let sent = probe::send(&plan)
                .with_context(|| format!("cannot send to {}", plan.to))
                .map_err(failed)?;
            print(&sent).map_err(failed)?;
        }
        ProbePlan::Receive(plan) => {
            let ready = || {
                let mut out = raw_output()?;
                out.write_all(b"ready\n")
            };
            let report = probe::receive(&plan, BufReader::new(std::io::stdin()), ready)
                .with_context(|| format!("cannot receive at {}", plan.bind))
                .map_err(failed)?;
            print(&report).map_err(failed)?;
        }
        ProbePlan::Watch(plan) => {
            let witness = Witness::start();
            std::thread::sleep(plan.seconds);
            print(&witness.finish()).map_err(failed)?;
        }
    }
    Ok(exit::OK)
}

fn print(document: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string(document)? + "\n";
    Ok(raw_output()?.write_all(text.as_bytes())?)
}
