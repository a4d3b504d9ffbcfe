//! Starts longhaul on another host over ssh, and opens a session with it.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::text::shell_quoted;
use longhaul_core::wire::{FarReady, Service};
use longhaul_engine::session::{DataDialer, HostPort, Session, SessionSecret, control, greet};
use longhaul_engine::{EngineError, Result};
use longhaul_sys::child::{ChildEnd, ChildLimits, run_child};

use super::tunnel::Tunnels;

/// The time limit for the login: the timeouts of ssh and a user who types a passphrase.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(120);
/// The time limit for ssh to end after the session.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for `ssh -G`, which reads the configuration.
const CONFIG_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for a command on the remote host, with the login.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);
/// The time limit for a command that reads this program from its standard input.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(1800);
/// The maximum number of bytes of the output of such a command.
const OUTPUT_LIMIT: usize = 16 << 20;

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

impl Default for Rsh {
    fn default() -> Self {
        Rsh { program: "ssh".to_owned(), arguments: Vec::new() }
    }
}

impl fmt::Display for Rsh {
    /// Writes the words with quotes, as they are parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_word(f, &self.program)?;
        self.arguments.iter().try_for_each(|word| {
            f.write_char(' ')?;
            write_word(f, word)
        })
    }
}

/// Writes a word of a command, with quotes if it needs them.
fn write_word(f: &mut fmt::Formatter<'_>, word: &str) -> fmt::Result {
    if !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || "'\"".contains(c)) {
        return f.write_str(word);
    }
    // A single quote is between double quotes, all other text between single quotes.
    for (at, part) in word.split('\'').enumerate() {
        let quote = if at == 0 { "" } else { "\"'\"" };
        write!(f, "{quote}'{part}'")?;
    }
    Ok(())
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
    /// Returns the command of a separate connection: a shared one has one TCP window.
    fn unshared(&self) -> Command {
        let mut ssh = Command::new(&self.program);
        ssh.args(["-o", "ControlPath=none"]).args(&self.arguments);
        ssh
    }

    /// Returns the command that runs `command` by the shell of `destination`; it prints errors on
    /// standard error.
    fn command(&self, destination: &str, command: &str) -> Command {
        let mut ssh = Command::new(&self.program);
        ssh.args(&self.arguments).args(["--", destination]).arg(command).stderr(Stdio::inherit());
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
        let far_longhaul = in_far_path(&options.far_longhaul);
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
        let ready: FarReady = match receiver.receive() {
            Ok(ready) => ready,
            Err(error) => return Err(far.reason(destination, options).unwrap_or(error)),
        };
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
        self.exit_code();
    }

    /// Waits until ssh has ended, and returns its exit code; `None` if it does not end.
    fn exit_code(&mut self) -> Option<i32> {
        let deadline = Instant::now() + END_TIMEOUT;
        while Instant::now() < deadline {
            match self.ssh.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Ok(Some(status)) => return status.code(),
                Err(_) => return None,
            }
        }
        None
    }

    /// Returns the reason why no server answered, if the exit code of ssh has one: that of the
    /// remote shell if it cannot run longhaul, or that of a failed login.
    fn reason(mut self, destination: &str, options: &SshOptions) -> Option<EngineError> {
        let host = destination.to_owned();
        match self.exit_code()? {
            CANNOT_EXECUTE | NOT_FOUND => {
                Some(EngineError::FarProgram { host, program: options.far_longhaul.clone() })
            }
            LOGIN_FAILED => Some(EngineError::Login { host }),
            _ => None,
        }
    }
}

/// Exit codes of a shell that cannot execute a command or does not find it (POSIX, 2.8.2), and of ssh
/// (ssh(1)).
const CANNOT_EXECUTE: i32 = 126;
const NOT_FOUND: i32 = 127;
const LOGIN_FAILED: i32 = 255;

/// Returns the command for longhaul on a remote host, quoted for its shell. The shell replaces a `~` or
/// `~user` at the start. `longhaul` is also searched for in `~/.local/bin`: most shells that ssh starts do
/// not read the user's PATH.
fn in_far_path(far_longhaul: &str) -> String {
    if far_longhaul == "longhaul" {
        return "env PATH=\"$PATH:$HOME/.local/bin\" longhaul".to_owned();
    }
    let home = far_longhaul.strip_prefix('~').and_then(|rest| rest.split_once('/'));
    match home {
        Some((user, path)) if user.is_empty() || shell_quoted(user) == user => {
            format!("~{user}/{}", shell_quoted(path))
        }
        _ => shell_quoted(far_longhaul).into_owned(),
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
/// ssh cannot be started, longhaul is not there, or a limit is exceeded.
pub(crate) fn remote_output(
    destination: &str,
    options: &SshOptions,
    arguments: &[String],
) -> Result<Vec<u8>> {
    let far_longhaul = &options.far_longhaul;
    let program = in_far_path(far_longhaul);
    let words: Vec<_> = arguments.iter().map(|word| shell_quoted(word)).collect();
    let mut ssh = options.rsh.command(destination, &format!("{program} {}", words.join(" ")));
    let (status, output) = run(ssh.stdin(Stdio::null()), COMMAND_TIMEOUT, destination)?;
    match status.code() {
        Some(CANNOT_EXECUTE | NOT_FOUND) => Err(EngineError::FarProgram {
            host: destination.to_owned(),
            program: far_longhaul.clone(),
        }),
        _ => Ok(output),
    }
}

/// Runs `command` by the shell of `destination`, and returns its output.
///
/// # Errors
/// ssh cannot be started, does not reach the host, or exceeds a limit.
pub(crate) fn remote_shell(
    destination: &str,
    SshOptions { rsh, .. }: &SshOptions,
    command: &str,
) -> Result<Vec<u8>> {
    let mut ssh = rsh.command(destination, command);
    let (status, output) = run(ssh.stdin(Stdio::null()), COMMAND_TIMEOUT, destination)?;
    match status.code() {
        Some(LOGIN_FAILED) => Err(EngineError::Login { host: destination.to_owned() }),
        _ => Ok(output),
    }
}

/// Runs `command` by the shell of `destination` with `input` as its standard input. Returns its
/// output, and true if it succeeded.
///
/// # Errors
/// ssh cannot be started, or exceeds a limit.
pub(crate) fn remote_output_with(
    destination: &str,
    SshOptions { rsh, .. }: &SshOptions,
    command: &str,
    input: File,
) -> Result<(bool, Vec<u8>)> {
    let mut ssh = rsh.command(destination, command);
    let (status, output) = run(ssh.stdin(input), UPLOAD_TIMEOUT, destination)?;
    Ok((status.success(), output))
}

/// Runs `ssh`, a command at `destination`, for at most `time`. Returns its exit status and its output.
fn run(ssh: &mut Command, time: Duration, destination: &str) -> Result<(ExitStatus, Vec<u8>)> {
    let peer = destination.to_owned();
    match limited(ssh, time) {
        Ok(ChildEnd::Exited { status, output, .. }) => Ok((status, output)),
        Ok(ChildEnd::TooLarge) => {
            let reason = format!("its answer exceeds {} MiB", OUTPUT_LIMIT >> 20);
            Err(EngineError::Failed { peer, reason, again: false })
        }
        Ok(ChildEnd::OutOfTime | ChildEnd::Cancelled) => {
            Err(EngineError::FarTimeout { host: peer, seconds: time.as_secs() })
        }
        Err(source) => {
            let program = ssh.get_program().to_string_lossy().into_owned();
            Err(EngineError::Spawn { program, source })
        }
    }
}

/// Runs `ssh` for at most `time`, and reads its output.
fn limited(ssh: &mut Command, time: Duration) -> io::Result<ChildEnd> {
    let deadline = Instant::now() + time;
    let limits = ChildLimits {
        deadline,
        output_bytes: OUTPUT_LIMIT,
        message_bytes: 0,
        cancelled: &|| false,
    };
    run_child(ssh.stdout(Stdio::piped()), limits)
}

/// Returns whether `host` is an alias of the ssh configuration: ssh connects to another name.
pub(crate) fn is_ssh_alias(host: &str, SshOptions { rsh, .. }: &SshOptions) -> bool {
    !host.starts_with('-')
        && real_host_name(&rsh.program, &rsh.arguments, host)
            .is_some_and(|name| !name.eq_ignore_ascii_case(host))
}

/// Returns the host name of `destination` in the ssh configuration (`ssh -G`), because the resolver
/// does not know aliases of ssh. `None` if the program is not OpenSSH, or takes too long: a command
/// of the configuration (`Match exec`) may hang.
fn real_host_name(program: &str, arguments: &[String], destination: &str) -> Option<String> {
    let mut ssh = Command::new(program);
    ssh.args(arguments).args(["-G", "--", destination]);
    ssh.stdin(Stdio::null()).stderr(Stdio::null());
    let Ok(ChildEnd::Exited { status, output, .. }) = limited(&mut ssh, CONFIG_TIMEOUT) else {
        return None;
    };
    if !status.success() {
        return None;
    }
    let text = String::from_utf8(output).ok()?;
    text.lines().find_map(|line| line.strip_prefix("hostname ")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ssh_command_is_split_as_in_a_shell() {
        let rsh: Rsh = "ssh -J 'jump host' -o \"ProxyCommand=a b\" -p2".parse().unwrap();
        assert_eq!(rsh.program, "ssh");
        assert_eq!(rsh.arguments, ["-J", "jump host", "-o", "ProxyCommand=a b", "-p2"]);
        let odd = Rsh {
            program: "my ssh".to_owned(),
            arguments: ["", "it's \"so\"", "-p2"].map(str::to_owned).to_vec(),
        };
        for rsh in [rsh, odd] {
            assert_eq!(rsh.to_string().parse(), Ok(rsh));
        }
        assert!("".parse::<Rsh>().is_err() && "ssh 'x".parse::<Rsh>().is_err());
    }

    #[test]
    fn the_program_is_quoted_for_the_remote_shell_except_a_home_directory() {
        assert_eq!(in_far_path("~/bin/longhaul"), "~/bin/longhaul");
        assert_eq!(in_far_path("~alice/my bin/lh"), "~alice/'my bin/lh'");
        assert_eq!(in_far_path("~$(id)/lh"), "'~$(id)/lh'");
        assert_eq!(in_far_path("/my tools/l'h"), r"'/my tools/l'\''h'");
        assert!(in_far_path("longhaul").ends_with("/.local/bin\" longhaul"));
    }

    #[test]
    fn a_hanging_ssh_is_an_error() {
        let short = Duration::from_millis(100);
        let error = run(Command::new("sleep").arg("300"), short, "far").unwrap_err();
        assert!(matches!(error, EngineError::FarTimeout { host, .. } if host == "far"));
        let long = Duration::from_secs(60);
        let error = run(&mut Command::new("yes"), long, "far").unwrap_err();
        assert!(matches!(error, EngineError::Failed { reason, .. } if reason.contains("16 MiB")));
    }
}
