//! A client that breaks the protocol, and a server that it attacks.
//!
//! ```text
//! hostile --longhaul PROGRAM --dir DIR [--seed N] [--messages N] [--seconds N] [--round N]
//!     [--clients N] [-- SERVE OPTIONS]
//! ```
//!
//! The program starts `longhaul serve` with a root in DIR and attacks it in rounds. After each
//! round it checks that the server serves honest clients, that nothing outside the root has
//! changed, and that memory and descriptors return. The seed determines the messages of each
//! client, but not their interleaving. A failed check is printed, with exit code 1.
//! `bench/hostile.sh` runs longer attacks.

// A test tool may print directly.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod attack;
mod dice;
mod mutate;
mod orders;
mod server;
mod session;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use attack::Length;
use clap::Parser;

/// Start a longhaul server and attack it
#[derive(Parser)]
struct Arguments {
    /// The longhaul to attack
    #[arg(long)]
    longhaul: PathBuf,
    /// An empty directory for the root of the server and its surroundings
    #[arg(long)]
    dir: PathBuf,
    /// Seed of the messages
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of messages after which to end
    #[arg(long, default_value_t = u64::MAX)]
    messages: u64,
    /// Seconds after which to end
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Seconds per round
    #[arg(long, default_value_t = 8)]
    round: u64,
    /// Number of hostile clients at once
    #[arg(long, default_value_t = 8)]
    clients: u64,
    /// Options of `longhaul serve`
    #[arg(last = true)]
    serve: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    println!("seed {}, serve {}", arguments.seed, arguments.serve.join(" "));
    let length = Length {
        messages: arguments.messages,
        time: Duration::from_secs(arguments.seconds),
        round: Duration::from_secs(arguments.round),
        clients: arguments.clients,
    };
    let Arguments { longhaul, dir, seed, serve, .. } = &arguments;
    match attack::attack(longhaul, dir, serve, *seed, length) {
        Ok(tally) => {
            println!("{tally}");
            ExitCode::SUCCESS
        }
        Err(what) => {
            println!("FAILED: {what}");
            ExitCode::FAILURE
        }
    }
}
