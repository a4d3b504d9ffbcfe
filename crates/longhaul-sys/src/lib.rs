//! The Linux calls that longhaul needs, behind a safe API.
//!
//! This is the only crate with `unsafe` code. Each module wraps one kernel facility, names the
//! header of its constants, and makes no decisions; policy belongs to the crates above.
//!
//! ```
//! use longhaul_sys::{cpu, users};
//!
//! let clock = cpu::ThreadClock::current();
//! assert!(!cpu::allowed()?.is_empty());
//! assert_eq!(users::user_id("root"), Some(0));
//! println!("this thread has used {:?} of CPU time", clock.elapsed()?);
//! # Ok::<(), std::io::Error>(())
//! ```
#![allow(unsafe_code)]

pub mod abstract_sockets;
pub mod arena;
pub mod child;
pub mod confine;
pub mod cpu;
pub mod datagram;
pub mod doctor;
pub mod ethernet_socket;
pub mod ethtool;
pub mod file;
pub mod host;
pub mod interface;
pub mod link_facts;
pub mod loop_probe;
pub mod memory;
pub mod namespace;
pub mod netfilter;
mod netlink;
pub mod packet_socket;
pub mod poll;
pub mod probe;
pub mod process;
pub mod route;
pub mod schedule;
mod socket;
pub mod tcp;
pub mod topology;
pub mod traffic;
pub mod tun;
pub mod udp;
pub mod users;
