//! Finds processes that a tool left running after its end, even outside its process group.
//!
//! Every command has a mark in its environment, which children inherit even if they change their
//! session and parent. A process that clears its environment is not found; on an emulated path it
//! ends with the namespaces.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The time limit for killed processes to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// A mark that is unique to one command of one matrix.
#[derive(Debug, Clone)]
pub(super) struct Mark(String);

impl Mark {
    /// The name of the environment variable.
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

/// Kills every process with the mark and returns their names.
pub(super) fn end(mark: &Mark) -> Vec<String> {
    let found = find(mark);
    let begun = Instant::now();
    let mut left: Vec<(Pid, String)> = found.clone();
    while !left.is_empty() && begun.elapsed() < PATIENCE {
        for (process, _) in &left {
            // The mark is checked again after the handle is open, because the process id may have
            // been reused.
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

/// Returns every living process with the mark, and its name.
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

/// Returns whether a process has the mark. A zombie has no environment.
fn has(process: Pid, mark: &Mark) -> bool {
    let path = format!("/proc/{}/environ", process.as_raw_nonzero());
    let Ok(environment) = fs::read(path) else { return false };
    let wanted = format!("{}={}", Mark::VARIABLE, mark.0);
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
}
