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

mod attack;
mod dice;
mod mutate;
mod orders;
mod session;
mod watch;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use attack::Attack;
use clap::Parser;
use watch::Guard;

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
    match attack(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            println!("FAILED: {what}");
            ExitCode::FAILURE
        }
    }
}

fn attack(arguments: &Arguments) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let home = arguments.dir.join("home");
    fs::create_dir_all(&home).map_err(failed)?;
    let guard = Guard::make(&arguments.dir.join("guard")).map_err(failed)?;
    let mut command = Command::new(&arguments.longhaul);
    command
        .args(["serve", "--bind", "127.0.0.1", "-p", "0", "--root"])
        .arg(guard.root())
        .args(&arguments.serve)
        .env("HOME", &home)
        .env_remove("XDG_CONFIG_HOME")
        .current_dir(&arguments.dir);
    let mut server = Server::start(command).map_err(failed)?;
    let has = |option: &str| arguments.serve.iter().any(|given| given == option);
    let attack = Attack {
        port: server.port,
        pid: server.process.id(),
        home,
        guard,
        program: arguments.longhaul.clone(),
        puts: !has("--read-only"),
        gets: !has("--write-only"),
        seed: arguments.seed,
        messages: arguments.messages,
        time: Duration::from_secs(arguments.seconds),
        round: Duration::from_secs(arguments.round),
        clients: arguments.clients,
    };
    let tally = attack.run()?;
    if let Some(status) = server.process.try_wait().map_err(failed)? {
        return Err(format!("the server has ended: {status}"));
    }
    println!(
        "{} messages in {} sessions and {} rounds; after rounds at most {} MiB and {} descriptors",
        tally.messages,
        tally.sessions,
        tally.rounds,
        tally.most_memory_kib >> 10,
        tally.most_descriptors,
    );
    Ok(())
}

/// A server process; killed when dropped.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start(mut command: Command) -> std::io::Result<Self> {
        let mut process = command.stderr(Stdio::piped()).spawn()?;
        let stderr = process.stderr.take().expect("it is piped");
        let mut lines = BufReader::new(stderr).lines();
        let mut port = None;
        while port.is_none() {
            let Some(line) = lines.next() else { break };
            port = line?.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        }
        // The pipe is read on, so that the server never waits for it.
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if line.contains("panicked") {
                    println!("FAILED: {line}");
                    std::process::exit(1);
                }
            }
        });
        let port = port.ok_or_else(|| std::io::Error::other("the server does not listen"))?;
        Ok(Server { process, port })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
