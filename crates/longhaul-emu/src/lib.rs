//! The wide-area emulator.
//!
//! - [`link`] is the model: a pure function from a time and a packet to pieces of it. It knows no
//!   clock and no operating system, and is tested in virtual time.
//! - `driver` moves real packets between two TUN devices by that model, on one thread.
//! - `site` is a host: network, mount and PID namespaces of its own, in which commands run.
//! - [`Topology`] puts them together: many sites and the links between them. [`Wan`] is the
//!   smallest, two sites and a link.
//!
//! Nothing of it outlives the process: the sites have no name in the file system, their devices
//! go with the last handle, and their processes with the thread that made them, even when the
//! process is killed. docs/design/emulator.md tells how.

mod device;
mod driver;
mod error;
pub mod link;
mod packet;
mod privilege;
pub mod selftest;
mod site;
mod topology;
mod verdict;
mod wan;

pub use error::EmuError;
#[doc(hidden)]
pub use packet::exercise as exercise_frame;
pub use privilege::acquire_privileges;
pub use topology::Topology;
pub use wan::Wan;
