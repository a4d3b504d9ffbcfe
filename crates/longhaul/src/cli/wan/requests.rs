//! Answers requests about a running topology: its report, access to its sites, and changes of its
//! links.

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::Context;
use longhaul_core::plan::{LinkOptions, LinkPlan, TopologyPlan};
use longhaul_core::result::TopologyReport;
use longhaul_core::wire::{FrameError, read_frame, write_frame};
use longhaul_emu::{EmuError, GuestShell, Topology};

use super::control::{self, Reply, Request};
use crate::cli::link::open_trace;
use crate::output::{failure_text, print_message};

/// Reads the request of a command that has connected. An invalid or aborted request affects only
/// its sender, and the result is then `None`.
pub(super) fn read(stream: &mut UnixStream) -> Option<Request> {
    if !is_own(stream) || control::limit(stream).is_err() {
        return None;
    }
    match read_frame(stream) {
        Ok(request) => Some(request),
        // A command checked whether the topology is up.
        Err(FrameError::Closed) => None,
        Err(error) => {
            print_message(format_args!("cannot read a request: {error}"));
            None
        }
    }
}

/// A running link or topology.
pub(super) trait Emulated {
    /// Returns the plan, with the present state of the links.
    fn plan(&self) -> &TopologyPlan;

    /// Returns the counters so far.
    fn report(&self) -> Result<TopologyReport, EmuError>;

    /// Applies another plan to a link (by index).
    fn set(&mut self, link: usize, plan: LinkPlan) -> Result<(), EmuError>;

    /// Takes a link (by index) down or up.
    fn set_down(&mut self, link: usize, down: bool);

    /// Returns whether a link (by index) is down by request.
    fn is_down(&self, link: usize) -> bool;

    /// Returns the first process of a site (by index) and the environment variables of its
    /// commands, if there are sites.
    fn site(&self, site: usize) -> Option<(BorrowedFd<'_>, Vec<(String, String)>)>;

    /// Returns the shell of a site (by index) that is a virtual machine.
    fn guest_shell(&self, _site: usize) -> Option<&GuestShell> {
        None
    }
}

impl Emulated for Topology {
    fn plan(&self) -> &TopologyPlan {
        self.plan()
    }

    fn report(&self) -> Result<TopologyReport, EmuError> {
        self.report()
    }

    fn set(&mut self, link: usize, plan: LinkPlan) -> Result<(), EmuError> {
        self.set(link, plan)
    }

    fn set_down(&mut self, link: usize, down: bool) {
        self.set_down(link, down);
    }

    fn is_down(&self, link: usize) -> bool {
        self.is_down(link)
    }

    fn site(&self, site: usize) -> Option<(BorrowedFd<'_>, Vec<(String, String)>)> {
        Some((self.site_process(site), self.environment(site)))
    }

    fn guest_shell(&self, site: usize) -> Option<&GuestShell> {
        self.guest_shell(site)
    }
}

/// Answers a request about `topology`, except [`Request::Down`].
pub(super) fn answer(topology: &mut impl Emulated, stream: &mut UnixStream, request: Request) {
    let reply = match request {
        Request::Status => return answer_report(stream, topology.report()),
        Request::Enter { site } => match enter(topology, stream, &site) {
            Ok(()) => return,
            Err(error) => Err(error),
        },
        Request::Set { link, options, directory, down } => {
            set(topology, &link, (&options, &directory), down)
        }
        // The caller handles it.
        Request::Down => return,
    };
    let reply =
        reply.unwrap_or_else(|error| Reply::Refused { reason: failure_text(error.as_ref()) });
    let _ = write_frame(stream, &reply);
}

fn enter(topology: &impl Emulated, stream: &mut UnixStream, site: &str) -> anyhow::Result<()> {
    let plan = topology.plan();
    let index = plan
        .site(site)
        .with_context(|| format!("no site '{site}'; the sites are {}", plan.sites.join(", ")))?;
    if let Some(interface) = plan.attachments.get(&plan.sites[index]).and_then(|to| to.interface())
    {
        anyhow::bail!("'{site}' is a host behind {interface}; run the command on that host");
    }
    let (process, environment) =
        topology.site(index).with_context(|| format!("no command can run at '{site}'"))?;
    let guest_shell = topology.guest_shell(index).map(|shell| shell.words().to_vec());
    let guest_shell = guest_shell.unwrap_or_default();
    let reply = Reply::Enter { environment, user_namespace: user_namespace()?, guest_shell };
    write_frame(stream, &reply)?;
    Ok(control::send_descriptor(stream, process)?)
}

fn set(
    topology: &mut impl Emulated,
    link: &str,
    (options, directory): (&LinkOptions, &Path),
    down: Option<bool>,
) -> anyhow::Result<Reply> {
    let plan = topology.plan();
    let index = plan.link(link).with_context(|| {
        let names: Vec<&str> = plan.links.iter().map(|link| &*link.name).collect();
        format!("no link '{link}'; the links are {}", names.join(", "))
    })?;
    let read = |file: &str| open_trace(&directory.join(file).to_string_lossy());
    let changed = options.change(&plan.links[index].plan, &read)?;
    topology.set(index, changed.clone())?;
    if let Some(down) = down {
        topology.set_down(index, down);
    }
    Ok(Reply::Changed { plan: Box::new(changed), down: topology.is_down(index) })
}

/// Returns the name of the user namespace of this process, as in `/proc/self/ns/user`.
pub(super) fn user_namespace() -> anyhow::Result<String> {
    let name =
        std::fs::read_link("/proc/self/ns/user").context("cannot read /proc/self/ns/user")?;
    Ok(name.to_string_lossy().into_owned())
}

/// Sends a report, or the reason why there is none.
pub(super) fn answer_report(stream: &mut UnixStream, report: Result<TopologyReport, EmuError>) {
    let _ = match report {
        Ok(report) => control::send_report(stream, report),
        Err(error) => write_frame(stream, &Reply::Refused { reason: failure_text(&error) }),
    };
}

/// Returns whether the peer runs as this user.
fn is_own(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}
