//! Driver of rclone.

use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;

use super::{Detected, Driver, Job, Pace, ServerCommand, detect, sshd};
use crate::LabError;

const NAME: &str = "rclone";

/// rclone's sftp backend to a private sshd.
pub(super) struct Rclone;

impl Driver for Rclone {
    fn name(&self) -> &'static str {
        NAME
    }

    fn workload(&self) -> Workload {
        Workload::Disk
    }

    fn many_clients(&self) -> bool {
        true
    }

    fn pace(&self) -> Pace {
        Pace { trips_per_file: 4, ..Pace::SSH }
    }

    /// rclone runs md5sum or sha1sum at the far end after each file unless an option disables it.
    fn guarantees(&self, options: &[String]) -> Guarantees {
        let verified = !options.iter().any(|option| option == "--ignore-checksum");
        Guarantees { encrypted: true, verified, synced: false }
    }

    fn detect(&self) -> Detected {
        let [_, sshd, keygen] = sshd::PROGRAMS;
        detect::detect(&["rclone", sshd, keygen], "version")
    }

    fn server(&self, job: &Job<'_>) -> Result<Option<ServerCommand>, LabError> {
        sshd::private_server(job).map(Some)
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let task = job.disk(NAME)?;
        let mut command = Command::new(detect::program("rclone"));
        command.args(["--config", "", if task.tree { "copy" } else { "copyto" }]);
        command.args(["--sftp-host", job.far, "--sftp-port", &sshd::PORT.to_string()]);
        command.args(["--sftp-user", &sshd::user()?]);
        command.arg("--sftp-key-file").arg(job.private.join("user_key"));
        command.arg("--sftp-known-hosts-file").arg(job.private.join("known_hosts"));
        command.args(job.options).arg(task.source);
        command.arg(format!(":sftp:{}", task.destination.display()));
        Ok(command)
    }
}
