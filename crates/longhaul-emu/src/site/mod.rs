//! A site: one end of a link, where commands run.
//!
//! A site is a thread that has moved into network and mount namespaces of its own and whose
//! children live in a PID namespace of their own. Commands are sent to the thread, which spawns
//! them and sends the child back. The namespaces have no name anywhere: they live as long as the
//! thread, the site's first process and its commands, and the first process is killed by the
//! kernel when the thread ends, in whichever way. So nothing is left behind, even by SIGKILL.

mod names;
mod setup;
mod thread;
mod windows;

pub(crate) use thread::{Site, SiteSpec};
pub(crate) use windows::{Windows, plan_windows};
