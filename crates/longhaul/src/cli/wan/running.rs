//! `longhaul wan status`, `set` and `down`: requests to the holder of a running topology.

use std::io::Read;
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use super::bridge::restore_left_over;
use super::control::{self, Reply, Request};
use super::runtime::{RuntimeFiles, split_name};
use crate::cli::link::LinkArgs;
use crate::exit::{self, Coded};
use crate::output::{
    clear, link_text, output_is_terminal, print_document, print_document_line, print_message,
    print_result, topology_end, topology_table,
};

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

pub(super) fn status(args: StatusArgs) -> Result<u8, Coded> {
    let files = RuntimeFiles::of_running(args.name.as_deref())?;
    let live = args.watch && !args.json && output_is_terminal();
    loop {
        let report = control::ask_report(&mut files.connect()?, &Request::Status)?;
        match (args.json, args.watch) {
            (true, true) => print_document_line(&report)?,
            (true, false) => print_document(&report)?,
            (false, _) if live => print_result(&(clear() + &topology_table(&report)))?,
            (false, _) => print_result(&topology_table(&report))?,
        }
        if !args.watch {
            return Ok(exit::OK);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Change a link of a topology that is up
///
/// Changes only the given options, for packets that enter the link from now on. 'none' removes an
/// option. --up-... changes the direction from the first site of the link to the second, and
/// --down-... the opposite one. --down takes the link down: it loses the packets that enter it, and
/// after the failover time of the topology packets use parallel links or other routes. --up brings
/// the link up. The MTU and the seed cannot be changed.
#[derive(Debug, Args)]
pub(super) struct SetArgs {
    /// Name of the topology, if several are up
    #[arg(long)]
    name: Option<String>,
    /// Name of the link, as in 'wan status', or NAME/LINK with the name of the topology
    #[arg(value_name = "LINK")]
    which: String,
    /// Take the link down
    #[arg(long, conflicts_with = "up")]
    down: bool,
    /// Bring the link up
    #[arg(long)]
    up: bool,
    #[command(flatten)]
    link: LinkArgs,
}

pub(super) fn set(args: SetArgs) -> Result<u8, Coded> {
    let options = args.link.options();
    let down = (args.down || args.up).then_some(args.down);
    if options.is_empty() && down.is_none() {
        let error = anyhow::anyhow!("nothing to change; give a link option, such as --rtt");
        return Err(Coded { code: exit::USAGE, error });
    }
    let (name, link) = split_name(args.name.as_deref(), &args.which)?;
    let mut stream = RuntimeFiles::of_running(name)?.connect()?;
    let directory = std::env::current_dir().context("cannot find the current directory")?;
    let (link, options) = (link.to_owned(), options.clone());
    let request = Request::Set { link, options, directory, down };
    let usage = |error| Coded { code: exit::USAGE, error };
    match control::ask(&mut stream, &request).map_err(usage)? {
        Reply::Changed { plan, down } => {
            let state = if down { ", down" } else { "" };
            let line = format!("{}: {}{state}\n", args.which, link_text(&plan));
            print_result(&line)?;
        }
        _ => Err(control::unexpected())?,
    }
    Ok(exit::OK)
}

/// Take a topology down
///
/// Ends every process in its sites, removes the sites and links, and prints the traffic of each
/// link and the warnings about its accuracy.
#[derive(Debug, Args)]
pub(super) struct DownArgs {
    /// Name of the topology, if several are up
    #[arg(long)]
    name: Option<String>,
}

pub(super) fn down(args: DownArgs) -> Result<u8, Coded> {
    restore_left_over()?;
    let files = RuntimeFiles::of_running(args.name.as_deref())?;
    if files.is_left_over() {
        // The holder was killed, and the kernel took everything else down.
        if let Some(held) = files.try_hold()? {
            held.clear(true)?;
            print_message(format_args!(
                "the process of '{}' was killed; removed its files",
                files.name
            ));
            return Ok(exit::OK);
        }
    }
    let mut stream = files.connect()?;
    let report = control::ask_report(&mut stream, &Request::Down)?;
    // The stream ends when the holder has ended.
    let _ = stream.read(&mut [0]);
    print_result(&topology_end(&report))?;
    Ok(exit::OK)
}
