//! The errors of a topology, and the parts of it that they concern.

use super::guest::GuestPlan;
use super::routing::Routing;
use crate::plan::LinkPlanError;
use crate::units::Bytes;

/// The maximum number of sites of a topology.
pub(super) const MAX_SITES: usize = 250;

/// The maximum number of links of a topology.
pub(super) const MAX_LINKS: usize = 1000;

/// The longest name in bytes.
pub(super) const MAX_NAME: usize = 63;

/// A part of a topology, to locate an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopologyPart {
    /// The name of the topology.
    Name,
    /// The topology as a whole.
    Whole,
    /// The name of a site, by index.
    Site(usize),
    /// The name of a link, by index.
    LinkName(usize),
    /// The sites that a link joins.
    LinkEnds(usize),
    /// The properties of a link.
    LinkPlan(usize),
    /// The failover time.
    Failover,
    /// A route of the file, by index.
    Route(usize),
}

/// The reason why a topology is invalid, and the part of it that is.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{fault}")]
pub struct TopologyError {
    /// The invalid part.
    pub part: TopologyPart,
    /// The error.
    pub fault: TopologyFault,
}

/// The errors of a topology.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TopologyFault {
    /// Too few or too many sites.
    #[error("a topology has 2 to {} sites, and this one has {sites}", MAX_SITES)]
    SiteCount {
        /// The number of sites.
        sites: usize,
    },
    /// No link, or too many.
    #[error("a topology has 1 to {} links, and this one has {links}", MAX_LINKS)]
    LinkCount {
        /// The number of links.
        links: usize,
    },
    /// A name that some programs would reject.
    #[error(
        "'{name}' is not a valid name: use 1 to {} letters, digits and hyphens, with a letter or a \
         digit first and last",
        MAX_NAME
    )]
    Name {
        /// The given name.
        name: String,
    },
    /// A name that is reserved inside of sites.
    #[error("a site cannot have the reserved name '{name}'")]
    Reserved {
        /// The given name.
        name: String,
    },
    /// Two sites or two links with one name, ignoring case.
    #[error("there is another {what} with the name '{name}'")]
    Twice {
        /// `site` or `link`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Two sites with the same environment variable for their addresses.
    #[error("'{name}' and '{other}' would share the environment variable {variable}")]
    Variable {
        /// The first name.
        name: String,
        /// The second name.
        other: String,
        /// The common variable.
        variable: String,
    },
    /// A link to an unknown site.
    #[error("there is no site '{site}'")]
    UnknownSite {
        /// The name of the site.
        site: String,
    },
    /// A link whose ends are the same site.
    #[error("a link must join two different sites, not '{site}' to itself")]
    Loop {
        /// The name of the site.
        site: String,
    },
    /// Parallel links with different MTUs, although they share the interfaces of their sites.
    #[error(
        "link '{link}' joins the same sites with an MTU of {mtu}; parallel links must have equal \
         MTUs"
    )]
    ParallelMtu {
        /// The first link between the sites.
        link: String,
        /// The MTU of that link.
        mtu: u32,
    },
    /// Links that join the same sites with different numbers of queues; they share their interfaces.
    #[error(
        "link '{link}' joins the same sites with {queues} queues; parallel links must have equal \
         numbers of queues"
    )]
    ParallelQueues {
        /// The first link between the sites.
        link: String,
        /// The number of queues of that link.
        queues: u32,
    },
    /// A site with one interface whose link has several queues.
    #[error("'{site}' is {kind}, and its link can have only one queue")]
    EdgeQueues {
        /// The name of the site.
        site: String,
        /// `behind an interface` or `a virtual machine`.
        kind: &'static str,
    },
    /// A site with one interface and links to several sites.
    #[error("'{site}' is {kind} and can have links to only one other site")]
    Edge {
        /// The name of the site.
        site: String,
        /// `behind an interface` or `a virtual machine`.
        kind: &'static str,
    },
    /// A virtual machine that is also in an existing network.
    #[error("'{site}' cannot be both a virtual machine and attached to a network; omit one")]
    GuestAttached {
        /// The name of the site.
        site: String,
    },
    /// A virtual machine with too little memory.
    #[error("'{site}' needs at least {} of memory, not {memory}", GuestPlan::MIN_MEMORY)]
    GuestMemory {
        /// The name of the site.
        site: String,
        /// The memory of the plan.
        memory: Bytes,
    },
    /// A virtual machine with an invalid number of processors.
    #[error("'{site}' can have 1 to {} processors, not {processors}", GuestPlan::MAX_PROCESSORS)]
    GuestProcessors {
        /// The name of the site.
        site: String,
        /// The number of the plan.
        processors: u32,
    },
    /// A failover time that is too long.
    #[error("a failover time is at most {} s", Routing::MAX_FAILOVER.as_secs())]
    Failover,
    /// A route between sites without a link between them.
    #[error("no link joins '{from}' and '{to}'; name every site of the route in via")]
    NoLink {
        /// The site that the route leaves.
        from: String,
        /// The next site of the route.
        to: String,
    },
    /// A route that visits a site twice.
    #[error("the route visits '{site}' twice")]
    RouteLoop {
        /// The name of the site.
        site: String,
    },
    /// Two routes that disagree about the next site.
    #[error(
        "an earlier route leads packets for '{to}' from '{at}' to '{next}'; packets with the same \
         destination leave a site in the same direction"
    )]
    RouteConflict {
        /// The site at which the routes separate.
        at: String,
        /// The destination.
        to: String,
        /// The next site of the earlier route.
        next: String,
    },
    /// The properties of a link are invalid.
    #[error(transparent)]
    Link(LinkPlanError),
}
