//! What the commands and the process that holds a topology say to each other: one request on a
//! connection of a Unix socket, and its answer.
//!
//! The socket lies in a directory that only its user may enter, and the holder looks at who is on
//! the other end besides. Messages have the frames of [`longhaul_core::wire`], whose length is
//! bounded; both ends are of one machine and one program, so the format has no version.

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

/// How long either end waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a command asks of the process that holds the topology.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub(super) enum Request {
    /// What passed so far. The answer is a [`Reply::Report`] and its links.
    Status,
    /// Let me into a site. The answer is a [`Reply::Enter`] and a process's descriptor.
    Enter {
        /// The site's name.
        site: String,
    },
    /// Change a link.
    Set {
        /// The link's name.
        link: String,
        /// What to change.
        options: LinkOptions,
        /// Where the files lie that the options name.
        directory: PathBuf,
    },
    /// Take everything down. The answer is as for [`Request::Status`], once nothing is left.
    Down,
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub(super) enum Reply {
    /// A report without its links, of which so many follow, a frame each.
    Report {
        /// The rest of it.
        report: TopologyReport,
        /// How many links follow.
        links: usize,
    },
    /// The way into a site; one byte with the descriptor of its first process follows.
    Enter {
        /// What a command there finds in its environment.
        environment: Vec<(String, String)>,
        /// The holder's user namespace, as `/proc/self/ns/user` names it.
        user_namespace: String,
    },
    /// The link was changed to this.
    Changed {
        /// The link's plan from now on.
        plan: Box<LinkPlan>,
    },
    /// The request makes no sense, or failed.
    Refused {
        /// Why.
        reason: String,
    },
}

/// Bounds the time that either end may keep the other waiting.
pub(super) fn limit(stream: &UnixStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

/// Asks, and returns the answer.
pub(super) fn ask(stream: &mut UnixStream, request: &Request) -> anyhow::Result<Reply> {
    // Taking down many sites may take longer than any other answer.
    let patience = matches!(request, Request::Down).then_some(6 * PATIENCE).or(Some(PATIENCE));
    stream.set_read_timeout(patience).context("cannot wait for the topology")?;
    write_frame(stream, request).context("cannot ask the topology")?;
    match read_frame(stream).context("the topology did not answer")? {
        Reply::Refused { reason } => bail!(reason),
        reply => Ok(reply),
    }
}

/// Asks for a report, and reads all of it.
pub(super) fn ask_report(
    stream: &mut UnixStream,
    request: &Request,
) -> anyhow::Result<TopologyReport> {
    let Reply::Report { mut report, links } = ask(stream, request)? else {
        return Err(unexpected());
    };
    for _ in 0..links {
        let link: TopologyLinkReport =
            read_frame(stream).context("the topology did not answer in full")?;
        report.links.push(link);
    }
    Ok(report)
}

/// What an answer that nobody asked for means.
pub(super) fn unexpected() -> anyhow::Error {
    anyhow!("the topology answered something else; was it built by another longhaul?")
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
    fn a_descriptor_crosses() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut near, far) = UnixStream::pair().unwrap();
        send_descriptor(&ours, far.as_fd()).unwrap();
        drop(far);
        let mut far = UnixStream::from(receive_descriptor(&theirs).unwrap());
        far.write_all(b"hello").unwrap();
        let mut heard = [0; 5];
        near.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello");
    }

    #[test]
    fn an_end_without_a_descriptor_is_an_error() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&[0]).unwrap();
        assert!(receive_descriptor(&ours).is_err());
    }

    #[test]
    fn a_refusal_is_the_answers_reason() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        write_frame(&mut theirs, &Reply::Refused { reason: "there is no site 'x'".into() })
            .unwrap();
        let error = ask(&mut ours, &Request::Enter { site: "x".into() }).unwrap_err();
        assert_eq!(error.to_string(), "there is no site 'x'");
        let Request::Enter { site } = read_frame(&mut theirs).unwrap() else { panic!() };
        assert_eq!(site, "x");
    }
}
