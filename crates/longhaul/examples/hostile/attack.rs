//! Rounds of hostile clients against a server, with checks after each round.

#![allow(clippy::print_stderr)] // It reports each round to whoever runs it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_engine::session::{ConfigDir, HostPort, Identity};

use crate::dice::Dice;
use crate::server::Server;
use crate::session::{self, ClientIdentity};
use crate::watch::{Guard, Honest, Taken, settle};

/// The limits of an attack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Length {
    /// The number of messages after which it ends.
    pub(crate) messages: u64,
    /// The time after which it ends.
    pub(crate) time: Duration,
    /// The duration of a round.
    pub(crate) round: Duration,
    /// The number of hostile clients at once.
    pub(crate) clients: u64,
}

/// The attacked server and its surroundings.
struct Attack<'a> {
    server: Server,
    /// The configuration directory with the keys; authorized clients use the key of the server's
    /// user.
    home: PathBuf,
    guard: Guard,
    /// The program of the honest clients.
    program: &'a Path,
    /// True if the server accepts files, and true if it offers files.
    puts: bool,
    gets: bool,
    seed: u64,
    length: Length,
}

/// Starts `program serve` with `options` on a root in `dir`, and attacks it.
///
/// # Errors
/// The failed check and the round.
pub(crate) fn attack(
    program: &Path,
    dir: &Path,
    options: &[String],
    seed: u64,
    length: Length,
) -> Result<Tally, String> {
    let failed = |error: std::io::Error| error.to_string();
    let home = dir.join("home");
    fs::create_dir_all(&home).map_err(failed)?;
    let guard = Guard::make(&dir.join("guard")).map_err(failed)?;
    let mut command = Command::new(program);
    command
        .args(["serve", "--bind", "127.0.0.1", "-p", "0", "--root"])
        .arg(guard.root())
        .args(options)
        .env("HOME", &home)
        .env_remove("XDG_CONFIG_HOME")
        .current_dir(dir);
    let server = Server::start(command).map_err(failed)?;
    let has = |option: &str| options.iter().any(|given| given == option);
    let (puts, gets) = (!has("--read-only"), !has("--write-only"));
    Attack { server, home, guard, program, puts, gets, seed, length }.run()
}

/// The totals of an attack.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) messages: u64,
    pub(crate) sessions: u64,
    pub(crate) rounds: u64,
    pub(crate) most_memory_kib: u64,
    pub(crate) most_descriptors: usize,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} messages in {} sessions and {} rounds; after rounds at most {} MiB and {} descriptors",
            self.messages,
            self.sessions,
            self.rounds,
            self.most_memory_kib >> 10,
            self.most_descriptors,
        )
    }
}

impl Attack<'_> {
    /// Attacks until the number of messages or the time is reached.
    fn run(&mut self) -> Result<Tally, String> {
        let (program, home) = (self.program.to_owned(), self.home.clone());
        let honest = Honest { program, home, port: self.server.port };
        let pid = self.server.process.id();
        honest.is_served(self.puts, self.gets)?;
        let mut first = Taken::by(pid).map_err(|error| error.to_string())?;
        let (mut tally, begun) = (Tally::default(), Instant::now());
        let Length { messages: enough, time, .. } = self.length;
        while tally.messages < enough && begun.elapsed() < time {
            let failed =
                |what: String| format!("round {} with seed {}: {what}", tally.rounds, self.seed);
            let kept = !(self.puts && self.gets);
            let before = self.snapshot(kept).map_err(failed)?;
            let (messages, sessions) = self.round(tally.rounds);
            honest.is_served(self.puts, self.gets).map_err(failed)?;
            if let Some(fault) = self.server.fault() {
                return Err(failed(fault));
            }
            let now = settle(pid, &first).map_err(failed)?;
            let after = self.snapshot(kept).map_err(failed)?;
            for (path, what) in &before {
                if after.get(path) != Some(what) {
                    let now = after.get(path);
                    return Err(failed(format!("{path:?} was {what} and is {now:?}")));
                }
            }
            let inside = |path: &Path| path.starts_with(self.guard.root());
            let new = after.keys().find(|path| !before.contains_key(*path) && !inside(path));
            if let Some(path) = new {
                return Err(failed(format!("{path:?} is new")));
            }
            self.guard.fill().map_err(|error| failed(error.to_string()))?;
            if tally.rounds == 0 {
                // Memory in the caches of the allocator after the first round counts as used.
                first.memory_kib = now.memory_kib;
            }
            tally.messages += messages;
            tally.sessions += sessions;
            tally.rounds += 1;
            tally.most_memory_kib = tally.most_memory_kib.max(now.memory_kib);
            tally.most_descriptors = tally.most_descriptors.max(now.descriptors);
            eprintln!(
                "round {:4}: {:8} messages in {:6} sessions; {} MiB, {} descriptors, {} threads",
                tally.rounds,
                tally.messages,
                tally.sessions,
                now.memory_kib >> 10,
                now.descriptors,
                now.threads,
            );
        }
        Ok(tally)
    }

    /// Returns the state that must not change: everything outside the root, and its contents if the
    /// server allows no replacement.
    fn snapshot(&self, root: bool) -> Result<std::collections::BTreeMap<PathBuf, String>, String> {
        let mut seen = self.guard.snapshot(root).map_err(|error| error.to_string())?;
        if self.puts {
            // New files change the times of their directories.
            let within = |path: &PathBuf| path.starts_with(self.guard.root()) && path.is_dir();
            seen.retain(|path, _| !within(path));
        }
        Ok(seen)
    }

    /// Runs hostile clients for a round, and returns the numbers of messages and sessions.
    fn round(&self, round: u64) -> (u64, u64) {
        let server = HostPort::new("127.0.0.1", self.server.port);
        let user = ConfigDir::at(self.home.join(".config/longhaul"));
        let authorized = Identity::load_or_create(&user).expect("the user has a key");
        let unauthorized = Identity::generate();
        let until = Instant::now() + self.length.round;
        thread::scope(|scope| {
            let clients: Vec<_> = (0..self.length.clients)
                .map(|client| {
                    let (server, user) = (&server, &user);
                    let (authorized, unauthorized) = (&authorized, &unauthorized);
                    scope.spawn(move || {
                        let seed = self.seed ^ round << 20 ^ client << 56;
                        let mut dice = Dice::new(seed);
                        let (mut messages, mut sessions) = (0, 0);
                        while Instant::now() < until {
                            let known = dice.chance(80);
                            let identity = if known { authorized } else { unauthorized };
                            let who = ClientIdentity { server, config: user, identity };
                            messages += session::run(&mut dice, &who);
                            sessions += 1;
                        }
                        (messages, sessions)
                    })
                })
                .collect();
            clients.into_iter().fold((0, 0), |sum, client| {
                let (messages, sessions) = client.join().expect("a client does not panic");
                (sum.0 + messages, sum.1 + sessions)
            })
        })
    }
}
