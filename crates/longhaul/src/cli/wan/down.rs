//! `longhaul wan down`: takes a topology down and prints its counters.

use std::io::Read;

use clap::Args;

use super::control::{self, Request};
use super::place::Place;
use crate::exit::{self, Coded};
use crate::output::{answer, say, topology_end};

/// Take a topology down
///
/// Ends every process in its sites, and prints the traffic of each link and the warnings about its
/// accuracy. Nothing is left.
#[derive(Debug, Args)]
pub(super) struct DownArgs {
    /// Name of the topology, if several are up
    #[arg(long)]
    name: Option<String>,
}

pub(super) fn run(args: DownArgs) -> Result<u8, Coded> {
    let place = Place::of_running(args.name.as_deref())?;
    if place.is_left_over() {
        // The holder was killed, and the kernel took everything else down.
        if let Some(held) = place.try_hold()? {
            held.clear(true)?;
            say(format_args!("'{}' had been killed; removed its files", place.name));
            return Ok(exit::OK);
        }
    }
    let mut stream = place.connect()?;
    let report = control::ask_report(&mut stream, &Request::Down)?;
    // The stream ends when the holder has ended.
    let _ = stream.read(&mut [0]);
    answer(&topology_end(&report))?;
    Ok(exit::OK)
}
