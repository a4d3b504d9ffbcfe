//! Finds what a tool left running after it had ended, also where it left its process group.
//!
//! Every command is started with a mark in its environment, which children inherit whatever they
//! do to their session and parents. A process that clears its environment escapes here; the end
//! of the path's namespaces, where there are any, ends it nevertheless.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How long killed processes have to be gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// A mark that no other command of this or any other matrix has.
#[derive(Debug, Clone)]
pub(super) struct Mark(String);

impl Mark {
    /// The environment variable.
    pub(super) const VARIABLE: &str = "LONGHAUL_RUN";

    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Mark(format!("{}-{number}", std::process::id()))
    }

    pub(super) fn value(&self) -> &str {
        &self.0
    }
}

/// Kills every process that has the mark; the names of those that there were.
pub(super) fn end(mark: &Mark) -> Vec<String> {
    let found = find(mark);
    let begun = Instant::now();
    let mut left: Vec<(Pid, String)> = found.clone();
    while !left.is_empty() && begun.elapsed() < PATIENCE {
        for (process, _) in &left {
            // A handle first, and the mark again: the number may have passed to another.
            let Ok(handle) = pidfd_open(*process, PidfdFlags::empty()) else { continue };
            if has(*process, mark) {
                let _ = pidfd_send_signal(handle, Signal::KILL);
            }
        }
        thread::sleep(Duration::from_millis(2));
        left = find(mark);
    }
    found.into_iter().map(|(_, name)| name).collect()
}

/// Every living process that has the mark, and its name.
pub(super) fn find(mark: &Mark) -> Vec<(Pid, String)> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let own = |process: &Pid| has(*process, mark);
    numbers
        .filter_map(Pid::from_raw)
        .filter(own)
        .map(|process| {
            let name = fs::read_to_string(format!("/proc/{}/comm", process.as_raw_nonzero()));
            (process, name.unwrap_or_default().trim().to_owned())
        })
        .collect()
}

/// A process that has ended has no environment any more, and so not the mark.
fn has(process: Pid, mark: &Mark) -> bool {
    let path = format!("/proc/{}/environ", process.as_raw_nonzero());
    let Ok(environment) = fs::read(path) else { return false };
    let wanted = format!("{}={}", Mark::VARIABLE, mark.0);
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
}
