//! Driver of tar over ssh.

use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;

use super::sshd::quote;
use super::{Detected, Driver, Job, Pace, Server, detect, sshd};
use crate::LabError;

const NAME: &str = "tar over ssh";

/// tar at both ends of one ssh connection: no round trip per file, and one stream.
pub(super) struct TarSsh;

impl Driver for TarSsh {
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
        Pace::SSH
    }

    /// ssh authenticates each packet, but the written files are not compared.
    fn guarantees(&self, _options: &[String]) -> Guarantees {
        Guarantees { encrypted: true, verified: false, synced: false }
    }

    fn detect(&self) -> Detected {
        let [ssh, sshd, keygen] = sshd::PROGRAMS;
        detect::detect(&["tar", ssh, sshd, keygen], "--version")
    }

    fn detect_near(&self) -> Detected {
        detect::detect(&["tar", "ssh"], "--version")
    }

    fn server(&self, job: &Job<'_>) -> Result<Option<Server>, LabError> {
        sshd::server(job)
    }

    /// Builds the client's command. The plan's options are those of the packing tar.
    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let task = job.disk(NAME)?;
        let words = |path: &std::path::Path| quote(&path.to_string_lossy());
        let parent = task.source.parent().unwrap_or(task.source);
        let name = task.source.file_name().unwrap_or_default().to_string_lossy();
        // Flags r and h: the transformation applies to names and hard link targets, not to symbolic
        // link targets.
        let copy = task.destination.file_name().unwrap_or_default().to_string_lossy();
        let unpack = format!(
            "tar -xf - -C {} --transform {}",
            words(task.destination.parent().unwrap_or(task.destination)),
            quote(&format!("flags=rh;s,^[^/]*,{copy},")),
        );
        let ssh = detect::program("ssh").display().to_string();
        let ssh: Vec<String> = std::iter::once(ssh)
            .chain(sshd::client_options(job))
            .chain([sshd::destination_host(job)?, unpack])
            .map(|word| quote(&word))
            .collect();
        let options: Vec<String> = job.options.iter().map(|option| quote(option)).collect();
        let pack =
            format!("tar -cf - {} -C {} -- {}", options.join(" "), words(parent), quote(&name));
        let mut command = Command::new("bash");
        command.args(["-o", "pipefail", "-c", &format!("{pack} | {}", ssh.join(" "))]);
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::driver::tests::disk_job;

    #[test]
    fn names_survive_two_shells() {
        let command = disk_job(&["-b".into(), "512".into()], |job| TarSsh.client(job)).unwrap();
        let line = command.get_args().last().unwrap().to_string_lossy().into_owned();
        assert!(line.starts_with("tar -cf - '-b' '512' -C '/data' -- 'a b' | "), "{line}");
        assert!(line.contains(r"-C '\''/scratch'\'' --transform"), "{line}");
    }
}
