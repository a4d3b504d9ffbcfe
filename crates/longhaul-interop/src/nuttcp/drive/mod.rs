//! Drivers of the control channel with sockets and clocks, and the data connections.

mod accept;
mod blocks;
mod channel;
mod client;
mod datagrams;
mod end;
mod open;
mod plan;
mod ports;
mod result;
mod running;
mod server;
mod visit;

pub use client::{ClientOptions, ClientResult, run};
pub use end::{LocalEnd, Usage};
pub use plan::plan_of;
pub use result::Observer;
pub use server::NuttcpServer;
