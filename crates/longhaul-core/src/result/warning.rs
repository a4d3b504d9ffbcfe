use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Rate};

/// One of the two ends of a test or copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The one that gives the bytes.
    Sender,
    /// The one that takes them.
    Receiver,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            End::Sender => "sender",
            End::Receiver => "receiver",
        })
    }
}

/// What makes a result less than it seems: a closed list. [`Warning`] adds the words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum WarningKind {
    /// The host allows smaller socket buffers than were asked for.
    WindowClipped {
        /// At which end.
        end: End,
        /// What was asked for.
        requested_bytes: Bytes,
        /// What the kernel gave.
        granted_bytes: Bytes,
    },
    /// A thread that moves bytes used a whole core: the host, not the path, was measured.
    CpuBound {
        /// At which end.
        end: End,
        /// Of one core, for the busiest thread.
        cpu_percent: f64,
    },
    /// A test that ran to its end in which the ends do not agree on the bytes.
    TotalsDisagree {
        /// By the sender's count.
        sent_bytes: Bytes,
        /// By the receiver's count.
        received_bytes: Bytes,
    },
    /// The test went far slower than it was paced to.
    PacingMissed {
        /// What was asked for.
        requested_bps: Rate,
        /// The goodput.
        throughput_bps: Rate,
    },
    /// The test ended before the omitted time had passed, so that nothing of it counts.
    AllOmitted,
    /// The receiving kernel dropped the bytes without copying them, as was asked for.
    ReceiveNotCopied,
    /// A host dropped datagrams itself: the path is not to blame for them.
    HostDropped {
        /// At which end.
        end: End,
        /// How many.
        datagrams: u64,
    },
    /// A connection of a test over MPTCP was plain TCP.
    NotMultipath,
    /// The clock by which arrivals are timed was set while a path was surveyed.
    ClockStepped {
        /// By how much.
        step_ms: f64,
    },
}

impl WarningKind {
    /// What is wrong, as a sentence without a full stop.
    pub fn message(&self) -> String {
        match self {
            WarningKind::WindowClipped { end, requested_bytes, granted_bytes } => format!(
                "the {end}'s kernel clipped the window from {requested_bytes} to {granted_bytes}"
            ),
            WarningKind::CpuBound { end, cpu_percent } => {
                format!("a thread of the {end} used {cpu_percent:.0} % of its core")
            }
            WarningKind::TotalsDisagree { sent_bytes, received_bytes } => format!(
                "the sender counted {} bytes and the receiver {}",
                sent_bytes.get(),
                received_bytes.get()
            ),
            WarningKind::PacingMissed { requested_bps, throughput_bps } => {
                format!("{requested_bps} were asked for and {throughput_bps} arrived")
            }
            WarningKind::AllOmitted => "the test ended within the omitted time".to_owned(),
            WarningKind::ReceiveNotCopied => {
                "the receiver dropped the bytes without looking at them".to_owned()
            }
            WarningKind::HostDropped { end: End::Sender, datagrams } => {
                format!("the sender's own interface queue dropped {datagrams} datagrams")
            }
            WarningKind::HostDropped { end: End::Receiver, datagrams } => {
                format!("the receiver's full socket buffer dropped {datagrams} datagrams")
            }
            WarningKind::ClockStepped { step_ms } => {
                format!("the clock of this host was set by {step_ms:.0} ms during the survey")
            }
            WarningKind::NotMultipath => {
                "a connection fell back from MPTCP to plain TCP".to_owned()
            }
        }
    }

    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            WarningKind::WindowClipped { .. } => {
                "raise net.core.rmem_max and net.core.wmem_max there, or leave -w out: the \
                 kernel's autotuning has its own limits, net.ipv4.tcp_rmem and tcp_wmem"
            }
            WarningKind::CpuBound { .. } => {
                "use more streams (-P), so that more cores share the work"
            }
            WarningKind::TotalsDisagree { .. } => {
                "do not use this result: something between the ends changes the data; please \
                 report it"
            }
            WarningKind::PacingMissed { .. } => {
                "the path or a host is slower than -b; measure again without -b"
            }
            WarningKind::AllOmitted => "make the test longer, or omit less (-O)",
            WarningKind::ReceiveNotCopied => {
                "no application could receive at this rate; measure without --skip-rx-copy"
            }
            WarningKind::HostDropped { end: End::Sender, .. } => {
                "send slower (-b), or raise the interface's txqueuelen"
            }
            WarningKind::HostDropped { end: End::Receiver, .. } => {
                "send slower (-b), or raise net.core.rmem_max there and the buffer (-w)"
            }
            WarningKind::ClockStepped { .. } => {
                "measure again: times before and after do not go together"
            }
            WarningKind::NotMultipath => {
                "the server, or a box on the path, does not have MPTCP; set net.mptcp.enabled=1 \
                 there and restart it"
            }
        }
    }
}

/// A [`WarningKind`] with its words, as documents carry it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Warning {
    /// Which one, with its figures; its fields stand beside the words.
    #[serde(flatten)]
    pub kind: WarningKind,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub advice: String,
}

impl From<WarningKind> for Warning {
    fn from(kind: WarningKind) -> Self {
        Warning { message: kind.message(), advice: kind.advice().to_owned(), kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_carries_its_words_and_comes_back() {
        let warning = Warning::from(WarningKind::WindowClipped {
            end: End::Receiver,
            requested_bytes: Bytes::mib(64),
            granted_bytes: Bytes::new(212_992),
        });
        let text = serde_json::to_string(&warning).unwrap();
        assert!(text.contains(r#""kind":"window_clipped","end":"receiver""#), "{text}");
        assert!(text.contains("from 64.0 MiB to 208 KiB"), "{text}");
        assert_eq!(serde_json::from_str::<Warning>(&text).unwrap(), warning);
    }
}
