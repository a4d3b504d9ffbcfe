//! A running site and the thread that serves it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use longhaul_sys::namespace::InitHandle;
use longhaul_sys::poll::readable;

use super::network;
use super::setup::{SiteParts, set_up};
use super::spec::{RouteSpec, SiteSpec};
use crate::EmuError;
use crate::device::Device;

/// A running site. Dropping it kills every process in it.
#[derive(Debug)]
pub(crate) struct Site {
    spec: SiteSpec,
    /// The channel to the thread; `None` once the thread has been requested to end.
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
    windows_set: bool,
    init: InitHandle,
    /// The process to which an existing network belongs, if the plan names one.
    process: Option<OwnedFd>,
}

#[derive(Debug)]
enum Request {
    Spawn(Box<Command>, Sender<io::Result<Child>>),
    DeviceDrops(usize, Sender<io::Result<u64>>),
    HasListener(Sender<bool>),
    SetRoutes(Vec<RouteSpec>),
}

/// The parts of the site that its thread returns at the start.
#[derive(Debug)]
struct Ready {
    devices: Vec<Vec<Device>>,
    windows_set: bool,
    init: InitHandle,
    process: Option<OwnedFd>,
}

/// A site whose thread is setting it up.
#[derive(Debug)]
pub(crate) struct StartingSite {
    spec: SiteSpec,
    requests: Sender<Request>,
    thread: JoinHandle<()>,
    ready: Receiver<Result<Ready, EmuError>>,
}

/// A handle that changes the routes of a site. It must be dropped before the site.
#[derive(Debug)]
pub(crate) struct Router {
    requests: Option<Sender<Request>>,
}

impl StartingSite {
    /// Waits for the site, and returns it with its ends of its links, in their order.
    pub(crate) fn ready(self) -> Result<(Site, Vec<Vec<Device>>), EmuError> {
        let StartingSite { spec, requests, thread, ready } = self;
        let gone = || EmuError::SiteGone { site: spec.own.name.clone() };
        let Ready { devices, windows_set, init, process } = ready.recv().map_err(|_| gone())??;
        let (requests, thread) = (Some(requests), Some(thread));
        let site = Site { spec, requests, thread, windows_set, init, process };
        Ok((site, devices))
    }
}

impl Router {
    /// Replaces the routes of the site. Routes of a site that has ended need no change.
    pub(crate) fn set_routes(&self, routes: Vec<RouteSpec>) {
        if let Some(requests) = &self.requests {
            let _ = requests.send(Request::SetRoutes(routes));
        }
    }
}

impl Site {
    /// Begins to start a site; [`StartingSite::ready`] waits for it. Several sites can start at
    /// the same time.
    pub(crate) fn begin(spec: SiteSpec) -> Result<StartingSite, EmuError> {
        let failed = |operation| {
            let site = spec.own.name.clone();
            move |source| EmuError::Site { operation, site, source }
        };
        let (requests, inbox) = channel();
        let (outcome, ready) = channel();
        let own = spec.clone();
        let thread = std::thread::Builder::new()
            .name(format!("site {}", spec.own.name))
            .spawn(move || match set_up(&own) {
                Err(error) => drop(outcome.send(Err(error))),
                Ok(parts) => live(&own, parts, &outcome, &inbox),
            })
            .map_err(failed("start a thread"))?;
        Ok(StartingSite { spec, requests, thread, ready })
    }

    /// Returns a handle that changes the routes of the site from another thread.
    pub(crate) fn router(&self) -> Router {
        Router { requests: self.requests.clone() }
    }

    /// Returns the specification of the site.
    pub(crate) fn spec(&self) -> &SiteSpec {
        &self.spec
    }

    /// Returns the handle of the site's first process, in whose namespaces its commands run.
    pub(crate) fn init(&self) -> &InitHandle {
        &self.init
    }

    /// Returns descriptors that become readable when the site ends.
    pub(crate) fn lives(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.init.liveness()).chain(self.process.iter().map(OwnedFd::as_fd))
    }

    /// Checks that the first process of the site runs, and the process to which its network
    /// belongs.
    pub(crate) fn check(&self) -> Result<(), EmuError> {
        /// The time limit for the kernel to end the other processes of the site.
        const LIMIT: Duration = Duration::from_secs(5);
        if self.process.as_ref().is_some_and(|process| readable(process.as_fd(), Duration::ZERO)) {
            return Err(EmuError::AttachedEnded { site: self.spec.own.name.clone() });
        }
        if !self.init.has_ended() {
            return Ok(());
        }
        let status = self.init.status(LIMIT);
        Err(EmuError::SiteKilled { site: self.spec.own.name.clone(), status })
    }

    /// Starts a command in the site.
    pub(crate) fn spawn(&self, command: Command) -> Result<Child, EmuError> {
        let name = command.get_program().to_string_lossy().into_owned();
        self.ask(|reply| Request::Spawn(Box::new(command), reply))?.map_err(|source| {
            EmuError::Spawn { command: name, site: self.spec.own.name.clone(), source }
        })
    }

    /// Returns the number of packets that an interface of the site dropped because the emulator did
    /// not read them in time.
    pub(crate) fn device_drops(&self, interface: usize) -> Result<u64, EmuError> {
        let step = |source| EmuError::Site {
            operation: "read the interface's counters",
            site: self.spec.own.name.clone(),
            source,
        };
        self.ask(|reply| Request::DeviceDrops(interface, reply))?.map_err(step)
    }

    /// Returns whether a program in the site waits for connections or datagrams.
    pub(crate) fn has_listener(&self) -> Result<bool, EmuError> {
        self.ask(Request::HasListener)
    }

    /// Returns whether the TCP windows could be set.
    pub(crate) fn windows_set(&self) -> bool {
        self.windows_set
    }

    fn ask<T>(&self, request: impl FnOnce(Sender<T>) -> Request) -> Result<T, EmuError> {
        let gone = || EmuError::SiteGone { site: self.spec.own.name.clone() };
        let (reply, answer) = channel();
        let sent = self.requests.as_ref().is_some_and(|to| to.send(request(reply)).is_ok());
        if !sent {
            return Err(gone());
        }
        answer.recv().map_err(|_| gone())
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

/// Serves requests until the requests' sender is dropped.
fn live(
    spec: &SiteSpec,
    parts: SiteParts,
    outcome: &Sender<Result<Ready, EmuError>>,
    inbox: &Receiver<Request>,
) {
    let SiteParts { devices, init, process, tables, mut routes, windows_set } = parts;
    let site = || spec.own.name.clone();
    let ready = init
        .handle()
        .try_clone()
        .map(|init| Ready { devices, windows_set, init, process })
        .map_err(|source| EmuError::Site {
            operation: "hold the first process",
            site: site(),
            source,
        });
    if outcome.send(ready).is_ok() {
        for request in inbox {
            // If the requester no longer exists, the answer is not needed.
            match request {
                Request::Spawn(mut command, reply) => {
                    command.envs(spec.environment());
                    let _ = reply.send(command.spawn());
                }
                Request::DeviceDrops(interface, reply) => {
                    let wanted = spec.interfaces.get(interface);
                    let drops = wanted.map_or(Ok(0), |wanted| tables.device_drops(&wanted.name));
                    let _ = reply.send(drops);
                }
                Request::HasListener(reply) => drop(reply.send(tables.has_listener())),
                Request::SetRoutes(wanted) => routes.set(wanted),
            }
        }
    }
    if spec.attachment.is_none() {
        network::abandon_connections();
    }
    init.kill();
    // The exit of the first process shows that every process of the site has ended. It waits for
    // children that this process has not reaped yet. These have ended and hold no resources, so the
    // wait is limited.
    let deadline = Instant::now() + Duration::from_secs(1);
    while !init.reaped() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}
