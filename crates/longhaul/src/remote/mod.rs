//! Starts the server side of a copy in this process or over ssh, and runs `longhaul` on other
//! hosts.
//!
//! The server side is the same code as `longhaul serve`: a control channel, data connections that
//! a secret binds to it, and the services.

mod far;
mod ssh;
mod tunnel;

pub(crate) use far::{serve_stdio, start_here};
pub(crate) use ssh::{SshFar, SshOptions, printed_there};
pub(crate) use tunnel::relay;
