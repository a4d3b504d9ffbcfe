//! A site: a host of the emulated network, where commands run.
//!
//! A site is a thread that has moved into network and mount namespaces of its own and whose
//! children live in a PID namespace of their own. Commands are sent to the thread, which spawns
//! them and sends the child back. The namespaces have no name anywhere: they live as long as the
//! thread, the site's first process and its commands, and the first process is killed by the
//! kernel when the thread ends, in whichever way. So nothing is left behind, even by SIGKILL.
//!
//! Each link ends in an interface of the site. A site has one address of each family, the same on
//! all of its interfaces, and a route to every other site that it can reach; what a site knows of
//! the topology is all in its [`SiteSpec`].

mod names;
mod network;
mod setup;
mod spec;
mod tables;
mod thread;
mod windows;

pub(crate) use spec::{Host, InterfaceSpec, RouteSpec, SiteSpec};
pub(crate) use thread::Site;
pub(crate) use windows::{PathNeed, Windows, memory_pressure, plan_windows};
