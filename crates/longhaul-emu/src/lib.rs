//! The wide-area emulator.
//!
//! - [`link`] is the model: a pure function from a time and a packet to pieces of it. It knows no
//!   clock and no operating system, and is tested in virtual time.
//! - `driver` moves real packets between two devices as the model decides, on one thread.
//! - `capture` writes the packets of a link and their fates to a pcapng file.
//! - `site` is an emulated host: separate network, mount and PID namespaces in which commands run.
//! - [`Bridge`] is a link between two real Ethernet interfaces.
//! - [`Topology`] combines many sites and the links between them. [`Wan`] is the smallest topology,
//!   two sites and a link.
//!
//! Nothing outlives the process, even if it is killed: sites have no name in the file system, a
//! device disappears with its last descriptor, and the processes of a site end with the thread that
//! created it. docs/design/emulator.md explains how.
//!
//! The model needs no privileges:
//!
//! ```
//! use longhaul_emu::link::{LinkModel, LinkTime, PacketShape};
//! use longhaul_emu::{LinkOptions, Side};
//!
//! let mut options = LinkOptions::default();
//! options.set("rtt", "90ms")?;
//! options.set("rate", "1G")?;
//! let plan = options.plan(&|file| Ok(Box::new(std::fs::File::open(file)?)))?;
//!
//! let mut model = LinkModel::new(&plan, Side::Near);
//! let mut pieces = Vec::new();
//! model.offer(LinkTime::default(), &PacketShape::single(1500), &mut pieces);
//! // 12 us for 1500 bytes at 1 Gb/s, then 45 ms.
//! assert_eq!(pieces[0].at.as_nanos(), 45_012_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod capture;
mod device;
mod driver;
mod edge;
mod error;
mod guest;
pub mod link;
mod packet;
mod privilege;
pub mod selftest;
mod site;
mod topology;
mod verdict;
mod wan;

pub use capture::{Capture, Captured};
pub use device::Medium;
pub use error::EmuError;
pub use guest::{GuestFault, GuestShell};
pub use longhaul_core::plan::link::LinkOptions;
pub use longhaul_core::plan::{LinkDirection, LinkPlan, Side, TopologyLink, TopologyPlan};
pub use longhaul_core::result::{LinkReport, LinkWarning, TopologyReport};
#[doc(hidden)]
pub use packet::exercise as exercise_frame;
pub use privilege::acquire_privileges;
pub use topology::{Bridge, BridgeLoop, Topology, is_claimed};
pub use verdict::{LinkFault, Validity};
pub use wan::Wan;
