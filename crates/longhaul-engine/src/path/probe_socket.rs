//! The interface of probers: probes and answers.

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use longhaul_core::result::Prober;
use longhaul_sys::probe::{ReceivedReport, Report};

/// A packet that requests an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProbeSpec {
    pub(super) number: u32,
    /// The length of the packet with its IP header.
    pub(super) packet_bytes: u32,
    /// The requested length of the answer, if the peer supports it.
    pub(super) answer_bytes: u32,
    pub(super) hop_limit: Option<u8>,
}

/// The answer or error for a probe.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProbeReply {
    /// The number of the probe; `None` if the report does not contain it.
    pub(super) number: Option<u32>,
    /// The sender of the answer; `None` for this host.
    pub(super) by: Option<IpAddr>,
    pub(super) what: ReplyKind,
    /// The time of arrival in ns of the wall clock.
    pub(super) at_ns: u64,
}

/// The kinds of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyKind {
    /// The packet arrived; with the peer's times of its arrival and of the answer.
    Answer(Option<PeerTimes>),
    /// A router reported that the hop limit was used up.
    HopLimit,
    /// The packet is too large: this many bytes would pass, or 0 if unknown.
    TooBig(u32),
    /// The destination is unreachable.
    Unreachable,
}

/// Times in ns of the peer's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeerTimes {
    pub(super) arrived_ns: u64,
    pub(super) answered_ns: u64,
    /// The lowest byte of the number of requests that the peer had received; always 0 from earlier
    /// versions.
    pub(super) requests: u8,
}

/// A prober that sends probes and receives answers.
pub(super) trait ProbeSocket {
    /// Sends a probe.
    ///
    /// # Errors
    /// `EMSGSIZE` if the probe is larger than the interface's MTU; other errors if it cannot be
    /// sent.
    fn send_probe(&mut self, probe: &ProbeSpec) -> io::Result<()>;

    /// Returns the next answer until a deadline.
    fn receive_reply(&mut self, until: Instant) -> Option<ProbeReply>;

    /// Returns an unused number.
    fn number(&mut self) -> u32;

    /// Returns the kind of packets that it sends.
    fn prober(&self) -> Prober;

    /// Returns the peer's address.
    fn far(&self) -> IpAddr;

    /// Returns the time that the peer needs between two answers.
    fn pause(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the length of the smallest probe with its IP header.
    fn least_bytes(&self) -> u32;
}

/// Returns whether a packet is larger than the MTU of this host's interface.
pub(super) fn is_too_big(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error())
}

/// Sends by `attempt`, and repeats it after errors that belong to an earlier packet, each of which
/// the kernel reports once. This host reports a packet that is too large every time.
pub(super) fn past_reports(mut attempt: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    use rustix::io::Errno;
    const REPORTED: [Errno; 6] = [
        Errno::MSGSIZE,
        Errno::HOSTUNREACH,
        Errno::NETUNREACH,
        Errno::CONNREFUSED,
        Errno::PROTO,
        Errno::ACCESS,
    ];
    const TRIES: usize = 8;
    let mut last = attempt();
    for _ in 0..TRIES {
        let again = last.as_ref().is_err_and(|error| {
            REPORTED.iter().any(|code| error.raw_os_error() == Some(code.raw_os_error()))
        });
        if !again {
            break;
        }
        last = attempt();
    }
    last
}

/// Converts a report about probe `number`; `closed` is the meaning of a closed port.
pub(super) fn reported(
    number: Option<u32>,
    report: &ReceivedReport,
    closed: ReplyKind,
) -> ProbeReply {
    let what = match report.what {
        Report::HopLimit => ReplyKind::HopLimit,
        Report::TooBig(bytes) => ReplyKind::TooBig(bytes),
        Report::PortClosed => closed,
        Report::Prohibited | Report::Unreachable | Report::Other => ReplyKind::Unreachable,
    };
    ProbeReply { number, by: report.by, what, at_ns: report.at_nanos }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn errors_of_earlier_packets_do_not_stop_a_send() {
        let mut pending = vec![Errno::MSGSIZE, Errno::HOSTUNREACH, Errno::CONNREFUSED];
        let sent = past_reports(|| pending.pop().map_or(Ok(()), |error| Err(error.into())));
        assert!(sent.is_ok() && pending.is_empty());
        let always = past_reports(|| Err(Errno::MSGSIZE.into())).unwrap_err();
        assert!(is_too_big(&always));
        let mut asked = 0;
        let full = past_reports(|| {
            asked += 1;
            Err(Errno::NOBUFS.into())
        });
        assert!(full.is_err() && asked == 1);
    }
}
