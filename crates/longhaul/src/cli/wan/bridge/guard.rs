//! The guard of a bridge: changes the settings of its interfaces, and restores them when the
//! bridge ends, even if it is killed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, bail};
use clap::Args;
use longhaul_sys::ethtool;
use longhaul_sys::interface::Interface;

use super::{Facts, Flaw, flaws};
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

    /// Lets the guard restore the settings, and waits for it.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        self.lifeline = None;
        let status = self.child.wait().context("cannot wait for the guard of the interfaces")?;
        if !status.success() {
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
    let mut settings = Settings::default();
    let set = Facts::read(near)
        .and_then(|near| Ok([near, Facts::read(far)?]))
        .and_then(|both| settings.apply(&both));
    if set.is_ok() {
        crate::output::print_result(&format!("{READY}\n"))?;
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
    }
    let restored = settings.restore();
    set.and(restored).map_err(|error| Coded::new(exit::HOST, error))?;
    Ok(exit::OK)
}

/// The changes to undo, the last one first.
#[derive(Default)]
struct Settings {
    undo: Vec<Undo>,
}

type Undo = (String, Box<dyn FnOnce() -> std::io::Result<()>>);

impl Settings {
    /// Brings the interfaces up and removes what falsifies a link between them.
    fn apply(&mut self, both: &[Facts; 2]) -> anyhow::Result<()> {
        for facts in both {
            self.quieten(facts)?;
        }
        for flaw in flaws(both) {
            match flaw {
                Flaw::Merges { name } => {
                    let set = |on| {
                        let name = name.clone();
                        move || ethtool::set_merging(&name, on)
                    };
                    self.change(format!("LRO of {name}"), set(false), set(true))?;
                }
                Flaw::Mtus { names, mtus } => {
                    let (shorter, larger) = if mtus[0] < mtus[1] { (0, 1) } else { (1, 0) };
                    let set = |mtu| {
                        let name = names[shorter].clone();
                        move || Interface::named(&name)?.set_mtu(mtu)
                    };
                    let what = format!("MTU of {}", names[shorter]);
                    self.change(what, set(mtus[larger]), set(mtus[shorter]))?;
                }
                // Removed by `quieten`.
                Flaw::Addresses { .. } => {}
            }
        }
        Ok(())
    }

    /// Removes the addresses and routes of an interface, keeps the kernel from adding others, and
    /// brings the interface up.
    fn quieten(&mut self, facts: &Facts) -> anyhow::Result<()> {
        let name = &facts.name;
        for entry in &facts.entries {
            // The routes of an address disappear with it, and are restored after it. Undoing
            // proceeds backwards, so the address is removed last.
            let back = entry.clone();
            self.undo.insert(
                0,
                (format!("an address or route of {name}"), Box::new(move || back.restore())),
            );
        }
        for entry in facts.entries.iter().rev() {
            // An entry may have disappeared with another one.
            let _ = entry.remove();
        }
        let switch = PathBuf::from("/proc/sys/net/ipv6/conf").join(name).join("disable_ipv6");
        if let Ok(before) = fs::read_to_string(&switch) {
            let set = |value: String| {
                let switch = switch.clone();
                move || fs::File::create(&switch)?.write_all(value.as_bytes())
            };
            self.change(format!("IPv6 of {name}"), set("1".to_owned()), set(before))?;
        }
        if !facts.link.is_up {
            let set = |up| {
                let name = name.clone();
                move || {
                    if up { Interface::named(&name)?.up() } else { Interface::named(&name)?.down() }
                }
            };
            self.change(format!("state of {name}"), set(true), set(false))?;
        }
        Ok(())
    }

    /// Makes a change and remembers how to undo it.
    fn change(
        &mut self,
        what: String,
        change: impl FnOnce() -> std::io::Result<()>,
        undo: impl FnOnce() -> std::io::Result<()> + 'static,
    ) -> anyhow::Result<()> {
        change().with_context(|| format!("cannot change the {what}"))?;
        self.undo.push((what, Box::new(undo)));
        Ok(())
    }

    /// Undoes all changes. An error does not keep the others from being undone.
    fn restore(self) -> anyhow::Result<()> {
        let mut result = Ok(());
        for (what, undo) in self.undo.into_iter().rev() {
            let undone = undo().with_context(|| format!("cannot restore the {what}"));
            result = result.and(undone);
        }
        result
    }
}
