//! Topologies: many sites and the links between them.
//!
//! A plan is checked against the machine's memory ([`check_fit`]). Its links are grouped into
//! bundles of parallel links, and a draft has the addresses and routes of each site. Then sites and
//! links are started ([`Topology`]). A thread changes the routes when links go down or come up;
//! changing a delay later changes no route.

mod bridge;
mod bundle;
mod claim;
mod draft;
mod fit;
mod loops;
mod merge;
mod ports;
mod rerouter;
mod routes;
mod running;

pub use bridge::{Bridge, BridgeLoop};
pub use claim::is_claimed;
use fit::check_fit;
use routes::Routes;
pub use running::Topology;
