//! Driver of lftp.

use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;

use super::{Detected, Driver, Job, Pace, ServerCommand, detect, sshd};
use crate::LabError;

const NAME: &str = "lftp";
const PORT: u16 = 2121;

/// lftp to a private anonymous vsftpd: FTP with one data connection, in clear text.
pub(super) struct Lftp;

impl Driver for Lftp {
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
        Pace { trips_per_file: 3, ..Pace::default() }
    }

    fn guarantees(&self, _options: &[String]) -> Guarantees {
        Guarantees::default()
    }

    fn detect(&self) -> Detected {
        detect::detect(&["lftp", "vsftpd"], "--version")
    }

    fn server(&self, job: &Job<'_>) -> Result<Option<ServerCommand>, LabError> {
        let file = job.private.join("vsftpd.conf");
        // vsftpd runs as the user of the matrix, who owns the directory of the copies.
        let text = format!(
            "listen=YES\nlisten_port={PORT}\nbackground=NO\nrun_as_launching_user=YES\n\
             anonymous_enable=YES\nno_anon_password=YES\nftp_username={}\nanon_root=/\n\
             anon_upload_enable=YES\nanon_mkdir_write_enable=YES\n\
             anon_other_write_enable=YES\nanon_world_readable_only=NO\nanon_umask=022\n\
             write_enable=YES\nallow_writeable_chroot=YES\nseccomp_sandbox=NO\n\
             xferlog_enable=NO\n",
            sshd::user()?
        );
        sshd::write(&file, &text)?;
        let mut command = Command::new(detect::program("vsftpd"));
        command.arg(file);
        Ok(Some(ServerCommand::new(command, PORT)))
    }

    /// Builds the client's command. The plan's options are lftp settings such as
    /// `net:socket-buffer 0`.
    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let task = job.disk(NAME)?;
        let word = |path: &std::path::Path| {
            format!("\"{}\"", path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\""))
        };
        let (source, destination) = (word(task.source), word(task.destination));
        let mut lines = vec!["set net:max-retries 1".to_owned(), "set net:timeout 30".to_owned()];
        lines.extend(job.options.iter().map(|setting| format!("set {setting}")));
        lines.push(format!("open ftp://{}:{PORT}", job.far));
        lines.push(if task.tree {
            format!("mirror -R {source} {destination}")
        } else {
            format!("put {source} -o {destination}")
        });
        let mut command = Command::new(detect::program("lftp"));
        command.args(["--norc", "-c", &lines.join("; ")]);
        Ok(command)
    }
}
