//! The interface between the laboratory and the network that it measures over.

use std::error::Error;
use std::process::{Child, Command};

use longhaul_core::plan::{Condition, Side};
use serde_json::Value;

/// The error of a network that could not open a path; the laboratory only passes it on.
pub type NetworkError = Box<dyn Error + Send + Sync>;

/// A network that can open paths: the emulator, a real path, or in tests the loopback interface.
pub trait Network {
    /// Opens a new path with `condition`, whose random decisions use `seed`.
    ///
    /// # Errors
    /// The network's error, for example a missing privilege.
    fn open(&mut self, condition: &Condition, seed: u64) -> Result<Box<dyn NetPath>, NetworkError>;

    /// Returns a one-line description of the network for the facts of a report.
    fn describe(&self) -> String;
}

/// An open path between two ends that can run commands.
pub trait NetPath {
    /// Starts `command` at an end as a child of this process. The caller has set its streams and
    /// process group.
    ///
    /// # Errors
    /// The process cannot be started.
    fn spawn(&mut self, side: Side, command: Command) -> Result<Child, NetworkError>;

    /// Returns the name or address by which the other end reaches this end.
    fn host(&self, side: Side) -> &str;

    /// Returns the far end if it is another host; `None` if both ends share the files of this host.
    fn far_host(&self) -> Option<&dyn FarHost> {
        None
    }

    /// Returns whether a server at the far end listens on a TCP port. With `None` the runner reads
    /// the network namespace of the server process.
    fn far_listens(&mut self, _port: u16) -> Option<bool> {
        None
    }

    /// Returns the bytes carried so far in the busier direction; `None` if the path does not count
    /// bytes.
    fn carried_bytes(&self) -> Option<u64> {
        None
    }

    /// Returns whether this process forwards the packets of the path, so that its CPU time is that
    /// of the emulator.
    fn is_emulated_here(&self) -> bool {
        false
    }

    /// Checks that both ends can still run commands.
    ///
    /// # Errors
    /// An end no longer exists; its processes ended with it.
    fn check(&self) -> Result<(), NetworkError> {
        Ok(())
    }

    /// Stops all processes at both ends, removes the path and returns its report.
    fn close(self: Box<Self>) -> PathReport;
}

/// The far end of a real path: another host with its own files.
pub trait FarHost {
    /// Returns the name of the host for ssh: `user@host` or a name from the user's ssh
    /// configuration.
    fn ssh_name(&self) -> &str;

    /// Returns the directory for copies; a relative path starts at the login directory.
    fn directory(&self) -> &str;

    /// Runs a sh(1) script on the host in the login directory and returns its output. `give_up` is
    /// polled during the run; `true` aborts the script.
    ///
    /// # Errors
    /// The host cannot be reached, the script failed (with its last line of output), or it was
    /// aborted.
    fn run(&self, script: &str, give_up: &dyn Fn() -> bool) -> Result<String, NetworkError>;
}

/// The report of a path after it was closed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PathReport {
    /// The reasons why measurements over the path do not count; empty for a valid path.
    pub faults: Vec<String>,
    /// Unusual but harmless observations.
    pub notes: Vec<String>,
    /// The counters of the path.
    pub counters: Value,
}
