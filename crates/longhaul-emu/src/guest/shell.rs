//! Runs commands in a guest by ssh from the namespaces of its site.

use std::ffi::OsStr;
use std::process::Command;

use longhaul_core::text::shell_quoted;

use super::image::Image;
use super::machine::GUEST_ADDRESS;

/// The command that reaches a guest by ssh. It works in the namespaces of the site.
///
/// The words can be sent to another process, which passes them to [`GuestShell::from_words`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestShell {
    words: Vec<String>,
}

impl GuestShell {
    pub(super) fn new(image: &Image) -> Self {
        let known = format!("UserKnownHostsFile={}", image.file("known_hosts").display());
        // One connection serves all commands: an emulated processor needs seconds to open one.
        let socket = format!("ControlPath={}", image.session().join("ssh").display());
        let key = image.file("key").display().to_string();
        let mut words: Vec<String> = ["ssh", "-F", "none", "-i", &key].map(str::to_owned).into();
        for option in [
            &*known,
            &*socket,
            "ControlMaster=auto",
            "ControlPersist=yes",
            "KexAlgorithms=curve25519-sha256",
            "GlobalKnownHostsFile=none",
            "HostKeyAlias=guest",
            "StrictHostKeyChecking=yes",
            "IdentitiesOnly=yes",
            "IdentityAgent=none",
            "BatchMode=yes",
            "LogLevel=ERROR",
            "ConnectTimeout=60",
        ] {
            words.extend(["-o".to_owned(), option.to_owned()]);
        }
        GuestShell { words }
    }

    /// Creates the shell from the words of another one.
    pub fn from_words(words: Vec<String>) -> Option<Self> {
        (!words.is_empty()).then_some(GuestShell { words })
    }

    /// Returns the words of the command before the options of a call.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// Returns the command that runs `command` in the guest, in the same directory, with the
    /// environment variables that it sets, and with a terminal if `terminal` is set. The caller sets the
    /// standard streams.
    pub fn wrap(&self, command: &Command, directory: &OsStr, terminal: bool) -> Command {
        let mut ssh = Command::new(&self.words[0]);
        ssh.args(&self.words[1..]);
        if terminal {
            ssh.arg("-t");
        }
        ssh.arg(format!("root@{GUEST_ADDRESS}")).arg("--").arg(line(command, directory));
        ssh
    }
}

/// Returns the line of sh(1) that runs the command.
fn line(command: &Command, directory: &OsStr) -> String {
    let directory = command.get_current_dir().map_or(directory, |set| set.as_os_str());
    let mut line = format!("cd {} 2>/dev/null; exec env", quoted(directory));
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            let name = name.to_string_lossy();
            line.push_str(&format!(" {}", quoted(format!("{name}={}", value.to_string_lossy()))));
        }
    }
    for word in std::iter::once(command.get_program()).chain(command.get_args()) {
        line.push_str(&format!(" {}", quoted(word)));
    }
    line
}

fn quoted(word: impl AsRef<OsStr>) -> String {
    shell_quoted(&word.as_ref().to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_environment_and_directory_reach_the_guest_unchanged() {
        let mut command = Command::new("echo");
        command.args(["it's", "$HOME", ""]).env("A", "1 2").env_remove("B");
        assert_eq!(
            line(&command, OsStr::new("/a b")),
            "cd '/a b' 2>/dev/null; exec env 'A=1 2' echo 'it'\\''s' '$HOME' ''"
        );
        command.current_dir("/tmp");
        assert!(line(&command, OsStr::new("/")).starts_with("cd /tmp "));
    }

    #[test]
    fn a_shell_consists_of_words() {
        assert_eq!(GuestShell::from_words(Vec::new()), None);
        let shell = GuestShell::from_words(vec!["ssh".into(), "-F".into()]).unwrap();
        let command = shell.wrap(&Command::new("true"), OsStr::new("/"), true);
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        assert_eq!(words[..2], ["-F", "-t"]);
        assert_eq!(words[words.len() - 3..words.len() - 1], ["root@169.254.77.2", "--"]);
    }
}
