use std::path::PathBuf;
use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;

use super::longhaul_test::{PORT, read_summary};
use super::{Detected, Driver, Job, Reading, Said, Server, detect};
use crate::LabError;

const NAME: &str = "longhaul cp";

/// `longhaul cp` to a `longhaul serve --root`.
pub(super) struct LonghaulCp {
    pub(super) program: PathBuf,
}

impl Driver for LonghaulCp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn workload(&self) -> Workload {
        Workload::Disk
    }

    fn many_clients(&self) -> bool {
        true
    }

    fn streams(&self, count: u32) -> Option<Vec<String>> {
        Some(vec!["-P".to_owned(), count.to_string()])
    }

    fn guarantees(&self, options: &[String]) -> Guarantees {
        let has = |flag: &str| options.iter().any(|option| option == flag);
        Guarantees { encrypted: !has("--cleartext"), verified: !has("--no-verify"), synced: true }
    }

    fn detect(&self) -> Detected {
        Detected::Installed { version: detect::version(&self.program, "--version") }
    }

    fn program(&self) -> Option<PathBuf> {
        Some(self.program.clone())
    }

    fn server(&self, job: &Job<'_>) -> Result<Option<Server>, LabError> {
        let task = job.disk(NAME)?;
        let mut command = Command::new(&self.program);
        command.args(["serve", "--port", &PORT.to_string(), "--root"]);
        command.arg(task.destination.parent().unwrap_or(task.destination));
        Ok(Some(Server::new(command, PORT)))
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let task = job.disk(NAME)?;
        let name = task.destination.file_name().unwrap_or_default().to_string_lossy();
        let mut command = Command::new(&self.program);
        command.arg("cp").args(task.tree.then_some("-r")).args(job.options).arg("--json");
        command.arg(task.source).arg(format!("lh://{}:{PORT}/{name}", job.far));
        Ok(command)
    }

    fn read(&self, _job: &Job<'_>, said: Said<'_>) -> Result<Reading, String> {
        read_summary(said.client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleartext_is_not_encrypted_and_says_so() {
        let cp = LonghaulCp { program: "longhaul".into() };
        assert!(cp.guarantees(&[]).encrypted);
        let open = cp.guarantees(&["--cleartext".into()]);
        assert_eq!(open, Guarantees { encrypted: false, verified: true, synced: true });
    }
}
