//! `longhaul fleet`: the command line of a hub.

mod access;
mod import;
mod listing;
mod mesh_file;

use clap::Subcommand;

use crate::exit::Coded;

#[derive(Debug, clap::Args)]
#[command(after_help = "'login' stores the address of the hub and an API token in \
                  ~/.config/longhaul/fleet.json; the other commands use them. Without a stored login \
                  they use the hub that this user runs on this host with the default directory. Exit codes: 0 done, 2 \
                  invalid arguments or an invalid mesh, 3 hub unreachable, 4 refused by the hub, 6 an \
                  error of this host.")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Log in to a hub with a password, and store an API token
    Login(access::LoginArgs),
    /// Create a one-time token with which the agent of a host enrolls
    Token(access::TokenArgs),
    /// Revoke the agent of a host: the hub refuses its key, and its runs end
    Revoke(access::RevokeArgs),
    /// Show the tests, the load and the cycle time of a mesh before you apply it
    Plan(mesh_file::PlanArgs),
    /// Apply the differences between a mesh file and the mesh of the hub
    Apply(mesh_file::ApplyArgs),
    /// Show the state of the mesh
    Status(listing::StatusArgs),
    /// List the hosts and the states of their agents
    Hosts(listing::HostsArgs),
    /// List runs with their states and reasons, or print one run
    Runs(listing::RunsArgs),
    /// Convert a pSConfig template to a mesh file
    ImportPsconfig(import::ImportArgs),
}

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        match self.command {
            Command::Login(args) => args.run(),
            Command::Token(args) => args.run(),
            Command::Revoke(args) => args.run(),
            Command::Plan(args) => args.run(),
            Command::Apply(args) => args.run(),
            Command::Status(args) => args.run(),
            Command::Hosts(args) => args.run(),
            Command::Runs(args) => args.run(),
            Command::ImportPsconfig(args) => args.run(),
        }
    }
}
