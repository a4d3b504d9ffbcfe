//! A site: an emulated host in which commands run.
//!
//! A site is a thread in separate network and mount namespaces, whose children are in a separate
//! PID namespace. Other threads send commands to it; it starts them and returns the child process.
//! The namespaces have no name. They exist as long as the thread, the site's first process or its
//! commands. The kernel kills the first process when the thread ends for any reason, so no process
//! remains, even after SIGKILL.
//!
//! A site can also be in an existing network namespace, of a container for instance. Its interfaces
//! are added there; mount and PID namespaces are its own.
//!
//! Each link ends at an interface of the site. A site has one address per family, the same on all
//! its interfaces, and a route to every other site that it can reach. [`SiteSpec`] holds the facts
//! about the topology that a site needs.

mod names;
mod network;
mod setup;
mod spec;
mod tables;
mod thread;
mod windows;

pub(crate) use spec::{Host, InterfaceSpec, RouteSpec, SiteSpec};
pub(crate) use thread::{Router, Site};
pub(crate) use windows::{PathNeed, Windows, memory_pressure, plan_windows};
