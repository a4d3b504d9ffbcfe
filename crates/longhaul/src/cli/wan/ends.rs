use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use longhaul_core::plan::Side;
use longhaul_emu::Wan;
use longhaul_sys::terminal;
use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit;
use crate::output::{raw_error, say};

/// How long the far command may take to listen before the near one starts anyway.
const LISTEN_PATIENCE: Duration = Duration::from_secs(1);

/// How long the far command may go on, beyond a round trip, once the near one has ended.
const LINGER: Duration = Duration::from_millis(200);

/// How long a command may take to end when asked, before it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// The signals that this process receives from now on, each by its number.
pub(super) fn watch_signals() -> anyhow::Result<Receiver<i32>> {
    let mut signals = Signals::new([SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM])
        .context("cannot handle signals")?;
    let (sender, receiver) = channel();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || signals.forever().all(|signal| sender.send(signal).is_ok()))
        .context("cannot start a thread for signals")?;
    Ok(receiver)
}

/// The commands at both ends.
pub(super) struct Ends {
    near: Child,
    far: Option<Child>,
}

impl Ends {
    /// Starts the far command, if any, and the near one once the far one listens.
    pub(super) fn start(wan: &Wan, near: &[OsString], far: Option<&str>) -> anyhow::Result<Self> {
        let far = far.map(|line| start_far(wan, line)).transpose()?;
        let (program, arguments) = near.split_first().context("there is no command to run")?;
        let mut command = Command::new(program);
        command.args(arguments);
        let near = wan.spawn(Side::Near, command)?;
        Ok(Ends { near, far })
    }

    /// Waits for the near command, ends the far one, and returns the exit code.
    ///
    /// What the near command sent last is still under way when it ends, so the far one may go on
    /// for a round trip of `rtt` and a little more.
    pub(super) fn run(mut self, rtt: Duration, signals: &Receiver<i32>) -> anyhow::Result<u8> {
        let (status, interrupted) = self.wait_near(signals)?;
        if let Some(far) = &mut self.far {
            let linger = if interrupted.is_none() { rtt + LINGER } else { Duration::ZERO };
            end_far(far, linger, signals)?;
        }
        Ok(interrupted.map_or(code_of(status), code_for))
    }

    /// The near command's status, and the signal that asked for its end, if one did.
    fn wait_near(&mut self, signals: &Receiver<i32>) -> anyhow::Result<(ExitStatus, Option<i32>)> {
        let mut interrupted: Option<(i32, Instant)> = None;
        loop {
            if let Some(status) = self.near.try_wait().context("cannot wait for the command")? {
                return Ok((status, interrupted.map(|(signal, _)| signal)));
            }
            let deadline = interrupted.map(|(_, deadline)| deadline);
            match next(signals, deadline) {
                Some(SIGCHLD) => {}
                Some(signal) if interrupted.is_none() => {
                    pass_on(&self.near, signal);
                    interrupted = Some((signal, Instant::now() + GRACE));
                }
                // Asked twice, or asked and not gone in time.
                _ => self.near.kill().context("cannot kill the command")?,
            }
        }
    }
}

/// The next signal, or `None` when `deadline` has passed.
fn next(signals: &Receiver<i32>, deadline: Option<Instant>) -> Option<i32> {
    let Some(deadline) = deadline else { return signals.recv().ok() };
    signals.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
}

fn start_far(wan: &Wan, line: &str) -> anyhow::Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", line]).stdin(Stdio::null()).stdout(raw_error()?);
    // Of its own group, so that what the shell starts is ended with it and the terminal's keys go
    // to the near command alone.
    command.process_group(0);
    let far = wan.spawn(Side::Far, command)?;
    wan.wait_for_listener(Side::Far, LISTEN_PATIENCE)?;
    Ok(far)
}

/// Lets the far command end by itself for `linger`, then ends its process group: asks, waits,
/// kills. A command that failed by itself is worth a word, since the near one may have failed
/// because of it.
fn end_far(far: &mut Child, linger: Duration, signals: &Receiver<i32>) -> anyhow::Result<()> {
    let group = i32::try_from(far.id()).ok().and_then(Pid::from_raw);
    let group = group.context("the far command has no process id")?;
    if let Some(status) = wait_until(far, Instant::now() + linger, signals)? {
        if !status.success() {
            say(format_args!("warning: the far command failed ({status})"));
        }
        return Ok(());
    }
    // The command is our child and not waited for yet, so the group is still its own.
    let _ = rustix::process::kill_process_group(group, Signal::TERM);
    if wait_until(far, Instant::now() + GRACE, signals)?.is_none() {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
        far.wait().context("cannot wait for the far command")?;
    }
    Ok(())
}

/// The far command's status, or `None` if it still runs at `deadline` or when asked to hurry.
fn wait_until(
    far: &mut Child,
    deadline: Instant,
    signals: &Receiver<i32>,
) -> anyhow::Result<Option<ExitStatus>> {
    loop {
        let status = far.try_wait().context("cannot wait for the far command")?;
        if status.is_some() || next(signals, Some(deadline)) != Some(SIGCHLD) {
            return Ok(status);
        }
    }
}

/// Hands a signal to a command, unless the terminal has done so already.
pub(super) fn pass_on(command: &Child, signal: i32) {
    let from_keyboard = matches!(signal, SIGINT | SIGQUIT) && terminal::is_foreground();
    if from_keyboard {
        return;
    }
    let process = i32::try_from(command.id()).ok().and_then(Pid::from_raw);
    if let (Some(process), Some(signal)) = (process, Signal::from_named_raw(signal)) {
        // It is our child and not waited for yet, so the id is still its own.
        let _ = rustix::process::kill_process(process, signal);
    }
}

/// The exit code that stands for a command's end.
pub(super) fn code_of(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => code_for(signal),
        (None, None) => exit::WAN,
    }
}

fn code_for(signal: i32) -> u8 {
    exit::SIGNAL_BASE.saturating_add(signal as u8)
}
