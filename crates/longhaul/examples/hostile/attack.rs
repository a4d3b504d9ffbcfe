//! Rounds of hostile clients against a server, and what is checked after each.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_engine::session::{ConfigDir, HostPort, Identity};

use crate::dice::Dice;
use crate::session::{self, Who};
use crate::watch::{Guard, Honest, Taken, settle};

/// What is attacked, and for how long.
pub(crate) struct Attack {
    pub(crate) port: u16,
    pub(crate) pid: u32,
    /// Where the server's user has its keys: the authorised clients are this user.
    pub(crate) home: PathBuf,
    pub(crate) guard: Guard,
    /// The program of the honest clients.
    pub(crate) program: PathBuf,
    /// Whether the server takes files, and whether it gives them.
    pub(crate) puts: bool,
    pub(crate) gets: bool,
    pub(crate) seed: u64,
    pub(crate) messages: u64,
    pub(crate) time: Duration,
    /// How long the clients of one round go on.
    pub(crate) round: Duration,
    /// Hostile clients at once.
    pub(crate) clients: u64,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) messages: u64,
    pub(crate) sessions: u64,
    pub(crate) rounds: u64,
    pub(crate) most_memory_kib: u64,
    pub(crate) most_descriptors: usize,
}

impl Attack {
    /// Attacks until enough messages were sent or the time is over.
    ///
    /// # Errors
    /// What did not hold after which round.
    pub(crate) fn run(&self) -> Result<Tally, String> {
        let honest =
            Honest { program: self.program.clone(), home: self.home.clone(), port: self.port };
        honest.is_served(self.puts, self.gets)?;
        let mut first = Taken::by(self.pid).map_err(|error| error.to_string())?;
        let (mut tally, begun) = (Tally::default(), Instant::now());
        while tally.messages < self.messages && begun.elapsed() < self.time {
            let failed =
                |what: String| format!("round {} with seed {}: {what}", tally.rounds, self.seed);
            let kept = !(self.puts && self.gets);
            let before = self.snapshot(kept).map_err(failed)?;
            let (messages, sessions) = self.round(tally.rounds);
            honest.is_served(self.puts, self.gets).map_err(failed)?;
            let now = settle(self.pid, &first).map_err(failed)?;
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
                // What the first round has left in the allocator's caches counts as taken.
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

    /// What is not to change: all outside the root and, where nothing may be replaced, in it.
    fn snapshot(&self, root: bool) -> Result<std::collections::BTreeMap<PathBuf, String>, String> {
        let mut seen = self.guard.snapshot(root).map_err(|error| error.to_string())?;
        if self.puts {
            // New names change the times of their directories.
            let within = |path: &PathBuf| path.starts_with(self.guard.root()) && path.is_dir();
            seen.retain(|path, _| !within(path));
        }
        Ok(seen)
    }

    /// Hostile clients for a while; returns their messages and sessions.
    fn round(&self, round: u64) -> (u64, u64) {
        let server = HostPort::new("127.0.0.1", self.port);
        let user = ConfigDir::at(self.home.join(".config/longhaul"));
        let authorised = Identity::load_or_create(&user).expect("the user has a key");
        let stranger = Identity::generate();
        let until = Instant::now() + self.round;
        thread::scope(|scope| {
            let clients: Vec<_> = (0..self.clients)
                .map(|client| {
                    let (server, user) = (&server, &user);
                    let (authorised, stranger) = (&authorised, &stranger);
                    scope.spawn(move || {
                        let seed = self.seed ^ round << 20 ^ client << 56;
                        let mut dice = Dice::new(seed);
                        let (mut messages, mut sessions) = (0, 0);
                        while Instant::now() < until {
                            let known = dice.chance(80);
                            let identity = if known { authorised } else { stranger };
                            let who = Who { server, config: user, identity };
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
