use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;

use super::{Detected, Driver, Job, Server, detect, nginx};
use crate::LabError;

const NAME: &str = "aria2c";

/// aria2c from nginx: HTTP over several connections with `-x` and `-s`, pulled.
pub(super) struct Aria2;

impl Driver for Aria2 {
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
        let (dir, name) = (task.destination.parent(), task.destination.file_name());
        command.args(["--no-conf", "--quiet"]).args(job.options);
        command.arg("--dir").arg(dir.unwrap_or(task.destination));
        command.arg("--out").arg(name.unwrap_or_default()).arg(nginx::url(job, NAME)?);
        Ok(command)
    }
}
