//! Driver of globus-url-copy.

use std::path::Path;
use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;
use longhaul_core::units::Bytes;

use super::{Detected, Driver, Job, Pace, ServerCommand, detect};
use crate::LabError;

const NAME: &str = "globus-url-copy";
const PORT: u16 = 2811;

/// globus-url-copy to an anonymous globus-gridftp-server: GridFTP in clear text, as in the
/// published matrices.
pub(super) struct GlobusUrlCopy;

impl Driver for GlobusUrlCopy {
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
        Some(vec!["-p".to_owned(), count.to_string()])
    }

    fn window(&self, size: Bytes) -> Option<Vec<String>> {
        Some(vec!["-tcp-bs".to_owned(), size.get().to_string()])
    }

    fn pace(&self) -> Pace {
        Pace { trips_per_file: 3, ..Pace::default() }
    }

    fn guarantees(&self, options: &[String]) -> Guarantees {
        let verified = options.iter().any(|option| option == "-verify-checksum");
        Guarantees { encrypted: false, verified, synced: false }
    }

    fn detect(&self) -> Detected {
        detect::detect(&["globus-url-copy", "globus-gridftp-server"], "-version")
    }

    fn server(&self, job: &Job<'_>) -> Result<Option<ServerCommand>, LabError> {
        let mut command = Command::new(detect::program("globus-gridftp-server"));
        command.args(["-aa", "-p", &PORT.to_string(), "-log-level", "ERROR"]);
        if rustix::process::geteuid().is_root() {
            command.args(["-anonymous-user", "root", "-allow-root"]);
        }
        // Globus resolves the host's own name, which the namespace's hosts file may lack.
        command.env("GLOBUS_HOSTNAME", job.far);
        Ok(Some(ServerCommand::new(command, PORT)))
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let task = job.disk(NAME)?;
        // A trailing slash marks a directory, and recursion needs an option.
        let slash = if task.tree { "/" } else { "" };
        let mut command = Command::new(detect::program("globus-url-copy"));
        command.env("GLOBUS_HOSTNAME", job.near).args(job.options);
        command.args(if task.tree { &["-r", "-cd"][..] } else { &[] });
        command.arg(format!("file://{}{slash}", url_path(task.source)));
        command.arg(format!("ftp://{}:{PORT}{}{slash}", job.far, url_path(task.destination)));
        Ok(command)
    }
}

/// Returns a path as part of a URL; slashes and the unreserved characters of RFC 3986 are not
/// escaped.
pub(super) fn url_path(path: &Path) -> String {
    let mut url = String::new();
    for &byte in path.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            url.push(char::from(byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::driver::tests::disk_job;

    #[test]
    fn names_files_by_url() {
        let options = ["-p".to_owned(), "8".to_owned()];
        let command = disk_job(&options, |job| GlobusUrlCopy.client(job)).unwrap();
        let arguments: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
        assert_eq!(arguments, ["-p", "8", "file:///data/a%20b", "ftp://far:2811/scratch/copy"]);
    }
}
