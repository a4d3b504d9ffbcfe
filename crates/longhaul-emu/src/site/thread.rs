use std::io;
use std::net::Ipv4Addr;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use longhaul_core::plan::Side;
use longhaul_sys::tun::Tun;

use super::Windows;
use super::setup::{Furnished, environment, furnish};
use crate::EmuError;

/// What a site is to be like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SiteSpec {
    pub(crate) side: Side,
    pub(crate) addresses: [(Side, Ipv4Addr); 2],
    pub(crate) mtu: u32,
    pub(crate) windows: Windows,
}

impl SiteSpec {
    /// The length of the link's network prefix: two hosts.
    pub(super) const PREFIX: u8 = 30;
}

/// A site that runs; dropping it kills every process in it.
#[derive(Debug)]
pub(crate) struct Site {
    side: Side,
    /// `None` once the thread was told to end.
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
    windows_set: bool,
}

enum Request {
    Spawn(Box<Command>, Sender<io::Result<Child>>),
    DeviceDrops(Sender<io::Result<u64>>),
    HasListener(Sender<bool>),
}

impl Site {
    /// Builds a site, and returns it with the site's end of the link.
    pub(crate) fn start(spec: SiteSpec) -> Result<(Site, Tun), EmuError> {
        let side = spec.side;
        let (requests, inbox) = channel();
        let (outcome, ready) = channel();
        let thread = std::thread::Builder::new()
            .name(format!("site {side}"))
            .spawn(move || match furnish(&spec) {
                Err(error) => drop(outcome.send(Err(error))),
                Ok(furnished) => live(&spec, furnished, &outcome, &inbox),
            })
            .map_err(|source| EmuError::Site { operation: "start a thread", side, source })?;
        let (tun, windows_set) = ready.recv().map_err(|_| EmuError::SiteGone { side })??;
        let site = Site { side, requests: Some(requests), thread: Some(thread), windows_set };
        Ok((site, tun))
    }

    /// Starts a command in the site.
    pub(crate) fn spawn(&self, command: Command) -> Result<Child, EmuError> {
        let side = self.side;
        let name = command.get_program().to_string_lossy().into_owned();
        self.ask(|reply| Request::Spawn(Box::new(command), reply))?
            .map_err(|source| EmuError::Spawn { command: name, side, source })
    }

    /// Packets that the site's end of the link dropped because nobody read them in time.
    pub(crate) fn device_drops(&self) -> Result<u64, EmuError> {
        let step = |source| EmuError::Site {
            operation: "read the interface's counters",
            side: self.side,
            source,
        };
        self.ask(Request::DeviceDrops)?.map_err(step)
    }

    /// Whether a program in the site waits for connections or datagrams.
    pub(crate) fn has_listener(&self) -> Result<bool, EmuError> {
        self.ask(Request::HasListener)
    }

    /// Whether TCP's windows could be set.
    pub(crate) fn windows_set(&self) -> bool {
        self.windows_set
    }

    fn ask<T>(&self, request: impl FnOnce(Sender<T>) -> Request) -> Result<T, EmuError> {
        let gone = EmuError::SiteGone { side: self.side };
        let (reply, answer) = channel();
        let sent = self.requests.as_ref().is_some_and(|to| to.send(request(reply)).is_ok());
        if !sent {
            return Err(gone);
        }
        answer.recv().map_err(|_| gone)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the site's thread does once furnished, until nobody can ask it any more.
fn live(
    spec: &SiteSpec,
    furnished: Furnished,
    outcome: &Sender<Result<(Tun, bool), EmuError>>,
    inbox: &Receiver<Request>,
) {
    let Furnished { tun, init, tables, windows_set } = furnished;
    if outcome.send(Ok((tun, windows_set))).is_ok() {
        for request in inbox {
            // An asker that is gone needs no answer.
            match request {
                Request::Spawn(mut command, reply) => {
                    command.envs(environment(spec));
                    let _ = reply.send(command.spawn());
                }
                Request::DeviceDrops(reply) => drop(reply.send(tables.device_drops())),
                Request::HasListener(reply) => drop(reply.send(tables.has_listener())),
            }
        }
    }
    init.kill();
    // Its end tells that every process of the site is gone. It waits for those of our children
    // that nobody has waited for yet; they are dead, hold nothing, and are not worth hanging for.
    let deadline = Instant::now() + Duration::from_secs(1);
    while !init.reaped() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}
