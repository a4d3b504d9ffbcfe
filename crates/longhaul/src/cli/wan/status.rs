use std::time::Duration;

use clap::Args;

use super::control::{self, Request};
use super::place::Place;
use crate::exit::{self, Coded};
use crate::output::{answer, clear, document, document_line, output_is_terminal, topology_table};

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
    let place = Place::of_running(args.name.as_deref())?;
    let live = args.watch && !args.json && output_is_terminal();
    loop {
        let report = control::ask_report(&mut place.connect()?, &Request::Status)?;
        match (args.json, args.watch) {
            (true, true) => document_line(&report)?,
            (true, false) => document(&report)?,
            (false, _) if live => answer(&(clear() + &topology_table(&report)))?,
            (false, _) => answer(&topology_table(&report))?,
        }
        if !args.watch {
            return Ok(exit::OK);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}
