//! Many sites and the links between them.
//!
//! A plan becomes addresses ([`hosts`]) and routes ([`Routes`]), is held against what this machine
//! has ([`check_fit`]), and only then are sites made and links started ([`Topology`]). Routes are
//! fixed when the topology is built: a delay that is changed later changes none.

mod addresses;
mod fit;
mod link;
mod routes;
mod running;

use addresses::hosts;
use fit::check_fit;
use link::Link;
use routes::Routes;
pub use running::Topology;
