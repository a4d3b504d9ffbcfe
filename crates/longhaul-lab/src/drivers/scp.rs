//! Driver of scp.

use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;

use super::{Detected, Driver, Job, Pace, Server, detect, sshd};
use crate::LabError;

const NAME: &str = "scp";

/// scp, to a private sshd or over a real path.
pub(super) struct Scp;

impl Driver for Scp {
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
    fn guarantees(&self, _options: &[String]) -> Guarantees {
        Guarantees { encrypted: true, verified: false, synced: false }
    }

    fn detect(&self) -> Detected {
        let [ssh, sshd, keygen] = sshd::PROGRAMS;
        // scp prints no version.
        detect::detect(&[ssh, "scp", sshd, keygen], "-V")
    }

    fn detect_near(&self) -> Detected {
        detect::detect(&["ssh", "scp"], "-V")
    }

    fn server(&self, job: &Job<'_>) -> Result<Option<Server>, LabError> {
        sshd::server(job)
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let task = job.disk(NAME)?;
        let host = sshd::destination_files(job)?;
        let mut command = Command::new(detect::program("scp"));
        command.args(sshd::client_options(job)).args(task.tree.then_some("-r"));
        command.args(job.options).arg(task.source);
        command.arg(format!("{host}:{}", task.destination.display()));
        Ok(command)
    }
}
