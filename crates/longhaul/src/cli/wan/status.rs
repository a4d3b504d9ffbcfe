use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use super::control::{self, Request};
use super::place::Place;
use crate::exit::{self, Coded};
use crate::output::{answer, topology_table};

/// Show what passed over the links of a topology
///
/// For each link and direction: packets, segments and bytes that arrived, what was dropped,
/// damaged, duplicated or marked, what is under way, and by how much packets left late.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// The topology, if several are up
    #[arg(long)]
    name: Option<String>,
    /// Print one JSON document (longhaul.topology/1); with --watch, one on a line each time
    #[arg(long)]
    json: bool,
    /// Go on, every second, until interrupted
    #[arg(long)]
    watch: bool,
}

pub(super) fn run(args: StatusArgs) -> Result<u8, Coded> {
    /// Home, and clear what was below (ECMA-48: CUP, ED).
    const CLEAR: &str = "\x1b[H\x1b[J";
    let place = Place::of_running(args.name.as_deref())?;
    let live = args.watch && !args.json && std::io::stdout().is_terminal();
    loop {
        let report = control::ask_report(&mut place.connect()?, &Request::Status)?;
        let text = match (args.json, args.watch) {
            (true, true) => serde_json::to_string(&report).context("cannot write JSON")? + "\n",
            (true, false) => {
                serde_json::to_string_pretty(&report).context("cannot write JSON")? + "\n"
            }
            (false, _) => topology_table(&report),
        };
        let clear = if live { CLEAR } else { "" };
        answer(&format!("{clear}{text}")).context("cannot write the status")?;
        if !args.watch {
            return Ok(exit::OK);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}
