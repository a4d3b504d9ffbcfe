//! The commands at both ends of a link: starts them, passes signals on, and ends them.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::Context;
use longhaul_core::plan::Side;
use longhaul_emu::Wan;
use longhaul_sys::process;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit;
use crate::output::{print_message, raw_error};

/// The time limit for the far command to listen. After it the near command starts anyway.
const LISTEN_LIMIT: Duration = Duration::from_secs(1);

/// The time, beyond one RTT, for the far command to end after the near command.
const LINGER: Duration = Duration::from_millis(200);

/// The time for a command to end after a signal, before it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// An event that the commands' supervisor waits for.
#[derive(Debug)]
pub(super) enum Event {
    /// A child process has changed its state.
    Child,
    /// This process received a signal to end.
    Signal(i32),
    /// The process that holds a site has ended.
    SiteEnded,
    /// Another command has connected to the socket of the link.
    Request(UnixStream),
}

/// The events of the commands. Requests are answered while the supervisor waits for other events.
pub(super) struct Events<'a> {
    pub(super) receiver: Receiver<Event>,
    /// Answers a request.
    pub(super) answer: &'a mut dyn FnMut(UnixStream),
}

impl Events<'_> {
    /// Returns the next event, or `None` when `deadline` has passed.
    fn next(&mut self, deadline: Option<Instant>) -> Option<Event> {
        loop {
            let event = match deadline {
                None => self.receiver.recv().ok()?,
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    self.receiver.recv_timeout(left).ok()?
                }
            };
            match event {
                Event::Request(stream) => (self.answer)(stream),
                event => return Some(event),
            }
        }
    }
}

/// Sends an event for each connection to `listener`.
pub(super) fn watch_requests(listener: UnixListener, sender: Sender<Event>) -> anyhow::Result<()> {
    std::thread::Builder::new()
        .name("requests".into())
        .spawn(move || {
            let mut calls = listener.incoming().flatten();
            calls.all(|stream| sender.send(Event::Request(stream)).is_ok())
        })
        .context("cannot start a thread for requests")?;
    Ok(())
}

/// Sends an event for each signal that this process receives from now on.
pub(super) fn watch_signals(sender: Sender<Event>) -> anyhow::Result<()> {
    let event = |signal| if signal == SIGCHLD { Event::Child } else { Event::Signal(signal) };
    let mut signals = Signals::new([SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM])
        .context("cannot handle signals")?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || signals.forever().all(|signal| sender.send(event(signal)).is_ok()))
        .context("cannot start a thread for signals")?;
    Ok(())
}

/// Sends an event when the process that holds a site ends. The thread ends with the sites.
pub(super) fn watch_sites(wan: &Wan, sender: Sender<Event>) -> anyhow::Result<()> {
    let lives: Vec<OwnedFd> = wan
        .site_lives()
        .map(|life| life.try_clone_to_owned())
        .collect::<Result<_, _>>()
        .context("cannot watch the sites")?;
    std::thread::Builder::new()
        .name("sites".into())
        .spawn(move || {
            let mut ready: Vec<PollFd> =
                lives.iter().map(|life| PollFd::new(life, PollFlags::IN)).collect();
            while matches!(poll(&mut ready, None), Err(Errno::INTR)) {}
            // If the receiver is gone, nobody needs the event.
            let _ = sender.send(Event::SiteEnded);
        })
        .context("cannot start a thread to watch the sites")?;
    Ok(())
}

/// The commands at both ends.
pub(super) struct Ends {
    near: Child,
    far: Option<Child>,
}

impl Ends {
    /// Starts the far command, if any, and the near command when the far one listens.
    pub(super) fn start(wan: &Wan, near: &[OsString], far: Option<&str>) -> anyhow::Result<Self> {
        let far = far.map(|line| start_far(wan, line)).transpose()?;
        let (program, arguments) = near.split_first().context("no command to run")?;
        let mut command = Command::new(program);
        command.args(arguments);
        let near = wan.spawn(Side::Near, command)?;
        Ok(Ends { near, far })
    }

    /// Waits for the near command, ends the far one, and returns the exit code.
    ///
    /// The last data of the near command are still in flight when it ends, so the far command may
    /// continue for `rtt` and a little longer.
    pub(super) fn run(mut self, rtt: Duration, events: &mut Events<'_>) -> anyhow::Result<u8> {
        let (status, interrupted) = self.wait_near(events)?;
        if let Some(far) = &mut self.far {
            let linger = if interrupted.is_none() { rtt + LINGER } else { Duration::ZERO };
            end_far(far, linger, events)?;
        }
        Ok(interrupted.map_or(code_of(status), code_for))
    }

    /// Waits for the far command if it has ended. A site's first process ends only after that.
    fn reap_far(&mut self) -> anyhow::Result<()> {
        if let Some(far) = &mut self.far {
            far.try_wait().context("cannot wait for the far command")?;
        }
        Ok(())
    }

    /// Returns the near command's status, and the signal that asked for its end, if one did. The
    /// end of a site counts as SIGTERM.
    fn wait_near(&mut self, events: &mut Events<'_>) -> anyhow::Result<(ExitStatus, Option<i32>)> {
        let mut interrupted: Option<(i32, Instant)> = None;
        loop {
            if let Some(status) = self.near.try_wait().context("cannot wait for the command")? {
                return Ok((status, interrupted.map(|(signal, _)| signal)));
            }
            let deadline = interrupted.map(|(_, deadline)| deadline);
            match events.next(deadline) {
                Some(Event::Child) => self.reap_far()?,
                Some(event) if interrupted.is_none() => {
                    let signal = if let Event::Signal(signal) = event { signal } else { SIGTERM };
                    pass_on(&self.near, signal);
                    interrupted = Some((signal, Instant::now() + GRACE));
                }
                // A second signal, or the command did not end in time.
                _ => self.near.kill().context("cannot kill the command")?,
            }
        }
    }
}

fn start_far(wan: &Wan, line: &str) -> anyhow::Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", line]).stdin(Stdio::null()).stdout(raw_error()?);
    // A separate process group: children of the shell end with it, and the keys of the terminal
    // reach only the near command.
    command.process_group(0);
    let far = wan.spawn(Side::Far, command)?;
    wan.wait_for_listener(Side::Far, LISTEN_LIMIT)?;
    Ok(far)
}

/// Waits `linger` for the far command to end, then ends its process group with SIGTERM and SIGKILL.
/// Prints a warning if the far command failed, because that may be why the near one failed.
fn end_far(far: &mut Child, linger: Duration, events: &mut Events<'_>) -> anyhow::Result<()> {
    let group = i32::try_from(far.id()).ok().and_then(Pid::from_raw);
    let group = group.context("the far command has no process id")?;
    if let Some(status) = wait_until(far, Instant::now() + linger, events)? {
        if !status.success() {
            print_message(format_args!("warning: the far command failed ({status})"));
        }
        return Ok(());
    }
    // The child is not reaped yet, so its group id is still valid.
    let _ = rustix::process::kill_process_group(group, Signal::TERM);
    if wait_until(far, Instant::now() + GRACE, events)?.is_none() {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
        far.wait().context("cannot wait for the far command")?;
    }
    Ok(())
}

/// Returns the status of the far command, or `None` at `deadline` or on a signal.
fn wait_until(
    far: &mut Child,
    deadline: Instant,
    events: &mut Events<'_>,
) -> anyhow::Result<Option<ExitStatus>> {
    loop {
        let status = far.try_wait().context("cannot wait for the far command")?;
        if status.is_some() || !matches!(events.next(Some(deadline)), Some(Event::Child)) {
            return Ok(status);
        }
    }
}

/// Sends a signal to a command, unless the terminal has already sent it.
pub(super) fn pass_on(command: &Child, signal: i32) {
    let from_keyboard = matches!(signal, SIGINT | SIGQUIT) && process::is_foreground();
    if from_keyboard {
        return;
    }
    let process = i32::try_from(command.id()).ok().and_then(Pid::from_raw);
    if let (Some(process), Some(signal)) = (process, Signal::from_named_raw(signal)) {
        // The child is not reaped yet, so its id is still valid.
        let _ = rustix::process::kill_process(process, signal);
    }
}

/// Returns the exit code for the status of a command.
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
