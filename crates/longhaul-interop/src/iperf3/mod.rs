//! The protocol of iperf3, as client and server.
//!
//! A TCP connection with state bytes and JSON documents controls a test: [`ClientMachine`] and
//! [`ServerMachine`] turn its bytes into events without I/O. [`run`] is the client; it measures with
//! the ends of the engine. [`Server`] answers stock clients. The page `docs/design/interop.md` describes the protocol as it is
//! implemented, and the differences between the versions.

mod auth;
mod client;
mod control;
mod datagram;
mod direction;
mod inbox;
mod machine;
pub mod output;
mod parameters;
mod report;
mod results;
mod server;
mod state;
mod users;

pub use auth::{Credentials, Padding};
pub use client::{ClientOptions, ClientResult, Progress, run};
pub use datagram::DatagramHeader;
pub use machine::{ClientEvent, ClientMachine, ServerEvent, ServerMachine, StateMachine};
pub use parameters::{MOST_PARAMETERS, Parameters};
pub use results::{MOST_RESULTS, Results, StreamResults};
pub use server::{Observer, Server};
pub use state::{COOKIE_BYTES, State, stream_id};
pub use users::{DEFAULT_SKEW, Users};
