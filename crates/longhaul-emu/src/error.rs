use std::borrow::Cow;
use std::io;

use longhaul_core::plan::TopologyError;
use longhaul_core::units::Bytes;

/// Why a link could not be emulated.
#[derive(Debug, thiserror::Error)]
pub enum EmuError {
    /// The plan makes no sense.
    #[error("cannot emulate this")]
    Plan(#[from] TopologyError),
    /// The emulator would have to hold more than this machine's memory.
    #[error(
        "the rates and delays of the links up to '{link}' keep {needed} in the emulator, more than \
         the {limit} that it may take of this machine's memory, or of its control group's; lower a \
         rate, a delay or a queue, or leave the rate away"
    )]
    Memory {
        /// The link with which it became too much.
        link: String,
        /// What is under way and in queues when every link is full.
        needed: Bytes,
        /// What the emulator may use.
        limit: Bytes,
    },
    /// The sender of a flow would have to hold more than TCP may use on this host.
    #[error(
        "the path from {from} to {to} keeps {needed} under way at its rate, more than the {limit} \
         at which this host's TCP holds back; raise that limit: sudo sysctl -w \
         net.ipv4.tcp_mem='{remedy}', or lower the rate or the delay"
    )]
    TcpMemory {
        /// One end of the path.
        from: String,
        /// The other.
        to: String,
        /// Its bandwidth-delay product.
        needed: Bytes,
        /// The second number of `net.ipv4.tcp_mem`.
        limit: Bytes,
        /// Three numbers that would do.
        remedy: String,
    },
    /// This user may not make namespaces.
    #[error("cannot create the link's namespaces: {reason}; {remedy}")]
    Namespaces {
        /// What stands in the way.
        reason: Cow<'static, str>,
        /// The command that removes it.
        remedy: Cow<'static, str>,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// There is no TUN device, or this user may not open it.
    #[error("cannot use {}: {reason}; {remedy}", longhaul_sys::tun::DEVICE)]
    Tun {
        /// What stands in the way.
        reason: Cow<'static, str>,
        /// The command that removes it.
        remedy: Cow<'static, str>,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A step of setting up a site failed.
    #[error("cannot {operation} at {site}")]
    Site {
        /// What was being done.
        operation: &'static str,
        /// Where.
        site: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A site's thread ended while it was needed.
    #[error("the site {site} is gone: its thread ended early")]
    SiteGone {
        /// Which.
        site: String,
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
    #[error("cannot run '{command}' at {site}")]
    Spawn {
        /// The program's name.
        command: String,
        /// Where.
        site: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}
