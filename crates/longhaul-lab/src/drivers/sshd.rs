//! A private sshd at the far end with temporary keys, for tools that run over ssh.
//!
//! The ssh configuration of host and user is neither read nor written, and the keys are removed
//! with the job's private directory. A real path uses the far end's existing sshd, and the user's
//! configuration, agent and jump hosts.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Job, ServerCommand, detect};
use crate::LabError;

/// The port of the private sshd. Any port is free, because the far end has a separate network
/// namespace.
pub(super) const PORT: u16 = 2222;
/// The alias under which the client stores the host key, independent of the far end's name.
const ALIAS: &str = "longhaul-far";
/// The directory for privilege separation of an sshd started by root. On Debian only the system's
/// sshd service creates it.
const PRIVILEGE_SEPARATION_DIR: &str = "/run/sshd";

/// The programs needed in addition to the tool.
pub(super) const PROGRAMS: [&str; 3] = ["ssh", "sshd", "ssh-keygen"];

/// Returns the server of a tool that runs over ssh: none on a real path, otherwise the private
/// sshd.
pub(super) fn server(job: &Job<'_>) -> Result<Option<ServerCommand>, LabError> {
    match job.ssh {
        Some(_) => Ok(None),
        None => private_server(job).map(Some),
    }
}

/// Creates keys and configuration in the job's private directory and returns the server's command.
pub(super) fn private_server(job: &Job<'_>) -> Result<ServerCommand, LabError> {
    let dir = job.private;
    make_key(&dir.join("host_key"))?;
    make_key(&dir.join("user_key"))?;
    let host_key = read(&dir.join("host_key.pub"))?;
    write(&dir.join("known_hosts"), &format!("{ALIAS},[{}]:{PORT} {host_key}", job.far))?;
    write(&dir.join("authorized_keys"), &read(&dir.join("user_key.pub"))?)?;
    write(&dir.join("sshd_config"), &configuration(dir))?;
    let made = make_privilege_separation_dir()?;
    // sshd must be started by its full path because it executes itself again.
    let mut command = Command::new(detect::program("sshd"));
    command.args(["-D", "-e", "-f"]).arg(dir.join("sshd_config"));
    Ok(ServerCommand { made, ..ServerCommand::new(command, PORT) })
}

/// Options of every ssh command: a prompt would wait forever.
const QUIET: [&str; 2] = ["BatchMode=yes", "LogLevel=ERROR"];
/// Options of ssh over a real path: timeouts for an unreachable host.
const PATIENCE: [&str; 2] = ["ConnectTimeout=15", "ServerAliveInterval=5"];

/// Returns the arguments with which `ssh` and `scp` connect to the private sshd only. The port
/// option is not included: it is `-p` for ssh and `-P` for scp. On a real path the user's
/// configuration applies.
pub(super) fn client_options(job: &Job<'_>) -> Vec<String> {
    let worded = |words: &[&str]| -> Vec<String> {
        words.iter().flat_map(|word| ["-o".to_owned(), (*word).to_owned()]).collect()
    };
    if job.ssh.is_some() {
        return [worded(&QUIET), worded(&PATIENCE)].concat();
    }
    let dir = job.private.display();
    let mut options = vec!["-F".to_owned(), "none".to_owned()];
    for option in [
        format!("Port={PORT}"),
        format!("IdentityFile={dir}/user_key"),
        "IdentitiesOnly=yes".to_owned(),
        "IdentityAgent=none".to_owned(),
        format!("UserKnownHostsFile={dir}/known_hosts"),
        "GlobalKnownHostsFile=none".to_owned(),
        format!("HostKeyAlias={ALIAS}"),
    ] {
        options.extend(["-o".to_owned(), option]);
    }
    options.extend(worded(&QUIET));
    options
}

/// Returns `user@far`, or the far end's ssh name on a real path.
pub(super) fn destination_host(job: &Job<'_>) -> Result<String, LabError> {
    match job.ssh {
        Some(name) => Ok(name.to_owned()),
        None => Ok(format!("{}@{}", user()?, job.far)),
    }
}

/// Returns [`destination_host`] for use before a colon and a path: an IPv6 address gets brackets.
pub(super) fn destination_files(job: &Job<'_>) -> Result<String, LabError> {
    let name = destination_host(job)?;
    let (user, host) = name.rsplit_once('@').map_or(("", &*name), |(user, host)| (user, host));
    let at = if user.is_empty() { "" } else { "@" };
    Ok(if host.contains(':') { format!("{user}{at}[{host}]") } else { name })
}

/// Returns the user that the server accepts: the user that started it.
pub(super) fn user() -> Result<String, LabError> {
    Ok(helper("id", &["-un"])?.trim().to_owned())
}

fn configuration(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "Port {PORT}\n\
         HostKey {dir}/host_key\n\
         AuthorizedKeysFile {dir}/authorized_keys\n\
         Subsystem sftp internal-sftp\n\
         PidFile none\n\
         UsePAM no\n\
         StrictModes no\n\
         UseDNS no\n\
         PermitRootLogin yes\n\
         PasswordAuthentication no\n\
         KbdInteractiveAuthentication no\n\
         PrintMotd no\n"
    )
}

fn make_key(path: &Path) -> Result<(), LabError> {
    let path = path.to_string_lossy();
    helper("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", "longhaul", "-f", &path])?;
    Ok(())
}

fn make_privilege_separation_dir() -> Result<Option<std::path::PathBuf>, LabError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let dir = Path::new(PRIVILEGE_SEPARATION_DIR);
    match fs::create_dir(dir) {
        Ok(()) => Ok(Some(dir.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(LabError::file("create", dir)(error)),
    }
}

fn helper(program: &'static str, arguments: &[&str]) -> Result<String, LabError> {
    let failed = |reason: String| LabError::Helper { program, reason };
    let output = Command::new(detect::program(program))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(failed(said.lines().last().unwrap_or("no output").to_owned()))
    }
}

fn read(path: &Path) -> Result<String, LabError> {
    fs::read_to_string(path).map_err(LabError::file("read", path))
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), LabError> {
    fs::write(path, text).map_err(LabError::file("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::driver::tests::{memory_job, real_job};

    #[test]
    fn the_client_trusts_only_what_was_made_for_it() {
        let options = memory_job(client_options).join(" ");
        assert!(options.starts_with("-F none"));
        for needed in [
            "IdentityFile=/private/user_key",
            "UserKnownHostsFile=/private/known_hosts",
            "GlobalKnownHostsFile=none",
            "IdentityAgent=none",
        ] {
            assert!(options.contains(needed), "{needed} in {options}");
        }
    }

    #[test]
    fn a_real_path_uses_the_ssh_of_the_user() {
        real_job(false, |job| {
            assert!(server(job).unwrap().is_none());
            let options = client_options(job).join(" ");
            assert!(options.starts_with("-o BatchMode=yes"), "{options}");
            for own in ["-F", "Port", "Identity", "KnownHosts", "HostKeyAlias"] {
                assert!(!options.contains(own), "{own} in {options}");
            }
            assert_eq!(destination_host(job).unwrap(), "me@dtn");
            assert_eq!(destination_files(job).unwrap(), "me@dtn");
            let six = Job { ssh: Some("me@2001:db8::1"), ..*job };
            assert_eq!(destination_host(&six).unwrap(), "me@2001:db8::1");
            assert_eq!(destination_files(&six).unwrap(), "me@[2001:db8::1]");
            let six = Job { ssh: Some("::1"), ..*job };
            assert_eq!(destination_files(&six).unwrap(), "[::1]");
        });
    }
}
