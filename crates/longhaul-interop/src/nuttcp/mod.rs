//! The protocol of nuttcp 6.1 and later.
//!
//! A client opens a control connection, and both ends state their versions. One line of the client
//! carries all options of the test. The server answers `OK`, the data move over other connections,
//! and then the server prints its report as text and closes the control connection. Facts are in
//! `docs/design/interop.md`.

pub mod arguments;
mod control;
pub mod datagram;
mod drive;
mod lines;
mod parameters;
mod report;
mod version;

pub use control::{Client, ClientError, ClientEvent, Refusal, Server};
pub use drive::{
    ClientOptions, ClientResult, LocalEnd, NuttcpServer, Observer, Usage, plan_of, run,
};
pub use lines::{LONGEST_LINE, LineError};
pub use parameters::{
    DATA_PORT, Feature, MOST_STREAMS, OLD_DATA_PORT, ParameterError, Parameters, Unsupported,
    format,
};
pub use report::{
    Block, BlockTotals, Brief, Datagrams, Interval, Opening, Retransmits, ServerReport, Spread,
    Style, Totals, megabits, megabytes,
};
pub use version::Version;
