//! The protocol between the `wan` commands and the holder of a topology: one request and its reply
//! per connection of a Unix socket.
//!
//! The socket is in a directory that only its user may enter, and the holder checks the user of the
//! peer. Messages have the bounded frames of [`longhaul_core::wire`]. Both processes run the same
//! program, so the format has no version.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use longhaul_core::plan::{LinkOptions, LinkPlan};
use longhaul_core::result::{TopologyLinkReport, TopologyReport};
use longhaul_core::wire::{FrameError, read_frame, write_frame};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize};

/// The time limit for a message.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// A request to the holder of a topology.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub(super) enum Request {
    /// The counters so far. The reply is a [`Reply::Report`] and its links.
    Status,
    /// Access to a site. The reply is a [`Reply::Enter`] and the descriptor of a process.
    Enter {
        /// The site's name.
        site: String,
    },
    /// Change a link.
    Set {
        /// The link's name.
        link: String,
        /// The options to change.
        options: LinkOptions,
        /// The directory of the files that the options name.
        directory: PathBuf,
        /// True to take the link down, false to bring it up.
        down: Option<bool>,
    },
    /// Take the topology down. The reply is as for [`Request::Status`], when nothing is left.
    Down,
}

/// A reply of the holder.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub(super) enum Reply {
    /// A report without its links, which follow in a frame each.
    Report {
        /// The report without links.
        report: TopologyReport,
        /// The number of links that follow.
        links: usize,
    },
    /// Access to a site. One byte with the descriptor of its first process follows.
    Enter {
        /// The environment variables of commands at the site.
        environment: Vec<(String, String)>,
        /// The holder's user namespace, as `/proc/self/ns/user` names it.
        user_namespace: String,
        /// The words of the command that enters the virtual machine; none if the site is not one.
        guest_shell: Vec<String>,
    },
    /// The link was changed.
    Changed {
        /// The new plan of the link.
        plan: Box<LinkPlan>,
        /// True if the link is down by request.
        down: bool,
    },
    /// The request is invalid or failed.
    Refused {
        /// The reason.
        reason: String,
    },
}

/// Sets the time limits of a connection.
pub(super) fn limit(stream: &UnixStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(TIME_LIMIT))?;
    stream.set_write_timeout(Some(TIME_LIMIT))
}

/// Sends a request and returns the reply.
pub(super) fn ask(stream: &mut UnixStream, request: &Request) -> anyhow::Result<Reply> {
    // Taking down many sites can take longer than any other request.
    let limit = matches!(request, Request::Down).then_some(6 * TIME_LIMIT).or(Some(TIME_LIMIT));
    stream.set_read_timeout(limit).context("cannot set the timeout of the socket")?;
    write_frame(stream, request).context("cannot send a request to the topology")?;
    match read_frame(stream).context("the topology did not reply")? {
        Reply::Refused { reason } => bail!(reason),
        reply => Ok(reply),
    }
}

/// Sends a request for a report and reads the report with its links.
pub(super) fn ask_report(
    stream: &mut UnixStream,
    request: &Request,
) -> anyhow::Result<TopologyReport> {
    let Reply::Report { mut report, links } = ask(stream, request)? else {
        return Err(unexpected());
    };
    for _ in 0..links {
        let link: TopologyLinkReport =
            read_frame(stream).context("the reply of the topology is incomplete")?;
        report.links.push(link);
    }
    Ok(report)
}

/// Returns the error for a reply of an unexpected kind.
pub(super) fn unexpected() -> anyhow::Error {
    anyhow!("unexpected reply of the topology; check that the same version of longhaul started it")
}

/// Sends a report.
pub(super) fn send_report(
    stream: &mut UnixStream,
    mut report: TopologyReport,
) -> Result<(), FrameError> {
    let links = std::mem::take(&mut report.links);
    write_frame(stream, &Reply::Report { report, links: links.len() })?;
    links.iter().try_for_each(|link| write_frame(stream, link))
}

/// Sends a descriptor, with one byte.
pub(super) fn send_descriptor(
    stream: &UnixStream,
    descriptor: BorrowedFd<'_>,
) -> std::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let descriptors = [descriptor];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    rustix::net::sendmsg(stream, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a descriptor.
pub(super) fn receive_descriptor(stream: &UnixStream) -> std::io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    control
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        })
        .ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_descriptor_passes_over_the_socket() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut near, far) = UnixStream::pair().unwrap();
        send_descriptor(&ours, far.as_fd()).unwrap();
        drop(far);
        let mut far = UnixStream::from(receive_descriptor(&theirs).unwrap());
        far.write_all(b"hello").unwrap();
        let mut received = [0; 5];
        near.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"hello");
    }

    #[test]
    fn a_message_without_a_descriptor_is_an_error() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&[0]).unwrap();
        assert!(receive_descriptor(&ours).is_err());
    }

    #[test]
    fn a_refusal_becomes_an_error_with_its_reason() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        write_frame(&mut theirs, &Reply::Refused { reason: "there is no site 'x'".into() })
            .unwrap();
        let error = ask(&mut ours, &Request::Enter { site: "x".into() }).unwrap_err();
        assert_eq!(error.to_string(), "there is no site 'x'");
        let Request::Enter { site } = read_frame(&mut theirs).unwrap() else { panic!() };
        assert_eq!(site, "x");
    }
}
