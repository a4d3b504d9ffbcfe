//! Servers of other programs, and ours for their clients.

use std::process::{Child, Command, Stdio};

use crate::host::wait_for;

/// A process that is killed when dropped.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server, and waits until it listens on `port`.
pub(crate) fn start(mut command: Command, port: u16) -> Running {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let running = Running(command.spawn().expect("the program starts"));
    // A connection would be a client.
    let listens = || {
        let lists = ["/proc/net/tcp", "/proc/net/tcp6"];
        lists.iter().any(|list| {
            let list = std::fs::read_to_string(list).unwrap_or_default();
            list.lines()
                .any(|line| line.contains(&format!(":{port:04X} ")) && line.contains(" 0A "))
        })
    };
    wait_for("the server listens", listens);
    running
}
