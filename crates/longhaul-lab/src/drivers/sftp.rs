//! Driver of sftp.

use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;

use super::{Detected, Driver, Job, Pace, Server, detect, sshd};
use crate::LabError;

const NAME: &str = "sftp";

/// sftp with a batch of one `put`, to a private sshd or over a real path.
pub(super) struct Sftp;

impl Driver for Sftp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn workload(&self) -> Workload {
        Workload::Disk
    }

    fn many_clients(&self) -> bool {
        true
    }

    fn goes_far(&self) -> bool {
        true
    }

    fn pace(&self) -> Pace {
        Pace { trips_per_file: 2, ..Pace::SSH }
    }

    /// ssh authenticates each packet, but the written file is not compared.
    fn guarantees(&self, options: &[String]) -> Guarantees {
        let synced = options.iter().any(|option| option == "-f");
        Guarantees { encrypted: true, verified: false, synced }
    }

    fn detect(&self) -> Detected {
        let [ssh, sshd, keygen] = sshd::PROGRAMS;
        // sftp prints no version.
        detect::detect(&[ssh, "sftp", sshd, keygen], "-V")
    }

    fn detect_near(&self) -> Detected {
        detect::detect(&["ssh", "sftp"], "-V")
    }

    fn server(&self, job: &Job<'_>) -> Result<Option<Server>, LabError> {
        sshd::server(job)
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let task = job.disk(NAME)?;
        let batch = job.private.join("batch");
        let [source, destination] = [task.source, task.destination].map(|path| {
            let path = path.to_string_lossy();
            format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\""))
        });
        // A directory is copied into an existing one.
        let lines = if task.tree {
            format!("mkdir {destination}\nput -R {source}/. {destination}\n")
        } else {
            format!("put {source} {destination}\n")
        };
        sshd::write(&batch, &lines)?;
        let mut command = Command::new(detect::program("sftp"));
        command.args(sshd::client_options(job)).arg("-b").arg(batch).args(job.options);
        command.arg(sshd::destination_files(job)?);
        Ok(command)
    }
}
