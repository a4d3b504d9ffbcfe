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

/// The reasons why a result may be misleading.
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
    /// The goodput was far below the requested rate, or the sender of datagrams missed the rate for a
    /// second or longer.
    PacingMissed {
        /// The requested rate.
        requested_bps: Rate,
        /// The goodput.
        throughput_bps: Rate,
        /// The time in which the sender missed the rate most; `None` if it kept the rate.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sending: Option<MissedTime>,
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

/// A time of a second or longer in which a sender of datagrams missed its rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MissedTime {
    /// The rate of the datagrams sent.
    pub sent_bps: Rate,
    /// The start of the time in seconds.
    pub from_seconds: f64,
    /// The end of the time in seconds.
    pub to_seconds: f64,
    /// The share of the time in which the busiest sending thread ran.
    pub running_percent: f64,
    /// The share of the time in which this thread was ready but waited for a core.
    pub waiting_percent: f64,
}

/// A [`WarningKind`] as documents contain it. The program fills in the sentences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Warning {
    /// The kind with its figures; its fields are inlined.
    #[serde(flatten)]
    pub kind: WarningKind,
    /// The problem as a sentence without a final period.
    #[serde(default)]
    pub message: String,
    /// The advice as a sentence without a final period.
    #[serde(default)]
    pub advice: String,
}

impl From<WarningKind> for Warning {
    fn from(kind: WarningKind) -> Self {
        Warning { kind, message: String::new(), advice: String::new() }
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
        assert_eq!(serde_json::from_str::<Warning>(&text).unwrap(), warning);
    }
}
