//! The reports of nuttcp: interval lines, the last line, and the lines about one end of a test.
//!
//! A megabyte is 2^20 bytes, a KB 1024 bytes, and a Mbps 10^6 bit/s. Every report exists as text and
//! as `key=value` (`-fparse`).

mod block;
mod brief;
mod figures;
mod interval;
mod server;
mod tokens;

pub use block::{Block, Opening, Totals as BlockTotals};
pub use brief::Brief;
pub use figures::{Datagrams, Retransmits, Spread, Style, megabits, megabytes};
pub use interval::{Interval, Totals};
pub use server::ServerReport;
