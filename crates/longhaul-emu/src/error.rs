//! The errors of the emulator.

use std::borrow::Cow;
use std::io;
use std::process::ExitStatus;

use longhaul_core::plan::TopologyError;
use longhaul_core::units::Bytes;

use crate::guest::GuestFault;

/// The reason why a topology cannot be emulated.
#[derive(Debug, thiserror::Error)]
pub enum EmuError {
    /// The plan is invalid.
    #[error("cannot emulate this topology")]
    Plan(#[from] TopologyError),
    /// The emulator needs more memory than this machine has.
    #[error(
        "the rates and delays of the links up to '{link}' need {needed} of memory in the emulator, more than \
         the {limit} that it may use of the memory of this machine or control group; lower a \
         rate, a delay or a queue, or omit the rate"
    )]
    Memory {
        /// The link at which the sum exceeds the limit.
        link: String,
        /// The bytes in flight and in queues when every link is full.
        needed: Bytes,
        /// The memory that the emulator may use.
        limit: Bytes,
    },
    /// The sender of a flow needs more memory than TCP may use on this host.
    #[error(
        "the path from {from} to {to} keeps {needed} in flight at its rate, more than the {limit} \
         at which TCP on this host limits its windows; raise that limit: sudo sysctl -w \
         net.ipv4.tcp_mem='{remedy}', or lower the rate or the delay"
    )]
    TcpMemory {
        /// One end of the path.
        from: String,
        /// The other end of the path.
        to: String,
        /// The bandwidth-delay product of the path.
        needed: Bytes,
        /// The second number of `net.ipv4.tcp_mem`.
        limit: Bytes,
        /// Three values for `net.ipv4.tcp_mem` that suffice.
        remedy: String,
    },
    /// The user may not create namespaces.
    #[error("cannot create the link's namespaces: {reason}; {remedy}")]
    Namespaces {
        /// The cause.
        reason: Cow<'static, str>,
        /// The command that removes the cause.
        remedy: Cow<'static, str>,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// There is no TUN device, or the user may not open it.
    #[error("cannot use {}: {reason}; {remedy}", longhaul_sys::tun::DEVICE)]
    Tun {
        /// The cause.
        reason: Cow<'static, str>,
        /// The command that removes the cause.
        remedy: Cow<'static, str>,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A step of setting up a site failed.
    #[error("cannot {operation} at {site}")]
    Site {
        /// The operation.
        operation: &'static str,
        /// The name of the site.
        site: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A site's thread has ended although the site is in use.
    #[error("the thread of site {site} ended unexpectedly")]
    SiteGone {
        /// The name of the site.
        site: String,
    },
    /// The first process of a site ended, so the kernel killed every process of the site.
    #[error(
        "the process that holds site {site} ended{}, and every command of the site was killed; \
         start it again, and see the kernel's log if memory may have run out",
        .status.map(|status| format!(" ({status})")).unwrap_or_default()
    )]
    SiteKilled {
        /// The name of the site.
        site: String,
        /// The exit status of the process, if the kernel has reported it.
        status: Option<ExitStatus>,
    },
    /// The existing network of a site cannot be used.
    #[error(
        "cannot attach site {site} to {attachment}; run as root, and see 'ip netns' or 'ps' for \
         its name or process"
    )]
    Attach {
        /// The name of the site.
        site: String,
        /// The network, as in the plan.
        attachment: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The process to which the network of a site belongs has ended.
    #[error("the process to which site {site} is attached ended; start it and the topology again")]
    AttachedEnded {
        /// The name of the site.
        site: String,
    },
    /// The interface behind which the host of a site is no longer exists.
    #[error(
        "interface {interface}, to which a site is attached, disappeared; start the topology again \
         when it exists"
    )]
    InterfaceGone {
        /// The name of the interface.
        interface: String,
    },
    /// A virtual machine does not run.
    #[error("cannot use the virtual machine {site}")]
    Guest {
        /// The name of the site.
        site: String,
        /// The reason.
        #[source]
        fault: GuestFault,
    },
    /// An interface of this host cannot be used.
    #[error("cannot use interface {interface}; run as root, and see 'ip link' for its name")]
    Interface {
        /// The name of the interface.
        interface: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// Another bridge or topology has the interface.
    #[error("interface {interface} is in use by another bridge or topology of longhaul")]
    InUse {
        /// The name of the interface.
        interface: String,
    },
    /// Two interfaces are already connected.
    #[error(
        "{} and {} are already connected, and a link between them would close a loop; remove the other \
         connection, or end the other link of longhaul",
        .interfaces[0],
        .interfaces[1]
    )]
    Loop {
        /// The names of the interfaces.
        interfaces: [String; 2],
    },
    /// Memory for packets or a thread to move them is unavailable.
    #[error("cannot {operation} for the link")]
    Driver {
        /// The operation.
        operation: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A command could not be started at a site.
    #[error("cannot run '{command}' at {site}")]
    Spawn {
        /// The program's name.
        command: String,
        /// The name of the site.
        site: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}
