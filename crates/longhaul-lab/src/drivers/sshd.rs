//! A private sshd at the far end, with throw-away keys, for the tools that run over ssh.
//!
//! Nothing of the host's or the user's ssh configuration is read or written, and the keys are
//! gone with the job's private directory.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Job, Server, detect};
use crate::LabError;

/// Free to choose: the far end is a namespace of its own.
pub(super) const PORT: u16 = 2222;
/// The name under which the client knows the host key, whatever the far end is called.
const ALIAS: &str = "longhaul-far";
/// Where sshd drops its privileges to when it is started by root; Debian makes it only with the
/// system's own service.
const PRIVILEGE_SEPARATION_DIR: &str = "/run/sshd";

/// The programs that are needed beside the tool itself.
pub(super) const PROGRAMS: [&str; 3] = ["ssh", "sshd", "ssh-keygen"];

/// Makes keys and configuration in the job's private directory, and the server's command.
pub(super) fn server(job: &Job<'_>) -> Result<Server, LabError> {
    let dir = job.private;
    make_key(&dir.join("host_key"))?;
    make_key(&dir.join("user_key"))?;
    let host_key = read(&dir.join("host_key.pub"))?;
    write(&dir.join("known_hosts"), &format!("{ALIAS},[{}]:{PORT} {host_key}", job.far))?;
    write(&dir.join("authorized_keys"), &read(&dir.join("user_key.pub"))?)?;
    write(&dir.join("sshd_config"), &configuration(dir))?;
    let made = make_privilege_separation_dir()?;
    // sshd insists on being started by its full path, because it starts itself again.
    let mut command = Command::new(detect::program("sshd"));
    command.args(["-D", "-e", "-f"]).arg(dir.join("sshd_config"));
    Ok(Server { command, port: PORT, made })
}

/// The arguments of `ssh` and `scp` that reach that server and nothing else; the port apart,
/// since the two disagree about its letter.
pub(super) fn client_options(job: &Job<'_>) -> Vec<String> {
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
        "BatchMode=yes".to_owned(),
        "LogLevel=ERROR".to_owned(),
    ] {
        options.extend(["-o".to_owned(), option]);
    }
    options
}

/// `user@far`.
pub(super) fn destination_host(job: &Job<'_>) -> Result<String, LabError> {
    Ok(format!("{}@{}", user()?, job.far))
}

/// The user that the server lets in: the one that started it.
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
        Err(failed(said.lines().last().unwrap_or("it said nothing").to_owned()))
    }
}

fn read(path: &Path) -> Result<String, LabError> {
    fs::read_to_string(path).map_err(LabError::file("read", path))
}

/// A word as a shell reads it back.
pub(super) fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), LabError> {
    fs::write(path, text).map_err(LabError::file("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::driver::tests::memory_job;

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
}
