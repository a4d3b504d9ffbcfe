//! The control channel of nuttcp: state machines of a client and a server without I/O.

mod client;
mod server;

pub use client::{Client, ClientError, ClientEvent};
pub use server::{Refusal, Server};

use super::Version;

/// Returns the line with which each end states its version.
fn hello() -> String {
    format!("HELO nuttcp v{}\n", Version::OURS)
}

/// Parses the line with which the other end states its version.
fn parse_hello(line: &str) -> Option<Version> {
    Version::parse(line.strip_prefix("HELO nuttcp ")?)
}
