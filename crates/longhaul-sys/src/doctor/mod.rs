//! Reads the facts that `longhaul doctor` judges: settings, interfaces, buses, processors, disks,
//! clock.
//!
//! Every read uses a [`FactSource`]: this host, or a [recording](longhaul_core::doctor::Recording) of a
//! host, so that fixtures test the same code. This module changes nothing, and reports unreadable
//! facts by name.

mod disk;
mod firewall;
mod host;
mod interface;
mod path;
mod pci;
mod processor;
mod source;

pub use host::{Query, read_facts};
pub use source::FactSource;
