//! Answers requests about a running topology: its report, access to its sites, and changes of its
//! links.

use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::Context;
use longhaul_core::plan::LinkOptions;
use longhaul_core::result::TopologyReport;
use longhaul_core::wire::{FrameError, read_frame, write_frame};
use longhaul_emu::{EmuError, Topology};

use super::control::{self, Reply, Request};
use crate::cli::link::read_trace;
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

/// Answers a request about `topology`, except [`Request::Down`].
pub(super) fn answer(topology: &mut Topology, stream: &mut UnixStream, request: Request) {
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

fn enter(topology: &Topology, stream: &mut UnixStream, site: &str) -> anyhow::Result<()> {
    let plan = topology.plan();
    let index = plan
        .site(site)
        .with_context(|| format!("no site '{site}'; the sites are {}", plan.sites.join(", ")))?;
    let reply = Reply::Enter {
        environment: topology.environment(index),
        user_namespace: user_namespace()?,
    };
    write_frame(stream, &reply)?;
    Ok(control::send_descriptor(stream, topology.site_process(index))?)
}

fn set(
    topology: &mut Topology,
    link: &str,
    (options, directory): (&LinkOptions, &Path),
    down: Option<bool>,
) -> anyhow::Result<Reply> {
    let plan = topology.plan();
    let index = plan.link(link).with_context(|| {
        let names: Vec<&str> = plan.links.iter().map(|link| &*link.name).collect();
        format!("no link '{link}'; the links are {}", names.join(", "))
    })?;
    let read = |file: &str| read_trace(&directory.join(file).to_string_lossy());
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
