//! Plans of topologies: sites, the links between them, and the routes of packets.

mod fault;
mod plan;
mod routing;

pub use fault::{TopologyError, TopologyFault, TopologyPart};
pub use plan::{TopologyLink, TopologyPlan};
pub use routing::{FlowHash, PlannedRoute, Routing};
