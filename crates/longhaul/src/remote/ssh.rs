use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_core::wire::{FarReady, Service};
use longhaul_engine::session::{DataDialer, HostPort, Session, SessionSecret, control, greet};
use longhaul_engine::{EngineError, Result};

/// How long ssh may take: its own timeouts, and a user who types a passphrase.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(120);
/// How long the far side may take to end after the session.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// How to reach the far side.
#[derive(Debug, Clone)]
pub(crate) struct SshOptions {
    /// The program and its first arguments, split at spaces, as for rsync's `-e`.
    pub(crate) rsh: String,
    /// The longhaul to run there.
    pub(crate) far_longhaul: String,
}

/// A `longhaul serve --stdio` behind ssh.
pub(crate) struct SshFar {
    ssh: Child,
}

impl SshFar {
    /// Starts it at `destination` (`[user@]host`) and opens the session.
    ///
    /// # Errors
    /// ssh or the longhaul behind it cannot be started; ssh has said why on standard error.
    pub(crate) fn start(destination: &str, options: &SshOptions) -> Result<(Self, Session)> {
        let mut words = options.rsh.split_whitespace();
        let program = words.next().unwrap_or("ssh");
        let arguments: Vec<_> = words.collect();
        let spawn_failed = |source| EngineError::Spawn { program: program.to_owned(), source };
        let mut ssh = Command::new(program)
            .args(&arguments)
            .args(["--", destination])
            .arg(format!("{} serve --stdio", shell_quoted(&options.far_longhaul)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(spawn_failed)?;
        let pipes = ssh.stdout.take().zip(ssh.stdin.take());
        // From here on a failure ends ssh.
        let far = SshFar { ssh };
        let Some((output, input)) = pipes else {
            return Err(spawn_failed(std::io::ErrorKind::BrokenPipe.into()));
        };
        let (sender, mut receiver) = control(output, input, destination);
        receiver.set_timeout(Some(LOGIN_TIMEOUT))?;
        let ready: FarReady = receiver.receive()?;
        greet(&sender, &mut receiver, Service::Copy, |_| true)?;
        receiver.set_timeout(None)?;

        let mut addresses = Vec::new();
        let name = real_host_name(program, &arguments, destination);
        let host = destination.rsplit_once('@').map_or(destination, |(_, host)| host);
        let named = HostPort::new(name.as_deref().unwrap_or(host), ready.port);
        addresses.extend(named.resolve().unwrap_or_default());
        addresses.extend(ready.address.map(|address| SocketAddr::new(address, ready.port)));
        let secret = SessionSecret::from_keying_material(&ready.secret);
        let dialer = DataDialer::new(addresses, secret);
        Ok((far, Session::new(sender, receiver, dialer)))
    }

    /// Waits for its end.
    pub(crate) fn finish(mut self) {
        let deadline = Instant::now() + END_TIMEOUT;
        while Instant::now() < deadline {
            if !matches!(self.ssh.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for SshFar {
    fn drop(&mut self) {
        // Harmless when it has ended; its exit is collected either way.
        let _ = self.ssh.kill();
        let _ = self.ssh.wait();
    }
}

/// What the ssh configuration makes of `destination` (`ssh -G`): an alias there is no name for
/// the resolver. `None` when the program is no OpenSSH.
fn real_host_name(program: &str, arguments: &[&str], destination: &str) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .args(["-G", "--", destination])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().find_map(|line| line.strip_prefix("hostname ")).map(str::to_owned)
}

/// `word` as one word for the far shell.
fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+~".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_for_the_far_shell() {
        assert_eq!(shell_quoted("~/bin/longhaul"), "~/bin/longhaul");
        assert_eq!(shell_quoted("/my tools/l'h"), r"'/my tools/l'\''h'");
    }
}
