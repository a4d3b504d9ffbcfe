//! Reads what `longhaul doctor` judges: settings, interfaces, buses, processors, disks, clock.
//!
//! Every question goes through a [`Source`]: this host, or a
//! [recording](longhaul_core::doctor::Recording) of one, so that fixtures are read by the same
//! code. Nothing is changed, and what cannot be read is said by name.

mod disk;
mod firewall;
mod host;
mod interface;
mod path;
mod pci;
mod processor;
mod source;

pub use host::{Query, inspect};
pub use source::Source;
