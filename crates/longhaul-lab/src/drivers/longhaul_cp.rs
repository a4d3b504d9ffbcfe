//! Driver of `longhaul cp`.

use std::path::PathBuf;
use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;

use super::longhaul_test::{PORT, read_summary};
use super::{Detected, Driver, Job, RunOutput, ServerCommand, ToolFigures, detect, sshd};
use crate::LabError;

const NAME: &str = "longhaul cp";

/// `longhaul cp` to a `longhaul serve --root`, or over ssh on a real path.
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

    fn goes_far(&self) -> bool {
        true
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

    fn server(&self, job: &Job<'_>) -> Result<Option<ServerCommand>, LabError> {
        let task = job.disk(NAME)?;
        if job.ssh.is_some() {
            return Ok(None);
        }
        let mut command = Command::new(&self.program);
        command.args(["serve", "--port", &PORT.to_string(), "--root"]);
        command.arg(task.destination.parent().unwrap_or(task.destination));
        Ok(Some(ServerCommand::new(command, PORT)))
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let task = job.disk(NAME)?;
        let mut command = Command::new(&self.program);
        command.arg("cp").args(task.tree.then_some("-r")).args(job.options).arg("--json");
        if job.ssh.is_some() {
            let names_ssh =
                |option: &String| ["-e", "--rsh", "--ssh"].iter().any(|o| option.starts_with(o));
            if !job.options.iter().any(names_ssh) {
                let ssh = ["ssh".to_owned()].into_iter().chain(sshd::client_options(job));
                command.args(["-e".to_owned(), ssh.collect::<Vec<_>>().join(" ")]);
            }
            let (host, path) = (sshd::destination_files(job)?, task.destination.display());
            command.arg(task.source).arg(format!("{host}:{path}"));
            return Ok(command);
        }
        let name = task.destination.file_name().unwrap_or_default().to_string_lossy();
        command.arg(task.source).arg(format!("lh://{}:{PORT}/{name}", job.far));
        Ok(command)
    }

    fn read(&self, _job: &Job<'_>, output: RunOutput<'_>) -> Result<ToolFigures, String> {
        read_summary(output.client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::driver::tests::real_job;

    #[test]
    fn a_real_path_is_taken_over_ssh_and_without_a_server() {
        let cp = LonghaulCp { program: "longhaul".into() };
        real_job(true, |job| {
            assert!(cp.server(job).unwrap().is_none());
            let words = |job: &Job<'_>| -> Vec<String> {
                let command = cp.client(job).unwrap();
                command.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
            };
            let own = words(job);
            assert_eq!(own[..4], ["cp", "-r", "--json", "-e"]);
            assert!(own[4].starts_with("ssh -o BatchMode=yes"), "{own:?}");
            assert_eq!(own[5..], ["/data/a b", "me@dtn:/home/me/m/copy"]);
            let options = ["-e".to_owned(), "ssh -4".to_owned()];
            let given = words(&Job { options: &options, ..*job });
            assert_eq!(given[2..5], ["-e", "ssh -4", "--json"]);
        });
    }

    #[test]
    fn cleartext_is_reported_as_not_encrypted() {
        let cp = LonghaulCp { program: "longhaul".into() };
        assert!(cp.guarantees(&[]).encrypted);
        let open = cp.guarantees(&["--cleartext".into()]);
        assert_eq!(open, Guarantees { encrypted: false, verified: true, synced: true });
    }
}
