//! Where a link's packets come from and go to: one device at each end.
//!
//! The best is a TUN device. Where users may not open it, the site gets one end of a pair of
//! Ethernet devices, and the emulator holds a packet socket on the other, in a network namespace
//! that nobody else sees; that takes no device node and no permission beyond a user namespace.
//! Either passes super-packets whole, and a frame is the same: a virtio-net header, then the IP
//! packet.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use longhaul_sys::interface::{self, Interface};
use longhaul_sys::namespace::{self, NetworkNamespace};
use longhaul_sys::packet_socket::PacketSocket;
use longhaul_sys::tun::{self, Offloads, Tun};

use crate::EmuError;
use crate::privilege::{namespaces_error, tun_error};

/// One end of a link, as a lane sees it. Reads do not block.
pub(crate) trait PacketDevice: fmt::Debug + Send + Sync {
    /// Can be read when a frame waits.
    fn readiness(&self) -> BorrowedFd<'_>;

    /// Reads one frame into `buffer`, which takes any; returns its length.
    ///
    /// # Errors
    /// `WouldBlock` or `Interrupted`: not now. Any other: the device is gone.
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes one frame, made of `slices`.
    ///
    /// # Errors
    /// The device refused it.
    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Frames that it dropped unread, beyond what its interface counts.
    fn dropped(&self) -> u64 {
        0
    }
}

/// A site's end of a link. The interface goes with it.
#[derive(Debug)]
pub(crate) enum Device {
    Tun(Tun),
    Packet(PacketSocket),
}

impl Device {
    /// What a super-packet may be.
    pub(crate) fn offloads(&self) -> Offloads {
        match self {
            Device::Tun(tun) => tun.offloads(),
            // The features of veth (drivers/net/veth.c) are all of segmentation in software.
            Device::Packet(_) => Offloads { tcp: true, udp: true },
        }
    }
}

impl PacketDevice for Device {
    fn readiness(&self) -> BorrowedFd<'_> {
        match self {
            Device::Tun(tun) => tun.as_fd(),
            Device::Packet(socket) => socket.as_fd(),
        }
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Device::Tun(tun) => Ok(rustix::io::read(tun, buffer)?),
            Device::Packet(socket) => socket.read(buffer),
        }
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Device::Tun(tun) => Ok(rustix::io::writev(tun, slices)?),
            Device::Packet(socket) => socket.write(slices),
        }
    }

    fn dropped(&self) -> u64 {
        match self {
            Device::Tun(_) => 0,
            Device::Packet(socket) => socket.dropped(),
        }
    }
}

/// Makes the devices of one site, by the best way that is open.
#[derive(Debug)]
pub(crate) struct DeviceMaker {
    way: Way,
}

#[derive(Debug)]
enum Way {
    Tun,
    Pair {
        /// Where the emulator's ends of the pairs are.
        backstage: NetworkNamespace,
        site: NetworkNamespace,
        /// Why not TUN.
        closed: io::Error,
    },
}

impl DeviceMaker {
    /// The Ethernet address of every pair's site: each hears what is sent to it, and sends to the
    /// same. The second bit says that it is locally administered (IEEE 802).
    const ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 1];

    /// Puts the calling thread into a site's namespaces, ready to make devices there.
    ///
    /// # Errors
    /// Namespaces may not be made.
    pub(crate) fn enter_site() -> Result<Self, EmuError> {
        let way = match tun::open() {
            Ok(_) => {
                namespace::enter_site_namespaces().map_err(namespaces_error)?;
                Way::Tun
            }
            Err(closed) => {
                let backstage = NetworkNamespace::enter_new().map_err(namespaces_error)?;
                namespace::enter_site_namespaces().map_err(namespaces_error)?;
                let site = NetworkNamespace::current().map_err(namespaces_error)?;
                Way::Pair { backstage, site, closed }
            }
        };
        Ok(DeviceMaker { way })
    }

    /// Makes interface `name`, for packets of up to `mtu` bytes, in the site. It is not up yet.
    ///
    /// # Errors
    /// No way is open; the error is that of the TUN device, which can be opened to users.
    pub(crate) fn make(&self, name: &str, mtu: u32) -> Result<Device, EmuError> {
        match &self.way {
            Way::Tun => Tun::create(name).map(Device::Tun).map_err(tun_error),
            Way::Pair { backstage, site, closed } => {
                interface::create_pair(name, name, backstage.as_fd(), mtu, Self::ADDRESS)
                    .and_then(|()| {
                        backstage.enter()?;
                        let socket = hold(name);
                        site.enter()?;
                        socket
                    })
                    .map(Device::Packet)
                    .map_err(|_| {
                        let code = closed.raw_os_error();
                        tun_error(code.map_or(closed.kind().into(), io::Error::from_raw_os_error))
                    })
            }
        }
    }
}

/// A socket on the emulator's end of a pair, in whose namespace the calling thread is.
fn hold(name: &str) -> io::Result<PacketSocket> {
    let interface = Interface::named(name)?;
    // Nothing speaks here but the socket.
    let quiet = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
    let _ = std::fs::write(quiet, "1");
    // First: a socket on an interface that is down begins with an error.
    interface.up()?;
    PacketSocket::open(interface.index(), DeviceMaker::ADDRESS)
}
