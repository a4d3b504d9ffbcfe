//! Starts the server side of a copy in this process or over ssh, and runs `longhaul` on other
//! hosts.
//!
//! The server side is the same code as `longhaul serve`: a control channel, data connections that
//! a secret binds to it, and the services.

mod glob;
mod install;
mod server;
mod ssh;
mod tunnel;

pub(crate) use glob::expand as expand_wildcards;
pub(crate) use install::install_far;
pub(crate) use server::{serve_stdio, start_here};
pub(crate) use ssh::{SshOptions, SshServer, is_ssh_alias, remote_output};
pub(crate) use tunnel::relay;
