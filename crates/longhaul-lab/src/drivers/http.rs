//! Drivers of curl, wget and aria2c, and the private nginx at the far end that serves the source to
//! tools that fetch by HTTP.
//!
//! These tools pull: the far end reads the source and the near end writes the copy. Path and disk
//! are the same in both directions.

use std::path::Path;
use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;

use super::globus::url_path;
use super::{Detected, DiskTask, Driver, Job, ServerCommand, detect, sshd};
use crate::LabError;

/// A program that fetches a file from nginx by HTTP, so the far end sends.
pub(super) struct Fetch {
    name: &'static str,
    /// Adds the program's arguments, the plan's options and the destination; the URL comes last.
    arguments: fn(&mut Command, &[String], &DiskTask<'_>),
}

/// curl, with one connection.
pub(super) const CURL: Fetch = Fetch {
    name: "curl",
    arguments: |command, options, task| {
        command.args(["--disable", "--silent", "--show-error", "--fail"]).args(options);
        command.arg("--output").arg(task.destination);
    },
};

/// wget, with one connection.
pub(super) const WGET: Fetch = Fetch {
    name: "wget",
    arguments: |command, options, task| {
        command.args(["--no-config", "--quiet"]).args(options).arg("-O").arg(task.destination);
    },
};

/// aria2c, with several connections by `-x` and `-s`.
pub(super) const ARIA2C: Fetch = Fetch {
    name: "aria2c",
    arguments: |command, options, task| {
        let (dir, name) = (task.destination.parent(), task.destination.file_name());
        command.args(["--no-conf", "--quiet"]).args(options);
        command.arg("--dir").arg(dir.unwrap_or(task.destination));
        command.arg("--out").arg(name.unwrap_or_default());
    },
};

impl Driver for Fetch {
    fn name(&self) -> &'static str {
        self.name
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
        let count = count.to_string();
        let several = || ["-x", &count, "-s", &count].map(str::to_owned).to_vec();
        (self.name == ARIA2C.name).then(several)
    }

    fn guarantees(&self, _options: &[String]) -> Guarantees {
        Guarantees::default()
    }

    fn detect(&self) -> Detected {
        detect::detect(&[self.name, NGINX], "--version")
    }

    fn server(&self, job: &Job<'_>) -> Result<Option<ServerCommand>, LabError> {
        nginx(job, self.name).map(Some)
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let task = job.single_file(self.name)?;
        let mut command = Command::new(detect::program(self.name));
        (self.arguments)(&mut command, job.options, &task);
        command.arg(url(job, self.name)?);
        Ok(command)
    }
}

pub(super) const PORT: u16 = 8080;

/// The program needed in addition to the tool.
pub(super) const NGINX: &str = "nginx";

/// Writes the server's configuration and returns its command.
pub(super) fn nginx(job: &Job<'_>, tool: &'static str) -> Result<ServerCommand, LabError> {
    let task = job.single_file(tool)?;
    let root = task.source.parent().unwrap_or(Path::new("/"));
    let user =
        if rustix::process::geteuid().is_root() { "user root;".to_owned() } else { String::new() };
    let state = job.private.display();
    let scratch: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {state}/{kind};\n"))
        .collect();
    let text = format!(
        "daemon off;\n{user}\nworker_processes 1;\nerror_log stderr;\npid {state}/nginx.pid;\n\
         events {{ }}\n\
         http {{\naccess_log off;\nsendfile on;\n{scratch}\
         server {{ listen {PORT}; listen [::]:{PORT}; root \"{}\"; }}\n}}\n",
        root.display()
    );
    let file = job.private.join("nginx.conf");
    sshd::write(&file, &text)?;
    let mut command = Command::new(detect::program(NGINX));
    command.arg("-c").arg(file).arg("-e").arg("stderr");
    Ok(ServerCommand::new(command, PORT))
}

/// Returns the URL of the source for a client at the near end.
pub(super) fn url(job: &Job<'_>, tool: &'static str) -> Result<String, LabError> {
    let task = job.single_file(tool)?;
    let name = task.source.file_name().unwrap_or_default();
    Ok(format!("http://{}:{PORT}/{}", job.far, url_path(Path::new(name))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::driver::tests::disk_job;

    #[test]
    fn the_copy_is_named_and_the_url_comes_last() {
        let options = ["-x".to_owned(), "8".to_owned()];
        let command = disk_job(&options, |job| ARIA2C.client(job)).unwrap();
        let arguments: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
        assert_eq!(
            arguments,
            [
                "--no-conf",
                "--quiet",
                "-x",
                "8",
                "--dir",
                "/scratch",
                "--out",
                "copy",
                "http://far:8080/a%20b"
            ]
        );
    }
}
