//! The laboratory's network over a real path: near commands run here, far ones by ssh, the user's
//! own with its configuration, agent and jump hosts.

use std::process::{Child, Command, Stdio};

use longhaul_core::plan::{Condition, RealPath, Side};
use longhaul_lab::{FarHost, NetPath, Network, NetworkError, PathReport, has_listener, run_script};

/// Runs far commands by ssh on the host that a plan names.
#[derive(Debug, Clone)]
pub(crate) struct RealNetwork {
    far: RealPath,
}

impl RealNetwork {
    pub(crate) fn new(far: RealPath) -> Self {
        RealNetwork { far }
    }

    /// `ssh` to the far end; without a terminal to ask at, and dead with its connection.
    fn ssh(&self) -> Command {
        let mut ssh = Command::new("ssh");
        ssh.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=15"]);
        ssh.args(["-o", "ServerAliveInterval=5", "-o", "LogLevel=ERROR"]);
        ssh
    }
}

impl Network for RealNetwork {
    fn open(&mut self, _: &Condition, _seed: u64) -> Result<Box<dyn NetPath>, NetworkError> {
        let tried = self.ssh().arg(&self.far.far).arg("true").stdin(Stdio::null()).output()?;
        if !tried.status.success() {
            let said = String::from_utf8_lossy(&tried.stderr).trim().replace('\n', "; ");
            return Err(format!("ssh {} true failed: {said}", self.far.far).into());
        }
        Ok(Box::new(self.clone()))
    }

    fn describe(&self) -> String {
        let RealPath { far, .. } = &self.far;
        format!(
            "the path to {} as it is; far commands are started by ssh {far}",
            self.far.address()
        )
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
                // A terminal, so that the command is hung up on when ssh ends.
                let mut ssh = self.ssh();
                ssh.arg("-tt").arg(&self.far.far).arg(far_words(&command));
                // The runner made these choices for the command that it was given.
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
        let tables = "cat /proc/net/tcp /proc/net/tcp6";
        let told = self.ssh().arg(&self.far.far).arg(tables).stdin(Stdio::null()).output();
        let told = told.ok()?;
        Some(has_listener(&String::from_utf8_lossy(&told.stdout), port))
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
        // Whatever shell the user has there.
        ssh.arg(&self.far.far).arg("exec sh");
        run_script(ssh, script, give_up)
    }
}

/// The command as the far end's shell takes it; the program is looked for on the far end's PATH.
fn far_words(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program());
    let words = std::iter::once(name).chain(command.get_args());
    let quoted = words.map(|word| format!("'{}'", word.to_string_lossy().replace('\'', "'\\''")));
    format!("exec {}", quoted.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_far_command_is_looked_for_there_and_survives_the_shell() {
        let mut command = Command::new("/opt/here/iperf3");
        command.args(["-s", "it's"]);
        assert_eq!(far_words(&command), r"exec 'iperf3' '-s' 'it'\''s'");
    }
}
