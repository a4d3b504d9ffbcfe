//! The protocols of iperf3, nuttcp, STAMP and TWAMP Light.
//!
//! Each protocol has a state machine that does no I/O and a driver with sockets and clocks.
//!
//! ```
//! use longhaul_interop::{PeerAddress, Program};
//!
//! let peer = PeerAddress::parse("iperf3://dtn.example.org").unwrap().unwrap();
//! assert_eq!(peer.program, Program::Iperf3);
//! assert_eq!((peer.host.as_str(), peer.port), ("dtn.example.org", 5201));
//! ```

mod client;
mod error;
pub mod iperf3;
pub mod nuttcp;
mod peer;
pub mod stamp;

pub use client::{CONNECT_LIMIT, PeerTest, connect_to};
pub use error::{Fault, InteropError, PeerName, PeerOption, Result, Step};
pub use peer::{PeerAddress, PeerAddressError, Program};
