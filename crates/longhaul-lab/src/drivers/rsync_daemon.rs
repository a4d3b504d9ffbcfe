//! Driver of rsync with its daemon.

use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;

use super::{
    Detected, Driver, Job, RunOutput, ServerCommand, ToolFigures, detect, ssh_tools, sshd,
};
use crate::LabError;

const NAME: &str = "rsync daemon";
const PORT: u16 = 873;

/// rsync to its own daemon: the same protocol without ssh, in clear text.
pub(super) struct RsyncDaemon;

impl Driver for RsyncDaemon {
    fn name(&self) -> &'static str {
        NAME
    }

    fn workload(&self) -> Workload {
        Workload::Disk
    }

    fn many_clients(&self) -> bool {
        true
    }

    /// rsync compares a checksum of each complete file.
    fn guarantees(&self, options: &[String]) -> Guarantees {
        let synced = options.iter().any(|option| option == "--fsync");
        Guarantees { encrypted: false, verified: true, synced }
    }

    fn detect(&self) -> Detected {
        detect::detect(&["rsync"], "--version")
    }

    fn server(&self, job: &Job<'_>) -> Result<Option<ServerCommand>, LabError> {
        let task = job.disk(NAME)?;
        let module = task.destination.parent().unwrap_or(task.destination);
        let owner = if rustix::process::geteuid().is_root() { "uid = 0\ngid = 0\n" } else { "" };
        let file = job.private.join("rsyncd.conf");
        let text = format!(
            "use chroot = no\nreverse lookup = no\n[scratch]\npath = {}\nread only = no\n{owner}",
            module.display()
        );
        sshd::write(&file, &text)?;
        let mut command = Command::new(detect::program("rsync"));
        command.args(["--daemon", "--no-detach", "--port", &PORT.to_string(), "--config"]);
        command.arg(file);
        Ok(Some(ServerCommand::new(command, PORT)))
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let task = job.disk(NAME)?;
        let name = task.destination.file_name().unwrap_or_default().to_string_lossy();
        // The trailing slash copies the contents of the directory instead of the directory itself.
        let slash = if task.tree { "/" } else { "" };
        let mut command = Command::new(detect::program("rsync"));
        command.args(["-a", "--info=stats1"]).args(job.options);
        command.arg(format!("{}{slash}", task.source.display()));
        command.arg(format!("rsync://{}:{PORT}/scratch/{name}{slash}", job.far));
        Ok(command)
    }

    fn read(&self, _job: &Job<'_>, output: RunOutput<'_>) -> Result<ToolFigures, String> {
        Ok(ssh_tools::statistics(&output.client.stdout))
    }
}
