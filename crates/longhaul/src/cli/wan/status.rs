//! `longhaul wan status`: prints the counters of a running topology.

use std::time::Duration;

use clap::Args;

use super::control::{self, Request};
use super::place::Place;
use crate::exit::{self, Coded};
use crate::output::{answer, clear, document, document_line, output_is_terminal, topology_table};

/// Show the traffic of the links of a topology
///
/// Prints per link and direction: the packets, segments and bytes that arrived, those that the link
/// dropped, damaged, duplicated or marked, the bytes in flight, and the lateness of packets.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// Name of the topology, if several are up
    #[arg(long)]
    name: Option<String>,
    /// Print one JSON document (longhaul.topology/1); with --watch, one line per second
    #[arg(long)]
    json: bool,
    /// Repeat every second until interrupted
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
