//! Plans of topologies: sites, the links between them, and the routes of packets.

mod attachment;
mod fault;
mod plan;
mod routing;

pub use attachment::Attachment;
pub use fault::{TopologyError, TopologyFault, TopologyPart};
pub use plan::{TopologyLink, TopologyPlan};
pub use routing::{FlowHash, PlannedRoute, Routing};
