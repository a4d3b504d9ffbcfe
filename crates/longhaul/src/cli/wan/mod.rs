//! `longhaul wan`: emulated links and topologies, and commands at their sites.
//!
//! `run` emulates a link while its command runs, and with a name answers requests. `bridge` emulates a
//! link between two interfaces, and answers requests. `up` starts a holder: a background process that
//! owns a topology. `exec`, `status`, `set` and `down` send requests to its socket.

mod bridge;
mod certify;
mod control;
mod ends;
mod exec;
mod file_values;
mod holder;
mod packets;
mod requests;
mod run;
mod running;
mod runtime;
mod selftest;
mod shipped;
mod topology_file;
mod up;

use clap::{Args, Subcommand};

use crate::exit::Coded;

/// Emulate wide-area links between network namespaces
#[derive(Debug, Args)]
pub(crate) struct WanArgs {
    #[command(subcommand)]
    command: WanCommand,
}

#[derive(Debug, Subcommand)]
enum WanCommand {
    Run(run::RunArgs),
    Bridge(bridge::BridgeArgs),
    #[command(hide = true)]
    BridgeGuard(bridge::GuardArgs),
    Up(up::UpArgs),
    Exec(exec::ExecArgs),
    Status(running::StatusArgs),
    Set(running::SetArgs),
    Down(running::DownArgs),
    Certify(certify::CertifyArgs),
    Selftest(selftest::SelftestArgs),
    #[command(hide = true)]
    Probe(selftest::ProbeArgs),
}

/// Returns the names of the shipped topologies.
pub(super) fn shipped_names() -> impl Iterator<Item = &'static str> {
    shipped::SHIPPED.iter().map(|topology| topology.name)
}

/// Runs `longhaul wan ...` and returns its exit code.
///
/// The process must have only one thread, because without root it enters a user namespace.
pub(crate) fn run(args: WanArgs) -> Result<u8, Coded> {
    match args.command {
        WanCommand::Run(args) => run::run(args),
        WanCommand::Bridge(args) => bridge::run(&args),
        WanCommand::BridgeGuard(args) => bridge::run_guard(&args),
        WanCommand::Up(args) => up::run(args),
        WanCommand::Exec(args) => exec::run(args),
        WanCommand::Status(args) => running::status(args),
        WanCommand::Set(args) => running::set(args),
        WanCommand::Down(args) => running::down(args),
        WanCommand::Certify(args) => certify::run(&args),
        WanCommand::Selftest(args) => selftest::run(&args),
        WanCommand::Probe(args) => selftest::run_probe(&args),
    }
}
