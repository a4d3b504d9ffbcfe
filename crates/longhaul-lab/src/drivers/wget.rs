use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;

use super::{Detected, Driver, Job, Server, detect, nginx};
use crate::LabError;

const NAME: &str = "wget";

/// wget from nginx: HTTP with one connection, pulled.
pub(super) struct Wget;

impl Driver for Wget {
    fn name(&self) -> &'static str {
        NAME
    }

    fn workload(&self) -> Workload {
        Workload::Disk
    }

    fn guarantees(&self, _options: &[String]) -> Guarantees {
        Guarantees::default()
    }

    fn detect(&self) -> Detected {
        detect::detect(&[NAME, nginx::PROGRAM], "--version")
    }

    fn server(&self, job: &Job<'_>) -> Result<Option<Server>, LabError> {
        nginx::server(job, NAME).map(Some)
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let task = job.single_file(NAME)?;
        let mut command = Command::new(detect::program(NAME));
        command.args(["--no-config", "--quiet"]).args(job.options);
        command.arg("-O").arg(task.destination).arg(nginx::url(job, NAME)?);
        Ok(command)
    }
}
