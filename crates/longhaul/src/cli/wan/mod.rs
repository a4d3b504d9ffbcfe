//! `longhaul wan`: commands at the two ends of an emulated link.

mod ends;
mod probe;
mod run;
mod selftest;

use std::ffi::OsString;

use clap::{Args, Subcommand};

use crate::exit::{self, Coded};

/// Emulate a wide-area link between network namespaces
#[derive(Debug, Args)]
pub(crate) struct WanArgs {
    #[command(subcommand)]
    command: WanCommand,
}

#[derive(Debug, Subcommand)]
enum WanCommand {
    Run(run::RunArgs),
    Selftest(selftest::SelftestArgs),
    #[command(hide = true)]
    Probe(probe::ProbeArgs),
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

/// Promised and not built: refused by name.
const REFUSED: [&str; 5] = ["up", "exec", "status", "set", "down"];

/// Runs `longhaul wan ...` and returns its exit code.
///
/// The process must still have one thread: without root it enters a user namespace here.
pub(crate) fn run(args: WanArgs) -> Result<u8, Coded> {
    match args.command {
        WanCommand::Run(args) => run::run(args),
        WanCommand::Selftest(args) => selftest::run(&args),
        WanCommand::Probe(args) => probe::run(&args),
        WanCommand::Other(words) => {
            let name = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
            let error = if REFUSED.contains(&name.as_ref()) {
                anyhow::anyhow!("'wan {name}' is not built yet; 'wan run' is")
            } else {
                anyhow::anyhow!("there is no command 'wan {name}'; see 'longhaul wan --help'")
            };
            Err(Coded::new(exit::USAGE, error))
        }
    }
}
