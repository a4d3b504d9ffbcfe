//! Topologies: many sites and the links between them.
//!
//! A plan is turned into addresses ([`hosts`]) and routes ([`Routes`]) and checked against the
//! machine's memory ([`check_fit`]). Then sites and links are started ([`Topology`]). Routes are
//! fixed when the topology is built; changing a delay later changes no route.

mod addresses;
mod fit;
mod link;
mod routes;
mod running;

use addresses::hosts;
use fit::check_fit;
use link::RunningLink;
use routes::Routes;
pub use running::Topology;
