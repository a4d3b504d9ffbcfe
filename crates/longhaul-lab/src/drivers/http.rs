//! Drivers of curl, wget and aria2c.

use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;

use super::{Detected, DiskTask, Driver, Job, Server, detect, nginx};
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
        detect::detect(&[self.name, nginx::PROGRAM], "--version")
    }

    fn server(&self, job: &Job<'_>) -> Result<Option<Server>, LabError> {
        nginx::server(job, self.name).map(Some)
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let task = job.single_file(self.name)?;
        let mut command = Command::new(detect::program(self.name));
        (self.arguments)(&mut command, job.options, &task);
        command.arg(nginx::url(job, self.name)?);
        Ok(command)
    }
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
