use std::io;

use longhaul_core::plan::{LinkPlanError, Side};

/// Why a link could not be emulated.
#[derive(Debug, thiserror::Error)]
pub enum EmuError {
    /// The plan makes no sense.
    #[error("cannot emulate this link")]
    Plan(#[from] LinkPlanError),
    /// This user may not make namespaces.
    #[error("cannot create the link's namespaces: {reason}; {remedy}")]
    Namespaces {
        /// What stands in the way.
        reason: &'static str,
        /// The command that removes it.
        remedy: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// There is no TUN device, or this user may not open it.
    #[error("cannot use {}: {reason}; {remedy}", longhaul_sys::tun::DEVICE)]
    Tun {
        /// What stands in the way.
        reason: &'static str,
        /// The command that removes it.
        remedy: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A step of setting up a site failed.
    #[error("cannot {operation} at {side}")]
    Site {
        /// What was being done.
        operation: &'static str,
        /// Where.
        side: Side,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A site's thread ended while it was needed.
    #[error("the site {side} is gone: its thread ended early")]
    SiteGone {
        /// Which.
        side: Side,
    },
    /// Memory for the packets under way, or a thread to move them, could not be had.
    #[error("cannot {operation} for the link")]
    Driver {
        /// What was being done.
        operation: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A command could not be started at a site.
    #[error("cannot run '{command}' at {side}")]
    Spawn {
        /// The program's name.
        command: String,
        /// Where.
        side: Side,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}
