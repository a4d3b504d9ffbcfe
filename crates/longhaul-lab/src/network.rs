use std::error::Error;
use std::process::{Child, Command};

use longhaul_core::plan::{Condition, Side};
use serde_json::Value;

/// Why a network could not open a path; the laboratory only passes it on.
pub type NetworkError = Box<dyn Error + Send + Sync>;

/// Something that can open paths: the emulator, or in tests the loopback interface.
pub trait Network {
    /// Opens a fresh path under `condition`, whose chances follow from `seed`.
    ///
    /// # Errors
    /// The network's own, such as a missing privilege.
    fn open(&mut self, condition: &Condition, seed: u64) -> Result<Box<dyn NetPath>, NetworkError>;

    /// One line that says what kind of network this is, for the facts of a report.
    fn describe(&self) -> String;
}

/// One open path between two ends that can run commands.
pub trait NetPath {
    /// Starts `command` at an end, as a child of this process. Its streams and process group are already set.
    ///
    /// # Errors
    /// Those of starting a process.
    fn spawn(&mut self, side: Side, command: Command) -> Result<Child, NetworkError>;

    /// The name or address by which the other end reaches this one.
    fn host(&self, side: Side) -> &str;

    /// The far end, where it is another host; `None` where both ends see the files of this one.
    fn far_host(&self) -> Option<&dyn FarHost> {
        None
    }

    /// Whether a server at the far end listens on a TCP port; `None` lets the runner look into
    /// the network namespace of the process that it started.
    fn far_listens(&mut self, _port: u16) -> Option<bool> {
        None
    }

    /// Bytes that were carried so far in the direction that carried more; `None` where the path
    /// does not count.
    fn carried_bytes(&self) -> Option<u64> {
        None
    }

    /// Ends whatever still runs at either end, takes the path down, and tells how it was.
    fn close(self: Box<Self>) -> PathReport;
}

/// The far end of a real path: another host, whose files are not this one's.
pub trait FarHost {
    /// By which the user's ssh reaches it: `user@host`, or a name of the ssh configuration.
    fn ssh_name(&self) -> &str;

    /// Below which copies go; a relative one is below the login directory.
    fn directory(&self) -> &str;

    /// Runs a script of sh(1) there, in the login directory; what it printed. `give_up` is asked
    /// again and again meanwhile.
    ///
    /// # Errors
    /// The host cannot be reached, the script failed, with its last words, or was given up.
    fn run(&self, script: &str, give_up: &dyn Fn() -> bool) -> Result<String, NetworkError>;
}

/// How a path was while it was open.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PathReport {
    /// Why what was measured over it does not count; empty for a path that kept its promise.
    pub faults: Vec<String>,
    /// What was odd and does no harm.
    pub notes: Vec<String>,
    /// Its counters.
    pub counters: Value,
}
