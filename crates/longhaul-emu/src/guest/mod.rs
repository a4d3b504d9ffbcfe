//! Guests: virtual machines of QEMU that are sites.
//!
//! QEMU runs in the namespaces of the site, so the kernel ends it with the site. Its network card
//! is a TAP device, to which the emulator's [`Edge`](crate::edge::Edge) is connected. The guest boots
//! the kernel and the initramfs that `packaging/guest-image` makes, and then uses the files of this
//! host, below a layer in its memory that takes all changes. Commands run over ssh, on the same
//! card with addresses that are not routed over any link.

mod fault;
mod image;
mod machine;
mod shell;

use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::plan::TopologyPlan;
use longhaul_core::result::GuestProcessor;
use longhaul_sys::poll::readable;
use rustix::process::{Pid, PidfdFlags};

use crate::EmuError;
use crate::site::Site;
pub use fault::GuestFault;
use image::Image;
pub(crate) use image::session;
pub(crate) use machine::{HOST_ADDRESS, PREFIX};
pub use shell::GuestShell;

/// The line on the console that ends the start of a guest.
const READY: &str = "longhaul: guest ready";

/// The time limit for the start of a guest. An emulated processor on a busy host needs up to a
/// minute.
const START_LIMIT: Duration = Duration::from_secs(180);

/// The number of lines of a console that an error contains.
const SHOWN: usize = 4;

/// A running guest. Dropping the value ends it.
#[derive(Debug)]
pub(crate) struct Guest {
    site: usize,
    name: String,
    child: Child,
    life: OwnedFd,
    console: Arc<Mutex<Vec<String>>>,
    shell: GuestShell,
}

/// Guests that are booting, with a message per guest when its start has ended.
struct Booting {
    guest: Guest,
    ready: Receiver<()>,
}

/// Boots all guests of a plan at the same time. Returns them with the kind of their processors.
///
/// # Errors
/// A program or the image is missing, or a guest did not start; the others end.
pub(crate) fn boot(
    plan: &TopologyPlan,
    sites: &[Site],
) -> Result<(Vec<Guest>, Option<GuestProcessor>), EmuError> {
    if plan.guests.is_empty() {
        return Ok((Vec::new(), None));
    }
    let at = |index: usize| {
        let site = plan.sites[index].clone();
        move |fault| EmuError::Guest { site, fault }
    };
    let guests: Vec<usize> =
        (0..plan.sites.len()).filter(|site| plan.guests.contains_key(&plan.sites[*site])).collect();
    let image = Image::find().map_err(at(guests[0]))?;
    let processor = machine::processor(&image).map_err(at(guests[0]))?;
    let mut booting = Vec::new();
    for index in guests {
        let size = plan.guests[&plan.sites[index]];
        let command = machine::command(&image, size, processor, sites[index].spec());
        let child = sites[index].spawn(command)?;
        let shell = GuestShell::new(&image);
        booting.push(Guest::watch(index, sites[index].spec().own.name.clone(), child, shell)?);
    }
    let deadline = Instant::now() + START_LIMIT;
    let started = booting.into_iter().map(|booting| booting.wait(deadline));
    let guests = started.collect::<Result<Vec<_>, _>>()?;
    guests.iter().try_for_each(|guest| guest.connect(&sites[guest.site]))?;
    Ok((guests, Some(processor)))
}

impl Guest {
    /// Reads the console of a guest from now on.
    fn watch(
        site: usize,
        name: String,
        mut child: Child,
        shell: GuestShell,
    ) -> Result<Booting, EmuError> {
        let failed = |source: std::io::Error| EmuError::Guest {
            site: name.clone(),
            fault: GuestFault::Watch(source),
        };
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let life = pid
            .ok_or_else(|| std::io::ErrorKind::NotFound.into())
            .and_then(|pid| Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?))
            .map_err(failed)?;
        let output = child.stdout.take();
        let console = Arc::new(Mutex::new(Vec::new()));
        let guest = Guest { site, name: name.clone(), child, life, console, shell };
        let (started, ready) = channel();
        let lines = Arc::clone(&guest.console);
        std::thread::Builder::new()
            .name(format!("console {name}"))
            .spawn(move || output.map(|output| follow(output, &lines, started)))
            .map_err(failed)?;
        Ok(Booting { guest, ready })
    }

    /// Returns the index of the site.
    pub(crate) fn site(&self) -> usize {
        self.site
    }

    /// Returns the shell that runs commands in the guest.
    pub(crate) fn shell(&self) -> &GuestShell {
        &self.shell
    }

    /// Returns a descriptor that becomes readable when the guest ends.
    pub(crate) fn life(&self) -> BorrowedFd<'_> {
        self.life.as_fd()
    }

    /// Checks that the guest runs.
    pub(crate) fn check(&self) -> Result<(), EmuError> {
        if readable(self.life.as_fd(), Duration::ZERO) {
            return Err(self.fault(GuestFault::Ended { console: self.console() }));
        }
        Ok(())
    }

    /// Opens the connection that all commands use.
    fn connect(&self, site: &Site) -> Result<(), EmuError> {
        let mut ssh = self.shell.wrap(&Command::new("true"), "/".as_ref(), false);
        ssh.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status =
            site.spawn(ssh)?.wait().map_err(|source| self.fault(GuestFault::Watch(source)))?;
        if status.success() {
            return Ok(());
        }
        Err(self.fault(GuestFault::Connection { status, console: self.console() }))
    }

    fn fault(&self, fault: GuestFault) -> EmuError {
        EmuError::Guest { site: self.name.clone(), fault }
    }

    /// Returns the last lines of the console.
    fn console(&self) -> String {
        let lines = self.console.lock().unwrap_or_else(PoisonError::into_inner);
        let last = &lines[lines.len().saturating_sub(SHOWN)..];
        if last.is_empty() { "nothing".to_owned() } else { last.join("; ") }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // A guest that has ended cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Booting {
    fn wait(self, deadline: Instant) -> Result<Guest, EmuError> {
        let limit = deadline.saturating_duration_since(Instant::now());
        match self.ready.recv_timeout(limit) {
            Ok(()) => Ok(self.guest),
            Err(RecvTimeoutError::Disconnected) => {
                let console = self.guest.console();
                Err(self.guest.fault(GuestFault::Ended { console }))
            }
            Err(RecvTimeoutError::Timeout) => {
                let (limit, console) = (START_LIMIT.as_secs(), self.guest.console());
                Err(self.guest.fault(GuestFault::Slow { limit, console }))
            }
        }
    }
}

/// Keeps the last lines of a console, and reports the line that ends the start. The sender is dropped
/// when the guest ends before that.
fn follow(output: ChildStdout, lines: &Mutex<Vec<String>>, ready: Sender<()>) {
    let mut ready = Some(ready);
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_matches(|c: char| c.is_whitespace() || c.is_control());
        if line.contains(READY) {
            // If the starter has stopped waiting, it drops the guest.
            let _ = ready.take().map(|ready| ready.send(()));
        }
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        if !line.is_empty() {
            lines.push(line.to_owned());
        }
        let surplus = lines.len().saturating_sub(SHOWN);
        lines.drain(..surplus);
    }
}
