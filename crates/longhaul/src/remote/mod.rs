//! Starts the far end of a copy where no server is running: in this process, or over ssh. And has
//! another host's longhaul say what it finds there.
//!
//! Either way the far end is the same code as `longhaul serve`: a control channel, data
//! connections bound to it by a secret, and the copy service.

mod far;
mod ssh;
mod tunnel;

pub(crate) use far::{serve_stdio, start_here};
pub(crate) use ssh::{SshFar, SshOptions, printed_there};
pub(crate) use tunnel::relay;
