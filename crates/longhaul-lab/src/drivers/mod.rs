//! Drivers: one small file or one row of a table per tool, behind one trait.
//!
//! A driver finds the tool and its version, builds the commands of the far server and the near
//! client, reads their output, and states the guarantees of the tool's transfers. It starts no
//! process except programs that create keys: the [`runner`](crate::runner) starts, times and stops
//! the commands of all tools in the same way.
//!
//! A new tool is a new file here and a line in [`all`], or a row of a table: of `ssh_tools.rs` if
//! it copies over ssh, of [`optional`] if few hosts have it.

mod detect;
mod driver;
mod globus;
mod http;
mod iperf2;
mod iperf3;
mod lftp;
mod longhaul_cp;
mod longhaul_test;
mod mixed;
mod nuttcp;
mod optional;
mod rclone;
mod rsync_daemon;
mod squid;
mod ssh_tools;
mod sshd;
#[cfg(test)]
mod tests;
mod xrdcp;

use std::path::Path;

pub use detect::Detected;
pub use driver::{
    DiskTask, Driver, Job, MemoryTask, Pace, RunOutput, ServerCommand, ToolFigures, ToolTask,
};

/// Returns all drivers. `program` is the longhaul to measure.
pub fn all(program: &Path) -> Vec<Box<dyn Driver>> {
    let streams: Vec<Box<dyn Driver>> = vec![
        Box::new(longhaul_test::LonghaulTest { program: program.to_owned() }),
        Box::new(iperf3::Iperf3),
        Box::new(iperf2::Iperf2),
        Box::new(nuttcp::Nuttcp),
        Box::new(longhaul_cp::LonghaulCp { program: program.to_owned() }),
    ];
    let over_ssh = ssh_tools::SSH_TOOLS.into_iter().map(|tool| Box::new(tool) as Box<dyn Driver>);
    let copies: Vec<Box<dyn Driver>> = vec![
        Box::new(rsync_daemon::RsyncDaemon),
        Box::new(rclone::Rclone),
        Box::new(lftp::Lftp),
        Box::new(globus::GlobusUrlCopy),
        Box::new(xrdcp::Xrdcp),
        Box::new(http::CURL),
        Box::new(http::WGET),
        Box::new(http::ARIA2C),
        Box::new(squid::WgetSquid),
    ];
    let pairs = mixed::pairs(program);
    streams.into_iter().chain(pairs).chain(over_ssh).chain(copies).chain(optional::all()).collect()
}
