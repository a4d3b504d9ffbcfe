//! A client that speaks the protocol and does not keep to it, against a server of its own.
//!
//! ```text
//! hostile --longhaul PROGRAM --dir DIR [--seed N] [--messages N] [--seconds N] [--round N]
//!     [--clients N] [-- SERVE OPTIONS]
//! ```
//!
//! It starts `longhaul serve` over a root in DIR, attacks it in rounds, and checks after each that
//! the server serves honest clients, that nothing outside the root has changed, and that memory and
//! descriptors return. Each client's messages follow from the seed; how they interleave does not.
//! Exits with 1 and says what did not hold. `bench/hostile.sh` runs it at length.

// A test tool that prints to whoever runs it.
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

/// Attacks a server of its own.
#[derive(Parser)]
struct Arguments {
    /// The longhaul to attack
    #[arg(long)]
    longhaul: PathBuf,
    /// An empty directory for the server's root and what surrounds it
    #[arg(long)]
    dir: PathBuf,
    /// What the messages follow from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// End after so many messages
    #[arg(long, default_value_t = u64::MAX)]
    messages: u64,
    /// End after so many seconds
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Check after so many seconds each time
    #[arg(long, default_value_t = 8)]
    round: u64,
    /// Hostile clients at once
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
