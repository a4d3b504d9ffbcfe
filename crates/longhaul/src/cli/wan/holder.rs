//! The holder of a topology: it builds the topology, answers requests and takes it down.
//!
//! Nothing of a topology outlives the holder. A killed holder leaves a socket without a listener
//! and an unlocked lock file.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use anyhow::Context;
use longhaul_core::plan::{LinkOptions, TopologyPlan};
use longhaul_core::result::TopologyReport;
use longhaul_core::wire::{FrameError, read_frame, write_frame};
use longhaul_emu::{EmuError, Topology, acquire_privileges};
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::control::{self, Reply, Request};
use super::runtime::{RuntimeFiles, RuntimeLock};
use crate::cli::link::read_trace;
use crate::output::{failure_text, print_message};

/// A running topology and the socket for its requests.
pub(super) struct Holder {
    topology: Topology,
    listener: UnixListener,
    held: RuntimeLock,
    /// Readable after a signal to end.
    signals: UnixStream,
}

/// The end of a topology.
pub(super) enum End {
    /// A signal to this process.
    Signal(TopologyReport),
    /// The command `wan down`, which waits on the stream until this process has ended.
    Command(UnixStream),
    /// The process that holds a site ended. The socket and the lock still exist.
    Site(EmuError, RuntimeLock),
}

/// The reason for a wake-up of the holder.
enum Wake {
    Call,
    Signal,
    Site,
}

impl Holder {
    /// Builds the topology and listens. The process must have only one thread.
    pub(super) fn start(plan: &TopologyPlan, files: &RuntimeFiles) -> anyhow::Result<Holder> {
        let held = files.hold()?;
        match Holder::build(plan, &held) {
            Ok((topology, listener, signals)) => Ok(Holder { topology, listener, held, signals }),
            Err(error) => {
                held.clear(true)?;
                Err(error)
            }
        }
    }

    fn build(
        plan: &TopologyPlan,
        held: &RuntimeLock,
    ) -> anyhow::Result<(Topology, UnixListener, UnixStream)> {
        acquire_privileges()?;
        let (signals, writer) = UnixStream::pair().context("cannot handle signals")?;
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            let writer = writer.try_clone().context("cannot handle signals")?;
            signal_hook::low_level::pipe::register(signal, writer)
                .context("cannot handle signals")?;
        }
        let topology = Topology::start(plan)?;
        Ok((topology, held.listen()?, signals))
    }

    /// Answers requests until a signal or a command ends the topology, then takes it down.
    pub(super) fn serve(mut self) -> anyhow::Result<End> {
        loop {
            match self.wait() {
                Some(Wake::Call) => {}
                Some(Wake::Signal) => {
                    let report = self.topology.finish();
                    self.held.clear(false)?;
                    return Ok(End::Signal(report?));
                }
                Some(Wake::Site) => match self.topology.check_sites() {
                    Ok(()) => continue,
                    Err(error) => {
                        // Every process of the other sites ends with them.
                        drop(self.topology);
                        return Ok(End::Site(error, self.held));
                    }
                },
                None => continue,
            }
            // An invalid or aborted request affects only its sender.
            let Ok((mut stream, _)) = self.listener.accept() else { continue };
            if !is_own(&stream) || control::limit(&stream).is_err() {
                continue;
            }
            match read_frame(&mut stream) {
                Ok(Request::Down) => {
                    let report = self.topology.finish();
                    self.held.clear(true)?;
                    answer_report(&mut stream, report);
                    return Ok(End::Command(stream));
                }
                Ok(request) => self.answer(&mut stream, request),
                // A command checked whether the topology is up.
                Err(FrameError::Closed) => {}
                Err(error) => print_message(format_args!("cannot read a request: {error}")),
            }
        }
    }

    /// Waits for the next request, signal or end of a site. Returns `None` after an interruption.
    fn wait(&self) -> Option<Wake> {
        let mut ready = vec![
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        ready.extend(
            self.topology.site_lives().map(|life| PollFd::from_borrowed_fd(life, PollFlags::IN)),
        );
        poll(&mut ready, None).ok()?;
        let is_ready = |fd: &PollFd| !fd.revents().is_empty();
        match ready.as_slice() {
            [signal, ..] if is_ready(signal) => Some(Wake::Signal),
            [_, _, sites @ ..] if sites.iter().any(is_ready) => Some(Wake::Site),
            [_, call, ..] if is_ready(call) => Some(Wake::Call),
            _ => None,
        }
    }

    fn answer(&mut self, stream: &mut UnixStream, request: Request) {
        let reply = match request {
            Request::Status => return answer_report(stream, self.topology.report()),
            Request::Enter { site } => match self.enter(stream, &site) {
                Ok(()) => return,
                Err(error) => Err(error),
            },
            Request::Set { link, options, directory } => self.set(&link, &options, &directory),
            // The caller handles it.
            Request::Down => return,
        };
        let reply =
            reply.unwrap_or_else(|error| Reply::Refused { reason: failure_text(error.as_ref()) });
        let _ = write_frame(stream, &reply);
    }

    fn enter(&self, stream: &mut UnixStream, site: &str) -> anyhow::Result<()> {
        let plan = self.topology.plan();
        let index = plan.site(site).with_context(|| {
            format!("no site '{site}'; the sites are {}", plan.sites.join(", "))
        })?;
        let reply = Reply::Enter {
            environment: self.topology.environment(index),
            user_namespace: user_namespace()?,
        };
        write_frame(stream, &reply)?;
        Ok(control::send_descriptor(stream, self.topology.site_process(index))?)
    }

    fn set(
        &mut self,
        link: &str,
        options: &LinkOptions,
        directory: &Path,
    ) -> anyhow::Result<Reply> {
        let plan = self.topology.plan();
        let index = plan.link(link).with_context(|| {
            let names: Vec<&str> = plan.links.iter().map(|link| &*link.name).collect();
            format!("no link '{link}'; the links are {}", names.join(", "))
        })?;
        let read = |file: &str| read_trace(&directory.join(file).to_string_lossy());
        let changed = options.change(&plan.links[index].plan, &read)?;
        self.topology.set(index, changed.clone())?;
        Ok(Reply::Changed { plan: Box::new(changed) })
    }
}

/// Returns the name of the user namespace of this process, as in `/proc/self/ns/user`.
pub(super) fn user_namespace() -> anyhow::Result<String> {
    let name =
        std::fs::read_link("/proc/self/ns/user").context("cannot read /proc/self/ns/user")?;
    Ok(name.to_string_lossy().into_owned())
}

fn answer_report(stream: &mut UnixStream, report: Result<TopologyReport, EmuError>) {
    let _ = match report {
        Ok(report) => control::send_report(stream, report),
        Err(error) => {
            let reason = format!("{:#}", anyhow::Error::from(error));
            write_frame(stream, &Reply::Refused { reason })
        }
    };
}

/// Returns whether the peer runs as this user.
fn is_own(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}
