//! The guard of a bridge: changes the settings of its interfaces, and restores them when the
//! bridge ends, even if it is killed.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, bail};
use clap::Args;

use super::Facts;
use super::saved::{SavedFile, restore_left_over};
use super::settings::{Changes, restore};
use crate::exit::{self, Coded};

/// The line that a guard prints when the interfaces are set.
const READY: &str = "ready";

/// Guard the interfaces of a bridge: the process behind 'wan bridge --fix'
#[derive(Debug, Args)]
pub(crate) struct GuardArgs {
    /// The interfaces
    #[arg(num_args = 2, required = true)]
    interfaces: Vec<String>,
}

/// A process that has changed the settings of two interfaces, and restores them after this value
/// has been dropped or this process has ended.
#[derive(Debug)]
pub(super) struct Guard {
    child: Child,
    /// The guard waits for the end of this pipe; `None` once it is closed.
    lifeline: Option<ChildStdin>,
}

impl Guard {
    /// Starts a guard and waits until the interfaces are set.
    pub(super) fn start(interfaces: [&str; 2]) -> anyhow::Result<Guard> {
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let mut child = Command::new(program)
            .args(["wan", "bridge-guard", "--"])
            .args(interfaces)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the guard of the interfaces")?;
        let lifeline = child.stdin.take();
        let mut line = String::new();
        if let Some(answer) = child.stdout.take() {
            // The guard has printed its error, if any.
            let _ = BufReader::new(answer).take(64).read_line(&mut line);
        }
        let mut guard = Guard { child, lifeline };
        if line.trim() == READY {
            return Ok(guard);
        }
        guard.end()?;
        bail!("cannot configure the interfaces for the bridge; no setting was changed")
    }

    /// Lets the guard restore the settings, and waits for it. If the guard was killed, restores the
    /// settings from its file.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        self.lifeline = None;
        let status = self.child.wait().context("cannot wait for the guard of the interfaces")?;
        // A process that a signal ended has no exit code.
        let is_killed = status.code().is_none();
        if is_killed {
            restore_left_over()?;
        }
        // Another command may have restored the settings of a killed guard before.
        let is_restored = status.success() || is_killed && !SavedFile::exists(self.child.id())?;
        if !is_restored {
            bail!("the guard could not restore all settings of the interfaces ({status})");
        }
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.lifeline.is_some() {
            let _ = self.end();
        }
    }
}

/// Runs the guard: sets the interfaces, waits for the end of standard input, and restores them.
pub(in super::super) fn run(args: &GuardArgs) -> Result<u8, Coded> {
    // A new session, so that signals of the terminal do not reach the guard.
    let _ = rustix::process::setsid();
    for signal in
        [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
    {
        // The guard ends with the bridge.
        let ignored = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        signal_hook::flag::register(signal, ignored).context("cannot handle signals")?;
    }
    let [near, far] = args.interfaces.as_slice() else {
        return Err(Coded::new(exit::USAGE, anyhow::anyhow!("two interfaces are required")));
    };
    let host = |error| Coded::new(exit::HOST, error);
    let read = || anyhow::Ok(Changes::needed(&[Facts::read(near)?, Facts::read(far)?]));
    let changes = read().map_err(host)?;
    let saved = SavedFile::write(changes.originals())?;
    let made = changes.make();
    if made.is_ok() {
        // If the bridge was killed, nothing reads the line, and standard input has ended, too.
        let _ = crate::output::print_result(&format!("{READY}\n"));
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
    }
    let restored = restore(&changes.originals());
    made.and(restored).and(saved.remove()).map_err(host)?;
    Ok(exit::OK)
}
