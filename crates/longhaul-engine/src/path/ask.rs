use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use longhaul_core::result::Prober;
use longhaul_sys::probe::{Report, Reported};

/// A packet that asks for an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question {
    pub(super) number: u32,
    /// With its IP header.
    pub(super) packet_bytes: u32,
    /// What the answer is to have, where the far end can be told.
    pub(super) answer_bytes: u32,
    pub(super) hop_limit: Option<u8>,
}

/// What came of a question.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heard {
    /// Of which; `None` when it does not say.
    pub(super) number: Option<u32>,
    /// Who says it; `None` for this host.
    pub(super) by: Option<IpAddr>,
    pub(super) what: What,
    /// When it came, in ns on the clock of the day.
    pub(super) at_ns: u64,
}

/// What may come of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// It arrived, and when by the far end's clock, and when the answer left.
    Answer(Option<FarTimes>),
    /// A router had used its hop limit up.
    HopLimit,
    /// It is too large: this many bytes would pass, or 0.
    TooBig(u32),
    /// It does not get there.
    Unreachable,
}

/// On the far end's clock, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FarTimes {
    pub(super) arrived_ns: u64,
    pub(super) answered_ns: u64,
}

/// What asks, and hears.
pub(super) trait Ask {
    /// Sends a question.
    ///
    /// # Errors
    /// `EMSGSIZE` when it is larger than the interface takes; others when it cannot be sent at all.
    fn ask(&mut self, question: &Question) -> io::Result<()>;

    /// What is heard next, until a time.
    fn hear(&mut self, until: Instant) -> Option<Heard>;

    /// The next number that no question has had.
    fn number(&mut self) -> u32;

    /// What its packets are.
    fn prober(&self) -> Prober;

    /// The far end.
    fn far(&self) -> IpAddr;

    /// How much time the far end needs between two answers.
    fn rest(&self) -> Duration {
        Duration::ZERO
    }

    /// The smallest packet that it sends, with its IP header.
    fn least_bytes(&self) -> u32;
}

/// Whether a packet is larger than this host's interface takes.
pub(super) fn is_too_big(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error())
}

/// Sends by `attempt`, again where it failed for what was reported of an earlier packet, of which
/// the kernel tells once for each. Of a packet that is too large, which a router may have reported,
/// this host says so every time.
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

/// What a report says of question `number`; `closed` is what a closed port means here.
pub(super) fn reported(number: Option<u32>, report: &Reported, closed: What) -> Heard {
    let what = match report.what {
        Report::HopLimit => What::HopLimit,
        Report::TooBig(bytes) => What::TooBig(bytes),
        Report::PortClosed => closed,
        Report::Prohibited | Report::Unreachable | Report::Other => What::Unreachable,
    };
    Heard { number, by: report.by, what, at_ns: report.at_nanos }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn what_was_reported_of_others_does_not_keep_a_packet_back() {
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
