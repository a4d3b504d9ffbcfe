//! The network of the lab over a real path: near commands run on this host, far commands over the
//! user's ssh, with its configuration, agent and jump hosts.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_core::plan::{Condition, RealPath, Side};
use longhaul_core::text::shell_quoted;
use longhaul_lab::{FarHost, NetPath, Network, NetworkError, PathReport, has_listener, run_script};

/// The time limit for a command that only answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs far commands over ssh on the host in a plan.
#[derive(Debug, Clone)]
pub(crate) struct RealNetwork {
    far: RealPath,
}

impl RealNetwork {
    pub(crate) fn new(far: RealPath) -> Self {
        RealNetwork { far }
    }

    /// Returns an `ssh` command that never asks for input and ends with its connection.
    fn ssh(&self) -> Command {
        let mut ssh = Command::new("ssh");
        ssh.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=15"]);
        ssh.args(["-o", "ServerAliveInterval=5", "-o", "LogLevel=ERROR"]);
        ssh
    }

    /// Runs a script on the far host, and returns its output.
    fn answer(&self, script: &str) -> Result<String, NetworkError> {
        let begun = Instant::now();
        let is_late = || begun.elapsed() > ANSWER_TIMEOUT;
        self.run(script, &is_late).map_err(|error| {
            if is_late() {
                format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()).into()
            } else {
                error
            }
        })
    }
}

impl Network for RealNetwork {
    fn open(&mut self, _: &Condition, _seed: u64) -> Result<Box<dyn NetPath>, NetworkError> {
        match self.answer("true") {
            Ok(_) => Ok(Box::new(self.clone())),
            Err(error) => Err(format!("ssh {} true failed: {error}", self.far.far).into()),
        }
    }

    fn describe(&self) -> String {
        let RealPath { far, .. } = &self.far;
        format!("the real path to {}; far commands start over ssh {far}", self.far.address())
    }
}

impl NetPath for RealNetwork {
    fn spawn(&mut self, side: Side, command: Command) -> Result<Child, NetworkError> {
        match side {
            Side::Near => {
                let mut command = command;
                Ok(command.spawn()?)
            }
            Side::Far => {
                // A terminal, so that the command receives SIGHUP when ssh ends.
                let mut ssh = self.ssh();
                ssh.arg("-tt").arg(&self.far.far).arg(far_words(&command));
                // The runner set these for its command; ssh replaces that command.
                std::os::unix::process::CommandExt::process_group(&mut ssh, 0);
                ssh.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
                ssh.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
                Ok(ssh.spawn()?)
            }
        }
    }

    fn host(&self, side: Side) -> &str {
        match side {
            Side::Near => "localhost",
            Side::Far => self.far.address(),
        }
    }

    fn far_host(&self) -> Option<&dyn FarHost> {
        Some(self)
    }

    fn far_listens(&mut self, port: u16) -> Option<bool> {
        // A host without IPv6 has one table only.
        let tables = self.answer("cat /proc/net/tcp /proc/net/tcp6 2>/dev/null; true");
        Some(has_listener(&tables.ok()?, port))
    }

    fn close(self: Box<Self>) -> PathReport {
        PathReport::default()
    }
}

impl FarHost for RealNetwork {
    fn ssh_name(&self) -> &str {
        &self.far.far
    }

    fn directory(&self) -> &str {
        self.far.directory()
    }

    fn run(&self, script: &str, give_up: &dyn Fn() -> bool) -> Result<String, NetworkError> {
        let mut ssh = self.ssh();
        // The user's login shell may not be a POSIX shell.
        ssh.arg(&self.far.far).arg("exec sh");
        run_script(ssh, script, give_up)
    }
}

/// Returns the command quoted for the shell of the far end, which finds the program on its PATH.
fn far_words(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program());
    let words = std::iter::once(name).chain(command.get_args());
    let quoted = words.map(|word| shell_quoted(&word.to_string_lossy()).into_owned());
    format!("exec {}", quoted.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_far_command_is_quoted_and_has_no_directory() {
        let mut command = Command::new("/opt/here/iperf3");
        command.args(["-s", "it's"]);
        assert_eq!(far_words(&command), r"exec iperf3 -s 'it'\''s'");
    }
}
