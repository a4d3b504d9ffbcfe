//! The messages of a diagnosis, in which the client orders the server to measure one end of a copy
//! separately. The server answers each order before the next one, and keeps its scratch directory
//! until the channel closes.
//!
//! ```text
//! client                                     server
//!   Open                     ->
//!                            <-              Opened
//!   Read, Write, Forget, Fresh, HostUse, Examine, in any order
//!                            <-              the answer to each order, or Failed
//! ```

use serde::{Deserialize, Serialize};

use super::{FilePath, RefusalKind};
use crate::plan::CopyOptions;
use crate::result::{DiskStepReport, EndView, Finding, HostUse, SubsetReport};
use crate::units::{Bytes, Rate};

/// The longest time in seconds that one order may take.
pub const DIAGNOSE_LIMIT_SECONDS: f64 = 60.0;

/// The orders of the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiagnoseOrder {
    /// The first order. Its paths state which end the server is.
    Open {
        /// The paths to read here; empty at a sink.
        sources: Vec<FilePath>,
        /// The target of the copy; `None` at a source.
        target: Option<FilePath>,
        /// The options of the copy.
        options: CopyOptions,
    },
    /// Read the subset of the files and discard the data.
    Read {
        /// The options, with the subset.
        options: CopyOptions,
        /// The time limit in seconds.
        seconds: f64,
    },
    /// Write files into the scratch directory.
    Write {
        /// The largest number of bytes in all files.
        bytes: Bytes,
        /// The number of files.
        files: u64,
        /// True to sync them, as the copy would.
        durable: bool,
        /// The time limit in seconds.
        seconds: f64,
    },
    /// Drop the subset from the page cache.
    Forget {
        /// The options, with the subset.
        options: CopyOptions,
    },
    /// Remove the copied files and create an empty directory.
    Fresh,
    /// Report the load of the processors since the previous such order.
    #[serde(rename = "look")]
    HostUse,
    /// Examine the host for this target.
    Examine {
        /// The target rate.
        rate_bps: Rate,
        /// The round-trip time in ms.
        rtt_ms: f64,
    },
}

/// The answers of the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiagnoseEvent {
    /// The answer to [`DiagnoseOrder::Open`].
    Opened {
        /// The facts about the server's host.
        view: Box<EndView>,
        /// The files to copy, at a source.
        #[serde(rename = "sample")]
        subset: Option<SubsetReport>,
        /// The reason why the server can neither read nor write.
        failure: Option<String>,
    },
    /// The answer to [`DiagnoseOrder::Read`] and [`DiagnoseOrder::Write`].
    Done(Box<DiskStepReport>),
    /// The answer to [`DiagnoseOrder::Forget`].
    Forgotten,
    /// The answer to [`DiagnoseOrder::Fresh`].
    Fresh {
        /// The path of the directory, in the form of a copy's target.
        path: FilePath,
    },
    /// The answer to [`DiagnoseOrder::HostUse`].
    #[serde(rename = "looked")]
    HostUse(HostUse),
    /// The answer to [`DiagnoseOrder::Examine`].
    Findings(Vec<Finding>),
    /// An order other than the first failed.
    Failed {
        /// The reason as one sentence.
        reason: String,
    },
    /// The server refuses the first order.
    Refused {
        /// The class of the reason.
        kind: RefusalKind,
        /// The reason as one sentence.
        reason: String,
    },
}
