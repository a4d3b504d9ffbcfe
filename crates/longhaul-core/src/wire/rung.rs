//! The messages of a diagnosis: what its client has one end do by itself. The server answers each
//! order in turn, and keeps its scratch directory until the channel closes.
//!
//! ```text
//! client                                     server
//!   Open                     ->
//!                            <-              Opened
//!   Read, Write, Forget, Fresh, Look, Examine, in any order
//!                            <-              the event that belongs to each, or Failed
//! ```

use serde::{Deserialize, Serialize};

use super::{RefusalKind, WirePath};
use crate::plan::CopyOptions;
use crate::result::{AloneReport, EndView, Finding, HostUse, SampleReport};
use crate::units::{Bytes, Rate};

/// The longest time that one order may take.
pub const RUNG_LIMIT_SECONDS: f64 = 60.0;

/// What the client orders.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RungOrder {
    /// The first: which end this is.
    Open {
        /// What is read here; empty at a sink.
        sources: Vec<WirePath>,
        /// Where to a copy would go; `None` at a source.
        target: Option<WirePath>,
        /// As the copy would have them.
        options: CopyOptions,
    },
    /// Read the sample and drop it.
    Read {
        /// With the sample.
        options: CopyOptions,
        /// For so long at the most.
        seconds: f64,
    },
    /// Write files into the scratch directory.
    Write {
        /// Bytes in all, at the most.
        bytes: Bytes,
        /// Files that hold them.
        files: u64,
        /// Sync them, as the copy would.
        durable: bool,
        /// For so long at the most.
        seconds: f64,
    },
    /// Let the page cache forget the sample.
    Forget {
        /// With the sample.
        options: CopyOptions,
    },
    /// Remove what was copied here and make an empty directory.
    Fresh,
    /// What the processors did since the last look.
    Look,
    /// What the doctor finds for this target.
    Examine {
        /// The rate to be reached.
        rate_bps: Rate,
        /// Over this round-trip time.
        rtt_ms: f64,
    },
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RungEvent {
    /// To [`RungOrder::Open`].
    Opened {
        /// What it sees of its host.
        view: Box<EndView>,
        /// What there is to copy, at a source.
        sample: Option<SampleReport>,
        /// Why nothing can be read or written here.
        failure: Option<String>,
    },
    /// To [`RungOrder::Read`] and [`RungOrder::Write`].
    Done(Box<AloneReport>),
    /// To [`RungOrder::Forget`].
    Forgotten,
    /// To [`RungOrder::Fresh`].
    Fresh {
        /// The directory, in the way that a copy's target names it.
        path: WirePath,
    },
    /// To [`RungOrder::Look`].
    Looked(HostUse),
    /// To [`RungOrder::Examine`].
    Findings(Vec<Finding>),
    /// To any order but the first: it could not be done.
    Failed {
        /// One sentence.
        reason: String,
    },
    /// To the first: the server will not.
    Refused {
        /// The class of the reason.
        kind: RefusalKind,
        /// One sentence.
        reason: String,
    },
}
