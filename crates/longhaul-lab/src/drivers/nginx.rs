//! A private nginx at the far end that serves the source to tools that fetch by HTTP.
//!
//! These tools pull: the far end reads the source and the near end writes the copy. Path and disk
//! are the same in both directions.

use std::path::Path;
use std::process::Command;

use super::globus::url_path;
use super::{Job, Server, detect, sshd};
use crate::LabError;

pub(super) const PORT: u16 = 8080;

/// The program needed in addition to the tool.
pub(super) const PROGRAM: &str = "nginx";

/// Writes the server's configuration and returns its command.
pub(super) fn server(job: &Job<'_>, tool: &'static str) -> Result<Server, LabError> {
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
    let mut command = Command::new(detect::program(PROGRAM));
    command.arg("-c").arg(file).arg("-e").arg("stderr");
    Ok(Server::new(command, PORT))
}

/// Returns the URL of the source for a client at the near end.
pub(super) fn url(job: &Job<'_>, tool: &'static str) -> Result<String, LabError> {
    let task = job.single_file(tool)?;
    let name = task.source.file_name().unwrap_or_default();
    Ok(format!("http://{}:{PORT}/{}", job.far, url_path(Path::new(name))))
}
