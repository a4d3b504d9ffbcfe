//! The holder of a topology: it builds the topology, answers requests and takes it down.
//!
//! Nothing of a topology outlives the holder. A killed holder leaves a socket without a listener
//! and an unlocked lock file.

use std::os::unix::net::{UnixListener, UnixStream};

use anyhow::Context;
use longhaul_core::plan::TopologyPlan;
use longhaul_core::result::TopologyReport;
use longhaul_emu::{EmuError, Topology, acquire_privileges};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::control::Request;
use super::packets::{PacketFile, RunningCapture};
use super::requests;
use super::runtime::{RuntimeFiles, RuntimeLock};

/// A running topology and the socket for its requests.
pub(super) struct Holder {
    topology: Topology,
    capture: Option<RunningCapture>,
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
    pub(super) fn start(
        plan: &TopologyPlan,
        files: &RuntimeFiles,
        capture_to: Option<PacketFile>,
    ) -> anyhow::Result<Holder> {
        let held = files.hold()?;
        let build = || {
            let (topology, listener, signals) = Holder::build(plan, &held)?;
            let capture = capture_to.map(|to| to.start(plan)).transpose()?;
            if let Some(capture) = &capture {
                topology.capture(capture.capture());
            }
            anyhow::Ok((topology, capture, listener, signals))
        };
        match build() {
            Ok((topology, capture, listener, signals)) => {
                Ok(Holder { topology, capture, listener, held, signals })
            }
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
                // Frequent requests must not delay the check of the interfaces.
                Some(Wake::Call) if !self.topology.has_ports() => {}
                Some(Wake::Signal) => {
                    let report = self.topology.finish();
                    end_capture(self.capture);
                    self.held.clear(false)?;
                    return Ok(End::Signal(report?));
                }
                Some(wake) => match self.topology.check_sites() {
                    Ok(()) if matches!(wake, Wake::Call) => {}
                    Ok(()) => continue,
                    Err(error) => {
                        // Every process of the other sites ends with them.
                        drop(self.topology);
                        end_capture(self.capture);
                        return Ok(End::Site(error, self.held));
                    }
                },
                None => continue,
            }
            let Ok((mut stream, _)) = self.listener.accept() else { continue };
            match requests::read(&mut stream) {
                Some(Request::Down) => {
                    let report = self.topology.finish();
                    end_capture(self.capture);
                    self.held.clear(true)?;
                    requests::answer_report(&mut stream, report);
                    return Ok(End::Command(stream));
                }
                Some(request) => requests::answer(&mut self.topology, &mut stream, request),
                None => {}
            }
        }
    }

    /// Waits for the next request, signal or end of a site. Returns `None` after an interruption.
    fn wait(&self) -> Option<Wake> {
        /// The interval of checks of the interfaces to which sites are attached.
        const CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
        let mut ready = vec![
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        ready.extend(
            self.topology.site_lives().map(|life| PollFd::from_borrowed_fd(life, PollFlags::IN)),
        );
        let limit = self.topology.has_ports().then_some(&CHECK);
        let count = poll(&mut ready, limit).ok()?;
        let is_ready = |fd: &PollFd| !fd.revents().is_empty();
        match ready.as_slice() {
            _ if count == 0 => Some(Wake::Site),
            [signal, ..] if is_ready(signal) => Some(Wake::Signal),
            [_, _, sites @ ..] if sites.iter().any(is_ready) => Some(Wake::Site),
            [_, call, ..] if is_ready(call) => Some(Wake::Call),
            _ => None,
        }
    }
}

fn end_capture(capture: Option<RunningCapture>) {
    if let Some(capture) = capture {
        capture.end();
    }
}
