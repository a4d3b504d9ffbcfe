//! The output of the program iperf3, as text and as JSON documents.
//!
//! Scripts and pScheduler read both, so the names, units and columns are those of iperf3 3.17.

mod document;
mod figures;
mod text;
mod units;

use std::net::SocketAddr;
use std::time::SystemTime;

use longhaul_core::plan::TestPlan;
use longhaul_core::result::{End, SideResult, TestSample};

use super::parameters::Parameters;
use super::results::Results;

pub use document::{end_document, interval_document, start_document, whole_document};
pub use text::{Format, TextOutput};

/// The version of iperf3 whose options and output this program has.
pub const IPERF3_VERSION: &str = "3.17";

/// The two addresses of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connected {
    /// The address of this end.
    pub local: SocketAddr,
    /// The address of the peer.
    pub remote: SocketAddr,
}

/// A test before its data, as the output describes it.
#[derive(Debug, Clone)]
pub struct Started {
    /// True at the client.
    pub at_client: bool,
    /// The server as the user named it, at a client; the client's address at a server.
    pub host: String,
    /// The port of `host`.
    pub port: u16,
    /// The start of the test.
    pub time: SystemTime,
    /// The cookie without its zero.
    pub cookie: String,
    /// The parameters.
    pub parameters: Parameters,
    /// The plan.
    pub plan: TestPlan,
    /// The streams, in order.
    pub connected: Vec<Connected>,
}

/// One direction of a finished test at one end.
#[derive(Debug, Clone)]
pub struct FinishedHalf {
    /// The role of this end.
    pub role: End,
    /// True for the direction from server to client of a bidirectional test.
    pub reverse: bool,
    /// The measurements of this end.
    pub ours: SideResult,
    /// The intervals.
    pub samples: Vec<TestSample>,
}

/// A finished test, as the output describes it.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The test before its data.
    pub started: Started,
    /// The directions, in the order of the streams.
    pub halves: Vec<FinishedHalf>,
    /// The results of the peer.
    pub theirs: Results,
}
