//! Warnings about results.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Rate};

/// An end of a test or copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The end that sends the bytes.
    Sender,
    /// The end that receives the bytes.
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

/// The reasons why a result may be misleading. [`Warning`] adds the sentences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum WarningKind {
    /// The host's limits are smaller than the requested socket buffers.
    WindowClipped {
        /// The end concerned.
        end: End,
        /// The requested size.
        requested_bytes: Bytes,
        /// The size that the kernel granted.
        granted_bytes: Bytes,
    },
    /// A thread that moves bytes used a whole core: the result describes the host, not the path.
    CpuBound {
        /// The end concerned.
        end: End,
        /// The use of one core by the busiest thread, in percent.
        cpu_percent: f64,
    },
    /// The test completed, but its ends counted different bytes.
    TotalsDisagree {
        /// The sender's count.
        sent_bytes: Bytes,
        /// The receiver's count.
        received_bytes: Bytes,
    },
    /// The goodput was far below the requested rate.
    PacingMissed {
        /// The requested rate.
        requested_bps: Rate,
        /// The goodput.
        throughput_bps: Rate,
    },
    /// The test ended within the omitted time, so it has no result.
    AllOmitted,
    /// The receiving kernel discarded the bytes without copying them, as requested.
    ReceiveNotCopied,
    /// A host, not the path, dropped datagrams.
    HostDropped {
        /// The end concerned.
        end: End,
        /// The number of datagrams.
        datagrams: u64,
    },
    /// A connection of an MPTCP test was plain TCP.
    NotMultipath,
    /// The clock that times arrivals was set during a path measurement.
    ClockStepped {
        /// The change of the clock in ms.
        step_ms: f64,
    },
}

impl WarningKind {
    /// Returns the problem as a sentence without a final period.
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
                format!("{requested_bps} were requested and {throughput_bps} arrived")
            }
            WarningKind::AllOmitted => "the test ended within the omitted time".to_owned(),
            WarningKind::ReceiveNotCopied => {
                "the receiver discarded the bytes without reading them".to_owned()
            }
            WarningKind::HostDropped { end: End::Sender, datagrams } => {
                format!("the sender's own interface queue dropped {datagrams} datagrams")
            }
            WarningKind::HostDropped { end: End::Receiver, datagrams } => {
                format!("the receiver's full socket buffer dropped {datagrams} datagrams")
            }
            WarningKind::ClockStepped { step_ms } => {
                format!("the clock of this host was set by {step_ms:.0} ms during the measurement")
            }
            WarningKind::NotMultipath => {
                "a connection fell back from MPTCP to plain TCP".to_owned()
            }
        }
    }

    /// Returns the advice.
    pub fn advice(&self) -> &'static str {
        match self {
            WarningKind::WindowClipped { .. } => {
                "raise net.core.rmem_max and net.core.wmem_max there, or omit -w: the \
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
                "measure again: times before and after the change cannot be compared"
            }
            WarningKind::NotMultipath => {
                "the server or a middlebox does not support MPTCP; set net.mptcp.enabled=1 \
                 there and restart it"
            }
        }
    }
}

/// A [`WarningKind`] with its sentences, as documents contain it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Warning {
    /// The kind with its figures; its fields are inlined.
    #[serde(flatten)]
    pub kind: WarningKind,
    /// The problem.
    pub message: String,
    /// The advice.
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
    fn a_warning_is_read_as_written() {
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
