//! Starts longhaul on another host over ssh, and opens a session with it.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::wire::{FarReady, Service};
use longhaul_engine::session::{DataDialer, HostPort, Session, SessionSecret, control, greet};
use longhaul_engine::{EngineError, Result};

use super::tunnel::Tunnels;

/// The time limit for the login: the timeouts of ssh and a user who types a passphrase.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(120);
/// The time limit for ssh to end after the session.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The options for ssh.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SshOptions {
    // As `-e` of rsync.
    /// ssh command with options, such as 'ssh -J gate -p 2222'
    #[arg(short = 'e', long, visible_alias = "ssh", value_name = "COMMAND", default_value = "ssh")]
    pub(crate) rsh: Rsh,
    /// Path of longhaul on the remote host
    #[arg(long, value_name = "PATH", default_value = "longhaul")]
    pub(crate) far_longhaul: String,
    // Set by the commands that can send their data through ssh.
    #[arg(skip)]
    pub(crate) via_ssh: bool,
}

/// The ssh program and its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rsh {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
}

impl FromStr for Rsh {
    type Err = &'static str;

    /// Splits the text at spaces. Double or single quotes protect spaces.
    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let mut words = Vec::new();
        let mut word: Option<String> = None;
        let mut quote = None;
        for c in text.chars() {
            match (quote, c) {
                (Some(end), c) if c == end => quote = None,
                (None, '"' | '\'') => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                (None, c) if c.is_whitespace() => words.extend(word.take()),
                (_, c) => word.get_or_insert_default().push(c),
            }
        }
        words.extend(word);
        if quote.is_some() {
            return Err("unterminated quote");
        }
        let mut words = words.into_iter();
        let program = words.next().ok_or("no program given")?;
        Ok(Rsh { program, arguments: words.collect() })
    }
}

impl Rsh {
    /// Returns the command of a connection of its own: a shared one has one TCP window.
    fn unshared(&self) -> Command {
        let mut ssh = Command::new(&self.program);
        ssh.args(["-o", "ControlPath=none"]).args(&self.arguments);
        ssh
    }
}

/// A running `longhaul serve --stdio` at the end of ssh.
pub(crate) struct SshServer {
    ssh: Child,
    _tunnels: Arc<Tunnels>,
}

impl SshServer {
    /// Starts the server at `destination` (`[user@]host`) and opens a session for `service`.
    ///
    /// # Errors
    /// ssh or longhaul cannot be started. ssh prints the reason on standard error.
    pub(crate) fn start(
        destination: &str,
        service: Service,
        options: &SshOptions,
    ) -> Result<(Self, Session)> {
        let Rsh { program, arguments } = &options.rsh;
        let far_longhaul = shell_quoted(&options.far_longhaul);
        let spawn_failed = |source| EngineError::Spawn { program: program.clone(), source };
        let loopback = if options.via_ssh { " --loopback" } else { "" };
        let mut ssh = Command::new(program)
            .args(arguments)
            .args(["--", destination])
            .arg(format!("{far_longhaul} serve --stdio{loopback}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(spawn_failed)?;
        let pipes = ssh.stdout.take().zip(ssh.stdin.take());
        // From here on, an error ends ssh.
        let tunnels = Arc::new(Tunnels::default());
        let far = SshServer { ssh, _tunnels: tunnels.clone() };
        let Some((output, input)) = pipes else {
            return Err(spawn_failed(std::io::ErrorKind::BrokenPipe.into()));
        };
        let (sender, mut receiver) = control(output, input, destination);
        receiver.set_timeout(Some(LOGIN_TIMEOUT))?;
        let ready: FarReady = receiver.receive()?;
        greet(&sender, &mut receiver, service, |_| true)?;
        receiver.set_timeout(None)?;

        let secret = SessionSecret::from_keying_material(&ready.secret);
        let dialer = if options.via_ssh {
            let (rsh, to, port) = (options.rsh.clone(), destination.to_owned(), ready.port);
            let tunnels = Arc::downgrade(&tunnels);
            let tunnel = move |_| match tunnels.upgrade() {
                Some(tunnels) => tunnels.open(rsh.unshared(), &to, &far_longhaul, port),
                // The copy is over.
                None => Err(std::io::ErrorKind::NotConnected.into()),
            };
            DataDialer::through(Arc::new(tunnel), secret)
        } else {
            let mut addresses = Vec::new();
            let name = real_host_name(program, arguments, destination);
            let host = destination.rsplit_once('@').map_or(destination, |(_, host)| host);
            let named = HostPort::new(name.as_deref().unwrap_or(host), ready.port);
            addresses.extend(named.resolve().unwrap_or_default());
            addresses.extend(ready.address.map(|address| SocketAddr::new(address, ready.port)));
            DataDialer::new(addresses, secret)
        };
        Ok((far, Session::new(sender, receiver, dialer)))
    }

    /// Waits until ssh has ended.
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

impl Drop for SshServer {
    fn drop(&mut self) {
        // Harmless if ssh has ended. The wait collects its exit status.
        let _ = self.ssh.kill();
        let _ = self.ssh.wait();
    }
}

/// Runs longhaul with `arguments` at `destination` and returns its standard output. ssh and
/// longhaul print errors on standard error.
///
/// # Errors
/// ssh cannot be started.
pub(crate) fn remote_output(
    destination: &str,
    SshOptions { rsh, far_longhaul, .. }: &SshOptions,
    arguments: &[String],
) -> Result<Vec<u8>> {
    let words: Vec<String> = [far_longhaul.as_str()]
        .into_iter()
        .chain(arguments.iter().map(String::as_str))
        .map(shell_quoted)
        .collect();
    let output = Command::new(&rsh.program)
        .args(&rsh.arguments)
        .args(["--", destination])
        .arg(words.join(" "))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| EngineError::Spawn { program: rsh.program.clone(), source })?;
    Ok(output.stdout)
}

/// Returns the host name of `destination` in the ssh configuration (`ssh -G`), because the resolver
/// does not know aliases of ssh. `None` if the program is not OpenSSH.
fn real_host_name(program: &str, arguments: &[String], destination: &str) -> Option<String> {
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

/// Quotes `word` for the shell of the remote host.
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
    fn an_ssh_command_is_split_as_in_a_shell() {
        let rsh: Rsh = "ssh -J 'jump host' -o \"ProxyCommand=a b\" -p2".parse().unwrap();
        assert_eq!(rsh.program, "ssh");
        assert_eq!(rsh.arguments, ["-J", "jump host", "-o", "ProxyCommand=a b", "-p2"]);
        assert!("".parse::<Rsh>().is_err() && "ssh 'x".parse::<Rsh>().is_err());
    }

    #[test]
    fn a_path_is_quoted_for_the_remote_shell() {
        assert_eq!(shell_quoted("~/bin/longhaul"), "~/bin/longhaul");
        assert_eq!(shell_quoted("/my tools/l'h"), r"'/my tools/l'\''h'");
    }
}
