//! `longhaul wan set`: changes a link of a running topology.

use anyhow::Context;
use clap::Args;

use super::control::{self, Reply, Request};
use super::place::Place;
use crate::cli::link::LinkArgs;
use crate::exit::{self, Coded};
use crate::output::{answer, link_text};

/// Change a link of a topology that is up
///
/// Changes only the given options, for packets that enter the link from now on. 'none' removes an
/// option. --up-... changes the direction from the first site of the link to the second, and
/// --down-... the opposite one. The MTU, the seed and the routes cannot be changed.
#[derive(Debug, Args)]
pub(super) struct SetArgs {
    /// Name of the topology, if several are up
    #[arg(long)]
    name: Option<String>,
    /// Name of the link, as in 'wan status'
    #[arg(value_name = "LINK")]
    which: String,
    #[command(flatten)]
    link: LinkArgs,
}

pub(super) fn run(args: SetArgs) -> Result<u8, Coded> {
    let options = args.link.options();
    if options.is_empty() {
        let error = anyhow::anyhow!("nothing to change; give a link option, such as --rtt");
        return Err(Coded { code: exit::USAGE, error });
    }
    let mut stream = Place::of_running(args.name.as_deref())?.connect()?;
    let directory = std::env::current_dir().context("cannot find the current directory")?;
    let request = Request::Set { link: args.which.clone(), options: options.clone(), directory };
    let usage = |error| Coded { code: exit::USAGE, error };
    match control::ask(&mut stream, &request).map_err(usage)? {
        Reply::Changed { plan } => {
            let line = format!("{}: {}\n", args.which, link_text(&plan));
            answer(&line)?;
        }
        _ => Err(control::unexpected())?,
    }
    Ok(exit::OK)
}
