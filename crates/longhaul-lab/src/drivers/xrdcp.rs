//! Driver of xrdcp.

use std::path::Path;
use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;

use super::{Detected, Driver, Job, ServerCommand, detect, sshd};
use crate::LabError;

const NAME: &str = "xrdcp";
pub(super) const PORT: u16 = 1094;
/// The programs of the server.
pub(super) const SERVER: [&str; 2] = ["xrootd", "unshare"];

/// xrdcp to a private xrootd, without authentication.
pub(super) struct Xrdcp;

impl Driver for Xrdcp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn workload(&self) -> Workload {
        Workload::Disk
    }

    fn trees(&self) -> bool {
        false
    }

    fn many_clients(&self) -> bool {
        true
    }

    fn streams(&self, count: u32) -> Option<Vec<String>> {
        Some(vec!["-S".to_owned(), count.to_string()])
    }

    fn guarantees(&self, options: &[String]) -> Guarantees {
        let verified = options.iter().any(|option| option == "-C" || option == "--cksum");
        Guarantees { encrypted: false, verified, synced: false }
    }

    fn detect(&self) -> Detected {
        detect::detect(&["xrdcp", SERVER[0], SERVER[1]], "--version")
    }

    fn server(&self, job: &Job<'_>) -> Result<Option<ServerCommand>, LabError> {
        let task = job.disk(NAME)?;
        xrootd(job, task.destination.parent().unwrap_or(task.destination)).map(Some)
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let task = job.single_file(NAME)?;
        let mut command = Command::new(detect::program("xrdcp"));
        command.args(["--nopbar", "--force"]).args(job.options).arg(task.source);
        // Two slashes denote an absolute path.
        command.arg(format!("root://{}:{PORT}/{}", job.far, task.destination.display()));
        Ok(command)
    }
}

/// Returns a private xrootd that exports a directory.
pub(super) fn xrootd(job: &Job<'_>, exported: &Path) -> Result<ServerCommand, LabError> {
    let (file, state) = (job.private.join("xrootd.cfg"), job.private.display());
    let text = format!(
        "xrd.port {PORT}\nall.export {}\nall.adminpath {state}/admin\n\
         all.pidpath {state}/admin\nxrd.network nodnr\n",
        exported.display()
    );
    sshd::write(&file, &text)?;
    let mut command = if rustix::process::geteuid().is_root() {
        // xrootd refuses to run as root. As another user, mapped to root in a user namespace, it has
        // the same access to files as the matrix.
        let mut command = Command::new(detect::program("unshare"));
        command.args(["--user", "--map-user=1000", "--map-group=1000", "--"]);
        command.arg(detect::program("xrootd"));
        command
    } else {
        Command::new(detect::program("xrootd"))
    };
    // xrootd creates a directory with the name of its instance in the current directory.
    command.args(["-n", "longhaul", "-c"]).arg(file).current_dir(job.private);
    Ok(ServerCommand::new(command, PORT))
}
